// The OpenSHMEM operations in C++, by their names in the specification (1.5), on the default
// runtime. Sizes of typed operations are in elements, of memory operations in bytes. Every function
// throws railshmem::Error: of kind argument before anything moves, else with what ended a wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>

#include "shmem/api/default_runtime.hpp"

namespace railshmem {

using device::AtomicOp;
using device::Compare;

constexpr Compare SHMEM_CMP_EQ = Compare::equal;
constexpr Compare SHMEM_CMP_NE = Compare::not_equal;
constexpr Compare SHMEM_CMP_GT = Compare::greater;
constexpr Compare SHMEM_CMP_GE = Compare::greater_equal;
constexpr Compare SHMEM_CMP_LT = Compare::less;
constexpr Compare SHMEM_CMP_LE = Compare::less_equal;
constexpr AtomicOp SHMEM_SIGNAL_SET = AtomicOp::set;
constexpr AtomicOp SHMEM_SIGNAL_ADD = AtomicOp::add;

// ---- setup (9.1)
// ---------------------------------------------------------------------------------

// Collective: joins the job of `bootstrap`; a second call before shmem_finalize is refused.
inline void shmem_init(std::shared_ptr<Bootstrap> bootstrap,
                       const Settings& settings = read_settings_from_environment()) {
  const auto current = find_default_runtime();
  if (current && !current->finalized())
    fail(ErrorKind::argument, "shmem_init: already initialised; call shmem_finalize first");
  set_default_runtime(std::make_shared<Runtime>(std::move(bootstrap), settings));
}
// Collective: completes all communication. A second call does nothing.
inline void shmem_finalize() {
  if (const auto current = find_default_runtime()) current->finalize();
}
inline int shmem_my_pe() {
  return default_runtime().my_pe();
}
inline int shmem_n_pes() {
  return default_runtime().n_pes();
}

// ---- memory (9.3)
// --------------------------------------------------------------------------------

// Collective, same size everywhere. Null for 0 bytes.
inline void* shmem_malloc(std::size_t bytes) {
  return default_runtime().malloc(bytes);
}
// Collective; null is allowed.
inline void shmem_free(void* symmetric) {
  default_runtime().free(symmetric);
}
// The peer's copy of a symmetric object where it is mapped here, else null.
inline void* shmem_ptr(const void* symmetric, int pe) {
  return default_runtime().ptr(symmetric, pe);
}

// ---- remote memory access (9.5), signals (9.8)
// ---------------------------------------------------

template <class T>
void shmem_put(T* dest, const T* source, std::size_t nelems, int pe) {
  default_runtime().put(dest, source, nelems * sizeof(T), pe);
}
inline void shmem_putmem(void* dest, const void* source, std::size_t bytes, int pe) {
  default_runtime().put(dest, source, bytes, pe);
}
template <class T>
void shmem_get(T* dest, const T* source, std::size_t nelems, int pe) {
  default_runtime().get(dest, source, nelems * sizeof(T), pe);
}
inline void shmem_getmem(void* dest, const void* source, std::size_t bytes, int pe) {
  default_runtime().get(dest, source, bytes, pe);
}
template <class T>
void shmem_put_signal(T* dest, const T* source, std::size_t nelems, uint64_t* sig_addr,
                      uint64_t signal, AtomicOp sig_op, int pe) {
  default_runtime().put_signal(dest, source, nelems * sizeof(T), sig_addr, signal, sig_op, pe);
}

// ---- atomics (9.7) on integers of 4 or 8 bytes; fetch, set and swap also on float and double
// -------

namespace detail {

template <class T>
uint64_t bits_of(T value) {
  static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8), "4 or 8 bytes");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

template <class T>
T fetch(AtomicOp op, const T* word, T operand, T compare, int pe) {
  const uint64_t bits = default_runtime().atomic_fetch(op, const_cast<T*>(word), sizeof(T),
                                                       bits_of(operand), bits_of(compare), pe);
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

template <class T>
T fetch_integer(AtomicOp op, T* word, T operand, int pe) {
  static_assert(std::is_integral_v<T>, "this atomic works on integers");
  return fetch(op, word, operand, T{}, pe);
}

template <class T>
void update(AtomicOp op, T* word, T operand, int pe) {
  static_assert(std::is_integral_v<T>, "this atomic works on integers");
  default_runtime().atomic_update(op, word, sizeof(T), bits_of(operand), pe);
}

}  // namespace detail

template <class T>
T shmem_atomic_fetch(const T* source, int pe) {
  return detail::fetch(AtomicOp::fetch, source, T{}, T{}, pe);
}
template <class T>
void shmem_atomic_set(T* dest, T value, int pe) {
  default_runtime().atomic_update(AtomicOp::set, dest, sizeof(T), detail::bits_of(value), pe);
}
template <class T>
T shmem_atomic_swap(T* dest, T value, int pe) {
  return detail::fetch(AtomicOp::swap, dest, value, T{}, pe);
}
template <class T>
T shmem_atomic_compare_swap(T* dest, T cond, T value, int pe) {
  static_assert(std::is_integral_v<T>, "this atomic works on integers");
  return detail::fetch(AtomicOp::compare_swap, dest, value, cond, pe);
}
template <class T>
T shmem_atomic_fetch_add(T* dest, T value, int pe) {
  return detail::fetch_integer(AtomicOp::add, dest, value, pe);
}
template <class T>
T shmem_atomic_fetch_inc(T* dest, int pe) {
  return detail::fetch_integer(AtomicOp::add, dest, T{1}, pe);
}
template <class T>
T shmem_atomic_fetch_and(T* dest, T value, int pe) {
  return detail::fetch_integer(AtomicOp::bit_and, dest, value, pe);
}
template <class T>
T shmem_atomic_fetch_or(T* dest, T value, int pe) {
  return detail::fetch_integer(AtomicOp::bit_or, dest, value, pe);
}
template <class T>
T shmem_atomic_fetch_xor(T* dest, T value, int pe) {
  return detail::fetch_integer(AtomicOp::bit_xor, dest, value, pe);
}
template <class T>
void shmem_atomic_add(T* dest, T value, int pe) {
  detail::update(AtomicOp::add, dest, value, pe);
}
template <class T>
void shmem_atomic_inc(T* dest, int pe) {
  detail::update(AtomicOp::add, dest, T{1}, pe);
}
template <class T>
void shmem_atomic_and(T* dest, T value, int pe) {
  detail::update(AtomicOp::bit_and, dest, value, pe);
}
template <class T>
void shmem_atomic_or(T* dest, T value, int pe) {
  detail::update(AtomicOp::bit_or, dest, value, pe);
}
template <class T>
void shmem_atomic_xor(T* dest, T value, int pe) {
  detail::update(AtomicOp::bit_xor, dest, value, pe);
}

// ---- order (9.11), waiting (9.10), barrier (9.9)
// -------------------------------------------------

inline void shmem_fence() {
  default_runtime().fence();
}
inline void shmem_quiet() {
  default_runtime().quiet();
}

// Returns the value that satisfied the comparison.
template <class T>
T shmem_wait_until(const T* ivar, Compare cmp, T cmp_value) {
  static_assert(std::is_integral_v<T>, "waiting works on integers");
  return static_cast<T>(default_runtime().wait_until(ivar, sizeof(T), std::is_signed_v<T>, cmp,
                                                     static_cast<int64_t>(cmp_value)));
}
inline uint64_t shmem_signal_wait_until(const uint64_t* sig_addr, Compare cmp, uint64_t cmp_value) {
  return default_runtime().signal_wait_until(sig_addr, cmp, cmp_value);
}
// Collective.
inline void shmem_barrier_all() {
  default_runtime().barrier_all();
}
inline void shmem_sync_all() {
  default_runtime().sync_all();
}

}  // namespace railshmem
