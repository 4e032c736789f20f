// Which queue pairs a PE has towards a peer, and on which rails: what Connections makes, and what
// can be counted for jobs that do not run.
#pragma once

#include <cstdint>
#include <vector>

#include "shmem/topology/topology.hpp"

namespace railshmem::proxy {

// Towards one peer, by slot (a lane each, the channel of this PE's atomics on the peer's heap, the
// one that answers the peer's, the standby): the rail of the channel, -1 where none is needed.
std::vector<int> channel_rails(const Topology& topology, int me, int peer, uint32_t lanes);

}  // namespace railshmem::proxy
