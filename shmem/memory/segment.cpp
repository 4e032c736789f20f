#include "shmem/memory/segment.hpp"

#include <cstring>
#include <type_traits>
#include <utility>

#include "shmem/base/error.hpp"

namespace railshmem {
namespace {

constexpr std::size_t kPage = 4096;
static_assert(sizeof(DeviceHandle) <= kPage && std::is_trivially_copyable_v<DeviceHandle>);

}  // namespace

Segment Segment::create(const char* label, std::size_t bytes) {
  Segment out;
  out.host_ = HostSegment::create(label, bytes);
  return out;
}

Segment Segment::create(const char* label, std::size_t host_bytes, const gpu::Site& site,
                        std::size_t device_bytes) {
  const std::size_t below = (host_bytes + kPage - 1) / kPage * kPage + kPage;
  Segment out;
  out.device_ = DeviceMemory::create(site, device_bytes, below);
  out.host_ = HostSegment::create(label, below, out.device_.addresses().host());
  std::memcpy(out.host_.data() + below - kPage, &out.device_.handle(), sizeof(DeviceHandle));
  out.join(site.driver);
  return out;
}

Segment Segment::import(const SegmentHandle& handle, const gpu::Site* site) {
  Segment out;
  const std::size_t below = HostSegment::file_bytes(handle);
  if (below == handle.bytes) {
    out.host_ = HostSegment::import(handle);
    return out;
  }
  DeviceHandle device;
  HostSegment::read(handle, below - kPage, &device, sizeof device);
  if (site == nullptr)
    fail(ErrorKind::init, "process ", handle.pid, " has its heap on a GPU and this one has none");
  out.device_ = DeviceMemory::import(*site, device, below);
  out.host_ = HostSegment::import(handle, out.device_.addresses().host());
  out.join(site->driver);
  return out;
}

void Segment::join(const std::shared_ptr<gpu::Driver>& driver) {
  driver->register_host(host_.data(), host_.bytes());
  registered_ = driver;
}

SegmentHandle Segment::handle() const {
  SegmentHandle out = host_.handle();
  out.bytes = bytes();
  return out;
}

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(host_, other.host_);
  std::swap(registered_, other.registered_);
  return *this;
}

Segment::~Segment() {
  if (!registered_) return;
  try {
    registered_->unregister_host(host_.data());
  } catch (const Error&) {
    return;  // the driver is at its end
  }
}

}  // namespace railshmem
