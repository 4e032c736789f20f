// Launching kernels on the host. What compiles for a GPU sees only that it can be done: the kernels
// there are not the host's.
#pragma once

#include "kernels/arch/arch.hpp"

#if defined(__HIP__) || defined(__CUDACC__) || defined(__CUDACC_RTC__)
namespace railshmem::arch {
template <class Kernel>
void launch(uint32_t blocks, const Kernel& kernel);
}
#else
#include "kernels/arch/host_launch.hpp"
#endif
