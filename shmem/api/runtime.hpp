// One PE of a job: its heap, peers, NICs and progress thread, and the host operations on them. A
// runtime is an object; several can live in one process (one per thread).
//
// Threads: any thread may call the one-sided operations; collectives are called by one thread at a
// time. Every operation checks its arguments before anything moves (Error(argument)) and throws
// what ended a wait: Error(timeout), Error(network), Error(peer_lost), Error(aborted).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/arch/launch.hpp"
#include "kernels/shmem/order.hpp"
#include "shmem/api/gpu_side.hpp"
#include "shmem/base/error.hpp"
#include "shmem/base/settings.hpp"
#include "shmem/bootstrap/bootstrap.hpp"
#include "shmem/topology/topology.hpp"
#include "shmem/trace/counters.hpp"
#include "shmem/transport/proxy/statistics.hpp"

namespace railshmem {

class Context;
class Meetings;
struct NicChoice;
struct PeCard;
class Team;
class Teams;

// Of symmetric memory.
constexpr std::size_t kDefaultAlignment = 64;

// What this PE has posted to a peer on one lane.
struct Traffic {
  int pe = 0;
  int rail = 0;
  uint64_t bytes = 0;
  uint64_t commands = 0;
};

class Runtime {
 public:
  class Parts;  // what it is made of: runtime_parts.hpp
  Parts& parts() const { return *parts_; }

  // Collective: makes the heap, maps the peers of the node, registers the heap on every NIC,
  // connects lanes to the peers that need them and starts the progress thread. Throws Error(init).
  // `kernels`: where a GPU's come from, null: RAILSHMEM_KERNELS; not asked where the job runs on
  // CPUs.
  Runtime(std::shared_ptr<Bootstrap> bootstrap, const Settings& settings,
          KernelSource kernels = nullptr);

  // Without finalize() the job's peers are not waited for.
  ~Runtime();

  // Collective: completes all communication and releases everything. A second call does nothing.
  // Operations called later throw Error(argument).
  void finalize();
  bool finalized() const;

  int my_pe() const { return context().pe; }
  int n_pes() const { return context().n_pes; }
  const Topology& topology() const;
  const Settings& settings() const;
  Bootstrap& bootstrap();

  // What kernels on the CPU receive.
  const device::DeviceContext& context() const;
  // What kernels on this PE's GPU receive, in its memory. Throws Error(argument) where the job runs
  // on CPUs, and after finalize.
  const device::DeviceContext* device_context() const;
  // Null where the heap is in host memory.
  GpuSide* gpu() const;
  // Why the job runs on GPUs, and on this one, or why not.
  const std::string& device_reason() const;

  // ---- memory ----

  // Collective, same arguments everywhere: `bytes` of symmetric memory, aligned to `alignment` (a
  // power of two up to 4096), null for 0 bytes. Throws Error(argument) on every PE where the PEs
  // differ, and Error(heap_exhausted), naming what is free.
  void* malloc(std::size_t bytes, std::size_t alignment = kDefaultAlignment);
  // Collective: null is allowed.
  void free(void* symmetric);
  // Collective: malloc of `count` elements of `size` bytes that are 0 on every PE when it returns.
  void* calloc(std::size_t count, std::size_t size);
  // Collective: the block has `bytes` bytes, at another place where it cannot stay, and begins with
  // what it held. Null allocates; 0 bytes frees. Where the heap is exhausted the old block stays.
  void* realloc(void* symmetric, std::size_t bytes);
  // Bytes still free, and the largest free block.
  std::size_t heap_free() const;
  std::size_t heap_largest_free() const;
  // Bytes from `symmetric` to the end of the block it lies in; 0 outside of blocks.
  std::size_t heap_behind(const void* symmetric) const;
  // The peer's copy of a symmetric object if it is mapped here, else null.
  void* ptr(const void* symmetric, int pe) const;
  // True when [address, address + bytes) lies in the symmetric heap.
  bool in_heap(const void* address, std::size_t bytes) const;

  // ---- users' own memory ----

  // Registers [address, address + bytes) on every NIC of this PE: from there large puts leave, and
  // gets land, without a copy. The same range may be registered again, and is then counted. Throws
  // Error(argument) for nothing, for heap memory and for a range that overlaps another one. `owner`
  // is kept as long as the registration.
  void register_buffer(void* address, std::size_t bytes, std::shared_ptr<void> owner = nullptr);
  // Waits until nothing posted uses it. Throws Error(argument) where nothing registered starts
  // there.
  void unregister_buffer(void* address);

  // Collective, same `bytes` everywhere: moves the caller's memory into the symmetric heap without
  // moving it from its address, and returns its symmetric address: both name the same bytes from
  // then on. `address` and `bytes` are multiples of the page size; nobody may touch the memory
  // during the call. Throws Error(argument), Error(heap_exhausted).
  void* register_symmetric(void* address, std::size_t bytes, std::shared_ptr<void> owner = nullptr);
  // Collective: the memory at the address it was registered with is the caller's own again, with
  // what it holds by then.
  void unregister_symmetric(void* symmetric);

  // ---- streams of order ----

  // The context that exists from init to finalize; its team is the world.
  Context& default_context() const;
  // A further one, ordered and completed apart from all others, over the PEs of `team`. Throws
  // Error(argument) where the job has NICs and all RAILSHMEM_CONTEXTS are in use. It ends, after
  // its quiet, in destroy_context.
  std::shared_ptr<Context> create_context(std::shared_ptr<Team> team);
  void destroy_context(Context& context);

  // ---- teams and collectives ----

  Teams& teams() const;
  Meetings& meetings() const;
  const std::shared_ptr<Team>& world() const;

  // Collective.
  void barrier_all();
  void sync_all();

  // Collective: throws Error(argument) on every PE, naming the values, where the PEs' `value`s
  // differ. `what` names the value in the message.
  void require_same(const std::string& what, const std::string& value);

  // ---- kernels ----

  // Runs kernel() on `blocks` host blocks and throws what stopped it, if anything did.
  template <class Kernel>
  void launch(uint32_t blocks, const Kernel& kernel) {
    require_usable();
    if (context().abi != device::kAbi)
      fail(ErrorKind::argument, "this kernel was compiled with headers of another railshmem build");
    const uint64_t before = stops_cleared();
    arch::launch(blocks, kernel);
    raise_if_stopped(before);
  }

  // Throws what has stopped a kernel of this PE's GPU, if anything did; so do quiet of the
  // contexts, barriers and finalize. The kernel's stream is the caller's to synchronise.
  void check_kernels();

  // Waits until there is news that nobody has taken: the first PE that is lost, or that a PE aborts
  // the job. Kind none after `timeout_s` seconds, and at the end of a runtime (finalized()). For
  // whoever must end a program that is not inside a railshmem call.
  JobNews wait_for_news(double timeout_s);
  // True once an operation has thrown Error(peer_lost).
  bool loss_reported() const;

  // Sets this PE's stop word: every wait ends with Error(aborted).
  void abort_waits();

  // What the host operations of all threads were, by transport.
  trace::Counters::Sums operation_counts() const;
  // What was posted through NICs, by lane; empty where every peer is P2P.
  std::vector<Traffic> proxy_traffic() const;
  std::size_t n_queue_pairs() const;
  // Memory that their queues and receive buffers take.
  uint64_t connection_bytes() const;
  // What the progress thread counted so far; empty where every peer is P2P.
  proxy::Statistics statistics() const;
  // What every PE told at init.
  const NicChoice& nic_choice() const;
  const std::vector<PeCard>& cards() const;

 private:
  uint64_t stops_cleared() const;
  void raise_if_stopped(uint64_t cleared_before);
  void require_usable() const;

  std::unique_ptr<Parts> parts_;
};

}  // namespace railshmem
