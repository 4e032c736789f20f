// Whether NICs that should reach each other, by their addresses, really do: a message there and
// back over a queue pair of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shmem/bootstrap/bootstrap.hpp"
#include "shmem/nic/nic.hpp"

namespace railshmem::nic {

// One end of a link to try.
struct ProbeEnd {
  Nic* nic = nullptr;
  int peer = -1;  // the PE at the other end
  NicAddress peer_nic;
  uint32_t slot = 0;  // tells the links between two PEs apart; both ends have the same
};

// Collective; PEs without ends come too. Returns why each of this PE's ends had no answer, empty
// where it had one. `slots`: more than the largest slot, the same on all PEs. Whoever does not
// answer within `seconds` is not there.
std::vector<std::string> probe(Bootstrap& bootstrap, const std::vector<ProbeEnd>& ends,
                               uint32_t slots, double seconds);

}  // namespace railshmem::nic
