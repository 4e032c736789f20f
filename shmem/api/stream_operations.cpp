#include "shmem/api/stream_operations.hpp"

#include <algorithm>
#include <type_traits>

#include "shmem/api/gpu_arguments.hpp"
#include "shmem/api/runtime_parts.hpp"
#include "shmem/api/waits.hpp"

namespace railshmem {

using device::AtomicOp;
using device::Compare;
using trace::Operation;

namespace {

// Enough bytes in flight from each of few SMs to fill a link, and few enough blocks to leave the
// others to those who compute.
constexpr std::size_t kBytesPerBlock = 16 * 1024;
constexpr std::size_t kMostBlocks = 32;
constexpr uint32_t kThreads = 1024;
// Up to here one block puts and rings; above, a second launch costs less than a single block.
constexpr std::size_t kOneBlock = 32 * 1024;

uint32_t blocks_for(std::size_t bytes) {
  return static_cast<uint32_t>(std::min(kMostBlocks, bytes / kBytesPerBlock + 1));
}

template <class... Arguments>
void launch(Runtime& runtime, gpu::Stream stream, const char* kernel, uint32_t blocks,
            uint32_t threads, Arguments... arguments) {
  GpuSide& gpu = *runtime.gpu();
  gpu::Launch how;
  how.blocks = blocks;
  how.threads = threads;
  how.stream = stream;
  gpu.launch(gpu.kernel("core", kernel), how, gpu.context(), arguments...);
}

// One thread.
template <class... Arguments>
void launch_one(Runtime& runtime, gpu::Stream stream, const char* kernel, Arguments... arguments) {
  launch(runtime, stream, kernel, 1, 1, arguments...);
}

// False: the job runs on CPUs, and the call is the host's.
bool on_gpu(const Runtime& runtime, const char* call, gpu::Stream stream) {
  runtime.parts().require_usable();
  if (runtime.gpu() != nullptr) return true;
  if (stream != nullptr)
    fail(ErrorKind::argument, call, ": stream ", stream,
         " where the job runs on CPUs and has none (", runtime.device_reason(), ")");
  return false;
}

void check_symmetric(const Runtime& runtime, const char* call, const char* what,
                     const void* address, std::size_t bytes, int pe) {
  if (!runtime.in_heap(address, bytes)) runtime.parts().refuse_address(call, what, address, bytes);
  if (pe < 0 || pe >= runtime.n_pes())
    fail(ErrorKind::argument, call, ": PE ", pe, " does not exist: the job has PEs 0 to ",
         runtime.n_pes() - 1);
}

void check_signal(const Runtime& runtime, const char* call, const uint64_t* signal, AtomicOp op) {
  runtime.parts().check_word(call, "signal", signal, sizeof *signal);
  if (op != AtomicOp::set && op != AtomicOp::add)
    fail(ErrorKind::argument, call, ": signal operation ", static_cast<int>(op),
         ": expected SHMEM_SIGNAL_SET or SHMEM_SIGNAL_ADD");
}

bool mapped(const Runtime& runtime, int pe) {
  return runtime.parts().transports[static_cast<std::size_t>(pe)] == device::Transport::p2p;
}

uint32_t number(AtomicOp op) {
  return static_cast<uint32_t>(op);
}

void ring(Runtime& runtime, uint64_t* signal, uint64_t value, AtomicOp op, int pe,
          gpu::Stream stream) {
  launch_one(runtime, stream, "rsh_signal", signal, value, number(op), static_cast<int32_t>(pe));
}

}  // namespace

void put_on_stream(Runtime& runtime, void* dest, const void* source, std::size_t bytes, int pe,
                   gpu::Stream stream) {
  constexpr const char* kCall = "shmemx_put_on_stream";
  if (!on_gpu(runtime, kCall, stream))
    return runtime.default_context().put(dest, source, bytes, pe);
  check_symmetric(runtime, kCall, "dest", dest, bytes, pe);
  require_kernel_memory(runtime, kCall, "source", source, bytes, pe);
  if (bytes == 0) return;
  runtime.parts().count(Operation::put, pe, bytes);
  launch(runtime, stream, "rsh_put", mapped(runtime, pe) ? blocks_for(bytes) : 1, kThreads, dest,
         source, static_cast<uint64_t>(bytes), static_cast<int32_t>(pe));
}

void get_on_stream(Runtime& runtime, void* dest, const void* source, std::size_t bytes, int pe,
                   gpu::Stream stream) {
  constexpr const char* kCall = "shmemx_get_on_stream";
  if (!on_gpu(runtime, kCall, stream))
    return runtime.default_context().get(dest, source, bytes, pe);
  check_symmetric(runtime, kCall, "source", source, bytes, pe);
  require_kernel_memory(runtime, kCall, "dest", dest, bytes, pe);
  if (bytes == 0) return;
  runtime.parts().count(Operation::get, pe, bytes);
  launch(runtime, stream, "rsh_get", mapped(runtime, pe) ? blocks_for(bytes) : 1, kThreads, dest,
         source, static_cast<uint64_t>(bytes), static_cast<int32_t>(pe));
}

void put_signal_on_stream(Runtime& runtime, void* dest, const void* source, std::size_t bytes,
                          uint64_t* signal, uint64_t value, AtomicOp op, int pe,
                          gpu::Stream stream) {
  constexpr const char* kCall = "shmemx_put_signal_on_stream";
  if (!on_gpu(runtime, kCall, stream))
    return runtime.default_context().put_signal(dest, source, bytes, signal, value, op, pe);
  check_symmetric(runtime, kCall, "dest", dest, bytes, pe);
  check_signal(runtime, kCall, signal, op);
  require_kernel_memory(runtime, kCall, "source", source, bytes, pe);
  runtime.parts().count(Operation::signal, pe, sizeof value);
  if (bytes == 0) return ring(runtime, signal, value, op, pe, stream);
  runtime.parts().count(Operation::put, pe, bytes);
  const auto size = static_cast<uint64_t>(bytes);
  const auto to = static_cast<int32_t>(pe);
  if (mapped(runtime, pe) && bytes > kOneBlock) {
    launch(runtime, stream, "rsh_put", blocks_for(bytes), kThreads, dest, source, size, to);
    return ring(runtime, signal, value, op, pe, stream);  // after all of it, being on its stream
  }
  launch(runtime, stream, "rsh_put_signal", 1, kThreads, dest, source, size, signal, value,
         number(op), to);
}

void signal_op_on_stream(Runtime& runtime, uint64_t* signal, uint64_t value, AtomicOp op, int pe,
                         gpu::Stream stream) {
  constexpr const char* kCall = "shmemx_signal_op_on_stream";
  if (!on_gpu(runtime, kCall, stream))  // a put of nothing that rings
    return runtime.default_context().put_signal(signal, signal, 0, signal, value, op, pe);
  check_symmetric(runtime, kCall, "signal", signal, sizeof *signal, pe);
  check_signal(runtime, kCall, signal, op);
  runtime.parts().count(Operation::signal, pe, sizeof value);
  ring(runtime, signal, value, op, pe, stream);
}

template <class T>
void wait_until_on_stream(Runtime& runtime, const T* word, Compare compare, T value,
                          gpu::Stream stream) {
  constexpr const char* kCall = "shmemx_wait_until_on_stream";
  if (!on_gpu(runtime, kCall, stream)) {
    wait_until(runtime, word, compare, value);
    return;
  }
  runtime.parts().check_word(kCall, "ivar", word, sizeof(T));
  launch_one(runtime, stream, "rsh_wait_until", static_cast<const void*>(word),
             static_cast<uint32_t>(sizeof(T)), static_cast<uint32_t>(std::is_signed_v<T>),
             static_cast<uint32_t>(compare), static_cast<uint64_t>(value));
}

void signal_wait_until_on_stream(Runtime& runtime, const uint64_t* signal, Compare compare,
                                 uint64_t value, gpu::Stream stream) {
  wait_until_on_stream(runtime, signal, compare, value, stream);
}

void fence_on_stream(Runtime& runtime, gpu::Stream stream) {
  if (!on_gpu(runtime, "shmemx_fence_on_stream", stream)) return runtime.default_context().fence();
  launch_one(runtime, stream, "rsh_fence");
}

void quiet_on_stream(Runtime& runtime, gpu::Stream stream) {
  if (!on_gpu(runtime, "shmemx_quiet_on_stream", stream)) return runtime.default_context().quiet();
  launch_one(runtime, stream, "rsh_quiet");
}

void barrier_all_on_stream(Runtime& runtime, gpu::Stream stream) {
  if (!on_gpu(runtime, "shmemx_barrier_all_on_stream", stream)) return runtime.barrier_all();
  runtime.parts().count_in_one_domain(Operation::collective, 0);
  launch_one(runtime, stream, "rsh_barrier_all");
}

void sync_all_on_stream(Runtime& runtime, gpu::Stream stream) {
  if (!on_gpu(runtime, "shmemx_sync_all_on_stream", stream)) return runtime.sync_all();
  runtime.parts().count_in_one_domain(Operation::collective, 0);
  launch_one(runtime, stream, "rsh_sync_all");
}

#define RAILSHMEM_STREAM_WAITS(T) \
  template void wait_until_on_stream<T>(Runtime&, const T*, Compare, T, gpu::Stream);
RAILSHMEM_STREAM_WAITS(int)
RAILSHMEM_STREAM_WAITS(unsigned)
RAILSHMEM_STREAM_WAITS(long)
RAILSHMEM_STREAM_WAITS(unsigned long)
RAILSHMEM_STREAM_WAITS(long long)
RAILSHMEM_STREAM_WAITS(unsigned long long)
#undef RAILSHMEM_STREAM_WAITS

}  // namespace railshmem
