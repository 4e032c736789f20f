// The queue pair at the other end of one of ours: admission to its memory, its receive queue, its
// receive completions.
#pragma once

#include <memory>

#include "shmem/nic/emulated/completions.hpp"
#include "shmem/nic/emulated/peer.hpp"

namespace railshmem::nic::emulated {

class Connection {
 public:
  // `own` is the slot of our queue pair, `token` its endpoint's.
  Connection(std::shared_ptr<Peer> peer, uint32_t peer_qpn, QueuePairSlot& own, uint64_t token);

  // Every touch of the peer's memory happens inside a visit. The peer revokes a key or a link with
  // one store and then waits until no visit that began before is under way.
  class Visit {
   public:
    explicit Visit(Connection& to);
    ~Visit();
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;
    // Looks each time. False: the peer closed this queue pair, has it in error, connected it to
    // another, or its process has ended.
    bool admitted() const;

   private:
    Connection& to_;
  };

  Peer& peer() const { return *peer_; }

  // How many of our queue pair's requests were executed without a gap; what the peer learns when
  // its end is shut. Only inside a visit.
  void tell_executed(uint64_t count) const { arch::store_release(&far_slot().executed, count); }

  // The peer's next receive buffer; false where none is posted. Only inside a visit.
  bool next_receive(mlx5::DataSegment* out) const;
  // Uses that buffer up: writes its completion and wakes the peer. Only inside a visit.
  void complete_receive(Answer answer);

  // The peer's engine is inside our memory, or was when it died.
  bool visited() const;
  // Returns when it has left or is dead. What was revoked before the call is not touched after it.
  void wait_for_visitor() const;

 private:
  QueuePairSlot& far_slot() const { return peer_->nic().queue_pairs[slot_of(qpn_)]; }

  std::shared_ptr<Peer> peer_;
  uint32_t qpn_;
  QueuePairSlot& own_;
  uint64_t token_;
  uint64_t received_ = 0;  // receive buffers used up; nobody else uses this queue
};

}  // namespace railshmem::nic::emulated
