// From the networks of every PE's NICs to the job's rails: what joins NICs of different hosts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace railshmem {

// One NIC of one PE, as far as addresses tell.
struct NicPlace {
  std::string host;     // that the NIC is in
  std::string network;  // see nic::Nic::network
};

// [pe][nic] the rail of each. Every PE computes the same from the same allgathered places.
//
// NICs of one network that a PE has are told apart by their order, so that several NICs in one flat
// network are several rails. Where no network reaches beyond its host (each wire has a subnet of
// its own, and routers join them), the order alone decides: NIC r of every PE is on rail r.
// Whether the NICs of a rail really answer each other shows in the probe (nic/probe.hpp).
std::vector<std::vector<uint32_t>> assign_rails(const std::vector<std::vector<NicPlace>>& nics);

// The hosts of a rail were tried as a ring: which of them to leave out, given the links between
// `size` hosts that failed (link i joins host i and the next; two hosts have one link). Whoever
// answers nobody is cut off; where a single link fails, nobody knows whose end it is, and both go.
std::vector<bool> cut_off(std::size_t size, const std::vector<bool>& failed);

// One more than the largest.
uint32_t count_rails(const std::vector<std::vector<uint32_t>>& rails);

}  // namespace railshmem
