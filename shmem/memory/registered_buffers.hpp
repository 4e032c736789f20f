// Users' own memory that NICs of this PE may read and write, besides the heap: for puts that leave
// and gets that land without a copy.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <shared_mutex>
#include <vector>

namespace railshmem {

class RegisteredBuffers {
 public:
  struct Buffer {
    uint64_t bytes;
    std::vector<uint32_t> lkeys;  // by rail
    std::shared_ptr<void> owner;  // what keeps the memory alive, if the caller gave it
    uint32_t registrations;       // of the same range
  };

  // Counts one more registration of exactly this range; false where there is none yet.
  bool again(const void* address, uint64_t bytes);
  // True when the range shares bytes with a registered one.
  bool overlaps(const void* address, uint64_t bytes) const;
  void add(const void* address, uint64_t bytes, std::vector<uint32_t> lkeys,
           std::shared_ptr<void> owner);

  // Takes one registration back. The keys to deregister when it was the last one.
  struct Removed {
    bool found;
    std::vector<uint32_t> lkeys;
    std::shared_ptr<void> owner;  // goes when the keys are gone
  };
  Removed remove(const void* address);

  bool contains(const void* address, uint64_t bytes) const;
  // The key of the buffer that holds `address`; 0 where none does.
  uint32_t lkey(uint64_t address, int rail) const;

 private:
  using Map = std::map<uint64_t, Buffer>;
  Map::const_iterator holder(uint64_t address) const;

  mutable std::shared_mutex mutex_;  // progress threads look while users add and remove
  Map buffers_;                      // by address
};

}  // namespace railshmem
