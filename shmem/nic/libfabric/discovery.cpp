#include "shmem/nic/libfabric/discovery.hpp"

#include <algorithm>
#include <cstring>
#include <functional>

#include "shmem/nic/libfabric/interfaces.hpp"
#include "shmem/nic/selection.hpp"

namespace railshmem::nic::libfabric {
namespace {

// Best first: what moves data without the CPU, then what every host has. InfiniBand and RoCE are
// the verbs provider's. "tcp" is libfabric's own choice of a reliable-datagram tcp.
constexpr const char* kFabrics[] = {"cxi", "efa", "tcp"};

// Receive buffers of all endpoints of a NIC; asked for, since some fabrics offer few by default.
constexpr std::size_t kReceives = 16384;

struct Wish {
  int progress;
  bool provider_keys;
  std::size_t receives;  // 0: as many as there are
};

// From the best to what will do: keys of our choice, which can say where a region begins; room for
// everybody's receive buffers. Progress is the fabric's choice: one that has no thread of its own
// can be made to have one, which on few cores is slower by far than the thread that polls anyway.
std::vector<Wish> wishes(const LibfabricSettings& settings) {
  const int progress = settings.manual_progress ? abi::kProgressManual : abi::kProgressUnspecified;
  std::vector<Wish> out;
  for (const bool provider_keys : {false, true})
    for (const std::size_t receives : {kReceives, std::size_t{0}})
      out.push_back({progress, provider_keys, receives});
  return out;
}

InfoList ask(const std::string& fabric, const Wish& wish) {
  const Library& library = Library::get();
  const InfoList hints(library.dupinfo(nullptr));
  if (hints == nullptr) fail(ErrorKind::init, "libfabric has no memory for a question");
  hints->caps = abi::kRma | abi::kTagged;
  hints->mode = abi::kContext | abi::kContext2;
  hints->ep_attr->type = abi::kEndpointReliableDatagram;
  hints->fabric_attr->prov_name = ::strdup(fabric.c_str());  // freed with the hints
  hints->domain_attr->data_progress = wish.progress;
  // The NIC calls under a lock of its own.
  hints->domain_attr->threading = abi::kThreadDomain;
  hints->domain_attr->mr_mode = abi::kMrLocal | abi::kMrVirtAddr | abi::kMrAllocated |
                                abi::kMrEndpoint | (wish.provider_keys ? abi::kMrProvKey : 0);
  hints->rx_attr->size = wish.receives;
  abi::Info* list = nullptr;
  return InfoList(library.getinfo(abi::kVersion, nullptr, nullptr, 0, hints.get(), &list) == 0
                      ? list
                      : nullptr);
}

InfoList ask(const std::string& fabric, const LibfabricSettings& settings) {
  for (const Wish& wish : wishes(settings))
    if (InfoList list = ask(fabric, wish)) return list;
  return nullptr;
}

bool speaks_ip(const abi::Info& info) {
  return info.src_addr != nullptr && info.addr_format >= abi::kSockaddr &&
         info.addr_format <= abi::kSockaddrIn6;
}

// A region's address in the peer must fit what travels beside the key.
bool can_name_memory(const abi::Info& info) {
  const int mode = info.domain_attr->mr_mode;
  return (mode & abi::kMrProvKey) == 0 || (mode & abi::kMrVirtAddr) != 0;
}

// What is asked about each NIC once.
struct Candidate {
  const abi::Info* info;
  const Interface* interface;  // null: not one of the host's
  std::vector<std::string> names() const {
    std::vector<std::string> out{info->domain_attr->name};
    if (interface != nullptr) out.insert(out.end(), {interface->name, interface->address});
    return out;
  }
};

std::vector<Candidate> candidates(const abi::Info* list, const std::vector<Interface>& interfaces) {
  std::vector<Candidate> out;
  for (const abi::Info* info = list; info != nullptr; info = info->next) {
    if (!can_name_memory(*info) || info->domain_attr->name == nullptr) continue;
    // The first entry of a fabric is its best; it may be followed by the same NICs by another way.
    if (std::strcmp(info->fabric_attr->prov_name, list->fabric_attr->prov_name) != 0) continue;
    Candidate one{info, nullptr};
    if (speaks_ip(*info)) {
      const std::string address = address_text(static_cast<const sockaddr*>(info->src_addr));
      for (const Interface& interface : interfaces)
        if (interface.address == address) one.interface = &interface;
      if (one.interface == nullptr || one.interface->link_local) continue;
    }
    const bool known = std::any_of(out.begin(), out.end(), [&](const Candidate& other) {
      return other.names() == one.names();
    });
    if (!known) out.push_back(one);
  }
  // Libfabric's order is that of its guesses about speed; the kernel's is the host's own.
  std::stable_sort(out.begin(), out.end(), [](const Candidate& a, const Candidate& b) {
    return std::less<>()(a.interface, b.interface);
  });
  return out;
}

// An interface with IPv4 is used by that.
std::vector<Candidate> one_family_each(const std::vector<Candidate>& all) {
  const auto has_ipv4 = [&](const std::string& interface) {
    return std::any_of(all.begin(), all.end(), [&](const Candidate& one) {
      return one.interface != nullptr && one.interface->name == interface &&
             one.interface->family == AF_INET;
    });
  };
  std::vector<Candidate> out;
  for (const Candidate& one : all)
    if (one.interface == nullptr || one.interface->family == AF_INET ||
        !has_ipv4(one.interface->name))
      out.push_back(one);
  return out;
}

bool is_usual(const Candidate& one) {
  return one.interface == nullptr || (one.interface->running && !one.interface->loopback);
}

std::string names_text(const std::vector<Candidate>& all) {
  std::string out;
  for (const Candidate& one : all) out += (out.empty() ? "" : ", ") + one.names().front();
  return out;
}

std::vector<Candidate> choose(const std::vector<Candidate>& all, const std::string& nics) {
  const Selection selection(nics);
  std::vector<Candidate> taken;
  for (const Candidate& one : all)
    if (selection.takes(one.names())) taken.push_back(one);
  const bool named = !nics.empty() && nics[0] != '^';
  if (named) return taken;
  // Loopback and what is down serve only where there is nothing else.
  if (std::any_of(taken.begin(), taken.end(), is_usual))
    taken.erase(std::remove_if(taken.begin(), taken.end(),
                               [](const Candidate& one) { return !is_usual(one); }),
                taken.end());
  return taken;
}

// By its interface alone where that says which it is.
std::string name_of(const Candidate& one, const std::vector<Candidate>& all) {
  const std::string domain = one.info->domain_attr->name;
  if (one.interface == nullptr) return domain;
  const auto same = std::count_if(all.begin(), all.end(), [&](const Candidate& other) {
    return other.interface != nullptr && other.interface->name == one.interface->name;
  });
  return same == 1 ? one.interface->name : one.interface->name + "/" + one.interface->address;
}

Found found(const Candidate& one, const std::vector<Candidate>& all) {
  const Library& library = Library::get();
  Found out;
  out.info.reset(library.dupinfo(one.info));
  if (out.info == nullptr) fail(ErrorKind::init, "libfabric has no memory for a NIC's description");
  out.fabric = one.info->fabric_attr->prov_name;
  out.name = name_of(one, all);
  out.network = one.interface != nullptr ? one.interface->network : one.info->fabric_attr->name;
  if (one.interface != nullptr) out.interface = one.interface->name;
  return out;
}

}  // namespace

std::vector<Found> discover(const std::string& nics, const LibfabricSettings& settings) {
  const std::vector<Interface> interfaces = list_interfaces();
  const std::vector<std::string> fabrics =
      settings.fabric.empty() ? std::vector<std::string>(std::begin(kFabrics), std::end(kFabrics))
                              : std::vector<std::string>{settings.fabric};
  std::string others;   // NICs that were there and not taken
  std::string refused;  // fabrics that were there and cannot be used
  for (const std::string& fabric : fabrics) {
    const InfoList list = ask(fabric, settings);
    if (list == nullptr) continue;
    const std::vector<Candidate> all = one_family_each(candidates(list.get(), interfaces));
    const std::vector<Candidate> taken = choose(all, nics);
    if (all.empty()) refused += (refused.empty() ? "" : ", ") + fabric;
    if (taken.empty()) {
      others += (others.empty() || all.empty() ? "" : ", ") + names_text(all);
      continue;
    }
    std::vector<Found> out;
    for (const Candidate& one : taken) out.push_back(found(one, taken));
    return out;
  }
  const std::string version = "libfabric " + Library::get().version_text();
  if (!others.empty())
    fail(ErrorKind::init, "RAILSHMEM_NICS=", nics, " takes none of the NICs of ", version, ": ",
         others);
  if (!refused.empty())
    fail(ErrorKind::init, version,
         " has no NIC with an address, and keys that can say where memory", " begins, for ",
         refused);
  std::string asked;
  for (const std::string& fabric : fabrics) asked += (asked.empty() ? "" : ", ") + fabric;
  fail(ErrorKind::init, version, " has no reliable datagrams with RMA and tagged messages for ",
       asked);
}

}  // namespace railshmem::nic::libfabric
