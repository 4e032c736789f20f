#include "shmem/nic/libfabric/interfaces.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <cstring>
#include <memory>

#include "shmem/base/error.hpp"
#include "shmem/topology/host_identity.hpp"

namespace railshmem::nic::libfabric {
namespace {

struct Bytes {
  unsigned char* data = nullptr;
  std::size_t count = 0;
};

// Where an address keeps its bytes, in network order.
Bytes bytes_of(sockaddr* address) {
  if (address != nullptr && address->sa_family == AF_INET) {
    auto& found = reinterpret_cast<sockaddr_in*>(address)->sin_addr;
    return {reinterpret_cast<unsigned char*>(&found), sizeof found};
  }
  if (address != nullptr && address->sa_family == AF_INET6) {
    auto& found = reinterpret_cast<sockaddr_in6*>(address)->sin6_addr;
    return {reinterpret_cast<unsigned char*>(&found), sizeof found};
  }
  return {};
}

std::string text_of(int family, const void* bytes) {
  char out[INET6_ADDRSTRLEN] = {};
  return ::inet_ntop(family, bytes, out, sizeof out) == nullptr ? "" : out;
}

// The address under its mask, and how many bits that has.
std::string network_text(int family, const Bytes& address, const Bytes& mask) {
  unsigned char masked[sizeof(in6_addr)] = {};
  int bits = 0;
  for (std::size_t i = 0; i < address.count; ++i) {
    const unsigned char of_mask = i < mask.count ? mask.data[i] : 0xff;
    masked[i] = address.data[i] & of_mask;
    bits += __builtin_popcount(of_mask);
  }
  return text(text_of(family, masked), "/", bits);
}

bool is_link_local(int family, const Bytes& address) {
  if (family == AF_INET) return address.data[0] == 169 && address.data[1] == 254;
  return address.data[0] == 0xfe && (address.data[1] & 0xc0) == 0x80;
}

// A loopback reaches the processes of one network namespace of one host.
std::string name_of_this_stack() {
  struct stat space = {};
  const bool known = ::stat("/proc/self/ns/net", &space) == 0;
  return text(boot_id().substr(0, 8), "-", known ? space.st_ino : 0);
}

}  // namespace

std::string address_text(const sockaddr* address) {
  const Bytes bytes = bytes_of(const_cast<sockaddr*>(address));
  return bytes.count == 0 ? "" : text_of(address->sa_family, bytes.data);
}

std::vector<Interface> list_interfaces() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0)
    fail(ErrorKind::init, "the network interfaces cannot be listed: ", errno_text());
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(first, ::freeifaddrs);
  std::vector<Interface> out;
  for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
    const Bytes address = bytes_of(one->ifa_addr);
    if (address.count == 0) continue;
    Interface found;
    found.name = one->ifa_name;
    found.family = one->ifa_addr->sa_family;
    found.address = text_of(found.family, address.data);
    found.network = network_text(found.family, address, bytes_of(one->ifa_netmask));
    found.loopback = (one->ifa_flags & IFF_LOOPBACK) != 0;
    if (found.loopback) found.network += " of " + name_of_this_stack();
    found.link_local = is_link_local(found.family, address);
    found.running = (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_RUNNING) != 0;
    out.push_back(found);
  }
  return out;
}

InterfaceWatch::InterfaceWatch(const std::string& name)
    : name_(name), socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
  if (!socket_.valid())
    fail(ErrorKind::init, name, " cannot be watched: no socket: ", errno_text());
}

bool InterfaceWatch::is_running() const {
  ifreq request = {};
  std::strncpy(request.ifr_name, name_.c_str(), sizeof request.ifr_name - 1);
  if (::ioctl(socket_.get(), SIOCGIFFLAGS, &request) != 0) return false;
  return (request.ifr_flags & IFF_UP) != 0 && (request.ifr_flags & IFF_RUNNING) != 0;
}

}  // namespace railshmem::nic::libfabric
