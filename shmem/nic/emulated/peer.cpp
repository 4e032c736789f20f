#include "shmem/nic/emulated/peer.hpp"

#include "shmem/nic/emulated/segments.hpp"

namespace railshmem::nic::emulated {

Peer::Peer(const NicLocation& location, const gpu::Site* site, MoveQueue* moves)
    : location_(location),
      site_(site),
      moves_(moves),
      segment_(import_segment(location.segment, site)) {
  const uint32_t used = arch::load_relaxed(&nic().regions_used);
  for (uint32_t i = 0; i < used; ++i)
    if (const uint32_t key = arch::load_acquire(&nic().regions[i].key)) map(key);
}

Peer::~Peer() {
  for (const Mapped& mapped : mapped_) forget(mapped);
}

void Peer::forget(const Mapped& old) {
  if (moves_ != nullptr && old.segment != nullptr) moves_->runner().forget(old.segment->data());
}

const Peer::Mapped* Peer::map(uint32_t key) {
  const uint32_t index = region_index(key);
  if (index < mapped_.size() && mapped_[index].key == key)
    return is_registered(nic(), key) ? &mapped_[index] : nullptr;
  Region region;
  if (!read_region(nic(), key, &region)) return nullptr;
  if (index >= mapped_.size()) mapped_.resize(index + 1);
  forget(mapped_[index]);
  mapped_[index] = {key, region,
                    region.segment.bytes != 0 ? import_segment(region.segment, site_) : nullptr};
  if (const auto& segment = mapped_[index].segment; moves_ != nullptr && segment != nullptr)
    moves_->runner().learn(segment->data(), segment->bytes());
  return is_registered(nic(), key) ? &mapped_[index] : nullptr;
}

mlx5::Syndrome Peer::find(uint32_t key, uint64_t address, uint64_t length, uint32_t rights,
                          char** at) {
  try {
    const Mapped* found = map(key);
    if (found == nullptr || found->segment == nullptr || !found->region.holds(address, length) ||
        (found->region.access & rights) != rights)
      return mlx5::Syndrome::remote_access;
    *at = found->segment->data() + (address - found->region.segment.base);
    return mlx5::Syndrome::ok;
  } catch (const Error&) {
    // A region registered after connect() by a process that has since gone.
    return mlx5::Syndrome::transport_retry;
  }
}

}  // namespace railshmem::nic::emulated
