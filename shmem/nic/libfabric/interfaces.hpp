// The host's network interfaces, as far as NICs that speak IP need them.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "shmem/base/file_descriptor.hpp"

namespace railshmem::nic::libfabric {

// One address of one interface.
struct Interface {
  std::string name;     // "eth0"
  std::string address;  // "10.201.0.7"
  std::string network;  // "10.201.0.0/24"; a loopback's is its host's own
  int family = 0;       // AF_INET, AF_INET6
  bool loopback = false;
  bool link_local = false;
  bool running = false;  // it is up and has a carrier
};

std::vector<Interface> list_interfaces();

// The text of an IPv4 or IPv6 address; empty for other families.
std::string address_text(const sockaddr* address);

// Whether an interface can carry anything, asked from time to time.
class InterfaceWatch {
 public:
  explicit InterfaceWatch(const std::string& name);
  bool is_running() const;  // false too when it is not there any more

 private:
  std::string name_;
  FileDescriptor socket_;
};

}  // namespace railshmem::nic::libfabric
