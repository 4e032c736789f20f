// From a stop record to an error a person can act on.
#pragma once

#include <string>
#include <vector>

#include "kernels/shmem/context.hpp"
#include "shmem/base/error.hpp"

namespace railshmem {

// The error of PE `pe` that was stopped for `reason`.
Error error_of(device::Stop reason, const device::Report& report, int pe);

// What each device::Waiting is called, in their order.
std::vector<std::string> waiting_names();

}  // namespace railshmem
