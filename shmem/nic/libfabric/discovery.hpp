// Which of libfabric's NICs a job may use.
#pragma once

#include <string>
#include <vector>

#include "shmem/base/settings.hpp"
#include "shmem/nic/libfabric/library.hpp"

namespace railshmem::nic::libfabric {

// One NIC: a domain and, where it speaks IP, one of its addresses.
struct Found {
  InfoList info;
  std::string fabric;     // libfabric's name of its provider: "tcp;ofi_rxm"
  std::string name;       // "eth0"
  std::string network;    // "10.201.0.0/24"
  std::string interface;  // to be watched; empty: not one of the host's network interfaces
};

// Of the first of the fabrics, best first, that has some. Throws Error(init) saying in one sentence
// why there is none.
std::vector<Found> discover(const std::string& nics, const LibfabricSettings& settings);

}  // namespace railshmem::nic::libfabric
