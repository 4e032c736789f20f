#include "shmem/api/gpu_arguments.hpp"

#include "shmem/api/runtime_parts.hpp"

namespace railshmem {
namespace {

// In this PE's heap or in a mapped peer's.
bool mapped(const Runtime::Parts& parts, const void* address) {
  const auto at = reinterpret_cast<uint64_t>(address);
  for (int pe = 0; pe < parts.context.n_pes; ++pe) {
    const auto base = reinterpret_cast<uint64_t>(parts.context.peer_base[pe]);
    if (base != 0 && at - base < parts.context.heap_bytes) return true;
  }
  return false;
}

void check_own_gpu(const Runtime::Parts& parts, const char* call, const char* what,
                   const void* address) {
  if (!parts.gpu)
    fail(ErrorKind::argument, call, ": ", what, " ", address,
         " is GPU memory, but the job runs on CPUs: ", parts.gpu_choice.reason);
  if (mapped(parts, address)) return;
  const gpu::Site& site = parts.gpu->site();
  parts.gpu->use();
  const int found = site.driver->device_of(address);
  if (found == site.device) return;
  const std::string where =
      found < 0 ? std::string("is in no GPU's memory") : text("is in the memory of GPU ", found);
  fail(ErrorKind::argument, call, ": ", what, " ", address, " ", where, "; PE ", parts.context.pe,
       " uses GPU ", site.device, " (", parts.gpu_choice.reason, ")");
}

}  // namespace

void require_own_gpu(const Runtime& runtime, const char* call, const char* what,
                     const void* address) {
  check_own_gpu(runtime.parts(), call, what, address);
}

void require_own_gpu(const Context& context, const char* call, const char* what,
                     const void* address) {
  check_own_gpu(context.parts(), call, what, address);
}

void require_kernel_memory(const Runtime& runtime, const char* call, const char* what,
                           const void* address, std::size_t bytes, int pe) {
  const Runtime::Parts& parts = runtime.parts();
  if (bytes == 0) return;
  check_own_gpu(parts, call, what, address);
  if (parts.transports[static_cast<std::size_t>(pe)] != device::Transport::p2p &&
      !parts.registered(address, bytes))
    fail(ErrorKind::argument, call, ": ", what, " ", address, " with ", bytes,
         " bytes is neither in the symmetric heap nor registered (shmemx_buffer_register), and PE ",
         pe, " is behind a NIC");
}

}  // namespace railshmem
