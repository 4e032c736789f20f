// Hands out ranges of [0, bytes): first fit by address, coalescing, deterministic, so that the same
// calls give the same offsets on every PE. Its records lie outside the memory it manages.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace railshmem {

class Allocator {
 public:
  explicit Allocator(uint64_t bytes);

  // The offset of a free range, aligned to a power of two; nothing when no free block is large
  // enough.
  std::optional<uint64_t> allocate(uint64_t bytes, uint64_t alignment);

  // Frees what allocate() returned; false, and no change, for any other offset.
  bool release(uint64_t offset);

  // The size of the range that starts at this offset; nothing when none does.
  std::optional<uint64_t> size_of(uint64_t offset) const;

  // Bytes from `offset` to the end of the range it lies in; 0 where it lies in none.
  uint64_t behind(uint64_t offset) const;

  uint64_t free_bytes() const { return free_bytes_; }
  uint64_t largest_free() const;
  uint64_t n_free_blocks() const { return free_.size(); }

 private:
  void give_back(uint64_t offset, uint64_t bytes);

  std::map<uint64_t, uint64_t> free_;  // offset -> bytes, never adjacent
  std::map<uint64_t, uint64_t> used_;
  uint64_t free_bytes_;
};

}  // namespace railshmem
