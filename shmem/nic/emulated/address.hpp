// What this provider keeps in the addresses that PEs exchange.
#pragma once

#include <cstring>
#include <string>

#include "shmem/base/error.hpp"
#include "shmem/nic/nic.hpp"

namespace railshmem::nic::emulated {

struct NicLocation {
  char provider[8] = {'e', 'm', 'u', 'l', 'a', 't', 'e', 'd'};
  SegmentHandle segment;
  int32_t pe = 0;
  uint32_t nic = 0;
  uint32_t rail = 0;

  std::string text() const {
    return railshmem::text("emu", nic, " of PE ", pe, " (rail ", rail, ")");
  }
};
static_assert(sizeof(NicLocation) <= sizeof(NicAddress));

struct EndpointLocation {
  uint32_t qpn = 0;
  uint64_t token = 0;  // random: proves to the other side that a request is from this endpoint
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

}  // namespace railshmem::nic::emulated
