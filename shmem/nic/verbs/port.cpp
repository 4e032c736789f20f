#include "shmem/nic/verbs/port.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "shmem/base/error.hpp"
#include "shmem/nic/selection.hpp"

namespace railshmem::nic::verbs {
namespace {

constexpr const char* kDevices = "/sys/class/infiniband/";

// Where the interface of an address cannot be seen (it is in another network namespace).
constexpr int kUsualPrefix = 24;

constexpr int kGidIndices = 256;  // that a queue pair can name

bool is_ipv4(const Gid& gid) {
  const unsigned char mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, mapped, sizeof mapped) == 0;
}

bool is_empty(const Gid& gid) {
  return std::all_of(std::begin(gid.raw), std::end(gid.raw), [](auto byte) { return byte == 0; });
}

bool is_link_local(const Gid& gid) {
  if (is_ipv4(gid)) return gid.raw[12] == 169 && gid.raw[13] == 254;
  return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80;
}

in_addr ipv4_of(const Gid& gid) {
  in_addr out;
  std::memcpy(&out, gid.raw + 12, sizeof out);
  return out;
}

std::string text_of(in_addr address) {
  char out[INET_ADDRSTRLEN];
  return ::inet_ntop(AF_INET, &address, out, sizeof out);
}

std::string text_of(const Gid& gid) {
  if (is_ipv4(gid)) return text_of(ipv4_of(gid));
  char out[INET6_ADDRSTRLEN];
  return ::inet_ntop(AF_INET6, gid.raw, out, sizeof out);
}

// Of the interface that has this address.
int prefix_of(in_addr address) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return kUsualPrefix;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(all, &::freeifaddrs);
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    const auto* its = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
    if (its->sin_addr.s_addr != address.s_addr || one->ifa_netmask == nullptr) continue;
    const auto* mask = reinterpret_cast<const sockaddr_in*>(one->ifa_netmask);
    return __builtin_popcount(mask->sin_addr.s_addr);
  }
  return kUsualPrefix;
}

std::string attribute(const Port& port, const char* kind, int index) {
  std::ifstream in(
      text(kDevices, port.device, "/ports/", int{port.number}, "/gid_attrs/", kind, "/", index));
  std::string line;
  std::getline(in, line);
  return line;
}

// Smaller is better.
int rank_of(const Gid& gid, const std::string& type) {
  const int address = is_link_local(gid) ? 2 : is_ipv4(gid) ? 0 : 1;
  return (type == "RoCE v2" ? 0 : 3) + address;
}

// Of an Ethernet port: the GID of RoCE v2 on IPv4, or the next best.
int best_gid(const Library& library, Context* context, const Port& port, int gids) {
  int best = -1;
  int best_rank = 0;
  for (int index = 0; index < std::min(gids, kGidIndices); ++index) {
    Gid gid{};
    if (library.query_gid(context, port.number, index, &gid) != 0 || is_empty(gid)) continue;
    const int rank = rank_of(gid, attribute(port, "types", index));
    if (best >= 0 && rank >= best_rank) continue;
    best = index;
    best_rank = rank;
  }
  return best;
}

// Fills what `settings` and the port say of addresses and packets; empty, or why it cannot be used.
std::string set_up(const Library& library, const OpenPort& open, const VerbsSettings& settings,
                   Port* port) {
  Context* context = open.context.get();
  PortAttributes says{};
  if (library.query_port(context, port->number, &says) != 0)
    return text(port->name, ": its port cannot be asked: ", errno_text());
  if (says.state != kPortActive) return text(port->name, ": its port is not active");
  port->ethernet = says.link == kLinkEthernet;
  port->lid = says.lid;
  port->max_message = says.max_message;
  port->mtu = says.active_mtu;
  if (settings.mtu > mtu_bytes(says.active_mtu))
    fail(ErrorKind::init, port->name, ": RAILSHMEM_VERBS mtu=", settings.mtu,
         ": its port has an MTU of ", mtu_bytes(says.active_mtu));
  while (settings.mtu != 0 && mtu_bytes(port->mtu) > settings.mtu) --port->mtu;

  port->gid_index = settings.gid;
  if (settings.gid >= says.gids)
    fail(ErrorKind::init, port->name, ": RAILSHMEM_VERBS gid=", settings.gid, ": its port has ",
         says.gids, " GIDs");
  if (settings.gid < 0)
    port->gid_index = port->ethernet ? best_gid(library, context, *port, says.gids) : 0;
  if (port->gid_index < 0) return text(port->name, ": its port has no GID, which RoCE needs");
  const bool asked = library.query_gid(context, port->number, port->gid_index, &port->gid) == 0;
  if (!asked || is_empty(port->gid))
    fail(ErrorKind::init, port->name, ": RAILSHMEM_VERBS gid=", port->gid_index,
         ": that GID is empty");
  port->netdev = attribute(*port, "ndevs", port->gid_index);
  return {};
}

}  // namespace

std::string Port::address() const {
  return ethernet ? text_of(gid) : text("lid ", lid);
}

std::string Port::network() const {
  if (ethernet && is_ipv4(gid)) {
    const int prefix = prefix_of(ipv4_of(gid));
    in_addr network = ipv4_of(gid);
    network.s_addr &= htonl(prefix == 0 ? 0 : ~uint32_t{0} << (32 - prefix));
    return text(text_of(network), "/", prefix);
  }
  Gid prefix{};
  std::memcpy(prefix.raw, gid.raw, 8);
  return ethernet ? text_of(prefix) + "/64" : "ib " + text_of(prefix);
}

std::string Port::folder() const {
  return kDevices + device + "/device";
}

FoundPorts find_ports(const std::shared_ptr<const Library>& library, const std::string& nics,
                      const VerbsSettings& settings) {
  const Selection selection(nics);
  FoundPorts out;
  const auto leave = [&](const std::string& why) {
    out.why_not += (out.why_not.empty() ? "" : "; ") + why;
  };
  int count = 0;
  const std::unique_ptr<Device*, void (*)(Device**)> list(library->get_device_list(&count),
                                                          library->free_device_list);
  for (int index = 0; list != nullptr && index < count; ++index) {
    Device* device = list.get()[index];
    const std::string name = library->get_device_name(device);
    if (device->transport != kTransportInfiniband) {
      leave(name + ": neither InfiniBand nor RoCE");
      continue;
    }
    for (int number = 1, ports = 1; number <= ports; ++number) {
      // Each port has a context of its own, and so its own events.
      OpenPort open;
      open.context = OwnedContext(library, library->open_device(device));
      if (open.context.get() == nullptr ||
          library->query_device(open.context.get(), &open.attributes) != 0) {
        leave(text(name, ": cannot be opened: ", errno_text()));
        break;
      }
      ports = open.attributes.ports;
      open.port.device = name;
      open.port.number = static_cast<uint8_t>(number);
      open.port.name = ports > 1 ? text(name, ":", number) : name;
      // Before it is set up: what is not asked for need not follow the settings.
      open.port.netdev = attribute(open.port, "ndevs", 0);
      if (!selection.takes({name, text(name, ":", number), open.port.netdev})) {
        leave(text(open.port.name, ": not in RAILSHMEM_NICS=", nics));
        continue;
      }
      const std::string why = set_up(*library, open, settings, &open.port);
      if (why.empty())
        out.usable.push_back(std::move(open));
      else
        leave(why);
    }
  }
  if (out.usable.empty() && out.why_not.empty()) out.why_not = "libibverbs finds no device";
  return out;
}

}  // namespace railshmem::nic::verbs
