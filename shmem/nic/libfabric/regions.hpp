// Registered memory of one NIC, by key. Not for several threads at once.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "shmem/nic/libfabric/library.hpp"
#include "shmem/nic/nic.hpp"

namespace railshmem::nic::libfabric {

// How a fabric's peers name memory. Both sides must agree: it travels in the NIC's address.
struct Naming {
  bool provider_keys = false;  // the rkey is the provider's
  bool by_address = false;     // they name addresses, else offsets from the region's begin

  explicit Naming(const abi::Info& info)
      : provider_keys((info.domain_attr->mr_mode & abi::kMrProvKey) != 0),
        by_address((info.domain_attr->mr_mode & abi::kMrVirtAddr) != 0) {}
  uint8_t number() const { return static_cast<uint8_t>(provider_keys * 2 + by_address); }

  // An rkey of ours says where its region begins: the upper 48 bits of its 64.
  static constexpr uint32_t kNumberBits = 16;
  uint64_t rkey(uint64_t base, const abi::Mr& region, uint64_t number) const {
    return provider_keys ? region.key : base << kNumberBits | number;
  }
  abi::RmaIov remote(uint64_t address, std::size_t bytes, uint64_t rkey) const {
    const uint64_t key = provider_keys ? rkey : rkey & ((1u << kNumberBits) - 1);
    return {by_address ? address : address - (rkey >> kNumberBits), bytes, key};
  }
};

class Regions {
 public:
  // `endpoint`: to which regions are bound where the provider demands it. All outlive it.
  Regions(std::string nic, const abi::Info& info, abi::Domain& domain, abi::Ep& endpoint);

  const Naming& naming() const { return naming_; }

  // Throws Error(argument).
  MemoryKey add(void* address, std::size_t bytes, uint32_t access);
  void remove(const MemoryKey& key);

  // False where no region of this key holds the bytes; else what the provider calls it.
  bool find(uint32_t lkey, uint64_t address, std::size_t bytes, void** descriptor) const;

 private:
  static constexpr uint32_t kMost = (1u << Naming::kNumberBits) - 1;

  struct Region {
    uint64_t base = 0;
    uint64_t bytes = 0;
    Handle<abi::Mr> handle;  // null: the number is free
  };

  uint32_t take_number();

  const std::string nic_;
  const Naming naming_;
  const bool bound_;
  abi::Domain& domain_;
  abi::Ep& endpoint_;
  std::vector<Region> regions_;  // by number - 1
  std::deque<uint32_t> free_;    // the longest free first: an old key is refused for long
};

}  // namespace railshmem::nic::libfabric
