// The kernels of dispatch and combine for one kind of job, wherever they run.
#pragma once

#include <memory>

#include "ep/config.hpp"
#include "kernels/ep/dispatch.hpp"
#include "shmem/api/runtime.hpp"

namespace railshmem::ep {

// Where a GPU does the work; of no use on a CPU.
using Stream = gpu::Stream;

// Every call launches; on a CPU it also runs, and throws what stopped it.
class Kernels {
 public:
  virtual ~Kernels() = default;

  using Exchange = device::ep::Exchange;
  using DispatchCall = device::ep::DispatchCall;
  using ReceiveCall = device::ep::ReceiveCall;
  virtual void dispatch(const Exchange& x, const DispatchCall& call, const ReceiveCall& receive,
                        Stream stream) = 0;
  virtual void dispatch_send(const Exchange& x, const DispatchCall& call, Stream stream) = 0;
  virtual void dispatch_recv(const Exchange& x, const ReceiveCall& call, Stream stream) = 0;
  virtual void combine(const Exchange& x, const char* expert_rows, char* out, Stream stream) = 0;
  virtual void combine_send(const Exchange& x, const char* expert_rows, Stream stream) = 0;
  virtual void combine_recv(const Exchange& x, char* out, Stream stream) = 0;
  // In a job of several nodes.
  virtual void learn_refusals(const Exchange& x, bool unasked, Stream stream) = 0;

  // Throws what stopped a kernel that was launched before.
  virtual void check() = 0;
  // What a host that waits for a kernel does between two looks; throws when the kernel has ended.
  virtual void keep_waiting(Stream stream) = 0;
  // Waits for everything that was launched.
  virtual void finish(Stream stream) = 0;
};

// `blocks` of the kernels: on a CPU each has a thread, on a GPU a processor. Throws Error(argument)
// where the GPU has not so many, and Error(gpu).
std::unique_ptr<Kernels> make_kernels(Runtime& runtime, const Config& config, int n_nodes);

// For make_kernels.
std::unique_ptr<Kernels> make_host_kernels(Runtime& runtime, const Config& config, int n_nodes);
std::unique_ptr<Kernels> make_gpu_kernels(Runtime& runtime, const Config& config, int n_nodes);

}  // namespace railshmem::ep
