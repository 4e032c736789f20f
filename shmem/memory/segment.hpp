// What a heap is made of: host memory and, where the PE has a GPU, the GPU's memory directly above
// it. One range of addresses, so one base per PE, one offset per object and one key per NIC.
//
//     | host part: the library's words for CPU code | last page: DeviceHandle | GPU's memory |
//
// The GPU reaches the host part at the same addresses; CPU code reaches the GPU's only by the
// driver.
#pragma once

#include <memory>

#include "shmem/gpu/driver.hpp"
#include "shmem/memory/device_memory.hpp"
#include "shmem/memory/host_segment.hpp"

namespace railshmem {

class Segment {
 public:
  // Throw Error(init).
  static Segment create(const char* label, std::size_t bytes);
  static Segment create(const char* label, std::size_t host_bytes, const gpu::Site& site,
                        std::size_t device_bytes);
  // `site`: of this PE's GPU, needed for segments that have a GPU's memory; null: none.
  static Segment import(const SegmentHandle& handle, const gpu::Site* site);

  Segment() = default;
  Segment(Segment&& other) noexcept { *this = static_cast<Segment&&>(other); }
  Segment& operator=(Segment&& other) noexcept;
  ~Segment();

  char* data() const { return host_.data(); }
  std::size_t bytes() const { return host_.bytes() + device_.bytes(); }
  std::size_t host_bytes() const { return host_.bytes(); }
  const HostSegment& host() const { return host_; }
  SegmentHandle handle() const;  // of a created segment

 private:
  void join(const std::shared_ptr<gpu::Driver>& driver);

  // Destroyed last to first: the host part is unmapped before the addresses are given back.
  DeviceMemory device_;
  HostSegment host_;
  std::shared_ptr<gpu::Driver> registered_;  // with which the GPU reaches the host part
};

}  // namespace railshmem
