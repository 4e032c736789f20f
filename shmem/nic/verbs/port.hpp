// One port of a device: what it is called, which of its addresses peers use, and which network they
// say it is on.
#pragma once

#include <string>
#include <vector>

#include "shmem/base/settings.hpp"
#include "shmem/nic/verbs/library.hpp"

namespace railshmem::nic::verbs {

struct Port {
  std::string name;    // "mlx5_0", or "mlx5_0:2" where the device has several ports
  std::string device;  // "mlx5_0"
  std::string netdev;  // its network interface; empty: none
  uint8_t number = 1;
  bool ethernet = false;
  int gid_index = 0;
  Gid gid{};
  uint16_t lid = 0;
  int mtu = 1;  // as PortAttributes has it
  uint64_t max_message = 0;

  std::string address() const;  // "10.1.0.3", "fe80::1", "lid 7"
  std::string network() const;  // "10.1.0.0/16", "fd00:1::/64", "ib fe80:0:0:0"
  std::string folder() const;   // in sysfs, of the device's place
};

// A device that is open, and one of its ports.
struct OpenPort {
  OwnedContext context;
  DeviceAttributes attributes{};
  Port port;
};

struct FoundPorts {
  std::vector<OpenPort> usable;
  std::string why_not;  // what was found instead: "rxe0: its port 1 is down; ..."
};

// All that `nics` (RAILSHMEM_NICS) takes. Throws Error(init) for settings that a port cannot
// follow.
FoundPorts find_ports(const std::shared_ptr<const Library>& library, const std::string& nics,
                      const VerbsSettings& settings);

constexpr uint32_t mtu_bytes(int mtu) {
  return 128u << mtu;
}

}  // namespace railshmem::nic::verbs
