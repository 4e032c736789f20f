// Tokens rounded to fp8 (e4m3) on their way, with a scale for every kScaled elements:
//   scale = amax / 448, and element = e4m3(x * (448 / amax)), all in fp32, rounded to nearest even;
//   both are 0 where amax, the largest magnitude of the group, is below 2^-100.
// The same bits on every machine. A NaN makes the scale of its group one.
#pragma once

#include "kernels/ep/rows.hpp"

namespace railshmem::device::ep {

constexpr uint32_t kScaled = 128;

RSH_DEVICE uint32_t magnitude_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits & 0x7fffffff;  // ordered as the magnitudes are, and NaN is above all
}
RSH_DEVICE float of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// Elements [first, last) of a row, multiples of kScaled, to every row and every row of scales in
// the lists of addresses. A warp calls it.
template <class From>
RSH_DEVICE_CALL void quantise_to_each(WarpList rows, WarpList scales, const void* row,
                                      uint32_t first, uint32_t last) {
  constexpr uint32_t kRun = arch::kByteRun;
  const auto* const from = static_cast<const From*>(row);
  RSH_ROLLED
  for (uint32_t base = first; base < last; base += kRun * arch::size<kWarp>()) {
    const uint32_t at = base + arch::rank<kWarp>() * kRun;
    float values[kRun] = {};
    uint32_t largest = 0;
    if (at < last) {
      const auto pack = arch::take<kRun>(from + at);
      RSH_UNROLL
      for (uint32_t i = 0; i < kRun; ++i) values[i] = widen(pack[i]);
      RSH_UNROLL
      for (uint32_t i = 0; i < kRun; ++i) {
        const uint32_t bits = magnitude_bits(values[i]);
        largest = bits > largest ? bits : largest;
      }
    }
    const float amax = arch::group_max(of_bits(largest), kRun, kScaled);
    const bool any = !(amax < 0x1p-100f);
    const float scale = any ? amax / 448 : 0;
    const float factor = any ? 448 / amax : 0;
    const arch::ByteRun bytes(values, [&](float value) { return arch::to_e4m3(value * factor); });
    RSH_ROLLED
    for (uint32_t left = rows.mask(); left != 0; left &= left - 1) {
      const uint32_t i = arch::lowest_one(left);
      auto* const to = reinterpret_cast<char*>(rows[i]);
      auto* const to_scales = reinterpret_cast<float*>(scales[i]);
      if (at >= last) continue;
      bytes.store(to + at);
      if (at % kScaled == 0) to_scales[at / kScaled] = scale;
    }
  }
}

RSH_DEVICE void quantise_part(const WarpList& rows, const WarpList& scales, Given given,
                              const void* row, uint32_t first, uint32_t last) {
  if (given == Given::bf16)
    quantise_to_each<Bf16>(rows, scales, row, first, last);
  else
    quantise_to_each<Fp16>(rows, scales, row, first, last);
}

}  // namespace railshmem::device::ep
