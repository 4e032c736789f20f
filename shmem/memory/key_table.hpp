// What NICs need to touch the heaps: the local keys of this PE's heap per rail, and every peer's
// base address and remote keys per rail. Filled once, at init, from one allgather. NICs may limit
// how much one key covers: then the heap, alike on every PE, is registered in pieces.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace railshmem {

class KeyTable {
 public:
  KeyTable() = default;
  // `starts`: the first offset of each piece, ascending from 0; they are multiples of 8.
  KeyTable(int n_pes, int n_rails, std::vector<uint64_t> starts = {0})
      : n_rails_(static_cast<std::size_t>(n_rails)),
        starts_(std::move(starts)),
        local_(n_rails_ * starts_.size()),
        remote_(static_cast<std::size_t>(n_pes) * n_rails_ * starts_.size()),
        bases_(static_cast<std::size_t>(n_pes)) {}

  uint32_t n_rails() const { return static_cast<uint32_t>(n_rails_); }
  const std::vector<uint64_t>& starts() const { return starts_; }

  void set_local(int rail, std::size_t piece, uint32_t lkey) {
    local_[static_cast<std::size_t>(rail) * starts_.size() + piece] = lkey;
  }
  void set_remote(int pe, int rail, std::size_t piece, uint64_t rkey) {
    remote_[slot(pe, rail) + piece] = rkey;
  }
  void set_base(int pe, uint64_t base) { bases_[static_cast<std::size_t>(pe)] = base; }

  uint32_t local(int rail, uint64_t offset) const {
    return local_[static_cast<std::size_t>(rail) * starts_.size() + piece_of(offset)];
  }
  uint64_t remote(int pe, int rail, uint64_t offset) const {
    return remote_[slot(pe, rail) + piece_of(offset)];
  }
  uint64_t address(int pe, uint64_t offset) const {
    return bases_[static_cast<std::size_t>(pe)] + offset;
  }
  // Bytes from `offset` to the end of what its key covers; of the last piece, more than there are.
  uint64_t run(uint64_t offset) const {
    const std::size_t next = piece_of(offset) + 1;
    return next < starts_.size() ? starts_[next] - offset : ~uint64_t{0};
  }

 private:
  std::size_t slot(int pe, int rail) const {
    return (static_cast<std::size_t>(pe) * n_rails_ + static_cast<std::size_t>(rail)) *
           starts_.size();
  }
  std::size_t piece_of(uint64_t offset) const {
    if (starts_.size() == 1) return 0;
    return static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), offset) -
                                    starts_.begin()) -
           1;
  }

  std::size_t n_rails_ = 0;
  std::vector<uint64_t> starts_ = {0};
  std::vector<uint32_t> local_;   // [rail][piece]
  std::vector<uint64_t> remote_;  // [pe][rail][piece]
  std::vector<uint64_t> bases_;
};

}  // namespace railshmem
