// A GPU as the queue of moves sees one, played by a thread: its memory is host memory that is said
// to be a GPU's, and what it is asked to do is done later, by the code that a GPU would run.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/arch/host_launch.hpp"
#include "shmem/base/error.hpp"
#include "shmem/nic/moves/queue.hpp"

namespace railshmem::testing {

class PlayedGpu final : public nic::MoveRunner {
 public:
  PlayedGpu() : batches_(kBatches), thread_([this] { play(); }) {}
  ~PlayedGpu() override {
    hold(false);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      over_ = true;
      more_.notify_all();
    }
    thread_.join();
  }

  // The GPU's memory, from now on.
  void mark(const void* address, uint64_t bytes) {
    const auto begin = reinterpret_cast<uint64_t>(address);
    const std::lock_guard<std::mutex> held(mutex_);
    marked_[begin] = begin + bytes;
  }
  // Nothing is executed until it is let go.
  void hold(bool held) {
    const std::lock_guard<std::mutex> lock(mutex_);
    held_ = held;
    more_.notify_all();
  }
  // From now on it refuses everything; `silent`: it takes it, does nothing, and says so when asked.
  void break_down(bool silent) { (silent ? stands_still_ : refuses_) = true; }

  uint64_t runs() const { return runs_; }
  uint64_t moves() const { return moves_; }
  uint64_t copies() const { return copies_; }
  int learned() const { return learned_; }

  void learn(const void*, uint64_t) override { ++learned_; }
  void forget(const void*) override { --learned_; }
  nic::MoveBy kind(const void* address) const override {
    const auto at = reinterpret_cast<uint64_t>(address);
    const std::lock_guard<std::mutex> held(mutex_);
    const auto next = marked_.upper_bound(at);
    const bool inside = next != marked_.begin() && at < std::prev(next)->second;
    return inside ? nic::MoveBy::kernel : nic::MoveBy::both;
  }
  moves::Batch* batch(uint32_t index) override { return &batches_[index]; }
  void copy(uint64_t to, uint64_t from, uint64_t bytes) override {
    refuse_if_broken();
    ++copies_;
    enqueue([=] {
      std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
    });
  }
  void run(moves::Batch* batch, uint64_t number) override {
    refuse_if_broken();
    ++runs_;
    moves_ += batch->n_moves;
    enqueue([=] {
      arch::launch(static_cast<uint32_t>(number % 3) + 1,
                   [=] { moves::run(batch, number, &scratch_); });
    });
  }
  void check() override {
    if (refuses_ || stands_still_) fail(ErrorKind::gpu, "the played GPU is broken");
  }

 private:
  void refuse_if_broken() {
    if (refuses_) fail(ErrorKind::gpu, "the played GPU is broken");
  }
  void enqueue(std::function<void()> work) {
    const std::lock_guard<std::mutex> lock(mutex_);
    work_.push_back(std::move(work));
    more_.notify_all();
  }
  void play() {
    for (;;) {
      std::function<void()> next;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        more_.wait(lock, [this] { return over_ || (!held_ && !work_.empty()); });
        if (work_.empty()) return;
        next = std::move(work_.front());
        work_.pop_front();
      }
      std::this_thread::yield();  // later than whoever asked would like
      if (!stands_still_) next();
    }
  }

  std::vector<moves::Batch> batches_;
  moves::Scratch scratch_ = {};
  mutable std::mutex mutex_;
  std::condition_variable more_;
  std::map<uint64_t, uint64_t> marked_;
  std::deque<std::function<void()>> work_;
  std::atomic<uint64_t> runs_{0}, moves_{0}, copies_{0};
  std::atomic<int> learned_{0};
  std::atomic<bool> refuses_{false}, stands_still_{false};
  bool held_ = false;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace railshmem::testing
