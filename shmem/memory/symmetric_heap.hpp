// The symmetric heap of one PE: a segment that starts with the library's own area, followed by what
// users allocate, and the mappings of the peers' heaps. With a GPU the own area ends with a part in
// the GPU's memory, for the words of kernels, and what users allocate is the GPU's.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shmem/memory/allocator.hpp"
#include "shmem/memory/segment.hpp"

namespace railshmem {

class SymmetricHeap {
 public:
  // In host memory.
  SymmetricHeap(uint64_t user_bytes, uint64_t own_bytes);
  // `kernel_bytes`: of the own area, in the GPU's memory.
  SymmetricHeap(uint64_t user_bytes, uint64_t own_bytes, const gpu::Site& site,
                uint64_t kernel_bytes);

  char* base() const { return segment_.data(); }
  uint64_t bytes() const { return segment_.bytes(); }
  const HostSegment& host() const { return segment_.host(); }
  uint64_t own_bytes() const { return own_bytes_; }
  // Where the GPU's memory starts; bytes() where there is none.
  uint64_t host_bytes() const { return segment_.host_bytes(); }
  bool on_gpu() const { return host_bytes() < bytes(); }
  SegmentHandle handle() const { return segment_.handle(); }

  // True when [address, address + bytes) lies in the part users allocate from.
  bool contains(const void* address, uint64_t bytes) const;

  // null for 0 bytes; throws Error(heap_exhausted).
  void* allocate(uint64_t bytes, uint64_t alignment, int pe);
  // False when nothing allocated starts there.
  bool release(void* address);
  // Of the block that starts there; nothing when none does.
  std::optional<uint64_t> size_of(const void* address) const;
  // Bytes from there to the end of the block it lies in; 0 outside of blocks.
  uint64_t behind(const void* address) const;
  const Allocator& allocator() const { return allocator_; }

  // Maps a peer's heap and keeps it mapped. Empty when it works, else the reason.
  std::string map_peer(int pe, const SegmentHandle& handle);
  void unmap_peer(int pe);
  // [n_pes]: null where a peer's heap is not mapped.
  void set_pes(int me, int n_pes);
  char* const* peer_bases() const { return bases_.data(); }

 private:
  std::optional<gpu::Site> site_;
  Segment segment_;
  uint64_t own_bytes_;
  Allocator allocator_;
  std::vector<Segment> peers_;
  std::vector<char*> bases_;
};

}  // namespace railshmem
