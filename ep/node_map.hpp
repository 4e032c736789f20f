// Who places and who forwards whose rows: the tables behind device::ep::Node. Every PE computes the
// same answer from the topology.
#pragma once

#include <vector>

#include "kernels/ep/args.hpp"
#include "shmem/topology/topology.hpp"

namespace railshmem::ep {

class NodeMap {
 public:
  NodeMap(const Topology& topology, int pe);
  NodeMap(const NodeMap&) = delete;
  NodeMap& operator=(const NodeMap&) = delete;

  // Points into this object.
  const device::ep::Node& view() const { return view_; }
  // The most sources that any PE of the job forwards, and the most PEs of a node: what symmetric
  // buffers need room for.
  int n_slots() const { return n_slots_; }
  int most_members() const { return most_members_; }
  // By expert.
  std::vector<device::ep::Home> homes(const device::ep::Shape& shape) const;

  // The PE of `node` that forwards the rows of `source`, which is in another node: the one with the
  // same local index, modulo the size of the smaller node.
  static int forwarder(const Topology& topology, int source, int node);
  // The remote PEs whose rows `pe` forwards; the position is the slot.
  static std::vector<int32_t> sources_of(const Topology& topology, int pe);

 private:
  std::vector<int32_t> members_;
  std::vector<int32_t> sources_;
  std::vector<int32_t> writers_;
  std::vector<int32_t> member_of_;
  std::vector<int32_t> node_of_;
  std::vector<device::ep::Gateway> gateways_;
  int n_slots_ = 0;
  int most_members_ = 0;
  device::ep::Node view_;
};

}  // namespace railshmem::ep
