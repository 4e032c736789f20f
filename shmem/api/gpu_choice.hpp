// Whether a job runs on GPUs, and which one is this PE's.
#pragma once

#include <optional>
#include <string>

#include "shmem/base/settings.hpp"
#include "shmem/bootstrap/bootstrap.hpp"
#include "shmem/gpu/driver.hpp"

namespace railshmem {

struct GpuChoice {
  std::optional<gpu::Site> site;  // none: the job's heaps are in host memory
  std::string reason;             // why there is none, or why this one
};

// Collective. All PEs of a job take GPUs, or none. Throws Error(init), on every PE, where the
// settings ask for GPUs and a PE has none that fits.
GpuChoice choose_gpu(const Settings& settings, Bootstrap& bootstrap);

}  // namespace railshmem
