// Number formats by integer arithmetic, for machines whose compilers have no instruction for them:
// to fp32 exactly, and back rounded to nearest even. Free of branches, so that compilers turn loops
// over rows into vector code without any extension of the processor.
#pragma once

#include "kernels/arch/integers.hpp"

// RSH_DEVICE is the including architecture's.

namespace railshmem::arch::soft {

RSH_DEVICE uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
RSH_DEVICE float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// One of two words, without a branch that a compiler could keep: -1 in `mask` takes the first, 0
// the second. Comparisons of signed words are what every vector unit has.
RSH_DEVICE uint32_t choose(int32_t mask, uint32_t first, uint32_t second) {
  const auto bits = static_cast<uint32_t>(mask);
  return (first & bits) | (second & ~bits);
}
RSH_DEVICE int32_t above(uint32_t value, uint32_t limit) {
  return -static_cast<int32_t>(static_cast<int32_t>(value) > static_cast<int32_t>(limit));
}

RSH_DEVICE float from_fp16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fff) << 13;
  // The product moves the exponent's bias and makes subnormals normal; infinities and NaNs lack 112
  // more.
  const uint32_t finite = bits_of(float_of(magnitude) * 0x1p112f);
  const auto special = static_cast<uint32_t>(above(magnitude, 0x0f7fffff)) & 0x7f800000;
  return float_of(finite | special | sign);
}

RSH_DEVICE uint16_t to_bf16(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  // Rounding could carry a NaN over to infinity: it stays one, quiet.
  const int32_t nan = above(bits & 0x7fffffff, 0x7f800000);
  return static_cast<uint16_t>(choose(nan, bits >> 16 | 0x40, rounded));
}

RSH_DEVICE uint16_t to_fp16(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t magnitude = bits & 0x7fffffff;
  const uint32_t sign = bits >> 16 & 0x8000;
  // Adding a power of two whose last bit is the result's last bit lets the adder round; it is at
  // least the one of subnormals. What is too large becomes infinite in the scaling before.
  const float scaled = float_of(magnitude) * 0x1p112f * 0x1p-110f;
  const uint32_t exponent = magnitude & 0x7f800000;
  const uint32_t bias = choose(above(exponent, 0x38800000), exponent, 0x38800000);
  const uint32_t sum = bits_of(float_of(bias + 0x07800000) + scaled);
  const uint32_t rounded = (sum >> 13 & 0x7c00) + (sum & 0x0fff);
  return static_cast<uint16_t>(choose(above(magnitude, 0x7f800000), 0x7e00, rounded) | sign);
}

// The largest finite value, 448, stands for all that is larger; NaN stays NaN.
RSH_DEVICE uint8_t to_e4m3(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t magnitude = bits & 0x7fffffff;
  const uint32_t sign = bits >> 24 & 0x80;
  // As in to_fp16: the last bit of the sum is the result's; below 2^-6 the step is 2^-9.
  const uint32_t exponent = magnitude & 0x7f800000;
  const uint32_t bias = choose(above(exponent, 0x3c800000), exponent, 0x3c800000);
  const uint32_t sum = bits_of(float_of(bias + 0x0a000000) + float_of(magnitude));
  const uint32_t step = sum & 0xff;  // the rounded magnitude in units of the last bit
  const uint32_t rounded = ((bias - 0x3c800000) >> 20) + step;
  const uint32_t finite = choose(above(magnitude, 0x43e7ffff), 0x7e, rounded);
  return static_cast<uint8_t>(choose(above(magnitude, 0x7f800000), 0x7f, finite) | sign);
}

}  // namespace railshmem::arch::soft
