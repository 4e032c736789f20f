// The one door to the machine a kernel runs on. Everything in kernels/ uses these names only:
//   RSH_DEVICE, RSH_DEVICE_CALL     a function of device code; one that is large and used often
//   RSH_KERNEL                      a kernel, found by its name
//   RSH_UNROLL, RSH_ROLLED          before a loop whose variables are to stay in registers; before
//                                   one that is to stay small
//   arch::Scope                     who takes part in a call: thread, warp or block
//   arch::rank/size<Scope>, sync<Scope>, all<Scope>, leader<Scope>
//   arch::block, blocks             the grid; sync_grid, arrive_at_grid: how its blocks meet
//   arch::warp_of_grid, _of_block   warps as workers
//   arch::load/store/fetch_... , fence_system   memory seen by other PEs, NICs and the CPU
//   arch::claim_add, claim_swap     counters that only this PE's kernels share
//   arch::copy<Scope>, clock_ns, Backoff
//   arch::WarpList, copy_to_each, take, give, sum_before, to_bf16, ...   rows of data, by warps
// A new architecture is one more file beside host.hpp and one more line here.
#pragma once

#if defined(__HIP__)
#include "kernels/arch/hip.hpp"
#elif defined(__CUDACC__) || defined(__CUDACC_RTC__)
#include "kernels/arch/cuda.hpp"
#else
#include "kernels/arch/host_rows.hpp"
#endif
