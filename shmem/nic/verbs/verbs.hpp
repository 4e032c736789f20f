// RDMA NICs through libibverbs, which is loaded at run time.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "shmem/base/settings.hpp"
#include "shmem/gpu/driver.hpp"
#include "shmem/nic/nic.hpp"

namespace railshmem::nic {

// Why this host has no NIC of `nics` (RAILSHMEM_NICS) that libibverbs drives; empty: it has.
std::string why_no_verbs(const std::string& nics, const VerbsSettings& settings);

// `site`: this PE's GPU, if it has one. Throws Error(init) where there is no usable NIC.
std::unique_ptr<Provider> make_verbs_provider(const std::string& nics,
                                              const VerbsSettings& settings,
                                              const std::optional<gpu::Site>& site);

}  // namespace railshmem::nic
