// Signalling (9.8): a put and the word that announces it. Whoever sees the signal sees the data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shmem/api/waits.hpp"
#include "shmem/include/railshmem/contexts.hpp"

namespace railshmem {

using device::AtomicOp;

constexpr AtomicOp SHMEM_SIGNAL_SET = AtomicOp::set;
constexpr AtomicOp SHMEM_SIGNAL_ADD = AtomicOp::add;

template <class C, class T, class = detail::IfContext<C>>
void shmem_put_signal(const C& ctx, T* dest, const T* source, std::size_t nelems,
                      uint64_t* sig_addr, uint64_t signal, AtomicOp sig_op, int pe) {
  detail::context_of(ctx).put_signal(dest, source, nelems * sizeof(T), sig_addr, signal, sig_op,
                                     pe);
}
template <class T>
void shmem_put_signal(T* dest, const T* source, std::size_t nelems, uint64_t* sig_addr,
                      uint64_t signal, AtomicOp sig_op, int pe) {
  shmem_put_signal(SHMEM_CTX_DEFAULT, dest, source, nelems, sig_addr, signal, sig_op, pe);
}
template <class C, class = detail::IfContext<C>>
void shmem_ctx_putmem_signal(const C& ctx, void* dest, const void* source, std::size_t bytes,
                             uint64_t* sig_addr, uint64_t signal, AtomicOp sig_op, int pe) {
  detail::context_of(ctx).put_signal(dest, source, bytes, sig_addr, signal, sig_op, pe);
}
inline void shmem_putmem_signal(void* dest, const void* source, std::size_t bytes,
                                uint64_t* sig_addr, uint64_t signal, AtomicOp sig_op, int pe) {
  shmem_ctx_putmem_signal(SHMEM_CTX_DEFAULT, dest, source, bytes, sig_addr, signal, sig_op, pe);
}

// `source` may change after shmem_quiet.
template <class C, class T, class = detail::IfContext<C>>
void shmem_put_signal_nbi(const C& ctx, T* dest, const T* source, std::size_t nelems,
                          uint64_t* sig_addr, uint64_t signal, AtomicOp sig_op, int pe) {
  detail::context_of(ctx).put_signal_nbi(dest, source, nelems * sizeof(T), sig_addr, signal, sig_op,
                                         pe);
}
template <class T>
void shmem_put_signal_nbi(T* dest, const T* source, std::size_t nelems, uint64_t* sig_addr,
                          uint64_t signal, AtomicOp sig_op, int pe) {
  shmem_put_signal_nbi(SHMEM_CTX_DEFAULT, dest, source, nelems, sig_addr, signal, sig_op, pe);
}
template <class C, class = detail::IfContext<C>>
void shmem_ctx_putmem_signal_nbi(const C& ctx, void* dest, const void* source, std::size_t bytes,
                                 uint64_t* sig_addr, uint64_t signal, AtomicOp sig_op, int pe) {
  detail::context_of(ctx).put_signal_nbi(dest, source, bytes, sig_addr, signal, sig_op, pe);
}
inline void shmem_putmem_signal_nbi(void* dest, const void* source, std::size_t bytes,
                                    uint64_t* sig_addr, uint64_t signal, AtomicOp sig_op, int pe) {
  shmem_ctx_putmem_signal_nbi(SHMEM_CTX_DEFAULT, dest, source, bytes, sig_addr, signal, sig_op, pe);
}

// The current value; data put before it is visible.
inline uint64_t shmem_signal_fetch(const uint64_t* sig_addr) {
  return signal_fetch(default_runtime(), sig_addr);
}
// Returns the value that satisfied the comparison (9.10.15).
inline uint64_t shmem_signal_wait_until(const uint64_t* sig_addr, device::Compare cmp,
                                        uint64_t cmp_value) {
  return signal_wait_until(default_runtime(), sig_addr, cmp, cmp_value);
}

}  // namespace railshmem
