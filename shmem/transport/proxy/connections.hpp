// All queue pairs of one PE. Towards each peer: a data channel per lane, on the rail both agree on
// (remote peers only, and where the next one cannot serve the lane too); one channel to the peer's
// home rail, through which this PE's atomics on the peer's heap go; one on our home rail that
// answers the peer's; and a standby on one more rail, where lanes leave one unused, for the day
// when theirs is down. Absent channels are explicit empty slots, so indices never shift.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "shmem/memory/key_table.hpp"
#include "shmem/nic/nic.hpp"
#include "shmem/topology/topology.hpp"
#include "shmem/transport/proxy/channel.hpp"

namespace railshmem::proxy {

class Connections {
 public:
  // Message requests in flight to one peer.
  static constexpr uint32_t kCredits = 16;
  static constexpr uint64_t kReceiveBytes = 64;

  static constexpr uint32_t slots_per_peer(uint32_t lanes) { return lanes + 3; }

  // Heap bytes that the receive buffers of a job need.
  static uint64_t receive_area(int n_pes, uint32_t lanes) {
    return uint64_t{2} * static_cast<uint64_t>(n_pes) * buffers(lanes) * kReceiveBytes;
  }

  // Throws Error(init) naming the PEs that no rail joins. `receive_offset`: of the area in the
  // heap.
  Connections(int me, const Topology& topology, nic::Provider& provider, uint32_t lanes,
              uint32_t depth, char* heap, uint64_t receive_offset);

  // Receive buffers of a channel, for a queue whose depth is the next power of two.
  static uint32_t receives_of(uint32_t slot, uint32_t lanes) {
    return slot == lanes || slot == lanes + 1 ? buffers(lanes) : notices(lanes);
  }

  // Memory of a channel's queues, in mlx5's layout: of a request its entry, its completion and what
  // is remembered of it, of a receive buffer its entry and its completion.
  static uint64_t queue_bytes(uint32_t slot, uint32_t lanes, uint32_t depth);
  // Of all channels there are, and of the receive buffers in the heap.
  uint64_t memory_bytes() const;

  // What peers need: [n_pes * slots_per_peer(lanes)] addresses.
  std::vector<nic::EndpointAddress> addresses() const;
  // Connects everything; `theirs[pe * slots_per_peer + slot]`: what each PE's addresses() hold for
  // this one; `nics[pe][rail]`: their NICs; `keys` stay.
  void connect(const std::vector<nic::EndpointAddress>& theirs,
               const std::vector<std::vector<nic::NicAddress>>& nics, const KeyTable& keys);

  // What carries the lane's data: a channel of its own, or the one of its atomics.
  Channel* data(int pe, uint32_t lane) const {
    Channel* own = at(pe, lane);
    return own != nullptr ? own : atomics_to(pe);
  }
  Channel* atomics_to(int pe) const { return at(pe, lanes_); }
  Channel* atomics_from(int pe) const { return at(pe, lanes_ + 1); }

  // By slot; null where there is none.
  Channel* at(int pe, uint32_t slot) const {
    return channels_[static_cast<std::size_t>(pe) * slots_per_peer(lanes_) + slot].get();
  }
  // The slot of the peer's end of the same queue pair: its answering channel belongs to our asking
  // one, and the other way round.
  uint32_t slot_at_peer(uint32_t slot) const {
    if (slot == lanes_) return lanes_ + 1;
    return slot == lanes_ + 1 ? lanes_ : slot;
  }
  // A channel to the same peer that is up, on another rail; null where there is none.
  Channel* on_other_rail(const Channel& than) const;
  // As before; where there is none, one on the same rail.
  Channel* beside(const Channel& channel) const;

  // The channel of a completion, and what its receive buffer `index` holds.
  Channel* find(std::size_t nic_index, uint32_t endpoint) const;
  const char* received(const Channel& channel, uint64_t index) const;
  void give_back(Channel& channel, uint64_t index) const;

  // Posts what waited for room; true when something went.
  bool drain();
  // Hands what was posted to the NICs.
  void ring_doorbells();

  uint32_t lanes() const { return lanes_; }
  const std::vector<std::unique_ptr<Channel>>& all() const { return channels_; }
  std::vector<RailCounters>& rails() { return rails_; }  // by NIC

 private:
  // Every channel may have to carry a notice about each other one, once; see failover.cpp.
  static uint32_t notices(uint32_t lanes) { return slots_per_peer(lanes); }
  static uint32_t buffers(uint32_t lanes) { return kCredits + notices(lanes); }

  bool has_messages(const Channel& channel) const {
    return channel.slot() == lanes_ || channel.slot() == lanes_ + 1;
  }
  uint64_t buffer_of(const Channel& channel, uint64_t index) const;

  int me_;
  int n_pes_;
  uint32_t lanes_;
  uint32_t depth_;
  char* heap_;
  uint64_t receives_;  // the area's offset in the heap
  std::vector<RailCounters> rails_;
  std::vector<Channel*> active_;                    // with something to ring or to post
  std::vector<std::unique_ptr<Channel>> channels_;  // [n_pes * slots_per_peer]
  std::vector<std::vector<Channel*>> by_endpoint_;  // [nic][endpoint id]
  const KeyTable* keys_ = nullptr;                  // once connected
};

}  // namespace railshmem::proxy
