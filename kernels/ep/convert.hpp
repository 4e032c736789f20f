// Number formats of expert results: to fp32 exactly, and back rounded to nearest even.
#pragma once

#include "kernels/arch/arch.hpp"

namespace railshmem::device::ep {

struct Bf16 {
  uint16_t bits;
};
struct Fp16 {
  uint16_t bits;
};

RSH_DEVICE float widen(float value) {
  return value;
}
RSH_DEVICE float widen(Bf16 value) {
  const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
  float wide;
  memcpy(&wide, &bits, sizeof wide);
  return wide;
}
RSH_DEVICE float widen(Fp16 value) {
  return arch::from_fp16(value.bits);
}

template <class T>
RSH_DEVICE T narrow(float value);

template <>
RSH_DEVICE float narrow<float>(float value) {
  return value;
}
template <>
RSH_DEVICE Bf16 narrow<Bf16>(float value) {
  return {arch::to_bf16(value)};
}
template <>
RSH_DEVICE Fp16 narrow<Fp16>(float value) {
  return {arch::to_fp16(value)};
}

}  // namespace railshmem::device::ep
