// How far a NIC is from a PE's GPU or cores, from what sysfs says of the machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace railshmem::nic {

// Virtual NICs are nowhere; farther than all that is somewhere.
constexpr uint32_t kUnknownDistance = 1000;

// `device`: the NIC's folder, such as /sys/class/infiniband/mlx5_0/device. `sysfs`: another one for
// tests.

// PCI bridges between the NIC and the GPU at `bus_id` ("0000:1b:00.0"); more where only the NUMA
// node is the same, and still more where not even that is.
uint32_t distance_to_gpu(const std::string& device, const std::string& bus_id,
                         const std::string& sysfs = "/sys");

// 0 where one of the cores is on the NIC's NUMA node, else what the machine calls the distance of
// the nearest.
uint32_t distance_to_cores(const std::string& device, const std::vector<int>& cores,
                           const std::string& sysfs = "/sys");

// The cores that this thread may use.
std::vector<int> own_cores();

}  // namespace railshmem::nic
