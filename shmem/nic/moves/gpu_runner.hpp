// Moves by a GPU's kernels and copy engines, on a stream of their own.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <vector>

#include "shmem/gpu/blocks.hpp"
#include "shmem/gpu/driver.hpp"
#include "shmem/nic/moves/runner.hpp"

namespace railshmem::nic {

class GpuMoveRunner final : public MoveRunner {
 public:
  // `kernel`: rsh_moves of kernels/entry/moves.cu; its module outlives this. Throws Error(gpu).
  GpuMoveRunner(const gpu::Site& site, gpu::Function kernel);
  ~GpuMoveRunner() override;

  void learn(const void* address, uint64_t bytes) override;
  void forget(const void* address) override;
  MoveBy kind(const void* address) const override;
  moves::Batch* batch(uint32_t index) override { return batches_.as<moves::Batch>() + index; }
  void copy(uint64_t to, uint64_t from, uint64_t bytes) override;
  void run(moves::Batch* batch, uint64_t number) override;
  void check() override;

 private:
  // Host memory up to `device`, the GPU's from there on.
  struct Range {
    uint64_t begin, device, end;
    uint32_t learned;
  };

  const gpu::Site site_;
  const gpu::Function kernel_;
  const gpu::PinnedBlock batches_;
  const gpu::DeviceBlock scratch_;
  const gpu::OwnedStream stream_;     // what it does waits for no user's work, and no user for it
  mutable std::mutex mutex_;          // users register memory while the progress thread looks
  std::map<uint64_t, Range> ranges_;  // by first address
  std::atomic<uint64_t> changes_{0};  // of the ranges
  // The progress thread's own copy, in order, and how new it is.
  mutable std::vector<Range> known_;
  mutable uint64_t known_changes_ = 0;
};

}  // namespace railshmem::nic
