#include "shmem/nic/emulated/connection.hpp"

#include <utility>

#include "shmem/nic/emulated/robust_lock.hpp"

namespace railshmem::nic::emulated {
namespace {

// A process that stays inside one copy for so long was stopped for good.
constexpr uint64_t kStuckNs = 10'000'000'000;

}  // namespace

Connection::Connection(std::shared_ptr<Peer> peer, uint32_t peer_qpn, QueuePairSlot& own,
                       uint64_t token)
    : peer_(std::move(peer)), qpn_(peer_qpn), own_(own), token_(token) {}

Connection::Visit::Visit(Connection& to) : to_(to) {
  // Announce, then look (admitted); the peer revokes, then looks for the announcement. All are
  // ordered, so at least one side sees the other.
  arch::store_ordered(&to_.own_.visits, to_.own_.visits + 1);
}

bool Connection::Visit::admitted() const {
  return arch::load_ordered(&to_.far_slot().link) == to_.token_ && !to_.peer_->ended();
}

Connection::Visit::~Visit() {
  arch::store_release(&to_.own_.visits, to_.own_.visits + 1);  // pairs with wait_for_visitor
}

bool Connection::next_receive(mlx5::DataSegment* out) const {
  const QueuePairSlot& slot = far_slot();
  // Pairs with the release store of post_receive: the segment is there before the count says so.
  const auto posted = static_cast<uint16_t>(mlx5::be32(arch::load_acquire(&slot.doorbell.receive)));
  if (posted == static_cast<uint16_t>(received_)) return false;
  const auto* queue = peer_->nic().receive_queues[slot_of(qpn_)];
  const mlx5::DataSegment& next = queue[received_ & (slot.receive_depth - 1)];
  *out = {mlx5::be32(next.bytes), mlx5::be32(next.lkey), mlx5::be64(next.address)};
  return true;
}

void Connection::complete_receive(Answer answer) {
  answer.qpn = qpn_;
  answer.counter = static_cast<uint16_t>(received_++);
  SharedNic& nic = peer_->nic();
  {
    RobustLock lock(nic.mutex);
    // A writer killed between publishing its entry and counting it left that to us.
    while (mlx5::is_ready(&nic.receive_cq[nic.arrived % kReceiveCqEntries], nic.arrived,
                          kLogReceiveCq))
      ++nic.arrived;
    publish(&nic.receive_cq[nic.arrived % kReceiveCqEntries], answer,
            mlx5::owner_bit(nic.arrived, kLogReceiveCq));
    ++nic.arrived;
  }
  arch::wake(peer_->sleep_word());
}

bool Connection::visited() const {
  // Ordered after the store that revoked something; pairs with the end of the visit.
  return (arch::load_ordered(&far_slot().visits) & 1) != 0 && !peer_->ended();
}

void Connection::wait_for_visitor() const {
  const uint64_t* visits = &far_slot().visits;
  const uint64_t seen = arch::load_ordered(visits);
  if ((seen & 1) == 0) return;
  const uint64_t deadline = arch::clock_ns() + kStuckNs;
  arch::Backoff backoff(1000);
  // Pairs with the end of the visit: what the visitor wrote is done.
  while (arch::load_acquire(visits) == seen) {
    if (backoff.long_look() && (peer_->ended() || arch::clock_ns() > deadline)) return;
    backoff.step();
  }
}

}  // namespace railshmem::nic::emulated
