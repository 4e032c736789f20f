// The one door to the machine a kernel runs on. Everything in kernels/ uses these names only:
//   RSH_DEVICE                      a function of device code
//   RSH_KERNEL                      a kernel, found by its name
//   RSH_UNROLL                      before a loop whose variables are to stay in registers
//   arch::Scope                     who takes part in a call: thread, warp or block
//   arch::rank/size<Scope>, sync<Scope>, all<Scope>, leader<Scope>
//   arch::block, blocks, sync_grid  the grid
//   arch::load/store/fetch_... , fence_system   memory seen by other PEs, NICs and the CPU
//   arch::claim_add, claim_swap     counters that only this PE's kernels share
//   arch::copy<Scope>, clock_ns, Backoff
// A new architecture is one more file beside host.hpp and one more line here.
#pragma once

#if defined(__HIP__)
#include "kernels/arch/hip.hpp"
#elif defined(__CUDACC__) || defined(__CUDACC_RTC__)
#include "kernels/arch/cuda.hpp"
#else
#include "kernels/arch/host.hpp"
#endif
