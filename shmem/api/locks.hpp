// Distributed locks (OpenSHMEM 1.5, section 9.12): a symmetric 64-bit word that starts as 0. PEs
// that wait form a queue and are served in order; each waits on its own copy of the word.
#pragma once

#include <cstdint>

#include "shmem/api/runtime.hpp"

namespace railshmem {

// Waits until this PE holds the lock. Throws Error(argument) where it holds it already.
void set_lock(Runtime& runtime, uint64_t* lock);
// True when the lock was free and is now this PE's.
bool test_lock(Runtime& runtime, uint64_t* lock);
// Completes what this PE posted on the default context, then lets the next PE have the lock. Throws
// Error(argument) where this PE does not hold it.
void clear_lock(Runtime& runtime, uint64_t* lock);

}  // namespace railshmem
