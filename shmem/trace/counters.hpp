// How many operations a PE's threads have made through the host API, and of how many bytes. Each
// thread counts for itself: on the fast path an operation costs two additions.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "kernels/shmem/context.hpp"
#include "shmem/trace/per_thread.hpp"

namespace railshmem::trace {

enum class Operation : uint8_t { put, get, atomic, signal, collective };
constexpr std::size_t kOperations = 5;

struct Count {
  uint64_t operations = 0;
  uint64_t bytes = 0;
};

class Counters {
 public:
  void count(Operation operation, device::Transport by, uint64_t bytes) {
    Cell& cell = mine().cells[static_cast<std::size_t>(by)][static_cast<std::size_t>(operation)];
    // Only this thread writes here: a load and a store, where others may read in between.
    add(cell.operations, 1);
    add(cell.bytes, bytes);
  }

  // Of all threads, since the counters were made: [Transport][Operation].
  static constexpr std::size_t kTransports = static_cast<std::size_t>(device::Transport::proxy) + 1;
  using Sums = std::array<std::array<Count, kOperations>, kTransports>;
  Sums sum() const {
    Sums out;
    threads_.for_each([&](const Cells& of) {
      for (std::size_t by = 0; by < kTransports; ++by)
        for (std::size_t i = 0; i < kOperations; ++i) {
          out[by][i].operations += of.cells[by][i].operations.load(std::memory_order_relaxed);
          out[by][i].bytes += of.cells[by][i].bytes.load(std::memory_order_relaxed);
        }
    });
    return out;
  }

 private:
  struct Cell {
    std::atomic<uint64_t> operations{0};
    std::atomic<uint64_t> bytes{0};
  };
  struct alignas(64) Cells {  // no other thread's line
    Cell cells[kTransports][kOperations];
  };

  Cells& mine() {
    return threads_.mine([](const Cells&) { return true; },
                         [] { return std::make_unique<Cells>(); });
  }
  static void add(std::atomic<uint64_t>& to, uint64_t more) {
    to.store(to.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  }

  PerThread<Cells> threads_;
};

}  // namespace railshmem::trace
