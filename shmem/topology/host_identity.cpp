#include "shmem/topology/host_identity.hpp"

#include <sched.h>
#include <unistd.h>

#include <bitset>
#include <fstream>

namespace railshmem {

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  // Without /proc the name is all there is; mapping a peer's memory still has to work really.
  return id.empty() ? "host " + host_name() : id;
}

CoreSet usable_cores() {
  CoreSet out{};
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return out;
  for (std::size_t core = 0; core < 1024; ++core)
    if (CPU_ISSET(core, &set)) out[core / 64] |= uint64_t{1} << (core % 64);
  return out;
}

int count_cores(const CoreSet& cores) {
  int count = 0;
  for (const uint64_t word : cores) count += static_cast<int>(std::bitset<64>(word).count());
  return count;
}

}  // namespace railshmem
