// How a warp moves many rows, each to several places: by the engine that the machine has for that,
// where it has one and the launch gave shared memory for it, else by its lanes.
#pragma once

#include "kernels/arch/arch.hpp"

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#include "kernels/arch/cuda_bulk.hpp"
#else
namespace railshmem::arch {

// Every thread of the block makes one, before anything else that uses shared memory of the launch.
class RowMover {
 public:
  RSH_DEVICE RowMover() {}
  // copy_to_each of bytes that are multiples of 16; the warp comes.
  RSH_DEVICE void copy_to_each(const WarpList& rows, const void* from, uint64_t first,
                               uint64_t last) {
    arch::copy_to_each(rows, from, first, last);
  }
  // Everything that was moved is as if this thread had stored it.
  RSH_DEVICE void finish() {}
};

}  // namespace railshmem::arch
#endif
