// Stream-ordered forms: what a stream of this PE's GPU carries out, in its order. `stream` is a
// cudaStream_t or hipStream_t; null is the default stream, and the only one where the job runs on
// CPUs. shmem/api/stream_operations.hpp says more. Not in the specification; the names are the
// field's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shmem/api/default_runtime.hpp"
#include "shmem/api/stream_operations.hpp"
#include "shmem/include/railshmem/deduction.hpp"

namespace railshmem {

inline void shmemx_putmem_on_stream(void* dest, const void* source, std::size_t bytes, int pe,
                                    void* stream) {
  put_on_stream(default_runtime(), dest, source, bytes, pe, stream);
}
inline void shmemx_getmem_on_stream(void* dest, const void* source, std::size_t bytes, int pe,
                                    void* stream) {
  get_on_stream(default_runtime(), dest, source, bytes, pe, stream);
}
inline void shmemx_putmem_signal_on_stream(void* dest, const void* source, std::size_t bytes,
                                           uint64_t* sig_addr, uint64_t signal,
                                           device::AtomicOp sig_op, int pe, void* stream) {
  put_signal_on_stream(default_runtime(), dest, source, bytes, sig_addr, signal, sig_op, pe,
                       stream);
}
inline void shmemx_signal_op_on_stream(uint64_t* sig_addr, uint64_t signal, device::AtomicOp sig_op,
                                       int pe, void* stream) {
  signal_op_on_stream(default_runtime(), sig_addr, signal, sig_op, pe, stream);
}
inline void shmemx_signal_wait_until_on_stream(const uint64_t* sig_addr, device::Compare cmp,
                                               uint64_t cmp_value, void* stream) {
  signal_wait_until_on_stream(default_runtime(), sig_addr, cmp, cmp_value, stream);
}
// T is an integer of 4 or 8 bytes.
template <class T>
void shmemx_wait_until_on_stream(const T* ivar, device::Compare cmp, detail::Given<T> cmp_value,
                                 void* stream) {
  wait_until_on_stream<T>(default_runtime(), ivar, cmp, cmp_value, stream);
}
inline void shmemx_fence_on_stream(void* stream) {
  fence_on_stream(default_runtime(), stream);
}
inline void shmemx_quiet_on_stream(void* stream) {
  quiet_on_stream(default_runtime(), stream);
}
// Collective: every PE's stream comes to it.
inline void shmemx_barrier_all_on_stream(void* stream) {
  barrier_all_on_stream(default_runtime(), stream);
}
inline void shmemx_sync_all_on_stream(void* stream) {
  sync_all_on_stream(default_runtime(), stream);
}

}  // namespace railshmem
