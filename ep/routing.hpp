// What a PE remembers of its last dispatch, privately: the memory behind device::ep::Exchange, and
// what the host has read of it.
#pragma once

#include <memory>
#include <vector>

#include "ep/buffers.hpp"
#include "ep/kernel_memory.hpp"

namespace railshmem::ep {

// Rows are handed to NICs in pieces of about this size: large enough to hide the cost of a command,
// small enough that the receiver starts early.
constexpr uint64_t kChunkBytes = 256 << 10;

class Routing {
 public:
  Routing(Runtime& runtime, const Config& config, const NodeMap& nodes,
          const device::ep::Buffers& buffers);
  Routing(const Routing&) = delete;
  Routing& operator=(const Routing&) = delete;

  // What kernels receive.
  const device::ep::Exchange& exchange() const { return exchange_; }

  // Reads what the last dispatch brought. Where kernels run beside the host it waits until the one
  // with this ticket knows; keep_waiting() is asked now and then, and throws when that is hopeless.
  template <class KeepWaiting>
  void learn(uint64_t ticket, const KeepWaiting& keep_waiting) {
    while (!known(ticket)) keep_waiting();
    read();
  }
  // As it was learnt.
  const std::vector<int64_t>& received() const { return received_; }  // by source PE
  // Expert-major: by expert of this PE; else empty.
  const std::vector<int64_t>& expert_counts() const { return expert_counts_; }
  const std::vector<int64_t>& padded_counts() const { return padded_counts_; }
  // Arrivals, or in the expert-major layout the rows of all blocks.
  int64_t rows() const { return static_cast<int64_t>(summary_.rows); }
  const device::ep::Refusal& refusal() const { return summary_.refusal; }
  // Reads whether a remote PE refused, which is known later.
  void learn_refusal();

 private:
  bool known(uint64_t ticket) const;
  void read();

  device::ep::Exchange exchange_{};
  std::unique_ptr<KernelMemory> memory_;
  gpu::PinnedBlock copy_;  // of the outcome, where kernels run beside the host
  device::ep::Summary summary_{};
  std::vector<int64_t> received_;
  std::vector<int64_t> expert_counts_;
  std::vector<int64_t> padded_counts_;
};

}  // namespace railshmem::ep
