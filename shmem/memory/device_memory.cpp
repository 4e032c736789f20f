#include "shmem/memory/device_memory.hpp"

#include <sys/mman.h>

#include <utility>
#include <vector>

#include "shmem/base/error.hpp"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

namespace railshmem {
namespace {

// Drivers align what they reserve to this, whatever the request says.
constexpr uint64_t kAlignment = uint64_t{32} << 20;
constexpr int kTries = 8;

// An address where so much is free now, for the driver to try.
gpu::Address free_address(uint64_t bytes, uint64_t below) {
  const uint64_t room = bytes + below + 2 * kAlignment;
  void* at = ::mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return 0;
  ::munmap(at, room);
  return (reinterpret_cast<uint64_t>(at) + below + kAlignment - 1) / kAlignment * kAlignment;
}

bool hold_below(gpu::Address device, uint64_t below) {
  void* const wanted = reinterpret_cast<void*>(device - below);
  void* at = ::mmap(wanted, below, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (at == wanted) return true;
  if (at != MAP_FAILED) ::munmap(at, below);  // an old kernel, which takes it for a hint
  return false;
}

}  // namespace

SplitAddresses::SplitAddresses(const gpu::Site& site, uint64_t bytes, uint64_t below)
    : site_(site), bytes_(bytes), below_(below) {
  // The driver's choice first; what it gives may lie directly above something else.
  std::vector<gpu::Address> unfit;
  for (int attempt = 0; attempt < kTries && device_ == 0; ++attempt) {
    const gpu::Address hint = attempt == 0 ? 0 : free_address(bytes, below);
    const gpu::Address at = site_.driver->reserve(bytes, 0, hint);
    if (hold_below(at, below))
      device_ = at;
    else
      unfit.push_back(at);  // kept for now, so that the next is another
  }
  for (const gpu::Address at : unfit) site_.driver->free_reserved(at, bytes);
  if (device_ == 0)
    fail(ErrorKind::init, "no addresses for ", bytes_text(bytes), " of GPU memory with ",
         bytes_text(below), " of host memory below, in ", kTries, " tries");
}

SplitAddresses& SplitAddresses::operator=(SplitAddresses&& other) noexcept {
  std::swap(site_, other.site_);
  std::swap(device_, other.device_);
  std::swap(bytes_, other.bytes_);
  std::swap(below_, other.below_);
  return *this;
}

SplitAddresses::~SplitAddresses() {
  if (device_ == 0) return;
  ::munmap(host(), below_);
  try {
    site_.driver->free_reserved(device_, bytes_);
  } catch (const Error&) {
    return;  // the driver is at its end, and its addresses with it
  }
}

DeviceMemory DeviceMemory::create(const gpu::Site& site, uint64_t bytes, uint64_t below) {
  gpu::Driver& driver = *site.driver;
  driver.use(site.device);
  std::string why;
  const gpu::Sharing sharing =
      fabric_works(site, &why) ? gpu::Sharing::fabric : gpu::Sharing::descriptor;
  const uint64_t unit = driver.granularity(site.device, sharing);
  DeviceMemory out;
  out.site_ = site;
  out.bytes_ = (bytes + unit - 1) / unit * unit;
  uint64_t free = 0;
  uint64_t total = 0;
  driver.free_and_total(&free, &total);
  try {
    out.allocation_ = driver.create(site.device, out.bytes_, sharing);
  } catch (const Error& error) {
    fail(ErrorKind::init, "no memory for a heap of ", bytes_text(out.bytes_), " on GPU ",
         site.device, ", which has ", bytes_text(free), " free of ", bytes_text(total),
         "; lower RAILSHMEM_HEAP_SIZE or start fewer PEs per GPU: ", error.what());
  }
  out.addresses_ = SplitAddresses(site, out.bytes_, below);
  out.map(out.allocation_);
  out.handle_.bytes = out.bytes_;
  out.handle_.address = out.addresses_.device();
  out.handle_.sharing = static_cast<uint32_t>(sharing);
  if (sharing == gpu::Sharing::fabric) {
    out.handle_.fabric = driver.export_fabric(out.allocation_);
  } else {
    out.server_ = std::make_unique<DescriptorServer>(driver.export_descriptor(out.allocation_));
    out.handle_.descriptor = out.server_->name();
  }
  driver.fill(out.addresses_.device(), 0, out.bytes_, nullptr);
  driver.synchronize(nullptr);
  return out;
}

DeviceMemory DeviceMemory::import(const gpu::Site& site, const DeviceHandle& handle,
                                  uint64_t below) {
  gpu::Driver& driver = *site.driver;
  driver.use(site.device);
  DeviceMemory out;
  out.site_ = site;
  out.bytes_ = handle.bytes;
  try {
    if (static_cast<gpu::Sharing>(handle.sharing) == gpu::Sharing::fabric) {
      out.allocation_ = driver.import_fabric(handle.fabric);
    } else {
      const FileDescriptor fd = fetch_descriptor(handle.descriptor);
      out.allocation_ = driver.import_descriptor(fd.get());
    }
    out.addresses_ = SplitAddresses(site, out.bytes_, below);
    out.map(out.allocation_);
  } catch (const Error& error) {
    fail(ErrorKind::init, "GPU ", site.device, " cannot map ", bytes_text(handle.bytes),
         " of another: ", error.what());
  }
  return out;
}

void DeviceMemory::map(gpu::Allocation allocation) {
  site_.driver->map(addresses_.device(), bytes_, allocation, site_.device);
  mapped_ = true;
}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(site_, other.site_);
  std::swap(bytes_, other.bytes_);
  std::swap(addresses_, other.addresses_);
  std::swap(allocation_, other.allocation_);
  std::swap(mapped_, other.mapped_);
  std::swap(handle_, other.handle_);
  std::swap(server_, other.server_);
  return *this;
}

DeviceMemory::~DeviceMemory() {
  if (!site_.driver) return;
  try {
    site_.driver->use(site_.device);
    if (mapped_) site_.driver->unmap(addresses_.device(), bytes_);
    if (allocation_ != 0) site_.driver->release(allocation_);
  } catch (const Error&) {
    return;  // the driver is at its end, and its memory with it
  }
}

bool fabric_works(const gpu::Site& site, std::string* why) {
  gpu::Driver& driver = *site.driver;
  if (!driver.facts(site.device).fabric) {
    *why = "the driver offers none";
    return false;
  }
  try {
    const uint64_t bytes = driver.granularity(site.device, gpu::Sharing::fabric);
    const gpu::Allocation probe = driver.create(site.device, bytes, gpu::Sharing::fabric);
    try {
      driver.export_fabric(probe);
    } catch (const Error&) {
      driver.release(probe);
      throw;
    }
    driver.release(probe);
    return true;
  } catch (const Error& error) {
    *why = error.what();
    return false;
  }
}

}  // namespace railshmem
