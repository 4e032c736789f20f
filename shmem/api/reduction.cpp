#include "shmem/api/reduction.hpp"

#include <type_traits>

#include "kernels/ep/convert.hpp"

namespace railshmem {
namespace {

using device::ep::Bf16;
using device::ep::Fp16;

template <class T>
constexpr bool kIsComplex =
    std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;
template <class T>
constexpr bool kIsNarrow = std::is_same_v<T, Bf16> || std::is_same_v<T, Fp16>;

// Calls f(T{}) with the C++ type of the element.
template <class F>
auto with_type(ElementType type, const F& f) {
  switch (type) {
    case ElementType::int8:
      return f(int8_t{});
    case ElementType::int16:
      return f(int16_t{});
    case ElementType::int32:
      return f(int32_t{});
    case ElementType::int64:
      return f(int64_t{});
    case ElementType::uint8:
      return f(uint8_t{});
    case ElementType::uint16:
      return f(uint16_t{});
    case ElementType::uint32:
      return f(uint32_t{});
    case ElementType::uint64:
      return f(uint64_t{});
    case ElementType::float16:
      return f(Fp16{});
    case ElementType::bfloat16:
      return f(Bf16{});
    case ElementType::float32:
      return f(float{});
    case ElementType::float64:
      return f(double{});
    case ElementType::long_double:
      return f(static_cast<long double>(0));
    case ElementType::complex64:
      return f(std::complex<float>{});
    case ElementType::complex128:
      return f(std::complex<double>{});
  }
  fail(ErrorKind::argument, "unknown element type ", static_cast<int>(type));
}

template <ReduceOp Op, class T>
T combined(T a, T b) {
  if constexpr (kIsNarrow<T>) {
    return device::ep::narrow<T>(combined<Op, float>(device::ep::widen(a), device::ep::widen(b)));
  } else if constexpr (std::is_integral_v<T>) {
    // Unsigned, because sums and products of signed ones may overflow: they wrap.
    using U = std::make_unsigned_t<T>;
    using Wide = std::conditional_t<(sizeof(T) < sizeof(unsigned)), unsigned, U>;
    if constexpr (Op == ReduceOp::bit_and)
      return static_cast<T>(static_cast<U>(a) & static_cast<U>(b));
    else if constexpr (Op == ReduceOp::bit_or)
      return static_cast<T>(static_cast<U>(a) | static_cast<U>(b));
    else if constexpr (Op == ReduceOp::bit_xor)
      return static_cast<T>(static_cast<U>(a) ^ static_cast<U>(b));
    else if constexpr (Op == ReduceOp::max)
      return a < b ? b : a;
    else if constexpr (Op == ReduceOp::min)
      return b < a ? b : a;
    else if constexpr (Op == ReduceOp::sum)
      return static_cast<T>(static_cast<Wide>(static_cast<U>(a)) + static_cast<U>(b));
    else
      return static_cast<T>(static_cast<Wide>(static_cast<U>(a)) * static_cast<U>(b));
  } else if constexpr (Op == ReduceOp::sum) {
    return a + b;
  } else if constexpr (Op == ReduceOp::prod) {
    return a * b;
  } else if constexpr (Op == ReduceOp::max) {
    return a < b || b != b ? b : a;  // a NaN stays visible
  } else {
    static_assert(Op == ReduceOp::min, "bits of integers only");
    return b < a || b != b ? b : a;
  }
}

template <ReduceOp Op, class T>
constexpr bool supported() {
  if constexpr (std::is_integral_v<T>)
    return true;
  else if constexpr (kIsComplex<T>)
    return Op == ReduceOp::sum || Op == ReduceOp::prod;
  else
    return Op != ReduceOp::bit_and && Op != ReduceOp::bit_or && Op != ReduceOp::bit_xor;
}

template <ReduceOp Op>
void reduce_as(ElementType type, void* into, const void* from, std::size_t count) {
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (supported<Op, T>()) {
      T* to = static_cast<T*>(into);
      const T* other = static_cast<const T*>(from);
      for (std::size_t i = 0; i < count; ++i) to[i] = combined<Op, T>(to[i], other[i]);
    } else {
      fail(ErrorKind::argument, name_of(Op), " of ", name_of(type), " is not defined");
    }
  });
}

template <ReduceOp Op>
bool supports_as(ElementType type) {
  return with_type(type, [](auto zero) { return supported<Op, decltype(zero)>(); });
}

}  // namespace

const char* name_of(ElementType type) {
  static constexpr const char* kNames[] = {"int8",        "int16",     "int32",     "int64",
                                           "uint8",       "uint16",    "uint32",    "uint64",
                                           "float16",     "bfloat16",  "float32",   "float64",
                                           "long double", "complex64", "complex128"};
  return kNames[static_cast<std::size_t>(type)];
}

const char* name_of(ReduceOp op) {
  static constexpr const char* kNames[] = {
      "shmem_and_reduce", "shmem_or_reduce",  "shmem_xor_reduce", "shmem_max_reduce",
      "shmem_min_reduce", "shmem_sum_reduce", "shmem_prod_reduce"};
  return kNames[static_cast<std::size_t>(op)];
}

std::size_t size_of(ElementType type) {
  return with_type(type, [](auto zero) { return sizeof zero; });
}

bool supports(ReduceOp op, ElementType type) {
  switch (op) {
    case ReduceOp::bit_and:
    case ReduceOp::bit_or:
    case ReduceOp::bit_xor:
      return supports_as<ReduceOp::bit_and>(type);
    case ReduceOp::max:
    case ReduceOp::min:
      return supports_as<ReduceOp::max>(type);
    case ReduceOp::sum:
    case ReduceOp::prod:
      return supports_as<ReduceOp::sum>(type);
  }
  return false;
}

void reduce_into(ReduceOp op, ElementType type, void* into, const void* from, std::size_t count) {
  switch (op) {
    case ReduceOp::bit_and:
      return reduce_as<ReduceOp::bit_and>(type, into, from, count);
    case ReduceOp::bit_or:
      return reduce_as<ReduceOp::bit_or>(type, into, from, count);
    case ReduceOp::bit_xor:
      return reduce_as<ReduceOp::bit_xor>(type, into, from, count);
    case ReduceOp::max:
      return reduce_as<ReduceOp::max>(type, into, from, count);
    case ReduceOp::min:
      return reduce_as<ReduceOp::min>(type, into, from, count);
    case ReduceOp::sum:
      return reduce_as<ReduceOp::sum>(type, into, from, count);
    case ReduceOp::prod:
      return reduce_as<ReduceOp::prod>(type, into, from, count);
  }
}

}  // namespace railshmem
