// What the progress thread counts while it works.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace railshmem::proxy {

// Written by the progress thread only, so that counting is a plain addition; read by anybody.
class Counter {
 public:
  void add(uint64_t more = 1) {
    value_.store(value_.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  }
  uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

struct RailCounters {
  Counter requests;
  Counter bytes;
  Counter completions;
  Counter errors;
  Counter doorbells;
};

// A reading of all counters, each exact, together not of one moment. Counts since init.
struct LaneStatistics {
  int pe = 0;
  uint32_t lane = 0;
  int rail = 0;            // that carries it now
  uint64_t commands = 0;   // taken from the ring
  uint64_t bytes = 0;      // that they move
  uint64_t completed = 0;  // commands finished without a gap
  uint64_t replayed = 0;   // requests posted once more on another rail
};
struct RailStatistics {
  int rail = 0;
  uint64_t requests = 0;  // work requests posted: pieces, signals, atomics, messages
  uint64_t bytes = 0;     // that they carry
  uint64_t completions = 0;
  uint64_t errors = 0;  // of those
  uint64_t doorbells = 0;
};
struct Statistics {
  std::vector<LaneStatistics> lanes;
  std::vector<RailStatistics> rails;
  uint64_t failovers = 0;  // queue pairs given up for one on another rail
  uint64_t ring_full = 0;  // posts that had to wait for room in the ring
  uint64_t stalls = 0;     // rounds in which a command had to wait: queue, window, fence, failover
  uint64_t credit_waits = 0;    // messages that had to wait for the peer's receive buffers
  uint64_t atomic_retries = 0;  // compare-and-swaps that found another value
  uint64_t polls = 0;           // rounds of the progress thread
  uint64_t sleeps = 0;
};

}  // namespace railshmem::proxy
