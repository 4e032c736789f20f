// Moves by a GPU's kernels and copy engines, on a stream of their own.
#pragma once

#include <map>
#include <shared_mutex>

#include "shmem/gpu/driver.hpp"
#include "shmem/nic/moves/runner.hpp"

namespace railshmem::nic {

class GpuMoveRunner final : public MoveRunner {
 public:
  // `image`: machine code of kernels/entry/moves.cu for this GPU. Throws Error(gpu).
  GpuMoveRunner(const gpu::Site& site, const void* image);
  GpuMoveRunner(const GpuMoveRunner&) = delete;
  GpuMoveRunner& operator=(const GpuMoveRunner&) = delete;
  ~GpuMoveRunner() override;

  void learn(const void* address, uint64_t bytes) override;
  void forget(const void* address) override;
  MoveBy kind(const void* address) const override;
  moves::Batch* batch(uint32_t index) override { return batches_ + index; }
  void copy(uint64_t to, uint64_t from, uint64_t bytes) override;
  void run(moves::Batch* batch, uint64_t number) override;
  void check() override;

 private:
  // Host memory up to `device`, the GPU's from there on.
  struct Range {
    uint64_t device, end;
    uint32_t learned;
  };

  void release();

  const gpu::Site site_;
  gpu::Module module_ = nullptr;
  gpu::Function function_ = nullptr;
  gpu::Stream stream_ = nullptr;
  gpu::Address scratch_ = 0;
  moves::Batch* batches_ = nullptr;
  bool registered_ = false;
  mutable std::shared_mutex mutex_;   // the progress thread looks while users register memory
  std::map<uint64_t, Range> ranges_;  // by first address
};

}  // namespace railshmem::nic
