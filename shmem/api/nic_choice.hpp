// Whether a job needs NICs, and whose.
#pragma once

#include <string>

#include "shmem/base/settings.hpp"
#include "shmem/bootstrap/bootstrap.hpp"

namespace railshmem {

struct NicChoice {
  ProviderKind kind = ProviderKind::none;
  std::string reason;  // why those, or why none
};

// Collective; the same answer on every PE.
NicChoice choose_nics(const Settings& settings, Bootstrap& bootstrap);

}  // namespace railshmem
