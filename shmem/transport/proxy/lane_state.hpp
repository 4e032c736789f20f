// The proxy's side of one lane: which commands are in flight, which prefix of them is complete, and
// the signals that wait for their data.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "kernels/shmem/context.hpp"
#include "shmem/transport/proxy/channel.hpp"
#include "shmem/transport/proxy/ring_memory.hpp"

namespace railshmem::proxy {

// Commands complete out of order; quiet needs the completed prefix.
class CompletionWindow {
 public:
  explicit CompletionWindow(uint32_t size) : done_(size), mask_(size - 1) {}

  bool full() const { return issued_ - completed_ >= done_.size(); }
  uint64_t outstanding() const { return outstanding_; }
  uint64_t issue() {
    ++outstanding_;
    return issued_++;
  }
  // Returns the number of commands that are complete without a gap.
  uint64_t finish(uint64_t sequence) {
    --outstanding_;
    done_[sequence & mask_] = true;
    while (completed_ < issued_ && done_[completed_ & mask_]) done_[completed_++ & mask_] = false;
    return completed_;
  }

 private:
  std::vector<bool> done_;
  uint64_t mask_;
  uint64_t issued_ = 0;
  uint64_t completed_ = 0;
  uint64_t outstanding_ = 0;
};

// A signal that cannot simply follow its data on the queue pair.
struct DeferredSignal {
  uint64_t sequence;  // of its command
  uint64_t offset;
  uint64_t value;
  device::AtomicOp op;
  bool ready;  // its data is placed
};

struct LaneState {
  // `index`: among the lanes of its ring.
  LaneState(const ConsumerSide& its_ring, std::size_t index, Channel* data_channel,
            uint32_t window_size)
      : pe(data_channel->peer()),
        data(data_channel),
        ring(its_ring),
        progress(ring.progress + index),
        window(window_size) {
    carry_on(data);
  }

  void finish(uint64_t sequence) {
    const uint64_t prefix = window.finish(sequence);
    // Release: what completed (results, data read back) is visible to whoever sees the count.
    arch::store_release(&progress->completed, prefix);
    if (window.outstanding() == 0) fenced = false;
  }

  // From here on over another queue pair.
  void carry_on(Channel* over) {
    data = over;
    arch::store_relaxed(&progress->rail, static_cast<int32_t>(over->rail()));  // for reports
  }

  int pe;
  Channel* data;
  const ConsumerSide& ring;
  device::LaneProgress* const progress;
  CompletionWindow window;
  uint64_t inflight_bytes = 0;
  // Atomics and deferred signals: their order with the data channel is not the queue pair's.
  uint64_t elsewhere = 0;
  // A fence was passed by WRITEs, which the queue pair orders; everything else still has to wait.
  bool fenced = false;
  bool fence_next = false;             // the next WRITE is the first behind that fence
  std::deque<DeferredSignal> signals;  // in command order
  bool signal_in_flight = false;       // one SET at a time, so that a word never goes backwards
  Counter commands;
  Counter bytes;
  Counter replayed;
};

}  // namespace railshmem::proxy
