// Operations that a stream of this PE's GPU carries out, in its order: kernels that are launched
// here. No call waits, for the stream or for anything else, nor allocates: all may be captured into
// CUDA graphs. Arguments are checked before the launch (Error(argument)). What stops a kernel is
// thrown by the next quiet, barrier or finalize of the host, or by Runtime::check_kernels.
//
// Kernels have an order, counts of what is posted and a barrier of their own: quiet_on_stream
// completes what kernels posted, quiet of the default context that and what the host posted.
//
// A put or get to a mapped peer is carried out by 1 + bytes / 16 KiB blocks, 32 at most, of 1024
// threads; behind a NIC, by one thread that writes a command. Where the job runs on CPUs the only
// stream is null, and the calls are the host's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/shmem/wait.hpp"
#include "shmem/api/runtime.hpp"

namespace railshmem {

// What follows on the stream may write `source`; the data is complete after quiet_on_stream.
void put_on_stream(Runtime& runtime, void* dest, const void* source, std::size_t bytes, int pe,
                   gpu::Stream stream);
// What follows on the stream finds the data in `dest`.
void get_on_stream(Runtime& runtime, void* dest, const void* source, std::size_t bytes, int pe,
                   gpu::Stream stream);
// op: set or add. Whoever sees the signal sees the data.
void put_signal_on_stream(Runtime& runtime, void* dest, const void* source, std::size_t bytes,
                          uint64_t* signal, uint64_t value, device::AtomicOp op, int pe,
                          gpu::Stream stream);
void signal_op_on_stream(Runtime& runtime, uint64_t* signal, uint64_t value, device::AtomicOp op,
                         int pe, gpu::Stream stream);

// What follows on the stream finds the local symmetric word so, and what was put before it. T is an
// integer of 4 or 8 bytes.
template <class T>
void wait_until_on_stream(Runtime& runtime, const T* word, device::Compare compare, T value,
                          gpu::Stream stream);
void signal_wait_until_on_stream(Runtime& runtime, const uint64_t* signal, device::Compare compare,
                                 uint64_t value, gpu::Stream stream);

void fence_on_stream(Runtime& runtime, gpu::Stream stream);
void quiet_on_stream(Runtime& runtime, gpu::Stream stream);
// Collective: every PE's stream comes to it, one of a PE at a time.
void barrier_all_on_stream(Runtime& runtime, gpu::Stream stream);
void sync_all_on_stream(Runtime& runtime, gpu::Stream stream);

}  // namespace railshmem
