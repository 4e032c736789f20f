#include "shmem/nic/emulated/regions.hpp"

#include <cstring>
#include <iterator>

namespace railshmem::nic::emulated {
namespace {

template <class Nic>
auto* slot_for(Nic& nic, uint32_t key) {
  const uint32_t index = region_index(key);
  return key != 0 && index < kMaxRegions ? &nic.regions[index] : nullptr;
}

}  // namespace

// Key, fields, key again. Acquire loads pair with the release stores of add(): whoever sees a field
// of a later region also sees that the key is no longer the one it asked for.
bool read_region(const SharedNic& nic, uint32_t key, Region* out) {
  const RegionSlot* slot = slot_for(nic, key);
  if (slot == nullptr || arch::load_acquire(&slot->key) != key) return false;
  out->base = arch::load_acquire(&slot->base);
  out->bytes = arch::load_acquire(&slot->bytes);
  out->access = arch::load_acquire(&slot->access);
  uint64_t words[sizeof(SegmentHandle) / 8];
  for (std::size_t i = 0; i < std::size(words); ++i)
    words[i] = arch::load_acquire(&slot->segment[i]);
  std::memcpy(&out->segment, words, sizeof words);
  return arch::load_relaxed(&slot->key) == key;
}

bool is_registered(const SharedNic& nic, uint32_t key) {
  const RegionSlot* slot = slot_for(nic, key);
  // Ordered after the visitor's announcement; the other half is revoke().
  return slot != nullptr && arch::load_ordered(&slot->key) == key;
}

void* local_memory(const SharedNic& own, uint32_t lkey, uint64_t address, uint64_t length) {
  const RegionSlot* slot = slot_for(own, lkey);
  if (slot == nullptr || arch::load_acquire(&slot->key) != lkey) return nullptr;
  Region region;
  region.base = arch::load_acquire(&slot->base);
  region.bytes = arch::load_acquire(&slot->bytes);
  if (!region.holds(address, length) || arch::load_relaxed(&slot->key) != lkey) return nullptr;
  return reinterpret_cast<void*>(address);
}

uint32_t RegionTable::add(const Region& region) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto index = static_cast<uint32_t>(generations_.size());
  if (index < kMaxRegions) {
    generations_.push_back(0);
    // Importers may look at the slot too early, and then find that its key is 0.
    arch::store_relaxed(&nic_.regions_used, index + 1);
  } else {
    if (free_.empty()) return 0;
    index = free_.front();
    free_.pop_front();
  }
  if (++generations_[index] == 0) generations_[index] = 1;
  const uint32_t key = index << kKeyIndexShift | generations_[index];

  // Each store releases the 0 that revoke() left in `key`; pairs with read_region.
  RegionSlot& slot = nic_.regions[index];
  uint64_t words[sizeof(SegmentHandle) / 8];
  std::memcpy(words, &region.segment, sizeof words);
  arch::store_release(&slot.base, region.base);
  arch::store_release(&slot.bytes, region.bytes);
  arch::store_release(&slot.access, region.access);
  for (std::size_t i = 0; i < std::size(words); ++i)
    arch::store_release(&slot.segment[i], words[i]);
  arch::store_release(&slot.key, key);
  return key;
}

bool RegionTable::revoke(uint32_t key) {
  std::lock_guard<std::mutex> lock(mutex_);
  RegionSlot* slot = slot_for(nic_, key);
  if (slot == nullptr || arch::load_relaxed(&slot->key) != key) return false;
  // Ordered before the look at the peers' visits: a peer that misses this is seen inside.
  arch::store_ordered(&slot->key, 0u);
  return true;
}

void RegionTable::recycle(uint32_t key) {
  std::lock_guard<std::mutex> lock(mutex_);
  free_.push_back(region_index(key));
}

std::vector<uint32_t> RegionTable::keys() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<uint32_t> out;
  for (std::size_t i = 0; i < generations_.size(); ++i)
    if (const uint32_t key = arch::load_relaxed(&nic_.regions[i].key)) out.push_back(key);
  return out;
}

}  // namespace railshmem::nic::emulated
