// Giving an open descriptor to processes that are no relatives. Two ways, because each is closed
// somewhere: taking it out of its owner (pidfd_getfd needs the right to trace the owner), and
// asking the owner over a socket (which needs its network namespace).
#pragma once

#include <cstdint>
#include <string>
#include <thread>

#include "shmem/base/file_descriptor.hpp"

namespace railshmem {

// Who asks must name the key, which only those know whom the owner told.
struct PassedDescriptor {
  int32_t pid = 0;
  int32_t fd = -1;  // in its owner
  uint64_t key = 0;
};

// Hands out one descriptor as long as it lives, from a thread that sleeps.
class DescriptorServer {
 public:
  // Throws Error(init).
  explicit DescriptorServer(FileDescriptor descriptor);
  DescriptorServer(const DescriptorServer&) = delete;
  DescriptorServer& operator=(const DescriptorServer&) = delete;
  ~DescriptorServer();

  const PassedDescriptor& name() const { return name_; }

 private:
  void run();

  FileDescriptor descriptor_;
  PassedDescriptor name_;
  FileDescriptor listener_;
  FileDescriptor end_;  // readable when the thread shall end
  std::thread thread_;
};

// A descriptor of the same open file. Throws Error(init) saying why neither way works.
FileDescriptor fetch_descriptor(const PassedDescriptor& name);

// The two ways by themselves. An invalid descriptor, and the reason in `why`, where one is closed.
FileDescriptor take_from_owner(const PassedDescriptor& name, std::string* why);
FileDescriptor ask_owner(const PassedDescriptor& name, std::string* why);

}  // namespace railshmem
