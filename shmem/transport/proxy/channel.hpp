// One queue pair as the proxy uses it: what each posted entry is for, what waits for room, and the
// credits of message requests.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "kernels/shmem/trace.hpp"
#include "shmem/nic/nic.hpp"

namespace railshmem::proxy {

// What happens when an entry completes.
enum class After : uint8_t {
  nothing,       // a piece of something larger, or a reply
  finish,        // its command is complete
  slot_done,     // a get's last piece: its result slot is done, then finish
  signal_ready,  // a put's data is placed: its signal may go
  signal_done,   // a SET has arrived: finish, and the lane's next signal may go
  atomic_step,   // a native atomic's old value is in its scratch word
  request,       // a message left; its atomic ends with the answer
};

constexpr uint32_t kNoLane = ~0u;  // an answer: no command of ours waits for it

struct Posted {
  After after = After::nothing;
  nic::Opcode op = nic::Opcode::write;
  uint32_t lane = kNoLane;
  uint32_t record = 0;    // atomic_step, request: the atomic; slot_done: slot + 1
  uint64_t sequence = 0;  // of the command on its lane
  uint64_t bytes = 0;     // counted against the lane's bytes in flight
  uint64_t target = 0;    // offset in the peer's heap, for error reports
};

class Channel {
 public:
  Channel(nic::Nic& nic, int peer, uint32_t depth, uint32_t receive_depth)
      : nic_(nic),
        peer_(peer),
        endpoint_(nic.create_endpoint(depth, receive_depth)),
        posted_(depth),
        mask_(depth - 1) {}

  nic::Endpoint& endpoint() { return *endpoint_; }
  nic::Nic& nic() { return nic_; }
  int peer() const { return peer_; }
  int rail() const { return static_cast<int>(nic_.rail()); }

  bool has_room() const {
    return waiting_.empty() && endpoint_->posted() - endpoint_->completed() < posted_.size();
  }

  // Posts, or keeps until there is room: the order of submission is the order on the wire.
  void submit(const nic::WorkRequest& request, const Posted& entry) {
    if (waiting_.empty() && post(request, entry)) return;
    Waiting kept{request, entry, {}};
    if (request.inlined)
      std::memcpy(kept.payload.data(), reinterpret_cast<void*>(request.local), request.length);
    waiting_.push_back(kept);
  }

  // Posts what waited for room; true when something went.
  bool drain() {
    bool moved = false;
    while (!waiting_.empty()) {
      Waiting& next = waiting_.front();
      if (next.request.inlined)
        next.request.local = reinterpret_cast<uint64_t>(next.payload.data());
      if (!post(next.request, next.entry)) break;
      waiting_.pop_front();
      moved = true;
    }
    return moved;
  }

  const Posted& entry(uint64_t index) const { return posted_[index & mask_]; }

  void ring_doorbell() {
    if (!rung_) endpoint_->ring_doorbell();
    rung_ = true;
  }

  const device::Trace* trace = nullptr;  // null: no timeline is written

  // Message requests that the peer has a receive buffer for.
  uint32_t credits = 0;
  std::deque<uint32_t> requests;  // atomics that wait for a credit

 private:
  struct Waiting {
    nic::WorkRequest request;
    Posted entry;
    std::array<char, 48> payload;
  };

  bool post(const nic::WorkRequest& request, const Posted& entry) {
    const uint64_t index = endpoint_->posted();
    if (!endpoint_->post(request)) return false;
    posted_[index & mask_] = entry;
    rung_ = false;
    device::record_instant(trace, device::Moment::nic_posted, entry.bytes, peer_, rail(),
                           endpoint_->id(), index);
    return true;
  }

  nic::Nic& nic_;
  int peer_;
  std::unique_ptr<nic::Endpoint> endpoint_;
  std::vector<Posted> posted_;
  uint64_t mask_;
  std::deque<Waiting> waiting_;
  bool rung_ = true;  // nothing posted since the last doorbell
};

}  // namespace railshmem::proxy
