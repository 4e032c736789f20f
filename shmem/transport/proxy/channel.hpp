// One queue pair as the proxy uses it: what each posted entry is for, what waits for room, the
// credits of message requests, and what is left when it ends in error.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/shmem/trace.hpp"
#include "shmem/nic/nic.hpp"
#include "shmem/transport/proxy/notice.hpp"
#include "shmem/transport/proxy/statistics.hpp"

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
  notice,        // a message about another channel left; see failover.cpp
};

constexpr uint32_t kNoLane = ~0u;  // no command of ours waits for it

// Says enough to post a WRITE or READ of a lane once more, on another queue pair.
struct Posted {
  After after = After::nothing;
  nic::Opcode op = nic::Opcode::write;
  bool inlined = false;
  uint32_t lane = kNoLane;
  uint32_t record = 0;    // atomic_step, request: the atomic; slot_done: slot + 1; notice: the slot
  uint32_t length = 0;    // counted against the lane's bytes in flight
  uint64_t sequence = 0;  // of the command on its lane
  uint64_t target = 0;    // offset in the peer's heap
  uint64_t local = 0;     // local address; inlined: the value itself
  nic::Order order = nic::Order::free;
};

class Channel {
 public:
  enum class State : uint8_t {
    up,
    failing,  // in error; its work goes to another rail when the peer's end is in error too
    moved,    // that has happened
    dead,     // in error, and its work with it
  };
  struct Unfinished {
    uint64_t index;
    Posted entry;
  };

  // `slot`: its place among the channels to `peer`. In `active` it lists itself while it has
  // something to ring or to post.
  Channel(nic::Nic& nic, int peer, uint32_t slot, uint32_t depth, uint32_t receive_depth,
          RailCounters& counters, std::vector<Channel*>& active)
      : nic_(nic),
        peer_(peer),
        slot_(slot),
        endpoint_(nic.create_endpoint(depth, receive_depth)),
        posted_(depth),
        mask_(depth - 1),
        counters_(counters),
        active_(active) {}

  nic::Endpoint& endpoint() { return *endpoint_; }
  nic::Nic& nic() { return nic_; }
  int peer() const { return peer_; }
  uint32_t slot() const { return slot_; }
  int rail() const { return static_cast<int>(nic_.rail()); }
  RailCounters& counters() { return counters_; }

  bool has_room() const {
    return waiting_.empty() && endpoint_->posted() - endpoint_->completed() < posted_.size();
  }

  // Posts, or keeps until there is room: the order of submission is the order on the wire.
  void submit(const nic::WorkRequest& request, const Posted& entry) {
    if (!listed_) active_.push_back(this);
    listed_ = true;
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

  // Hands what was posted to the NIC; true while there is more to post.
  bool ring_doorbell() {
    if (rung_ != endpoint_->posted()) {
      endpoint_->ring_doorbell();
      rung_ = endpoint_->posted();
      counters_.doorbells.add();
    }
    listed_ = !waiting_.empty();
    return listed_;
  }

  const Posted& entry(uint64_t index) const { return posted_[index & mask_]; }

  // Nothing that was submitted is left in it.
  bool is_drained() const {
    return waiting_.empty() && endpoint_->posted() == endpoint_->completed();
  }

  const device::Trace* trace = nullptr;  // null: no timeline is written

  // Message requests that the peer has a receive buffer for.
  uint32_t credits = 0;
  std::deque<uint32_t> requests;  // atomics that wait for a credit

  State state = State::up;
  // From here on only of a channel in error.
  nic::Status status = nic::Status::ok;  // of the first error
  std::vector<Unfinished> unfinished;    // WRITEs and READs that ended in error, in order
  bool told = false;                     // the peer was told that our end is in error
  std::optional<Notice> heard;           // the peer told us that its end is
  bool is_refused() const { return heard && heard->refused; }

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
    counters_.requests.add();
    counters_.bytes.add(request.length);
    device::record_instant(trace, device::Moment::nic_posted, request.length, peer_, rail(),
                           endpoint_->id(), index);
    return true;
  }

  nic::Nic& nic_;
  int peer_;
  uint32_t slot_;
  std::unique_ptr<nic::Endpoint> endpoint_;
  std::vector<Posted> posted_;
  uint64_t mask_;
  std::deque<Waiting> waiting_;
  uint64_t rung_ = 0;  // of what was posted, handed to the NIC
  bool listed_ = false;
  RailCounters& counters_;
  std::vector<Channel*>& active_;
};

}  // namespace railshmem::proxy
