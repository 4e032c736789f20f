// What calls may be given of GPU memory. All throw Error(argument) naming call, argument and
// values.
#pragma once

#include <cstddef>

#include "shmem/api/context.hpp"
#include "shmem/api/runtime.hpp"

namespace railshmem {

// `address` is a GPU's, as its owner says: the job must run on GPUs, and it must be this PE's.
void require_own_gpu(const Runtime& runtime, const char* call, const char* what,
                     const void* address);
void require_own_gpu(const Context& context, const char* call, const char* what,
                     const void* address);

// Local memory that a kernel of this PE reads or writes on behalf of `pe`: in this PE's GPU and,
// where a NIC moves it, in the heap or registered.
void require_kernel_memory(const Runtime& runtime, const char* call, const char* what,
                           const void* address, std::size_t bytes, int pe);

}  // namespace railshmem
