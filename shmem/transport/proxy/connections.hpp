// All queue pairs of one PE. Towards each peer: a data channel per lane, on the rail both agree on
// (remote peers only, and where the next one cannot serve the lane too); one channel to the peer's
// home rail, through which this PE's atomics on the peer's heap go; and one on our home rail that
// answers the peer's. Absent channels are explicit empty slots, so indices never shift.
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
  // Receive buffers per channel, and so the message requests in flight to one peer.
  static constexpr uint32_t kReceives = 16;
  static constexpr uint64_t kReceiveBytes = 64;

  // Heap bytes that the receive buffers of a job need.
  static uint64_t receive_area(int n_pes) {
    return uint64_t{2} * static_cast<uint64_t>(n_pes) * kReceives * kReceiveBytes;
  }

  // Throws Error(init) naming the PEs that no rail joins. `receive_offset`: of the area in the
  // heap.
  Connections(int me, const Topology& topology, nic::Provider& provider, uint32_t lanes,
              uint32_t depth, char* heap, uint64_t receive_offset);

  // What peers need: [n_pes * (lanes + 2)] addresses.
  std::vector<nic::EndpointAddress> addresses() const;
  // Connects everything; `theirs[pe * (lanes + 2) + slot]`: what each PE's addresses() hold for
  // this one; `nics[pe][rail]`: their NICs.
  void connect(const std::vector<nic::EndpointAddress>& theirs,
               const std::vector<std::vector<nic::NicAddress>>& nics, const KeyTable& keys);

  // What carries the lane's data: a channel of its own, or the one of its atomics.
  Channel* data(int pe, uint32_t lane) const {
    Channel* own = at(pe, lane);
    return own != nullptr ? own : atomics_to(pe);
  }
  Channel* atomics_to(int pe) const { return at(pe, lanes_); }
  Channel* atomics_from(int pe) const { return at(pe, lanes_ + 1); }

  // The channel of a completion, and what its receive buffer `index` holds.
  Channel* find(std::size_t nic_index, uint32_t endpoint) const;
  const char* received(const Channel& channel, uint64_t index) const;
  void give_back(Channel& channel, uint64_t index) const;

  uint32_t lanes() const { return lanes_; }
  const std::vector<std::unique_ptr<Channel>>& all() const { return channels_; }

 private:
  Channel* at(int pe, uint32_t slot) const {
    return channels_[static_cast<std::size_t>(pe) * (lanes_ + 2) + slot].get();
  }
  uint64_t buffer_of(const Channel& channel, uint64_t index) const;

  int me_;
  int n_pes_;
  uint32_t lanes_;
  char* receives_;
  std::vector<std::unique_ptr<Channel>> channels_;  // [n_pes * (lanes + 2)]
  std::vector<std::vector<Channel*>> by_endpoint_;  // [nic][endpoint id]
  std::vector<uint32_t> lkeys_;                     // by rail
};

}  // namespace railshmem::proxy
