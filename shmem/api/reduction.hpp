// Element types and operations of reductions (OpenSHMEM 1.5, section 9.9.9).
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "shmem/base/error.hpp"

namespace railshmem {

enum class ElementType : uint8_t {
  int8,
  int16,
  int32,
  int64,
  uint8,
  uint16,
  uint32,
  uint64,
  float16,
  bfloat16,
  float32,
  float64,
  long_double,
  complex64,
  complex128,
};

enum class ReduceOp : uint8_t { bit_and, bit_or, bit_xor, max, min, sum, prod };

const char* name_of(ElementType type);
const char* name_of(ReduceOp op);  // of the call
std::size_t size_of(ElementType type);

// What the specification defines: bits of integers, order of reals, sums and products of all.
bool supports(ReduceOp op, ElementType type);

// into[i] = into[i] op from[i]. 16-bit floats are computed in float32 and rounded each time.
void reduce_into(ReduceOp op, ElementType type, void* into, const void* from, std::size_t count);

template <class T>
constexpr ElementType element_type_of();

namespace detail {
template <class T>
constexpr ElementType integer_type() {
  constexpr bool is_signed = static_cast<T>(-1) < static_cast<T>(0);
  constexpr ElementType first = is_signed ? ElementType::int8 : ElementType::uint8;
  constexpr int power = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
  return static_cast<ElementType>(static_cast<int>(first) + power);
}
}  // namespace detail

template <class T>
constexpr ElementType element_type_of() {
  if constexpr (std::is_integral_v<T>)
    return detail::integer_type<T>();
  else if constexpr (std::is_same_v<T, float>)
    return ElementType::float32;
  else if constexpr (std::is_same_v<T, double>)
    return ElementType::float64;
  else if constexpr (std::is_same_v<T, long double>)
    return ElementType::long_double;
  else if constexpr (std::is_same_v<T, std::complex<float>>)
    return ElementType::complex64;
  else {
    static_assert(std::is_same_v<T, std::complex<double>>, "no reduction of this type");
    return ElementType::complex128;
  }
}

}  // namespace railshmem
