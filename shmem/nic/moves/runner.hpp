// The seam between the queue of moves and the GPU that executes them.
#pragma once

#include <cstdint>

#include "kernels/nic/moves.hpp"

namespace railshmem::nic {

// Which memory a move may touch, and how.
enum class MoveBy : uint8_t {
  cpu,     // host memory; kernels do not reach it
  both,    // host memory that kernels reach at the same address
  kernel,  // a GPU's memory, which the CPU does not touch
};

// Everything but learn() and forget() is called by one thread. What is started is executed in the
// order in which it was started. Throws Error(gpu), and then nothing more will be executed.
class MoveRunner {
 public:
  static constexpr uint32_t kBatches = 16;

  virtual ~MoveRunner() = default;

  // Memory that NICs work on comes and goes; from any thread.
  virtual void learn(const void* address, uint64_t bytes) = 0;
  virtual void forget(const void* address) = 0;
  virtual MoveBy kind(const void* address) const = 0;

  virtual moves::Batch* batch(uint32_t index) = 0;  // [kBatches], zeros at first

  // Between any memories; memory of the CPU alone may be used until the call returns only.
  virtual void copy(uint64_t to, uint64_t from, uint64_t bytes) = 0;
  virtual void run(moves::Batch* batch, uint64_t number) = 0;
  // Now and then while something is expected to end: throws when it never will.
  virtual void check() = 0;
};

}  // namespace railshmem::nic
