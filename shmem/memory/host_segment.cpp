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

char* map_shared(int fd, std::size_t bytes, char* at = nullptr) {
  // NORESERVE: a heap is sized for the worst case and pays only for the pages it touches.
  const int flags = MAP_SHARED | MAP_NORESERVE | (at == nullptr ? 0 : MAP_FIXED);
  void* mapped = ::mmap(at, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<char*>(mapped);
}

bool is_the_segment(int fd, const SegmentHandle& handle) {
  struct stat found;
  return ::fstat(fd, &found) == 0 && found.st_dev == handle.device &&
         found.st_ino == handle.inode && static_cast<uint64_t>(found.st_size) <= handle.bytes;
}

FileDescriptor open_file(const SegmentHandle& handle) {
  const std::string path = text("/proc/", handle.pid, "/fd/", handle.fd);
  FileDescriptor fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd.valid()) fail(ErrorKind::init, "cannot open ", path, ": ", errno_text());
  if (!is_the_segment(fd.get(), handle))
    fail(ErrorKind::init, path, " is not the segment meant (another process namespace?)");
  return fd;
}

}  // namespace

HostSegment HostSegment::create(const char* label, std::size_t bytes, char* at) {
  HostSegment out;
  out.fd_ = FileDescriptor(::memfd_create(label, MFD_CLOEXEC));
  if (!out.fd_.valid() || ::ftruncate(out.fd_.get(), static_cast<off_t>(bytes)) != 0)
    fail(ErrorKind::init, "cannot create ", label, ", ", bytes_text(bytes),
         " of shared memory: ", errno_text());
  out.data_ = map_shared(out.fd_.get(), bytes, at);
  if (out.data_ == nullptr)
    fail(ErrorKind::init, "cannot map ", label, ", ", bytes_text(bytes),
         " of shared memory: ", errno_text());
  out.bytes_ = bytes;
  out.mapped_ = true;
  out.placed_ = at != nullptr;
  return out;
}

HostSegment HostSegment::import(const SegmentHandle& handle) {
  if (handle.pid == ::getpid() && is_the_segment(handle.fd, handle)) {
    HostSegment out;
    out.bytes_ = handle.bytes;
    out.data_ = reinterpret_cast<char*>(handle.base);
    return out;
  }
  return import(handle, nullptr);
}

HostSegment HostSegment::import(const SegmentHandle& handle, char* at) {
  HostSegment out;
  const FileDescriptor fd = open_file(handle);
  out.bytes_ = file_bytes(handle);
  out.data_ = map_shared(fd.get(), out.bytes_, at);
  if (out.data_ == nullptr)
    fail(ErrorKind::init, "cannot map ", bytes_text(out.bytes_), " of process ", handle.pid, ": ",
         errno_text());
  out.mapped_ = true;
  out.placed_ = at != nullptr;
  return out;
}

std::size_t HostSegment::file_bytes(const SegmentHandle& handle) {
  struct stat found;
  const FileDescriptor fd = open_file(handle);
  if (::fstat(fd.get(), &found) != 0) fail(ErrorKind::init, "fstat: ", errno_text());
  return static_cast<std::size_t>(found.st_size);
}

void HostSegment::read(const SegmentHandle& handle, std::size_t offset, void* to,
                       std::size_t bytes) {
  const FileDescriptor fd = open_file(handle);
  if (::pread(fd.get(), to, bytes, static_cast<off_t>(offset)) != static_cast<ssize_t>(bytes))
    fail(ErrorKind::init, "cannot read the segment of process ", handle.pid, ": ", errno_text());
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
  std::swap(placed_, other.placed_);
  return *this;
}

HostSegment::~HostSegment() {
  if (mapped_ && placed_)  // the holder's again, at no time anybody else's
    ::mmap(data_, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
           0);
  else if (mapped_)
    ::munmap(data_, bytes_);
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
