// One contiguous piece of host memory that other processes of this host can map: a memfd. It has no
// name, so nothing stays behind when its processes are gone, however they ended.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shmem/base/file_descriptor.hpp"

namespace railshmem {

// What a peer needs to map a segment. Plain data: it travels in allgathers.
struct SegmentHandle {
  int32_t pid = 0;
  int32_t fd = -1;
  uint64_t device = 0;  // device and inode prove that /proc/<pid>/fd/<fd> is the segment meant
  uint64_t inode = 0;
  uint64_t bytes = 0;  // more than the file has where a GPU's memory follows: see Segment
  uint64_t base = 0;   // its address in the owner
};

class HostSegment {
 public:
  // Pages are zero and committed on first touch. `at`: where to map them, over what this process
  // holds there; null: anywhere. Throws Error(init) with size and reason.
  static HostSegment create(const char* label, std::size_t bytes, char* at = nullptr);

  // Maps a peer's segment; inside the owner's own process it is the same memory, and without `at`
  // at the same address. Throws Error(init) saying why it cannot be mapped.
  static HostSegment import(const SegmentHandle& handle);
  static HostSegment import(const SegmentHandle& handle, char* at);
  // Bytes of the peer's file, and some of them. Throws Error(init) as above.
  static std::size_t file_bytes(const SegmentHandle& handle);
  static void read(const SegmentHandle& handle, std::size_t offset, void* to, std::size_t bytes);

  // True when the owner's descriptor can be seen from here, so that its pid names the owner here
  // too.
  static bool owner_visible(const SegmentHandle& handle);

  HostSegment() = default;
  HostSegment(HostSegment&& other) noexcept { *this = static_cast<HostSegment&&>(other); }
  HostSegment& operator=(HostSegment&& other) noexcept;
  ~HostSegment();

  // Lays part of a created segment over the pages at `address`, which must exist, with their
  // contents; and lays private pages with the same contents over them again. Whole pages. Throws
  // Error(argument).
  void lay_over(void* address, std::size_t offset, std::size_t bytes) const;
  static void take_back(void* address, std::size_t bytes);

  char* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  SegmentHandle handle() const;  // of a created segment

 private:
  FileDescriptor fd_;
  char* data_ = nullptr;
  std::size_t bytes_ = 0;
  bool mapped_ = false;  // this object unmaps it
  bool placed_ = false;  // at a place that someone else holds
};

}  // namespace railshmem
