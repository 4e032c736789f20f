// A piece of a GPU's memory, made by the driver's VMM, that other PEs can map; and the place below
// it in the address space, where the host's part of a heap goes.
#pragma once

#include <cstdint>
#include <memory>

#include "shmem/gpu/driver.hpp"
#include "shmem/memory/descriptor_passing.hpp"

namespace railshmem {

// What a peer needs to map it. Plain data.
struct DeviceHandle {
  uint64_t bytes = 0;    // 0: there is none
  uint64_t address = 0;  // in its owner
  uint32_t sharing = 0;  // gpu::Sharing
  PassedDescriptor descriptor;
  gpu::FabricHandle fabric;
};

// Addresses of which the upper `bytes` are the GPU's and `below` bytes under them are this
// process's, and neither is used by anything else.
class SplitAddresses {
 public:
  SplitAddresses() = default;
  // Whole pages below. Throws Error(init).
  SplitAddresses(const gpu::Site& site, uint64_t bytes, uint64_t below);
  SplitAddresses(SplitAddresses&& other) noexcept { *this = static_cast<SplitAddresses&&>(other); }
  SplitAddresses& operator=(SplitAddresses&& other) noexcept;
  ~SplitAddresses();

  gpu::Address device() const { return device_; }
  char* host() const { return reinterpret_cast<char*>(device_ - below_); }

 private:
  gpu::Site site_;
  gpu::Address device_ = 0;
  uint64_t bytes_ = 0;
  uint64_t below_ = 0;
};

class DeviceMemory {
 public:
  // Zeros. At least `bytes`, rounded up to what the GPU maps. Throws Error(init) with what the card
  // has.
  static DeviceMemory create(const gpu::Site& site, uint64_t bytes, uint64_t below);
  // Throws Error(init) saying why it cannot be mapped.
  static DeviceMemory import(const gpu::Site& site, const DeviceHandle& handle, uint64_t below);

  DeviceMemory() = default;
  DeviceMemory(DeviceMemory&& other) noexcept { *this = static_cast<DeviceMemory&&>(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  ~DeviceMemory();

  uint64_t bytes() const { return bytes_; }
  const SplitAddresses& addresses() const { return addresses_; }
  const DeviceHandle& handle() const { return handle_; }  // of created memory

 private:
  void map(gpu::Allocation allocation);

  gpu::Site site_;
  uint64_t bytes_ = 0;
  SplitAddresses addresses_;
  gpu::Allocation allocation_ = 0;
  bool mapped_ = false;
  DeviceHandle handle_;
  std::unique_ptr<DescriptorServer> server_;
};

// Whether fabric handles can really be made on this GPU; `why` says why not. Some drivers say they
// can and then refuse.
bool fabric_works(const gpu::Site& site, std::string* why);

}  // namespace railshmem
