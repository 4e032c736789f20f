// Launching a kernel on the host: in the caller's thread (one block), or each block on a thread of
// its own, so that blocks may wait for each other.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/arch/host.hpp"

namespace railshmem::arch {

class GridBarrier final : public GridMeeting {
 public:
  explicit GridBarrier(uint32_t blocks) : blocks_(blocks) {}

  bool meet(bool ok) override {
    std::unique_lock<std::mutex> lock(mutex_);
    failed_ = failed_ || !ok;
    const uint64_t round = round_;
    if (++met_ == blocks_) {
      met_ = 0;
      ++round_;
      turned_.notify_all();
    } else {
      turned_.wait(lock, [&] { return round_ != round; });
    }
    return !failed_;
  }

  Arrival arrive(bool ok) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    failed_ = failed_ || !ok;
    const bool last = ++came_ == blocks_;
    if (last) came_ = 0;
    return {last, !failed_};
  }

 private:
  const uint32_t blocks_;
  uint32_t met_ = 0;
  uint32_t came_ = 0;
  uint64_t round_ = 0;
  bool failed_ = false;  // a block that has failed stays so
  std::mutex mutex_;
  std::condition_variable turned_;
};

// Runs kernel() once per block and returns when all have ended. Block 0 is the caller's thread, so
// that the caller's wait hook (Ctrl-C) works inside it.
template <class Kernel>
void launch(uint32_t blocks, const Kernel& kernel) {
  GridBarrier barrier(blocks);
  std::vector<std::thread> threads;
  for (uint32_t block = 1; block < blocks; ++block)
    threads.emplace_back([&, block] {
      this_block = {block, blocks, &barrier};
      kernel();
    });
  const GridPosition outer = this_block;
  this_block = {0, blocks, blocks > 1 ? &barrier : nullptr};
  kernel();
  this_block = outer;
  for (std::thread& thread : threads) thread.join();
}

}  // namespace railshmem::arch
