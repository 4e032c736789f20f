#include "shmem/nic/distance.hpp"

#include <sched.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace railshmem::nic {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kSameNode = 100;
constexpr uint32_t kOtherNode = 200;

std::string line_of(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

int number_in(const fs::path& file, int fallback) {
  std::istringstream in(line_of(file));
  int value = 0;
  return in >> value ? value : fallback;
}

// The device itself, behind links; empty: there is none.
fs::path real(const fs::path& device) {
  std::error_code none;
  fs::path out = fs::canonical(device, none);
  return none ? fs::path() : out;
}

// "0-3,8" -> 0 1 2 3 8
bool lists(const std::string& ranges, int core) {
  std::istringstream in(ranges);
  for (int first = 0; in >> first;) {
    int last = first;
    if (in.peek() == '-') in.get(), in >> last;
    if (core >= first && core <= last) return true;
    if (in.peek() == ',') in.get();
  }
  return false;
}

}  // namespace

uint32_t distance_to_gpu(const std::string& device, const std::string& bus_id,
                         const std::string& sysfs) {
  std::string id = bus_id;
  std::transform(id.begin(), id.end(), id.begin(), [](unsigned char c) { return std::tolower(c); });
  const fs::path nic = real(device);
  const fs::path gpu = real(fs::path(sysfs) / "bus/pci/devices" / id);
  if (nic.empty() || gpu.empty()) return kUnknownDistance;
  const auto parted = std::mismatch(nic.begin(), nic.end(), gpu.begin(), gpu.end());
  // The paths are those of the bridges: "/sys/devices/pci0000:00/0000:00:01.0/...". Below different
  // roots it is the NUMA node that tells.
  const bool same_root = std::any_of(nic.begin(), parted.first, [](const fs::path& part) {
    return part.string().rfind("pci", 0) == 0;
  });
  if (same_root)
    return static_cast<uint32_t>(std::distance(parted.first, nic.end()) +
                                 std::distance(parted.second, gpu.end()));
  const int node = number_in(nic / "numa_node", -1);
  return node >= 0 && node == number_in(gpu / "numa_node", -1) ? kSameNode : kOtherNode;
}

uint32_t distance_to_cores(const std::string& device, const std::vector<int>& cores,
                           const std::string& sysfs) {
  const fs::path nic = real(device);
  const int node = nic.empty() ? -1 : number_in(nic / "numa_node", -1);
  if (node < 0) return kUnknownDistance;
  const fs::path nodes = fs::path(sysfs) / "devices/system/node";
  std::istringstream distances(line_of(nodes / ("node" + std::to_string(node)) / "distance"));
  uint32_t nearest = kUnknownDistance;
  uint32_t distance = 0;
  for (int other = 0; distances >> distance; ++other) {
    const std::string cores_there = line_of(nodes / ("node" + std::to_string(other)) / "cpulist");
    const bool here =
        std::any_of(cores.begin(), cores.end(), [&](int core) { return lists(cores_there, core); });
    if (here) nearest = std::min(nearest, other == node ? 0 : distance);
  }
  return nearest;
}

std::vector<int> own_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> out;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return out;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) out.push_back(core);
  return out;
}

}  // namespace railshmem::nic
