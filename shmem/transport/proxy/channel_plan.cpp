#include "shmem/transport/proxy/channel_plan.hpp"

namespace railshmem::proxy {
namespace {

// Where both sides' atomics go over the lane's rail, each has a channel to the other there already:
// the lane uses it, and an ADD may follow its data on one queue pair. Later lanes on the same rail
// are streams of their own.
bool shares_atomics(const Topology& topology, int me, int peer, uint32_t lane) {
  const int rail = topology.rail(me, peer, lane);
  return lane < topology.facts(me).rails.size() && rail == topology.atomics_rail(peer, me) &&
         rail == topology.atomics_rail(me, peer);
}

// The rail that the next lane would get, unless a lane has it already.
int standby_rail(const Topology& topology, int me, int peer, uint32_t lanes) {
  const int next = topology.rail(me, peer, lanes);
  for (uint32_t lane = 0; lane < lanes; ++lane)
    if (topology.rail(me, peer, lane) == next) return -1;
  return next;
}

}  // namespace

std::vector<int> channel_rails(const Topology& topology, int me, int peer, uint32_t lanes) {
  const bool remote = topology.node(me) != topology.node(peer);
  std::vector<int> out;
  for (uint32_t lane = 0; lane < lanes; ++lane) {
    const bool needed = remote && !shares_atomics(topology, me, peer, lane);
    out.push_back(needed ? topology.rail(me, peer, lane) : -1);
  }
  out.push_back(topology.atomics_rail(me, peer));
  out.push_back(topology.atomics_rail(peer, me));
  out.push_back(remote ? standby_rail(topology, me, peer, lanes) : -1);
  return out;
}

}  // namespace railshmem::proxy
