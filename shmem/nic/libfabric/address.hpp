// What this provider keeps in the addresses that PEs exchange.
#pragma once

#include <cstring>
#include <string>

#include "shmem/nic/nic.hpp"

namespace railshmem::nic::libfabric {

struct NicLocation {
  static constexpr std::size_t kMostBytes = 76;
  char provider[8] = {'f', 'a', 'b', 'r', 'i', 'c', '1', 0};
  char fabric[24] = {};  // libfabric's name of its provider
  uint8_t naming = 0;    // Naming::number
  uint8_t bytes = 0;     // of the address
  uint8_t reserved[2] = {};
  unsigned char address[kMostBytes] = {};

  std::string address_bytes() const { return {reinterpret_cast<const char*>(address), bytes}; }
};
static_assert(sizeof(NicLocation) == sizeof(NicAddress));

struct EndpointLocation {
  uint32_t id = 0;
};
static_assert(sizeof(EndpointLocation) <= sizeof(EndpointAddress));

template <class Address, class Location>
Address pack(const Location& location) {
  Address out;
  std::memcpy(out.bytes, &location, sizeof location);
  return out;
}
template <class Location, class Address>
Location unpack(const Address& address) {
  Location out;
  std::memcpy(&out, address.bytes, sizeof out);
  return out;
}

}  // namespace railshmem::nic::libfabric
