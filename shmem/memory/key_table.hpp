// What NICs need to touch the heaps: the local key of this PE's heap per rail, and every peer's
// base address and remote key per rail. Filled once, at init, from one allgather.
#pragma once

#include <cstdint>
#include <vector>

namespace railshmem {

class KeyTable {
 public:
  KeyTable() = default;
  KeyTable(int n_pes, int n_rails)
      : n_rails_(static_cast<std::size_t>(n_rails)),
        local_(n_rails_),
        remote_(static_cast<std::size_t>(n_pes) * n_rails_),
        bases_(static_cast<std::size_t>(n_pes)) {}

  void set_local(int rail, uint32_t lkey) { local_[static_cast<std::size_t>(rail)] = lkey; }
  void set_remote(int pe, int rail, uint32_t rkey) { remote_[slot(pe, rail)] = rkey; }
  void set_base(int pe, uint64_t base) { bases_[static_cast<std::size_t>(pe)] = base; }

  uint32_t local(int rail) const { return local_[static_cast<std::size_t>(rail)]; }
  uint32_t remote(int pe, int rail) const { return remote_[slot(pe, rail)]; }
  uint64_t address(int pe, uint64_t offset) const {
    return bases_[static_cast<std::size_t>(pe)] + offset;
  }

 private:
  std::size_t slot(int pe, int rail) const {
    return static_cast<std::size_t>(pe) * n_rails_ + static_cast<std::size_t>(rail);
  }

  std::size_t n_rails_ = 0;
  std::vector<uint32_t> local_;
  std::vector<uint32_t> remote_;
  std::vector<uint64_t> bases_;
};

}  // namespace railshmem
