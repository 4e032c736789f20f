#include "shmem/memory/allocator.hpp"

#include <algorithm>
#include <iterator>

namespace railshmem {
namespace {

// Every range is a whole number of cache lines, so that no two objects share one.
constexpr uint64_t kGrain = 64;

}  // namespace

Allocator::Allocator(uint64_t bytes) : free_bytes_(bytes) {
  if (bytes > 0) free_[0] = bytes;
}

std::optional<uint64_t> Allocator::allocate(uint64_t bytes, uint64_t alignment) {
  if (bytes == 0 || bytes > UINT64_MAX - kGrain) return std::nullopt;
  const uint64_t size = (bytes + kGrain - 1) / kGrain * kGrain;
  for (auto block = free_.begin(); block != free_.end(); ++block) {
    const auto [start, length] = *block;
    const uint64_t padding = (alignment - start % alignment) % alignment;
    if (padding > length || length - padding < size) continue;
    free_.erase(block);
    if (padding > 0) free_[start] = padding;
    const uint64_t rest = length - padding - size;
    if (rest > 0) free_[start + padding + size] = rest;
    used_[start + padding] = size;
    free_bytes_ -= size;
    return start + padding;
  }
  return std::nullopt;
}

bool Allocator::release(uint64_t offset) {
  const auto found = used_.find(offset);
  if (found == used_.end()) return false;
  const uint64_t bytes = found->second;
  used_.erase(found);
  free_bytes_ += bytes;
  give_back(offset, bytes);
  return true;
}

void Allocator::give_back(uint64_t offset, uint64_t bytes) {
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && offset + bytes == next->first) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      previous->second += bytes;
      return;
    }
  }
  free_[offset] = bytes;
}

std::optional<uint64_t> Allocator::size_of(uint64_t offset) const {
  const auto found = used_.find(offset);
  if (found == used_.end()) return std::nullopt;
  return found->second;
}

uint64_t Allocator::behind(uint64_t offset) const {
  auto next = used_.upper_bound(offset);
  if (next == used_.begin()) return 0;
  const auto& [start, bytes] = *--next;
  return offset < start + bytes ? start + bytes - offset : 0;
}

uint64_t Allocator::largest_free() const {
  uint64_t largest = 0;
  for (const auto& [offset, bytes] : free_) largest = std::max(largest, bytes);
  return largest;
}

}  // namespace railshmem
