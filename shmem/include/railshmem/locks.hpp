// Distributed locks (9.12): a symmetric long that starts as 0.
#pragma once

#include <cstdint>

#include "shmem/api/default_runtime.hpp"
#include "shmem/api/locks.hpp"

namespace railshmem {

inline void shmem_set_lock(long* lock) {
  set_lock(default_runtime(), reinterpret_cast<uint64_t*>(lock));
}
// Completes what this PE posted on the default context first.
inline void shmem_clear_lock(long* lock) {
  clear_lock(default_runtime(), reinterpret_cast<uint64_t*>(lock));
}
// 0 when the lock was free and is now this PE's, else 1.
inline int shmem_test_lock(long* lock) {
  return test_lock(default_runtime(), reinterpret_cast<uint64_t*>(lock)) ? 0 : 1;
}

}  // namespace railshmem
