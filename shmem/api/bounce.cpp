#include "shmem/api/bounce.hpp"

namespace railshmem {

char* Bounce::take(const device::DeviceContext* ctx, uint64_t bytes) {
  const uint64_t size = (bytes + 63) / 64 * 64;
  uint64_t start = head_;
  if (start % bytes_ + size > bytes_) start += bytes_ - start % bytes_;  // pieces do not wrap
  while (start + size - tail_ > bytes_) {
    if (pieces_.empty()) {
      tail_ = head_ = start;  // nothing in use: only the gap before the wrap is in the way
      break;
    }
    const Piece& oldest = pieces_.front();
    if (!device::wait_completed(ctx, oldest.pe, oldest.lane, oldest.target)) return nullptr;
    tail_ = oldest.end;
    pieces_.pop_front();
  }
  head_ = start + size;
  return base_ + start % bytes_;
}

void Bounce::posted(const device::DeviceContext* ctx, int pe, uint32_t lane) {
  pieces_.push_back({head_, pe, lane, arch::load_acquire(&device::lane_of(ctx, pe, lane).posted)});
}

}  // namespace railshmem
