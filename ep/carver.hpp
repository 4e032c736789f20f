// Takes pieces of a block one after the other.
#pragma once

#include <cstdint>

#include "shmem/base/error.hpp"

namespace railshmem::ep {

// With a null block it only measures.
class Carver {
 public:
  explicit Carver(void* block) : block_(reinterpret_cast<uintptr_t>(block)) {}

  // Room for an array with these dimensions.
  template <class T, class... Dimensions>
  T* take(Dimensions... dimensions) {
    const uint64_t at = used_;
    uint64_t bytes = sizeof(T);
    const bool fits = (!__builtin_mul_overflow(bytes, uint64_t{dimensions}, &bytes) && ...) &&
                      bytes <= INT64_MAX - at - 63;
    if (!fits)
      fail(ErrorKind::argument, "ExpertParallel: its buffers would need 2^63 bytes or more");
    used_ += (bytes + 63) / 64 * 64;
    return reinterpret_cast<T*>(block_ + at);
  }
  uint64_t used() const { return used_; }

 private:
  uintptr_t block_;
  uint64_t used_ = 0;
};

}  // namespace railshmem::ep
