// What a runtime is made of, in the order in which it is made: the reverse is the order of its end.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/shmem/order.hpp"
#include "shmem/api/bounce.hpp"
#include "shmem/api/context.hpp"
#include "shmem/api/gpu_choice.hpp"
#include "shmem/api/gpu_ring.hpp"
#include "shmem/api/gpu_side.hpp"
#include "shmem/api/heap_memory.hpp"
#include "shmem/api/meetings.hpp"
#include "shmem/api/nic_choice.hpp"
#include "shmem/api/pe_card.hpp"
#include "shmem/api/peer_watch.hpp"
#include "shmem/api/runtime.hpp"
#include "shmem/api/teams.hpp"
#include "shmem/memory/key_table.hpp"
#include "shmem/memory/registered_buffers.hpp"
#include "shmem/memory/symmetric_heap.hpp"
#include "shmem/nic/moves/gpu_runner.hpp"
#include "shmem/trace/recorder.hpp"
#include "shmem/transport/proxy/proxy.hpp"

namespace railshmem {

// Where the library's own words lie in the heap: the same on every PE.
struct OwnArea {
  uint64_t stop = 0;  // the PE's StopRecord, which kernels of a GPU look at too
  uint64_t teams = 0;
  uint64_t receives = 0;
  uint64_t scratch = 0;
  uint64_t bounce = 0;
  uint64_t bounce_bytes = 0;
  uint64_t bytes = 0;
};
OwnArea own_area(const Settings& settings, int n_pes, bool has_nics);

class Runtime::Parts {
 public:
  Parts(std::shared_ptr<Bootstrap> job, const Settings& chosen, KernelSource kernels);  // setup.cpp
  ~Parts();

  // Throws why a wait of this PE ended early; clears timeouts and interrupts.
  [[noreturn]] void raise_stopped();

  // Throws what ended a kernel's wait since it was last asked; a kernel that gave up has ended, and
  // its stream has gone on.
  void raise_if_kernel_stopped();
  // What kernels that have ended posted is complete. False: stopped.
  bool quiet_kernels();

  void require_usable() const;
  // [address, address + bytes) is not in the heap: throws Error(argument) saying so.
  [[noreturn]] void refuse_address(const char* call, const char* what, const void* address,
                                   std::size_t bytes) const;
  // Throws Error(argument) unless `word` is an aligned word of 4 or 8 bytes in the heap.
  void check_word(const char* call, const char* what, const void* word, unsigned width) const;
  // NICs may read and write [address, address + bytes).
  bool registered(const void* address, std::size_t bytes) const {
    return heap.contains(address, bytes) || buffers.contains(address, bytes);
  }

  void deregister(const std::vector<uint32_t>& lkeys);  // by rail; 0: none

  // A host operation towards a PE of the job.
  void count(trace::Operation operation, int pe, uint64_t bytes) {
    counters.count(operation, transports[static_cast<std::size_t>(pe)], bytes);
  }
  // One that takes the NICs as soon as one peer needs them.
  void count_in_one_domain(trace::Operation operation, uint64_t bytes) {
    counters.count(operation,
                   context.atomics_posted ? device::Transport::proxy : device::Transport::p2p,
                   bytes);
  }

  std::shared_ptr<Bootstrap> bootstrap;
  Settings settings;
  NicChoice nic_choice;
  OwnArea own;
  std::mutex stop_mutex;
  std::atomic<uint64_t> stops_cleared{0};
  std::atomic<bool> loss_reported{false};
  device::DeviceContext context = {};
  std::unique_ptr<trace::Recorder> recorder;  // null where no timeline is written
  GpuChoice gpu_choice;
  const std::unique_ptr<SymmetricHeap> heap_memory;
  SymmetricHeap& heap;
  device::StopRecord& stop;      // in the heap's host part
  std::unique_ptr<GpuSide> gpu;  // null where the heap is in host memory
  HeapMemory memory;
  std::unique_ptr<nic::GpuMoveRunner> move_runner;  // null where no NIC works on a GPU's memory
  std::unique_ptr<nic::MoveQueue> moves;            // likewise
  std::unique_ptr<nic::Provider> provider;          // null where the job has no NICs
  std::unique_ptr<GpuRing> gpu_ring;                // null where its kernels need no NIC
  std::vector<PeCard> cards;
  std::unique_ptr<Topology> topology;
  std::vector<device::Transport> transports;
  KeyTable keys;
  RegisteredBuffers buffers;
  struct Adopted {
    void* address;  // the caller's, of the same pages
    std::shared_ptr<void> owner;
  };
  std::map<void*, Adopted> adopted;                 // by symmetric address
  std::unique_ptr<proxy::Connections> connections;  // null where every peer is P2P
  std::unique_ptr<proxy::Proxy> proxy;
  Bounce bounce;
  std::unique_ptr<Teams> teams;
  Meetings meetings;
  std::unique_ptr<Context> default_context;
  std::mutex contexts_mutex;
  std::vector<bool> lanes_taken;  // of further contexts
  PeerWatch watch;
  trace::Counters counters;
  bool finalized = false;

 private:
  std::unique_ptr<SymmetricHeap> make_heap() const;
  void start_gpu();
  PeCard own_card();
  std::unique_ptr<nic::Provider> make_provider();
  void exchange_cards();
  void number_rails();
  void map_node();
  void make_topology(const std::vector<char>& maps);
  void probe_rails();
  void fill_context();
  void start_timeline();
  std::string connect();
  std::vector<uint64_t> key_starts() const;
  std::vector<uint64_t> register_heap();
  void exchange_keys(const std::vector<uint64_t>& mine);
  std::string start();
};

}  // namespace railshmem
