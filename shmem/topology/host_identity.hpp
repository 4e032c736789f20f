// Who this process is on its host: facts that tell hosts and processes apart, whatever they are
// called.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace railshmem {

std::string host_name();
// Of the running kernel: the same for all containers of one host, different for every boot.
std::string boot_id();

// The cores this process may use, as a set of bits.
using CoreSet = std::array<uint64_t, 16>;
CoreSet usable_cores();
int count_cores(const CoreSet& cores);

}  // namespace railshmem
