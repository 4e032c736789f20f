#include "shmem/memory/host_segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "shmem/base/error.hpp"

namespace railshmem {
namespace {

char* map_shared(int fd, std::size_t bytes) {
  // NORESERVE: a heap is sized for the worst case and pays only for the pages it touches.
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  return at == MAP_FAILED ? nullptr : static_cast<char*>(at);
}

bool is_the_segment(int fd, const SegmentHandle& handle) {
  struct stat found;
  return ::fstat(fd, &found) == 0 && found.st_dev == handle.device &&
         found.st_ino == handle.inode && static_cast<uint64_t>(found.st_size) == handle.bytes;
}

}  // namespace

HostSegment HostSegment::create(const char* label, std::size_t bytes) {
  HostSegment out;
  out.fd_ = FileDescriptor(::memfd_create(label, MFD_CLOEXEC));
  if (!out.fd_.valid() || ::ftruncate(out.fd_.get(), static_cast<off_t>(bytes)) != 0)
    fail(ErrorKind::init, "cannot create ", label, ", ", bytes_text(bytes),
         " of shared memory: ", errno_text());
  out.data_ = map_shared(out.fd_.get(), bytes);
  if (out.data_ == nullptr)
    fail(ErrorKind::init, "cannot map ", label, ", ", bytes_text(bytes),
         " of shared memory: ", errno_text());
  out.bytes_ = bytes;
  out.mapped_ = true;
  return out;
}

HostSegment HostSegment::import(const SegmentHandle& handle) {
  HostSegment out;
  out.bytes_ = handle.bytes;
  if (handle.pid == ::getpid() && is_the_segment(handle.fd, handle)) {
    out.data_ = reinterpret_cast<char*>(handle.base);
    return out;
  }
  const std::string path = text("/proc/", handle.pid, "/fd/", handle.fd);
  FileDescriptor fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd.valid()) fail(ErrorKind::init, "cannot open ", path, ": ", errno_text());
  if (!is_the_segment(fd.get(), handle))
    fail(ErrorKind::init, path, " is not the segment meant (another process namespace?)");
  out.data_ = map_shared(fd.get(), handle.bytes);
  if (out.data_ == nullptr)
    fail(ErrorKind::init, "cannot map ", bytes_text(handle.bytes), " of ", path, ": ",
         errno_text());
  out.mapped_ = true;
  return out;
}

bool HostSegment::owner_visible(const SegmentHandle& handle) {
  struct stat found;
  const std::string path = text("/proc/", handle.pid, "/fd/", handle.fd);
  return ::stat(path.c_str(), &found) == 0 && found.st_dev == handle.device &&
         found.st_ino == handle.inode;
}

HostSegment& HostSegment::operator=(HostSegment&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

HostSegment::~HostSegment() {
  if (mapped_) ::munmap(data_, bytes_);
}

void HostSegment::lay_over(void* address, std::size_t offset, std::size_t bytes) const {
  std::memcpy(data_ + offset, address, bytes);
  if (::mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
             fd_.get(), static_cast<off_t>(offset)) == MAP_FAILED)
    fail(ErrorKind::argument, "cannot map the heap over ", bytes_text(bytes), " at ", address, ": ",
         errno_text());
}

void HostSegment::take_back(void* address, std::size_t bytes) {
  // Made elsewhere first: the contents must exist when they take the place of the shared pages.
  void* copy = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy == MAP_FAILED)
    fail(ErrorKind::argument, "no memory for ", bytes_text(bytes), ": ", errno_text());
  std::memcpy(copy, address, bytes);
  if (::mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, address) == MAP_FAILED) {
    const std::string why = errno_text();
    ::munmap(copy, bytes);
    fail(ErrorKind::argument, "cannot move ", bytes_text(bytes), " to ", address, ": ", why);
  }
}

SegmentHandle HostSegment::handle() const {
  struct stat found;
  if (!fd_.valid() || ::fstat(fd_.get(), &found) != 0)
    fail(ErrorKind::init, "segment without a descriptor has no handle: ", errno_text());
  SegmentHandle out;
  out.pid = ::getpid();
  out.fd = fd_.get();
  out.device = found.st_dev;
  out.inode = found.st_ino;
  out.bytes = bytes_;
  out.base = reinterpret_cast<uint64_t>(data_);
  return out;
}

}  // namespace railshmem
