// Atomics (9.7) on integers of 4 or 8 bytes; fetch, set and swap also on float and double. The
// ..._nbi forms leave the old value in `*fetch`, which must stay valid until shmem_quiet.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "shmem/include/railshmem/contexts.hpp"
#include "shmem/include/railshmem/deduction.hpp"

namespace railshmem {

namespace detail {

using device::AtomicOp;

template <class T>
uint64_t bits_of(T value) {
  static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8), "4 or 8 bytes");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

template <class T>
constexpr void require_integer() {
  static_assert(std::is_integral_v<T>, "this atomic works on integers");
}

template <class C, class T>
T fetch(const C& ctx, AtomicOp op, const T* word, T operand, T compare, int pe) {
  const uint64_t bits = context_of(ctx).atomic_fetch(op, const_cast<T*>(word), sizeof(T),
                                                     bits_of(operand), bits_of(compare), pe);
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

template <class C, class T>
void fetch_nbi(const C& ctx, AtomicOp op, T* result, const T* word, T operand, T compare, int pe) {
  context_of(ctx).atomic_fetch_nbi(op, result, const_cast<T*>(word), sizeof(T), bits_of(operand),
                                   bits_of(compare), pe, nullptr);
}

template <class C, class T>
void update(const C& ctx, AtomicOp op, T* word, T operand, int pe) {
  context_of(ctx).atomic_update(op, word, sizeof(T), bits_of(operand), pe);
}

}  // namespace detail

// ---- with the old value ----

template <class C, class T, class = detail::IfContext<C>>
T shmem_atomic_fetch(const C& ctx, const T* source, int pe) {
  return detail::fetch(ctx, detail::AtomicOp::fetch, source, T{}, T{}, pe);
}
template <class T>
T shmem_atomic_fetch(const T* source, int pe) {
  return shmem_atomic_fetch(SHMEM_CTX_DEFAULT, source, pe);
}
template <class C, class T, class = detail::IfContext<C>>
T shmem_atomic_swap(const C& ctx, T* dest, detail::Given<T> value, int pe) {
  return detail::fetch(ctx, detail::AtomicOp::swap, dest, value, T{}, pe);
}
template <class T>
T shmem_atomic_swap(T* dest, detail::Given<T> value, int pe) {
  return shmem_atomic_swap(SHMEM_CTX_DEFAULT, dest, value, pe);
}
template <class C, class T, class = detail::IfContext<C>>
T shmem_atomic_compare_swap(const C& ctx, T* dest, detail::Given<T> cond, detail::Given<T> value,
                            int pe) {
  detail::require_integer<T>();
  return detail::fetch(ctx, detail::AtomicOp::compare_swap, dest, value, cond, pe);
}
template <class T>
T shmem_atomic_compare_swap(T* dest, detail::Given<T> cond, detail::Given<T> value, int pe) {
  return shmem_atomic_compare_swap(SHMEM_CTX_DEFAULT, dest, cond, value, pe);
}
template <class C, class T, class = detail::IfContext<C>>
T shmem_atomic_fetch_inc(const C& ctx, T* dest, int pe) {
  detail::require_integer<T>();
  return detail::fetch(ctx, detail::AtomicOp::add, dest, T{1}, T{}, pe);
}
template <class T>
T shmem_atomic_fetch_inc(T* dest, int pe) {
  return shmem_atomic_fetch_inc(SHMEM_CTX_DEFAULT, dest, pe);
}
template <class C, class T, class = detail::IfContext<C>>
T shmem_atomic_fetch_add(const C& ctx, T* dest, detail::Given<T> value, int pe) {
  detail::require_integer<T>();
  return detail::fetch(ctx, detail::AtomicOp::add, dest, value, T{}, pe);
}
template <class T>
T shmem_atomic_fetch_add(T* dest, detail::Given<T> value, int pe) {
  return shmem_atomic_fetch_add(SHMEM_CTX_DEFAULT, dest, value, pe);
}
template <class C, class T, class = detail::IfContext<C>>
T shmem_atomic_fetch_and(const C& ctx, T* dest, detail::Given<T> value, int pe) {
  detail::require_integer<T>();
  return detail::fetch(ctx, detail::AtomicOp::bit_and, dest, value, T{}, pe);
}
template <class T>
T shmem_atomic_fetch_and(T* dest, detail::Given<T> value, int pe) {
  return shmem_atomic_fetch_and(SHMEM_CTX_DEFAULT, dest, value, pe);
}
template <class C, class T, class = detail::IfContext<C>>
T shmem_atomic_fetch_or(const C& ctx, T* dest, detail::Given<T> value, int pe) {
  detail::require_integer<T>();
  return detail::fetch(ctx, detail::AtomicOp::bit_or, dest, value, T{}, pe);
}
template <class T>
T shmem_atomic_fetch_or(T* dest, detail::Given<T> value, int pe) {
  return shmem_atomic_fetch_or(SHMEM_CTX_DEFAULT, dest, value, pe);
}
template <class C, class T, class = detail::IfContext<C>>
T shmem_atomic_fetch_xor(const C& ctx, T* dest, detail::Given<T> value, int pe) {
  detail::require_integer<T>();
  return detail::fetch(ctx, detail::AtomicOp::bit_xor, dest, value, T{}, pe);
}
template <class T>
T shmem_atomic_fetch_xor(T* dest, detail::Given<T> value, int pe) {
  return shmem_atomic_fetch_xor(SHMEM_CTX_DEFAULT, dest, value, pe);
}

// ---- without ----

template <class C, class T, class = detail::IfContext<C>>
void shmem_atomic_set(const C& ctx, T* dest, detail::Given<T> value, int pe) {
  detail::update(ctx, detail::AtomicOp::set, dest, value, pe);
}
template <class T>
void shmem_atomic_set(T* dest, detail::Given<T> value, int pe) {
  shmem_atomic_set(SHMEM_CTX_DEFAULT, dest, value, pe);
}
template <class C, class T, class = detail::IfContext<C>>
void shmem_atomic_inc(const C& ctx, T* dest, int pe) {
  detail::require_integer<T>();
  detail::update(ctx, detail::AtomicOp::add, dest, T{1}, pe);
}
template <class T>
void shmem_atomic_inc(T* dest, int pe) {
  shmem_atomic_inc(SHMEM_CTX_DEFAULT, dest, pe);
}
template <class C, class T, class = detail::IfContext<C>>
void shmem_atomic_add(const C& ctx, T* dest, detail::Given<T> value, int pe) {
  detail::require_integer<T>();
  detail::update(ctx, detail::AtomicOp::add, dest, value, pe);
}
template <class T>
void shmem_atomic_add(T* dest, detail::Given<T> value, int pe) {
  shmem_atomic_add(SHMEM_CTX_DEFAULT, dest, value, pe);
}
template <class C, class T, class = detail::IfContext<C>>
void shmem_atomic_and(const C& ctx, T* dest, detail::Given<T> value, int pe) {
  detail::require_integer<T>();
  detail::update(ctx, detail::AtomicOp::bit_and, dest, value, pe);
}
template <class T>
void shmem_atomic_and(T* dest, detail::Given<T> value, int pe) {
  shmem_atomic_and(SHMEM_CTX_DEFAULT, dest, value, pe);
}
template <class C, class T, class = detail::IfContext<C>>
void shmem_atomic_or(const C& ctx, T* dest, detail::Given<T> value, int pe) {
  detail::require_integer<T>();
  detail::update(ctx, detail::AtomicOp::bit_or, dest, value, pe);
}
template <class T>
void shmem_atomic_or(T* dest, detail::Given<T> value, int pe) {
  shmem_atomic_or(SHMEM_CTX_DEFAULT, dest, value, pe);
}
template <class C, class T, class = detail::IfContext<C>>
void shmem_atomic_xor(const C& ctx, T* dest, detail::Given<T> value, int pe) {
  detail::require_integer<T>();
  detail::update(ctx, detail::AtomicOp::bit_xor, dest, value, pe);
}
template <class T>
void shmem_atomic_xor(T* dest, detail::Given<T> value, int pe) {
  shmem_atomic_xor(SHMEM_CTX_DEFAULT, dest, value, pe);
}

// ---- with the old value, later ----

template <class C, class T, class = detail::IfContext<C>>
void shmem_atomic_fetch_nbi(const C& ctx, T* fetch, const T* source, int pe) {
  detail::fetch_nbi(ctx, detail::AtomicOp::fetch, fetch, source, T{}, T{}, pe);
}
template <class T>
void shmem_atomic_fetch_nbi(T* fetch, const T* source, int pe) {
  shmem_atomic_fetch_nbi(SHMEM_CTX_DEFAULT, fetch, source, pe);
}
template <class C, class T, class = detail::IfContext<C>>
void shmem_atomic_swap_nbi(const C& ctx, T* fetch, T* dest, detail::Given<T> value, int pe) {
  detail::fetch_nbi(ctx, detail::AtomicOp::swap, fetch, dest, value, T{}, pe);
}
template <class T>
void shmem_atomic_swap_nbi(T* fetch, T* dest, detail::Given<T> value, int pe) {
  shmem_atomic_swap_nbi(SHMEM_CTX_DEFAULT, fetch, dest, value, pe);
}
template <class C, class T, class = detail::IfContext<C>>
void shmem_atomic_compare_swap_nbi(const C& ctx, T* fetch, T* dest, detail::Given<T> cond,
                                   detail::Given<T> value, int pe) {
  detail::require_integer<T>();
  detail::fetch_nbi(ctx, detail::AtomicOp::compare_swap, fetch, dest, value, cond, pe);
}
template <class T>
void shmem_atomic_compare_swap_nbi(T* fetch, T* dest, detail::Given<T> cond, detail::Given<T> value,
                                   int pe) {
  shmem_atomic_compare_swap_nbi(SHMEM_CTX_DEFAULT, fetch, dest, cond, value, pe);
}
template <class C, class T, class = detail::IfContext<C>>
void shmem_atomic_fetch_inc_nbi(const C& ctx, T* fetch, T* dest, int pe) {
  detail::require_integer<T>();
  detail::fetch_nbi(ctx, detail::AtomicOp::add, fetch, dest, T{1}, T{}, pe);
}
template <class T>
void shmem_atomic_fetch_inc_nbi(T* fetch, T* dest, int pe) {
  shmem_atomic_fetch_inc_nbi(SHMEM_CTX_DEFAULT, fetch, dest, pe);
}
template <class C, class T, class = detail::IfContext<C>>
void shmem_atomic_fetch_add_nbi(const C& ctx, T* fetch, T* dest, detail::Given<T> value, int pe) {
  detail::require_integer<T>();
  detail::fetch_nbi(ctx, detail::AtomicOp::add, fetch, dest, value, T{}, pe);
}
template <class T>
void shmem_atomic_fetch_add_nbi(T* fetch, T* dest, detail::Given<T> value, int pe) {
  shmem_atomic_fetch_add_nbi(SHMEM_CTX_DEFAULT, fetch, dest, value, pe);
}
template <class C, class T, class = detail::IfContext<C>>
void shmem_atomic_fetch_and_nbi(const C& ctx, T* fetch, T* dest, detail::Given<T> value, int pe) {
  detail::require_integer<T>();
  detail::fetch_nbi(ctx, detail::AtomicOp::bit_and, fetch, dest, value, T{}, pe);
}
template <class T>
void shmem_atomic_fetch_and_nbi(T* fetch, T* dest, detail::Given<T> value, int pe) {
  shmem_atomic_fetch_and_nbi(SHMEM_CTX_DEFAULT, fetch, dest, value, pe);
}
template <class C, class T, class = detail::IfContext<C>>
void shmem_atomic_fetch_or_nbi(const C& ctx, T* fetch, T* dest, detail::Given<T> value, int pe) {
  detail::require_integer<T>();
  detail::fetch_nbi(ctx, detail::AtomicOp::bit_or, fetch, dest, value, T{}, pe);
}
template <class T>
void shmem_atomic_fetch_or_nbi(T* fetch, T* dest, detail::Given<T> value, int pe) {
  shmem_atomic_fetch_or_nbi(SHMEM_CTX_DEFAULT, fetch, dest, value, pe);
}
template <class C, class T, class = detail::IfContext<C>>
void shmem_atomic_fetch_xor_nbi(const C& ctx, T* fetch, T* dest, detail::Given<T> value, int pe) {
  detail::require_integer<T>();
  detail::fetch_nbi(ctx, detail::AtomicOp::bit_xor, fetch, dest, value, T{}, pe);
}
template <class T>
void shmem_atomic_fetch_xor_nbi(T* fetch, T* dest, detail::Given<T> value, int pe) {
  shmem_atomic_fetch_xor_nbi(SHMEM_CTX_DEFAULT, fetch, dest, value, pe);
}

}  // namespace railshmem
