// Registered memory through which puts and gets of unregistered user memory travel: a ring of
// pieces, each free again when the lane it was posted on has completed.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>

#include "kernels/shmem/ring.hpp"

namespace railshmem {

class Bounce {
 public:
  void assign(char* base, uint64_t bytes) {
    base_ = base;
    bytes_ = bytes;
  }

  // The largest piece that take() gives.
  uint64_t largest_piece() const { return bytes_ / 4; }

  // One owner at a time, from take() to posted().
  std::mutex& mutex() { return mutex_; }

  // `bytes` of registered memory; waits for older pieces while there is no room. Null when stopped.
  char* take(const device::DeviceContext* ctx, uint64_t bytes);
  // The piece last taken is in use until this lane of `pe` has completed what is posted by now.
  void posted(const device::DeviceContext* ctx, int pe, uint32_t lane);

 private:
  struct Piece {
    uint64_t end;  // position in the endless stream of bytes
    int pe;
    uint32_t lane;
    uint64_t target;
  };

  char* base_ = nullptr;
  uint64_t bytes_ = 0;
  uint64_t head_ = 0;  // bytes handed out so far, whole cache lines
  uint64_t tail_ = 0;  // bytes free again
  std::deque<Piece> pieces_;
  std::mutex mutex_;
};

}  // namespace railshmem
