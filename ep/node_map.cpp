#include "ep/node_map.hpp"

#include <algorithm>

namespace railshmem::ep {
namespace {

int32_t position(const std::vector<int32_t>& items, int item) {
  return static_cast<int32_t>(std::find(items.begin(), items.end(), item) - items.begin());
}

}  // namespace

int NodeMap::forwarder(const Topology& topology, int source, int node) {
  const auto& members = topology.members(node);
  const std::size_t smaller =
      std::min(members.size(), topology.members(topology.node(source)).size());
  return members[static_cast<std::size_t>(topology.local_index(source)) % smaller];
}

std::vector<int32_t> NodeMap::sources_of(const Topology& topology, int pe) {
  std::vector<int32_t> out;
  const int node = topology.node(pe);
  for (int source = 0; source < topology.n_pes(); ++source)
    if (topology.node(source) != node && forwarder(topology, source, node) == pe)
      out.push_back(source);
  // Each PE begins with the sources that follow it, so that not all send to the same one at once.
  std::rotate(out.begin(), std::upper_bound(out.begin(), out.end(), pe), out.end());
  return out;
}

NodeMap::NodeMap(const Topology& topology, int pe) : sources_(sources_of(topology, pe)) {
  const int own = topology.node(pe);
  members_.assign(topology.members(own).begin(), topology.members(own).end());
  for (int other = 0; other < topology.n_pes(); ++other) {
    const bool member = topology.node(other) == own;
    writers_.push_back(member ? other : forwarder(topology, other, own));
    member_of_.push_back(member ? topology.local_index(other) : -1);
    node_of_.push_back(member ? -1 : topology.node(other));
    n_slots_ = std::max(n_slots_, static_cast<int>(sources_of(topology, other).size()));
  }
  for (int node = 0; node < topology.n_nodes(); ++node) {
    most_members_ = std::max(most_members_, static_cast<int>(topology.members(node).size()));
    const int gateway = node == own ? -1 : forwarder(topology, pe, node);
    gateways_.push_back({gateway, node == own ? 0 : position(sources_of(topology, gateway), pe),
                         static_cast<int32_t>(topology.members(node).size())});
  }
  view_.index = own;
  view_.n_nodes = topology.n_nodes();
  view_.me = topology.local_index(pe);
  view_.n_members = static_cast<int32_t>(members_.size());
  view_.n_sources = static_cast<int32_t>(sources_.size());
  view_.members = members_.data();
  view_.sources = sources_.data();
  view_.writers = writers_.data();
  view_.gateways = gateways_.data();
}

std::vector<device::ep::Home> NodeMap::homes(const device::ep::Shape& shape) const {
  std::vector<device::ep::Home> out;
  for (int32_t expert = 0; expert < shape.experts; ++expert) {
    const int32_t pe = device::ep::owner_of(shape, expert);
    const auto owner = static_cast<std::size_t>(pe);
    out.push_back(
        {pe, member_of_[owner], node_of_[owner], expert - device::ep::first_expert(shape, pe)});
  }
  return out;
}

}  // namespace railshmem::ep
