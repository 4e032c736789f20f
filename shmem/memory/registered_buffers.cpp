#include "shmem/memory/registered_buffers.hpp"

#include <mutex>
#include <utility>

namespace railshmem {
namespace {

uint64_t number(const void* address) {
  return reinterpret_cast<uint64_t>(address);
}

}  // namespace

// The last buffer that starts at or before `address`; the end where there is none.
RegisteredBuffers::Map::const_iterator RegisteredBuffers::holder(uint64_t address) const {
  auto next = buffers_.upper_bound(address);
  return next == buffers_.begin() ? buffers_.end() : --next;
}

bool RegisteredBuffers::again(const void* address, uint64_t bytes) {
  const std::unique_lock<std::shared_mutex> held(mutex_);
  const auto found = buffers_.find(number(address));
  if (found == buffers_.end() || found->second.bytes != bytes) return false;
  ++found->second.registrations;
  return true;
}

bool RegisteredBuffers::overlaps(const void* address, uint64_t bytes) const {
  const std::shared_lock<std::shared_mutex> held(mutex_);
  const auto before = holder(number(address) + bytes - 1);
  return before != buffers_.end() && before->first + before->second.bytes > number(address);
}

void RegisteredBuffers::add(const void* address, uint64_t bytes, std::vector<uint32_t> lkeys,
                            std::shared_ptr<void> owner) {
  const std::unique_lock<std::shared_mutex> held(mutex_);
  buffers_[number(address)] = {bytes, std::move(lkeys), std::move(owner), 1};
}

RegisteredBuffers::Removed RegisteredBuffers::remove(const void* address) {
  const std::unique_lock<std::shared_mutex> held(mutex_);
  const auto found = buffers_.find(number(address));
  if (found == buffers_.end()) return {false, {}, {}};
  if (--found->second.registrations > 0) return {true, {}, {}};
  Removed out{true, std::move(found->second.lkeys), std::move(found->second.owner)};
  buffers_.erase(found);
  return out;
}

bool RegisteredBuffers::contains(const void* address, uint64_t bytes) const {
  const std::shared_lock<std::shared_mutex> held(mutex_);
  const auto found = holder(number(address));
  if (found == buffers_.end()) return false;
  const uint64_t at = number(address) - found->first;
  return at <= found->second.bytes && bytes <= found->second.bytes - at;
}

uint32_t RegisteredBuffers::lkey(uint64_t address, int rail) const {
  const std::shared_lock<std::shared_mutex> held(mutex_);
  const auto found = holder(address);
  if (found == buffers_.end() || address - found->first >= found->second.bytes) return 0;
  return found->second.lkeys[static_cast<std::size_t>(rail)];
}

}  // namespace railshmem
