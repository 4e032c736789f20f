// From a stop record to an error a person can act on.
#pragma once

#include "kernels/shmem/context.hpp"
#include "shmem/base/error.hpp"

namespace railshmem {

// The error of PE `pe` that was stopped for `reason`.
Error error_of(device::Stop reason, const device::Report& report, int pe);

}  // namespace railshmem
