#include "shmem/memory/symmetric_heap.hpp"

#include "shmem/base/error.hpp"

namespace railshmem {
namespace {

constexpr uint64_t kPage = 4096;

uint64_t whole_pages(uint64_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

SymmetricHeap::SymmetricHeap(uint64_t user_bytes, uint64_t own_bytes)
    : segment_(Segment::create("railshmem-heap", whole_pages(own_bytes) + whole_pages(user_bytes))),
      own_bytes_(whole_pages(own_bytes)),
      allocator_(whole_pages(user_bytes)) {}

SymmetricHeap::SymmetricHeap(uint64_t user_bytes, uint64_t own_bytes, const gpu::Site& site,
                             uint64_t kernel_bytes)
    : site_(site),
      segment_(Segment::create("railshmem-heap", own_bytes, site,
                               whole_pages(kernel_bytes) + whole_pages(user_bytes))),
      own_bytes_(segment_.host_bytes() + whole_pages(kernel_bytes)),
      allocator_(whole_pages(user_bytes)) {}

bool SymmetricHeap::contains(const void* address, uint64_t size) const {
  const auto at = reinterpret_cast<uint64_t>(address);
  const auto start = reinterpret_cast<uint64_t>(base()) + own_bytes_;
  const auto end = reinterpret_cast<uint64_t>(base()) + bytes();
  return at >= start && at <= end && size <= end - at;
}

void* SymmetricHeap::allocate(uint64_t size, uint64_t alignment, int pe) {
  if (size == 0) return nullptr;
  const auto offset = allocator_.allocate(size, alignment);
  if (!offset)
    fail(ErrorKind::heap_exhausted, "PE ", pe, ": heap exhausted: asked ", bytes_text(size),
         ", free ", bytes_text(allocator_.free_bytes()), " in ", allocator_.n_free_blocks(),
         " blocks up to ", bytes_text(allocator_.largest_free()),
         "; raise RAILSHMEM_HEAP_SIZE (now ", bytes_text(bytes() - own_bytes_), ")");
  return base() + own_bytes_ + *offset;
}

bool SymmetricHeap::release(void* address) {
  const char* start = base() + own_bytes_;
  if (!contains(address, 0)) return false;
  return allocator_.release(static_cast<uint64_t>(static_cast<char*>(address) - start));
}

std::optional<uint64_t> SymmetricHeap::size_of(const void* address) const {
  const char* start = base() + own_bytes_;
  if (!contains(address, 0)) return std::nullopt;
  return allocator_.size_of(static_cast<uint64_t>(static_cast<const char*>(address) - start));
}

uint64_t SymmetricHeap::behind(const void* address) const {
  const char* start = base() + own_bytes_;
  if (!contains(address, 0)) return 0;
  return allocator_.behind(static_cast<uint64_t>(static_cast<const char*>(address) - start));
}

void SymmetricHeap::set_pes(int me, int n_pes) {
  peers_.resize(static_cast<std::size_t>(n_pes));
  bases_.assign(static_cast<std::size_t>(n_pes), nullptr);
  bases_[static_cast<std::size_t>(me)] = base();
}

std::string SymmetricHeap::map_peer(int pe, const SegmentHandle& handle) {
  const auto index = static_cast<std::size_t>(pe);
  try {
    peers_[index] = Segment::import(handle, site_ ? &*site_ : nullptr);
    bases_[index] = peers_[index].data();
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

void SymmetricHeap::unmap_peer(int pe) {
  const auto index = static_cast<std::size_t>(pe);
  peers_[index] = Segment();
  bases_[index] = nullptr;
}

}  // namespace railshmem
