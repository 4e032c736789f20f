// NICs through libfabric, which is loaded at run time: tcp on any host, EFA, Slingshot.
#pragma once

#include <memory>
#include <string>

#include "shmem/base/settings.hpp"
#include "shmem/nic/nic.hpp"

namespace railshmem::nic {

// Why this host has no NIC of `nics` (RAILSHMEM_NICS) that libfabric drives; empty: it has.
std::string why_no_libfabric(const std::string& nics, const LibfabricSettings& settings);

// Throws Error(init) where there is no usable NIC.
std::unique_ptr<Provider> make_libfabric_provider(const std::string& nics,
                                                  const LibfabricSettings& settings);

}  // namespace railshmem::nic
