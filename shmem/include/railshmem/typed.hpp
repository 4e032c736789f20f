// The specification's names for C, one per type (shmem_int_put, shmem_ctx_double_g,
// shmem_uint64_atomic_fetch_add, shmem_long_sum_reduce, ...) and per element size (shmem_put64,
// shmem_iget128, ...). Each calls the template of the same name without the type.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>

#include "shmem/include/railshmem/atomics.hpp"
#include "shmem/include/railshmem/collectives.hpp"
#include "shmem/include/railshmem/rma.hpp"
#include "shmem/include/railshmem/signals.hpp"
#include "shmem/include/railshmem/waits.hpp"

// ---- the tables of types: X(TYPENAME, TYPE) ----

#define RAILSHMEM_FIXED_WORDS(X) \
  X(int32, int32_t)              \
  X(int64, int64_t)              \
  X(uint32, uint32_t)            \
  X(uint64, uint64_t)
#define RAILSHMEM_SIGNED_WORDS(X) \
  X(int, int)                     \
  X(long, long)                   \
  X(longlong, long long)          \
  X(ptrdiff, std::ptrdiff_t)
#define RAILSHMEM_UNSIGNED_WORDS(X) \
  X(uint, unsigned int)             \
  X(ulong, unsigned long)           \
  X(ulonglong, unsigned long long)
#define RAILSHMEM_NARROW_SIGNED(X) \
  X(char, char)                    \
  X(schar, signed char)            \
  X(short, short)
#define RAILSHMEM_NARROW_BITS(X) \
  X(int8, int8_t)                \
  X(int16, int16_t)              \
  X(uint8, uint8_t)              \
  X(uint16, uint16_t)            \
  X(uchar, unsigned char)        \
  X(ushort, unsigned short)
#define RAILSHMEM_FLOATS(X) \
  X(float, float)           \
  X(double, double)

// Bitwise atomics (table 7).
#define RAILSHMEM_BITWISE_ATOMIC_TYPES(X) RAILSHMEM_FIXED_WORDS(X) RAILSHMEM_UNSIGNED_WORDS(X)
// Atomics (table 5), and waits and tests.
#define RAILSHMEM_ATOMIC_TYPES(X) \
  RAILSHMEM_BITWISE_ATOMIC_TYPES(X) RAILSHMEM_SIGNED_WORDS(X) X(size, std::size_t)
// Fetch, set and swap (table 6).
#define RAILSHMEM_EXTENDED_ATOMIC_TYPES(X) RAILSHMEM_ATOMIC_TYPES(X) RAILSHMEM_FLOATS(X)
// Reductions: and, or, xor; max, min; sum, prod (table 11).
#define RAILSHMEM_BITWISE_REDUCTION_TYPES(X) \
  RAILSHMEM_BITWISE_ATOMIC_TYPES(X) RAILSHMEM_NARROW_BITS(X) X(size, std::size_t)
#define RAILSHMEM_ORDER_REDUCTION_TYPES(X) \
  RAILSHMEM_BITWISE_REDUCTION_TYPES(X)     \
  RAILSHMEM_SIGNED_WORDS(X)                \
  RAILSHMEM_NARROW_SIGNED(X) RAILSHMEM_FLOATS(X) X(longdouble, long double)
#define RAILSHMEM_ARITHMETIC_REDUCTION_TYPES(X) \
  RAILSHMEM_ORDER_REDUCTION_TYPES(X)            \
  X(complexf, std::complex<float>) X(complexd, std::complex<double>)
// Puts, gets and the collectives that only move (table 4).
#define RAILSHMEM_RMA_TYPES(X) RAILSHMEM_ORDER_REDUCTION_TYPES(X)

// ---- the forms of calls: (parameters), (arguments) ----

#define RAILSHMEM_MOVE(T) \
  (T * dest, const T* source, std::size_t nelems, int pe), (dest, source, nelems, pe)
#define RAILSHMEM_STRIDED(T)                                                                       \
  (T * dest, const T* source, std::ptrdiff_t dst, std::ptrdiff_t sst, std::size_t nelems, int pe), \
      (dest, source, dst, sst, nelems, pe)
#define RAILSHMEM_SIGNAL(T)                                                            \
  (T * dest, const T* source, std::size_t nelems, uint64_t* sig_addr, uint64_t signal, \
   AtomicOp sig_op, int pe),                                                           \
      (dest, source, nelems, sig_addr, signal, sig_op, pe)
#define RAILSHMEM_READ(T) (const T* source, int pe), (source, pe)
#define RAILSHMEM_COUNT(T) (T * dest, int pe), (dest, pe)
#define RAILSHMEM_UPDATE(T) (T * dest, T value, int pe), (dest, value, pe)
#define RAILSHMEM_REPLACE(T) (T * dest, T cond, T value, int pe), (dest, cond, value, pe)
#define RAILSHMEM_READ_NBI(T) (T * fetch, const T* source, int pe), (fetch, source, pe)
#define RAILSHMEM_COUNT_NBI(T) (T * fetch, T * dest, int pe), (fetch, dest, pe)
#define RAILSHMEM_UPDATE_NBI(T) (T * fetch, T * dest, T value, int pe), (fetch, dest, value, pe)
#define RAILSHMEM_REPLACE_NBI(T) \
  (T * fetch, T * dest, T cond, T value, int pe), (fetch, dest, cond, value, pe)
#define RAILSHMEM_TEAM(T)                                                   \
  (const shmem_team_t& team, T* dest, const T* source, std::size_t nelems), \
      (team, dest, source, nelems)
#define RAILSHMEM_TEAM_ROOT(T)                                                           \
  (const shmem_team_t& team, T* dest, const T* source, std::size_t nelems, int PE_root), \
      (team, dest, source, nelems, PE_root)
#define RAILSHMEM_TEAM_STRIDED(T)                                                              \
  (const shmem_team_t& team, T* dest, const T* source, std::ptrdiff_t dst, std::ptrdiff_t sst, \
   std::size_t nelems),                                                                        \
      (team, dest, source, dst, sst, nelems)
#define RAILSHMEM_WORD(T) (const T* ivar, Compare cmp, T cmp_value), (ivar, cmp, cmp_value)
#define RAILSHMEM_WORDS(T, VALUE)                                              \
  (const T* ivars, std::size_t nelems, const int* status, Compare cmp, VALUE), \
      (ivars, nelems, status, cmp, value)
#define RAILSHMEM_WORDS_FOUND(T, VALUE)                                                      \
  (const T* ivars, std::size_t nelems, std::size_t* indices, const int* status, Compare cmp, \
   VALUE),                                                                                   \
      (ivars, nelems, indices, status, cmp, value)

#define RAILSHMEM_LIST(...) __VA_ARGS__
// shmem_<TYPENAME>_<CALL>(parameters).
#define RAILSHMEM_TYPED(...) RAILSHMEM_TYPED_EXPANDED(__VA_ARGS__)
#define RAILSHMEM_TYPED_EXPANDED(RESULT, TYPENAME, CALL, PARAMETERS, ARGUMENTS) \
  inline RESULT shmem_##TYPENAME##_##CALL(RAILSHMEM_LIST PARAMETERS) {          \
    return shmem_##CALL(RAILSHMEM_LIST ARGUMENTS);                              \
  }
// The same, and shmem_ctx_<TYPENAME>_<CALL>(ctx, parameters).
#define RAILSHMEM_ON_CONTEXT(...) RAILSHMEM_ON_CONTEXT_EXPANDED(__VA_ARGS__)
#define RAILSHMEM_ON_CONTEXT_EXPANDED(RESULT, TYPENAME, CALL, PARAMETERS, ARGUMENTS) \
  RAILSHMEM_TYPED_EXPANDED(RESULT, TYPENAME, CALL, PARAMETERS, ARGUMENTS)            \
  template <class C, class = detail::IfContext<C>>                                   \
  RESULT shmem_ctx_##TYPENAME##_##CALL(const C& ctx, RAILSHMEM_LIST PARAMETERS) {    \
    return shmem_##CALL(ctx, RAILSHMEM_LIST ARGUMENTS);                              \
  }

namespace railshmem {

// ---- puts and gets (9.6), signals (9.8) ----

#define RAILSHMEM_RMA(N, T)                                      \
  RAILSHMEM_ON_CONTEXT(void, N, put, RAILSHMEM_MOVE(T))          \
  RAILSHMEM_ON_CONTEXT(void, N, put_nbi, RAILSHMEM_MOVE(T))      \
  RAILSHMEM_ON_CONTEXT(void, N, get, RAILSHMEM_MOVE(T))          \
  RAILSHMEM_ON_CONTEXT(void, N, get_nbi, RAILSHMEM_MOVE(T))      \
  RAILSHMEM_ON_CONTEXT(void, N, p, RAILSHMEM_UPDATE(T))          \
  RAILSHMEM_ON_CONTEXT(T, N, g, RAILSHMEM_READ(T))               \
  RAILSHMEM_ON_CONTEXT(void, N, iput, RAILSHMEM_STRIDED(T))      \
  RAILSHMEM_ON_CONTEXT(void, N, iget, RAILSHMEM_STRIDED(T))      \
  RAILSHMEM_ON_CONTEXT(void, N, put_signal, RAILSHMEM_SIGNAL(T)) \
  RAILSHMEM_ON_CONTEXT(void, N, put_signal_nbi, RAILSHMEM_SIGNAL(T))
RAILSHMEM_RMA_TYPES(RAILSHMEM_RMA)

// ---- atomics (9.7) ----

#define RAILSHMEM_EXTENDED_ATOMICS(N, T)                                 \
  RAILSHMEM_ON_CONTEXT(T, N, atomic_fetch, RAILSHMEM_READ(T))            \
  RAILSHMEM_ON_CONTEXT(void, N, atomic_set, RAILSHMEM_UPDATE(T))         \
  RAILSHMEM_ON_CONTEXT(T, N, atomic_swap, RAILSHMEM_UPDATE(T))           \
  RAILSHMEM_ON_CONTEXT(void, N, atomic_fetch_nbi, RAILSHMEM_READ_NBI(T)) \
  RAILSHMEM_ON_CONTEXT(void, N, atomic_swap_nbi, RAILSHMEM_UPDATE_NBI(T))
RAILSHMEM_EXTENDED_ATOMIC_TYPES(RAILSHMEM_EXTENDED_ATOMICS)

#define RAILSHMEM_ATOMICS(N, T)                                                    \
  RAILSHMEM_ON_CONTEXT(T, N, atomic_compare_swap, RAILSHMEM_REPLACE(T))            \
  RAILSHMEM_ON_CONTEXT(T, N, atomic_fetch_inc, RAILSHMEM_COUNT(T))                 \
  RAILSHMEM_ON_CONTEXT(void, N, atomic_inc, RAILSHMEM_COUNT(T))                    \
  RAILSHMEM_ON_CONTEXT(T, N, atomic_fetch_add, RAILSHMEM_UPDATE(T))                \
  RAILSHMEM_ON_CONTEXT(void, N, atomic_add, RAILSHMEM_UPDATE(T))                   \
  RAILSHMEM_ON_CONTEXT(void, N, atomic_compare_swap_nbi, RAILSHMEM_REPLACE_NBI(T)) \
  RAILSHMEM_ON_CONTEXT(void, N, atomic_fetch_inc_nbi, RAILSHMEM_COUNT_NBI(T))      \
  RAILSHMEM_ON_CONTEXT(void, N, atomic_fetch_add_nbi, RAILSHMEM_UPDATE_NBI(T))
RAILSHMEM_ATOMIC_TYPES(RAILSHMEM_ATOMICS)

#define RAILSHMEM_BITWISE_ATOMICS(N, T)                                        \
  RAILSHMEM_ON_CONTEXT(T, N, atomic_fetch_and, RAILSHMEM_UPDATE(T))            \
  RAILSHMEM_ON_CONTEXT(T, N, atomic_fetch_or, RAILSHMEM_UPDATE(T))             \
  RAILSHMEM_ON_CONTEXT(T, N, atomic_fetch_xor, RAILSHMEM_UPDATE(T))            \
  RAILSHMEM_ON_CONTEXT(void, N, atomic_and, RAILSHMEM_UPDATE(T))               \
  RAILSHMEM_ON_CONTEXT(void, N, atomic_or, RAILSHMEM_UPDATE(T))                \
  RAILSHMEM_ON_CONTEXT(void, N, atomic_xor, RAILSHMEM_UPDATE(T))               \
  RAILSHMEM_ON_CONTEXT(void, N, atomic_fetch_and_nbi, RAILSHMEM_UPDATE_NBI(T)) \
  RAILSHMEM_ON_CONTEXT(void, N, atomic_fetch_or_nbi, RAILSHMEM_UPDATE_NBI(T))  \
  RAILSHMEM_ON_CONTEXT(void, N, atomic_fetch_xor_nbi, RAILSHMEM_UPDATE_NBI(T))
RAILSHMEM_BITWISE_ATOMIC_TYPES(RAILSHMEM_BITWISE_ATOMICS)

// ---- collectives (9.9) ----

#define RAILSHMEM_COLLECTIVES(N, T)                          \
  RAILSHMEM_TYPED(int, N, broadcast, RAILSHMEM_TEAM_ROOT(T)) \
  RAILSHMEM_TYPED(int, N, collect, RAILSHMEM_TEAM(T))        \
  RAILSHMEM_TYPED(int, N, fcollect, RAILSHMEM_TEAM(T))       \
  RAILSHMEM_TYPED(int, N, alltoall, RAILSHMEM_TEAM(T))       \
  RAILSHMEM_TYPED(int, N, alltoalls, RAILSHMEM_TEAM_STRIDED(T))
RAILSHMEM_RMA_TYPES(RAILSHMEM_COLLECTIVES)

#define RAILSHMEM_BITWISE_REDUCTIONS(N, T)               \
  RAILSHMEM_TYPED(int, N, and_reduce, RAILSHMEM_TEAM(T)) \
  RAILSHMEM_TYPED(int, N, or_reduce, RAILSHMEM_TEAM(T))  \
  RAILSHMEM_TYPED(int, N, xor_reduce, RAILSHMEM_TEAM(T))
#define RAILSHMEM_ORDER_REDUCTIONS(N, T)                 \
  RAILSHMEM_TYPED(int, N, max_reduce, RAILSHMEM_TEAM(T)) \
  RAILSHMEM_TYPED(int, N, min_reduce, RAILSHMEM_TEAM(T))
#define RAILSHMEM_ARITHMETIC_REDUCTIONS(N, T)            \
  RAILSHMEM_TYPED(int, N, sum_reduce, RAILSHMEM_TEAM(T)) \
  RAILSHMEM_TYPED(int, N, prod_reduce, RAILSHMEM_TEAM(T))
RAILSHMEM_BITWISE_REDUCTION_TYPES(RAILSHMEM_BITWISE_REDUCTIONS)
RAILSHMEM_ORDER_REDUCTION_TYPES(RAILSHMEM_ORDER_REDUCTIONS)
RAILSHMEM_ARITHMETIC_REDUCTION_TYPES(RAILSHMEM_ARITHMETIC_REDUCTIONS)

// ---- waits and tests (9.10) ----

#define RAILSHMEM_WAITS(N, T)                                                                \
  RAILSHMEM_TYPED(T, N, wait_until, RAILSHMEM_WORD(T))                                       \
  RAILSHMEM_TYPED(void, N, wait_until_all, RAILSHMEM_WORDS(T, T value))                      \
  RAILSHMEM_TYPED(std::size_t, N, wait_until_any, RAILSHMEM_WORDS(T, T value))               \
  RAILSHMEM_TYPED(std::size_t, N, wait_until_some, RAILSHMEM_WORDS_FOUND(T, T value))        \
  RAILSHMEM_TYPED(void, N, wait_until_all_vector, RAILSHMEM_WORDS(T, const T* value))        \
  RAILSHMEM_TYPED(std::size_t, N, wait_until_any_vector, RAILSHMEM_WORDS(T, const T* value)) \
  RAILSHMEM_TYPED(std::size_t, N, wait_until_some_vector,                                    \
                  RAILSHMEM_WORDS_FOUND(T, const T* value))                                  \
  RAILSHMEM_TYPED(int, N, test, RAILSHMEM_WORD(T))                                           \
  RAILSHMEM_TYPED(int, N, test_all, RAILSHMEM_WORDS(T, T value))                             \
  RAILSHMEM_TYPED(std::size_t, N, test_any, RAILSHMEM_WORDS(T, T value))                     \
  RAILSHMEM_TYPED(std::size_t, N, test_some, RAILSHMEM_WORDS_FOUND(T, T value))              \
  RAILSHMEM_TYPED(int, N, test_all_vector, RAILSHMEM_WORDS(T, const T* value))               \
  RAILSHMEM_TYPED(std::size_t, N, test_any_vector, RAILSHMEM_WORDS(T, const T* value))       \
  RAILSHMEM_TYPED(std::size_t, N, test_some_vector, RAILSHMEM_WORDS_FOUND(T, const T* value))
RAILSHMEM_ATOMIC_TYPES(RAILSHMEM_WAITS)

// ---- elements by their size in bits ----

#define RAILSHMEM_SIZED(...) RAILSHMEM_SIZED_EXPANDED(__VA_ARGS__)
#define RAILSHMEM_SIZED_EXPANDED(CALL, METHOD, PARAMETERS, ARGUMENTS) \
  inline void shmem_##CALL(RAILSHMEM_LIST PARAMETERS) {               \
    detail::context_of(SHMEM_CTX_DEFAULT).METHOD ARGUMENTS;           \
  }                                                                   \
  template <class C, class = detail::IfContext<C>>                    \
  void shmem_ctx_##CALL(const C& ctx, RAILSHMEM_LIST PARAMETERS) {    \
    detail::context_of(ctx).METHOD ARGUMENTS;                         \
  }
#define RAILSHMEM_BYTES(SIZE) \
  (void* dest, const void* source, std::size_t nelems, int pe), (dest, source, nelems * (SIZE), pe)
#define RAILSHMEM_BYTES_STRIDED(SIZE)                                                          \
  (void* dest, const void* source, std::ptrdiff_t dst, std::ptrdiff_t sst, std::size_t nelems, \
   int pe),                                                                                    \
      (dest, source, dst, sst, nelems, SIZE, pe)
#define RAILSHMEM_BYTES_SIGNAL(SIZE)                                                        \
  (void* dest, const void* source, std::size_t nelems, uint64_t* sig_addr, uint64_t signal, \
   AtomicOp sig_op, int pe),                                                                \
      (dest, source, nelems * (SIZE), sig_addr, signal, sig_op, pe)
#define RAILSHMEM_SIZES(BITS)                                                       \
  RAILSHMEM_SIZED(put##BITS, put, RAILSHMEM_BYTES(BITS / 8))                        \
  RAILSHMEM_SIZED(put##BITS##_nbi, put_nbi, RAILSHMEM_BYTES(BITS / 8))              \
  RAILSHMEM_SIZED(get##BITS, get, RAILSHMEM_BYTES(BITS / 8))                        \
  RAILSHMEM_SIZED(get##BITS##_nbi, get_nbi, RAILSHMEM_BYTES(BITS / 8))              \
  RAILSHMEM_SIZED(iput##BITS, iput, RAILSHMEM_BYTES_STRIDED(BITS / 8))              \
  RAILSHMEM_SIZED(iget##BITS, iget, RAILSHMEM_BYTES_STRIDED(BITS / 8))              \
  RAILSHMEM_SIZED(put##BITS##_signal, put_signal, RAILSHMEM_BYTES_SIGNAL(BITS / 8)) \
  RAILSHMEM_SIZED(put##BITS##_signal_nbi, put_signal_nbi, RAILSHMEM_BYTES_SIGNAL(BITS / 8))
RAILSHMEM_SIZES(8)
RAILSHMEM_SIZES(16)
RAILSHMEM_SIZES(32)
RAILSHMEM_SIZES(64)
RAILSHMEM_SIZES(128)

}  // namespace railshmem
