#include "shmem/nic/libfabric/regions.hpp"

#include "shmem/base/error.hpp"

namespace railshmem::nic::libfabric {
namespace {

uint64_t rights(uint32_t access) {
  uint64_t out = abi::kSend | abi::kRecv | abi::kRead | abi::kWrite;
  if ((access & kAccessRemoteWrite) != 0) out |= abi::kRemoteWrite;
  if ((access & kAccessRemoteRead) != 0) out |= abi::kRemoteRead;
  return out;
}

}  // namespace

Regions::Regions(std::string nic, const abi::Info& info, abi::Domain& domain, abi::Ep& endpoint)
    : nic_(std::move(nic)),
      naming_(info),
      bound_((info.domain_attr->mr_mode & abi::kMrEndpoint) != 0),
      domain_(domain),
      endpoint_(endpoint) {}

uint32_t Regions::take_number() {
  if (regions_.size() < kMost) {
    regions_.emplace_back();
    return static_cast<uint32_t>(regions_.size());
  }
  if (free_.empty())
    fail(ErrorKind::argument, nic_, ": ", kMost, " regions are registered, the most it holds");
  const uint32_t number = free_.front();
  free_.pop_front();
  return number;
}

MemoryKey Regions::add(void* address, std::size_t bytes, uint32_t access) {
  const auto base = reinterpret_cast<uint64_t>(address);
  if (!naming_.provider_keys && base >> (64 - Naming::kNumberBits) != 0)
    fail(ErrorKind::argument, nic_, ": memory at ", address, " lies too high for its keys");
  const uint32_t number = take_number();
  Region& region = regions_[number - 1];
  const auto refuse = [&](int result) {
    region.handle.reset();
    free_.push_back(number);
    fail(ErrorKind::argument, nic_, ": a region of ", bytes_text(bytes), " at ", address,
         " cannot be registered: ", Library::get().error_text(result));
  };
  abi::Mr* made = nullptr;
  int result =
      domain_.mr->reg(&domain_.fid, address, bytes, rights(access), 0, number, 0, &made, nullptr);
  if (result != 0) refuse(result);
  region.handle.reset(made);
  region.base = base;
  region.bytes = bytes;
  if (bound_) {
    result = made->fid.ops->bind(&made->fid, &endpoint_.fid, 0);
    if (result == 0) result = made->fid.ops->control(&made->fid, abi::kEnable, nullptr);
    if (result != 0) refuse(result);
  }
  return {number, naming_.rkey(base, *made, number)};
}

void Regions::remove(const MemoryKey& key) {
  if (key.lkey == 0 || key.lkey > regions_.size() || !regions_[key.lkey - 1].handle)
    fail(ErrorKind::argument, nic_, ": no region has the key ", key.lkey);
  regions_[key.lkey - 1].handle.reset();
  free_.push_back(key.lkey);
}

bool Regions::find(uint32_t lkey, uint64_t address, std::size_t bytes, void** descriptor) const {
  if (lkey == 0 || lkey > regions_.size()) return false;
  const Region& region = regions_[lkey - 1];
  if (!region.handle || address < region.base || address - region.base > region.bytes ||
      bytes > region.bytes - (address - region.base))
    return false;
  *descriptor = region.handle->descriptor;
  return true;
}

}  // namespace railshmem::nic::libfabric
