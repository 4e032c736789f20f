// The table of memory registered with one NIC. Its owner adds and removes; engines, its own and
// those of peers, read it at any time.
#pragma once

#include <deque>
#include <mutex>
#include <vector>

#include "shmem/nic/emulated/layout.hpp"

namespace railshmem::nic::emulated {

struct Region {
  uint64_t base = 0;
  uint64_t bytes = 0;
  uint32_t access = 0;
  SegmentHandle segment;  // bytes is 0 where the region is not shared

  bool holds(uint64_t address, uint64_t length) const {
    return address >= base && address - base <= bytes && length <= bytes - (address - base);
  }
};

// A key is the index of its slot and the count of the slot's uses, which is never 0.
constexpr uint32_t kKeyIndexShift = 16;
inline uint32_t region_index(uint32_t key) {
  return key >> kKeyIndexShift;
}

// False where no region has this key (any more).
bool read_region(const SharedNic& nic, uint32_t key, Region* out);

// Whether the key is valid now; after the start of a Visit it stays so until the visit ends.
bool is_registered(const SharedNic& nic, uint32_t key);

// Where the owner's engine finds [address, address + length); null: not inside that region.
void* local_memory(const SharedNic& own, uint32_t lkey, uint64_t address, uint64_t length);

class RegionTable {
 public:
  explicit RegionTable(SharedNic& nic) : nic_(nic) {}

  // The new key, or 0 when the table is full. May be called from any thread.
  uint32_t add(const Region& region);
  // False where the key is not valid. Peers may still be inside the region: wait for their visits,
  // then recycle().
  bool revoke(uint32_t key);
  void recycle(uint32_t key);
  std::vector<uint32_t> keys() const;

 private:
  SharedNic& nic_;
  mutable std::mutex mutex_;
  // Used when no fresh slot is left, first in, first out: an old key stays unknown for long.
  std::deque<uint32_t> free_;
  std::vector<uint16_t> generations_;
};

}  // namespace railshmem::nic::emulated
