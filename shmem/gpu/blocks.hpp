// Owners of memory that a GPU reaches, for the library's own tables.
#pragma once

#include <sys/mman.h>

#include <cstring>
#include <utility>

#include "shmem/base/error.hpp"
#include "shmem/gpu/driver.hpp"

namespace railshmem::gpu {

// Memory of the GPU, zeroed.
class DeviceBlock {
 public:
  DeviceBlock() = default;
  DeviceBlock(const Site& site, uint64_t bytes) : site_(site) {
    site_.driver->use(site_.device);
    at_ = site_.driver->allocate(bytes);
    site_.driver->fill(at_, 0, bytes, nullptr);
    site_.driver->synchronize(nullptr);
  }
  DeviceBlock(DeviceBlock&& other) noexcept { *this = static_cast<DeviceBlock&&>(other); }
  DeviceBlock& operator=(DeviceBlock&& other) noexcept {
    std::swap(site_, other.site_);
    std::swap(at_, other.at_);
    return *this;
  }
  ~DeviceBlock() {
    if (at_ == 0) return;
    try {
      site_.driver->use(site_.device);
      site_.driver->free(at_);
    } catch (const Error&) {
      return;  // the driver is at its end, and its memory with it
    }
  }

  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(at_);
  }
  Address address() const { return at_; }

 private:
  Site site_;
  Address at_ = 0;
};

// Host memory that the GPU reaches at the same address, zeroed.
class PinnedBlock {
 public:
  PinnedBlock() = default;
  PinnedBlock(const Site& site, uint64_t bytes)
      : site_(site), bytes_((bytes + kPage - 1) / kPage * kPage) {
    void* at = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (at == MAP_FAILED)
      fail(ErrorKind::init, "no ", bytes_text(bytes_), " of host memory: ", errno_text());
    try {
      site_.driver->use(site_.device);
      site_.driver->register_host(at, bytes_);
    } catch (const Error&) {
      ::munmap(at, bytes_);
      throw;
    }
    at_ = at;
  }
  PinnedBlock(PinnedBlock&& other) noexcept { *this = static_cast<PinnedBlock&&>(other); }
  PinnedBlock& operator=(PinnedBlock&& other) noexcept {
    std::swap(site_, other.site_);
    std::swap(bytes_, other.bytes_);
    std::swap(at_, other.at_);
    return *this;
  }
  ~PinnedBlock() {
    if (at_ == nullptr) return;
    try {
      site_.driver->unregister_host(at_);
    } catch (const Error&) {
      at_ = nullptr;  // the driver is at its end; what it may still reach stays mapped
    }
    if (at_ != nullptr) ::munmap(at_, bytes_);
  }

  template <class T>
  T* as() const {
    return static_cast<T*>(at_);
  }
  uint64_t bytes() const { return bytes_; }

 private:
  static constexpr uint64_t kPage = 4096;
  Site site_;
  uint64_t bytes_ = 0;
  void* at_ = nullptr;
};

class OwnedStream {
 public:
  OwnedStream() = default;
  OwnedStream(const Site& site, bool apart, bool urgent) : site_(site) {
    site_.driver->use(site_.device);
    stream_ = site_.driver->create_stream(apart, urgent);
  }
  OwnedStream(OwnedStream&& other) noexcept { *this = static_cast<OwnedStream&&>(other); }
  OwnedStream& operator=(OwnedStream&& other) noexcept {
    std::swap(site_, other.site_);
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~OwnedStream() {
    if (stream_ == nullptr) return;
    try {
      site_.driver->destroy_stream(stream_);
    } catch (const Error&) {
      return;  // the driver is at its end
    }
  }
  Stream get() const { return stream_; }

 private:
  Site site_;
  Stream stream_ = nullptr;
};

}  // namespace railshmem::gpu
