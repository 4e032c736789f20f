#include "tests/gpu/device_memory_map.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "tests/gpu/device_rights.hpp"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

namespace railshmem::standin {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kReserveAlignment = uint64_t{32} << 20;  // whatever is asked, as drivers do
constexpr int kReserved = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

uint64_t rounded(uint64_t bytes, uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}
void* pointer(uint64_t at) {
  return reinterpret_cast<void*>(at);
}
// What `at` lies in, of a map by address.
template <class Map>
typename Map::iterator containing(Map& map, uint64_t at) {
  auto found = map.upper_bound(at);
  if (found == map.begin()) return map.end();
  --found;
  return at - found->first < found->second.bytes ? found : map.end();
}
// The first that overlaps.
template <class Map>
typename Map::iterator overlapping(Map& map, uint64_t at, uint64_t bytes) {
  const auto found = containing(map, at);
  if (found != map.end()) return found;
  const auto next = map.lower_bound(at);
  return next != map.end() && next->first - at < bytes ? next : map.end();
}

uint64_t map_aligned(uint64_t bytes, uint64_t alignment) {
  void* const made = ::mmap(nullptr, bytes + alignment, PROT_NONE, kReserved, -1, 0);
  require(made != MAP_FAILED, kOutOfMemory);
  const auto first = reinterpret_cast<uint64_t>(made);
  const uint64_t at = rounded(first, alignment);
  if (at > first) ::munmap(made, at - first);
  if (first + alignment > at) ::munmap(pointer(at + bytes), first + alignment - at);
  return at;
}

}  // namespace

MemoryMap::Piece::Piece(int device_of, uint64_t size, FileDescriptor file, Card* taken_of)
    : device(device_of), bytes(size), fd(std::move(file)), card(taken_of) {
  if (card != nullptr) card->used += bytes;
}
MemoryMap::Piece::~Piece() {
  if (card != nullptr) card->used -= bytes;
}

uint64_t MemoryMap::reserve(uint64_t bytes, uint64_t alignment, uint64_t hint, bool crowded) {
  require(bytes > 0 && bytes % kGranularity == 0);
  require((alignment & (alignment - 1)) == 0);
  alignment = std::max(alignment, kReserveAlignment);
  const std::lock_guard<std::mutex> held_here(mutex_);
  uint64_t at = 0;
  if (hint != 0 && hint % alignment == 0) {
    void* const made =
        ::mmap(pointer(hint), bytes, PROT_NONE, kReserved | MAP_FIXED_NOREPLACE, -1, 0);
    if (made == pointer(hint))
      at = hint;
    else if (made != MAP_FAILED)
      ::munmap(made, bytes);
  }
  if (at == 0) at = map_aligned(bytes, alignment);
  const bool neighbour = crowded && hint == 0 &&
                         ::mmap(pointer(at - kPage), kPage, PROT_NONE,
                                kReserved | MAP_FIXED_NOREPLACE, -1, 0) == pointer(at - kPage);
  reservations_[at] = {bytes, neighbour};
  return at;
}

void MemoryMap::free_reserved(uint64_t at, uint64_t bytes) {
  const std::lock_guard<std::mutex> held_here(mutex_);
  const auto found = reservations_.find(at);
  require(found != reservations_.end() && found->second.bytes == bytes);
  require(overlapping(mappings_, at, bytes) == mappings_.end());
  ::munmap(pointer(at), bytes);
  if (found->second.neighbour) ::munmap(pointer(at - kPage), kPage);
  reservations_.erase(found);
}

uint64_t MemoryMap::create(int device, Card& card, uint64_t bytes) {
  require(bytes > 0 && bytes % kGranularity == 0);
  const std::lock_guard<std::mutex> held_here(mutex_);
  require(bytes <= card.total && card.used <= card.total - bytes, kOutOfMemory);
  FileDescriptor fd(::memfd_create("standin-gpu", MFD_CLOEXEC));
  require(fd.valid() && ::ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0, kOutOfMemory);
  allocations_[++last_] = std::make_shared<Piece>(device, bytes, std::move(fd), &card);
  return last_;
}

void MemoryMap::release(uint64_t allocation) {
  const std::lock_guard<std::mutex> held_here(mutex_);
  require(allocations_.erase(allocation) == 1);
}

std::shared_ptr<MemoryMap::Piece> MemoryMap::held(uint64_t allocation) {
  const auto found = allocations_.find(allocation);
  require(found != allocations_.end());
  return found->second;
}

int MemoryMap::export_descriptor(uint64_t allocation) {
  const std::lock_guard<std::mutex> held_here(mutex_);
  const int fd = ::fcntl(held(allocation)->fd.get(), F_DUPFD_CLOEXEC, 0);
  require(fd >= 0, kUnknown);
  return fd;
}

FabricName MemoryMap::export_fabric(uint64_t allocation) {
  const std::lock_guard<std::mutex> held_here(mutex_);
  struct stat found;
  const int fd = held(allocation)->fd.get();
  require(::fstat(fd, &found) == 0, kUnknown);
  return {::getpid(), fd, found.st_ino};
}

uint64_t MemoryMap::import(int device, FileDescriptor fd) {
  struct stat found;
  require(fd.valid() && ::fstat(fd.get(), &found) == 0 && S_ISREG(found.st_mode));
  const auto bytes = static_cast<uint64_t>(found.st_size);
  require(bytes > 0 && bytes % kGranularity == 0);
  const std::lock_guard<std::mutex> held_here(mutex_);
  // Its owner's card bears it.
  allocations_[++last_] = std::make_shared<Piece>(device, bytes, std::move(fd), nullptr);
  return last_;
}

uint64_t MemoryMap::import_descriptor(int device, int fd) {
  return import(device, FileDescriptor(::fcntl(fd, F_DUPFD_CLOEXEC, 0)));
}

uint64_t MemoryMap::import_fabric(int device, const FabricName& name) {
  const std::string path = "/proc/" + std::to_string(name.pid) + "/fd/" + std::to_string(name.fd);
  FileDescriptor fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat found;
  require(fd.valid() && ::fstat(fd.get(), &found) == 0 && found.st_ino == name.inode);
  return import(device, std::move(fd));
}

void MemoryMap::map(uint64_t at, uint64_t bytes, uint64_t offset, uint64_t allocation) {
  const std::lock_guard<std::mutex> held_here(mutex_);
  const std::shared_ptr<Piece> piece = held(allocation);
  const auto home = containing(reservations_, at);
  require(home != reservations_.end() && at % kGranularity == 0);
  require(bytes > 0 && bytes % kGranularity == 0 && bytes <= piece->bytes && offset == 0);
  require(bytes <= home->first + home->second.bytes - at);
  require(overlapping(mappings_, at, bytes) == mappings_.end());
  void* const made =
      ::mmap(pointer(at), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, piece->fd.get(), 0);
  require(made == pointer(at), kOutOfMemory);
  mappings_[at] = {bytes, piece, false};
}

void MemoryMap::allow(uint64_t at, uint64_t bytes) {
  const std::lock_guard<std::mutex> held_here(mutex_);
  const auto found = mappings_.find(at);
  require(found != mappings_.end() && found->second.bytes == bytes);
  require(give_to_gpu(pointer(at), bytes), kUnknown);
  found->second.allowed = true;
}

void MemoryMap::unmap(uint64_t at, uint64_t bytes) {
  const std::lock_guard<std::mutex> held_here(mutex_);
  const auto found = mappings_.find(at);
  require(found != mappings_.end() && found->second.bytes == bytes);
  ::mmap(pointer(at), bytes, PROT_NONE, kReserved | MAP_FIXED, -1, 0);
  mappings_.erase(found);
}

uint64_t MemoryMap::allocate(int device, Card& card, uint64_t bytes) {
  require(bytes > 0);
  const uint64_t taken = rounded(bytes, kPage);
  const std::lock_guard<std::mutex> held_here(mutex_);
  require(taken <= card.total && card.used <= card.total - taken, kOutOfMemory);
  void* const made = ::mmap(nullptr, taken, PROT_NONE, kReserved, -1, 0);
  require(made != MAP_FAILED, kOutOfMemory);
  require(give_to_gpu(made, taken), kUnknown);
  const auto at = reinterpret_cast<uint64_t>(made);
  plain_[at] = {taken, std::make_shared<Piece>(device, taken, FileDescriptor(), &card)};
  return at;
}

void MemoryMap::free(uint64_t at) {
  if (at == 0) return;
  const std::lock_guard<std::mutex> held_here(mutex_);
  const auto found = plain_.find(at);
  require(found != plain_.end());
  ::munmap(pointer(at), found->second.bytes);
  plain_.erase(found);
}

void MemoryMap::register_host(uint64_t at, uint64_t bytes) {
  require(at != 0 && bytes > 0);
  const uint64_t first = at / kPage * kPage;
  // Each page must exist.
  for (uint64_t page = first; page < at + bytes; page += kPage) {
    unsigned char there;
    require(::mincore(pointer(page), kPage, &there) == 0);
  }
  const std::lock_guard<std::mutex> held_here(mutex_);
  require(overlapping(mappings_, at, bytes) == mappings_.end());
  for (const auto& other : registered_)
    require(other.first + other.second <= at || at + bytes <= other.first, kAlreadyRegistered);
  registered_[at] = bytes;
}

void MemoryMap::unregister_host(uint64_t at) {
  const std::lock_guard<std::mutex> held_here(mutex_);
  require(registered_.erase(at) == 1, kNotRegistered);
}

Place MemoryMap::place_of(uint64_t at, int* device) {
  const std::lock_guard<std::mutex> held_here(mutex_);
  const auto mapped = containing(mappings_, at);
  if (mapped != mappings_.end()) {
    *device = mapped->second.piece->device;
    return Place::device;
  }
  const auto plain = containing(plain_, at);
  if (plain != plain_.end()) {
    *device = plain->second.piece->device;
    return Place::device;
  }
  for (const auto& host : registered_)
    if (at - host.first < host.second) return Place::registered;
  return Place::unknown;
}

void MemoryMap::check_reachable(uint64_t at, uint64_t bytes) {
  require(at != 0);
  const std::lock_guard<std::mutex> held_here(mutex_);
  const auto plain = overlapping(plain_, at, bytes);
  if (plain != plain_.end())
    require(at >= plain->first && bytes <= plain->first + plain->second.bytes - at);
  for (const auto& reservation : reservations_) {
    uint64_t here = std::max(at, reservation.first);
    const uint64_t end = std::min(at + bytes, reservation.first + reservation.second.bytes);
    while (here < end) {
      const auto mapped = containing(mappings_, here);
      require(mapped != mappings_.end() && mapped->second.allowed);
      here = mapped->first + mapped->second.bytes;
    }
  }
}

bool MemoryMap::in_files(uint64_t at, uint64_t bytes) {
  const std::lock_guard<std::mutex> held_here(mutex_);
  const auto mapped = containing(mappings_, at);
  return mapped != mappings_.end() && at % kPage == 0 && bytes % kPage == 0 &&
         bytes <= mapped->first + mapped->second.bytes - at;
}

void MemoryMap::set_total(Card& card, uint64_t bytes) {
  const std::lock_guard<std::mutex> held_here(mutex_);
  card.total = bytes;
}

uint64_t MemoryMap::total_bytes(const Card& card) {
  const std::lock_guard<std::mutex> held_here(mutex_);
  return card.total;
}

uint64_t MemoryMap::free_bytes(const Card& card) {
  const std::lock_guard<std::mutex> held_here(mutex_);
  return card.total > card.used ? card.total - card.used : 0;
}

}  // namespace railshmem::standin
