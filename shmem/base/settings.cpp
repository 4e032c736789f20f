#include "shmem/base/settings.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "shmem/base/error.hpp"

namespace railshmem {
namespace {

constexpr SettingInfo kTable[] = {
    {"RAILSHMEM_HEAP_SIZE", "1G",
     "bytes of the symmetric heap per PE (K, M, G, T suffixes); SHMEM_SYMMETRIC_SIZE works too",
     false, "SHMEM_SYMMETRIC_SIZE"},
    {"RAILSHMEM_TIMEOUT_S", "60",
     "seconds after which any wait gives up and says what it waited for"},
    {"RAILSHMEM_DEVICE", "auto",
     "where the symmetric heap lies and kernels run: cpu, cuda, hip, or auto: on GPUs where every "
     "PE has one, else on CPUs"},
    {"RAILSHMEM_GPU", "",
     "number of this PE's GPU among those it may see; empty: by its place among the PEs of its "
     "host. PEs may differ in it",
     true},
    {"RAILSHMEM_GPU_DRIVER", "",
     "path of the GPU driver's library; empty: the system's. PEs may differ in it", true},
    {"RAILSHMEM_NODES", "0",
     "emulation: split the PEs into this many nodes, blocks of consecutive ranks, that may not map "
     "each other's memory; 0 takes the hosts as they are"},
    {"RAILSHMEM_RAILS", "0", "emulated NICs (rails) per node; 0 means one where a NIC is needed"},
    {"RAILSHMEM_PROVIDER", "auto",
     "whose NICs join PEs that cannot map each other's memory: emulated, verbs, libfabric, none, "
     "or "
     "auto: emulated ones where RAILSHMEM_NODES or RAILSHMEM_RAILS asks for them, else, for jobs "
     "of "
     "several hosts, verbs where every PE has a NIC that libibverbs drives, else libfabric"},
    {"RAILSHMEM_NICS", "",
     "which NICs may be used: names joined by commas, with * and ?, of devices (mlx5_0), their "
     "ports (mlx5_0:1) or network interfaces (eth2); a leading ^ takes all but those. PEs may "
     "differ in it",
     true},
    {"RAILSHMEM_VERBS",
     "gid=auto,tc=0,sl=0,mtu=auto,timeout=14,retry=7,rnr=7,relaxed=off,atomics=on,region=0",
     "of verbs NICs: index of the GID (auto: RoCE v2 on IPv4 first), traffic class, service level, "
     "MTU in bytes, a retry after 4.096 us * 2^timeout, retries before a peer counts as "
     "unreachable, retries while it has no receive buffer (7: without end), relaxed ordering on "
     "PCIe, native atomics where a probe shows that they work, and the largest region to register "
     "(0: the device's limit)"},
    {"RAILSHMEM_LIBFABRIC", "fabric=auto,progress=auto",
     "of libfabric NICs: the provider (cxi, efa, tcp;ofi_rxm, ...; auto: the best that works) and "
     "its progress: auto or manual"},
    {"RAILSHMEM_EMULATED", "atomics=on,ordered=on,isolated=on,wakes=on,region=0,seed=1",
     "what the emulated NICs do: native atomics, ordered WRITEs, rails isolated from each other, "
     "waking the thread that drives them, the largest region a NIC registers (0: any), and the "
     "seed "
     "of the reordering and of the faults"},
    {"RAILSHMEM_FAULTS", "",
     "faults of the emulated NICs, parts joined by commas: lose=SHARE or lose=@N (completions that "
     "never come: a share of them, or the N-th of each NIC), delay=SHARE:TIME (requests held up "
     "before they are placed or answered), reorder=on (completions of different queue pairs), "
     "fail=OPERATION@N:ANSWER (the N-th any, write, read, atomic or send of each NIC ends with the "
     "error access, operation or retry; after retry it may have been executed), rail=R@TIME or "
     "rail=R@N (NICs of rail R go down after a time, or with their N-th request), pe=RANK (only "
     "that PE's NICs). TIME has a unit: ns, us, ms or s. The seed is that of RAILSHMEM_EMULATED"},
    {"RAILSHMEM_LANES", "1", "ordered channels to each remote peer, spread over the rails"},
    {"RAILSHMEM_CONTEXTS", "8",
     "communication contexts, besides the default one, that a PE of a job with NICs may have"},
    {"RAILSHMEM_TEAMS", "32", "teams, the 3 predefined ones included, that a PE may be in"},
    {"RAILSHMEM_RING", "1024", "slots of the command ring, a power of two of at least 4"},
    {"RAILSHMEM_QUEUE_DEPTH", "256",
     "work-queue entries per queue pair, a power of two from 8 to 16384"},
    {"RAILSHMEM_INFLIGHT_BYTES", "64M", "bytes posted and not yet completed that a lane may have"},
    {"RAILSHMEM_CHUNK", "1M", "puts and gets over NICs are cut into pieces of this many bytes"},
    {"RAILSHMEM_TRACE", "",
     "directory into which each PE writes a timeline, pe-NNNN.trace, of up to 64 MiB; 'railshmem "
     "trace merge' joins them; empty: none"},
    {"RAILSHMEM_INTERFACE", "",
     "name or address of the network interface that shmem_get_unique_id listens on; empty: all. "
     "PEs "
     "may differ in it",
     true},
    {"RAILSHMEM_KERNELS", "",
     "folder of the kernels of C++ programs, made by 'railshmem compile --to'; Python programs "
     "compile theirs on first use. PEs may differ in it",
     true},
    {"RAILSHMEM_CACHE", "",
     "folder of the kernels that were compiled for GPUs; empty: $XDG_CACHE_HOME/railshmem, else "
     "~/.cache/railshmem. PEs may differ in it",
     true},
};

SettingValue find_setting(const Lookup& lookup, const char* name) {
  for (const SettingInfo& row : kTable)
    if (std::string(row.name) == name) return setting_value(lookup, row);
  fail(ErrorKind::init, "no setting is called ", name);
}

std::string value_of(const Lookup& lookup, const char* name) {
  return find_setting(lookup, name).value;
}

uint64_t parse_count(const std::string& name, const std::string& value, uint64_t low,
                     uint64_t high) {
  char* end = nullptr;
  const unsigned long long parsed = std::strtoull(value.c_str(), &end, 10);
  if (value.empty() || value[0] == '-' || *end != '\0' || parsed < low || parsed > high)
    fail(ErrorKind::init, name, "=", value, ": expected a whole number from ", low, " to ", high);
  return parsed;
}

uint32_t parse_power(const std::string& name, const std::string& value, uint64_t low,
                     uint64_t high) {
  const uint64_t parsed = parse_count(name, value, low, high);
  if ((parsed & (parsed - 1)) != 0)
    fail(ErrorKind::init, name, "=", value, ": expected a power of two");
  return static_cast<uint32_t>(parsed);
}

uint64_t parse_size(const std::string& name, const std::string& value, uint64_t low,
                    uint64_t high) {
  uint64_t parsed = 0;
  try {
    parsed = parse_bytes(value);
  } catch (const Error& error) {
    fail(ErrorKind::init, name, "=", value, ": ", error.what());
  }
  if (parsed < low || parsed > high)
    fail(ErrorKind::init, name, "=", value, ": expected from ", bytes_text(low), " to ",
         bytes_text(high));
  return parsed;
}

DeviceKind parse_device(const std::string& value) {
  for (const DeviceKind kind :
       {DeviceKind::automatic, DeviceKind::cpu, DeviceKind::cuda, DeviceKind::hip})
    if (value == name_of(kind)) return kind;
  fail(ErrorKind::init, "RAILSHMEM_DEVICE=", value, ": expected auto, cpu, cuda or hip");
}

ProviderKind parse_provider(const std::string& value) {
  for (const ProviderKind kind :
       {ProviderKind::automatic, ProviderKind::none, ProviderKind::emulated, ProviderKind::verbs,
        ProviderKind::libfabric})
    if (value == name_of(kind)) return kind;
  fail(ErrorKind::init, "RAILSHMEM_PROVIDER=", value,
       ": expected auto, emulated, verbs, libfabric or none");
}

// The parts of a setting like "atomics=off,seed=3", which asks for those it knows.
class Parts {
 public:
  Parts(const char* name, const std::string& value) : name_(name) {
    std::size_t at = 0;
    while (at < value.size()) {
      const std::size_t end = std::min(value.find(',', at), value.size());
      const std::string part = value.substr(at, end - at);
      at = end + 1;
      if (part.empty()) continue;
      const std::size_t equals = std::min(part.find('='), part.size());
      parts_.push_back({part, part.substr(0, equals),
                        equals == part.size() ? "" : part.substr(equals + 1), false});
    }
  }

  void read(const char* key, bool* out) {
    each(key, [&](const Part& part) {
      if (part.value == "on" || part.value == "1" || part.value == "true")
        *out = true;
      else if (part.value == "off" || part.value == "0" || part.value == "false")
        *out = false;
      else
        fail(ErrorKind::init, name_of_part(key), "=", part.value, ": expected on or off");
    });
  }
  template <class T>
  void read(const char* key, T* out, uint64_t low, uint64_t high) {
    each(key, [&](const Part& part) {
      if (part.value != "auto")  // as it is
        *out = static_cast<T>(parse_count(name_of_part(key), part.value, low, high));
    });
  }
  void read_size(const char* key, uint64_t* out) {
    each(key, [&](const Part& part) {
      *out = parse_size(name_of_part(key), part.value, 0, uint64_t{1} << 50);
    });
  }
  void read(const char* key, std::string* out) {
    each(key, [&](const Part& part) { *out = part.value == "auto" ? "" : part.value; });
  }

  // Throws Error(init) naming the first part that nobody asked for.
  void finish() const {
    for (const Part& part : parts_)
      if (!part.known)
        fail(ErrorKind::init, name_, ": unknown part '", part.text, "'; known are ", keys_);
  }

 private:
  struct Part {
    std::string text;
    std::string key;
    std::string value;
    bool known;
  };

  std::string name_of_part(const char* key) const { return text(name_, ": ", key); }

  template <class Take>
  void each(const char* key, const Take& take) {
    keys_ += (keys_.empty() ? "" : ", ") + std::string(key);
    for (Part& part : parts_) {
      if (part.key != key) continue;
      part.known = true;
      take(part);
    }
  }

  const char* name_;
  std::string keys_;
  std::vector<Part> parts_;
};

EmulatedSettings parse_emulated(const std::string& value) {
  EmulatedSettings out;
  Parts parts("RAILSHMEM_EMULATED", value);
  parts.read("atomics", &out.atomics);
  parts.read("ordered", &out.ordered);
  parts.read("isolated", &out.isolated);
  parts.read("wakes", &out.wakes);
  parts.read_size("region", &out.region);
  parts.read("seed", &out.seed, 0, UINT32_MAX);
  parts.finish();
  return out;
}

VerbsSettings parse_verbs(const std::string& value) {
  VerbsSettings out;
  Parts parts("RAILSHMEM_VERBS", value);
  parts.read("gid", &out.gid, 0, 255);
  parts.read("tc", &out.traffic_class, 0, 255);
  parts.read("sl", &out.service_level, 0, 15);
  parts.read("mtu", &out.mtu, 256, 4096);
  parts.read("timeout", &out.timeout, 1, 31);
  parts.read("retry", &out.retries, 0, 7);
  parts.read("rnr", &out.rnr_retries, 0, 7);
  parts.read("relaxed", &out.relaxed);
  parts.read("atomics", &out.atomics);
  parts.read_size("region", &out.region);
  parts.finish();
  if (out.mtu != 0 && (out.mtu & (out.mtu - 1)) != 0)
    fail(ErrorKind::init, "RAILSHMEM_VERBS: mtu=", out.mtu,
         ": expected 256, 512, 1024, 2048 or 4096");
  return out;
}

LibfabricSettings parse_libfabric(const std::string& value) {
  LibfabricSettings out;
  std::string progress;
  Parts parts("RAILSHMEM_LIBFABRIC", value);
  parts.read("fabric", &out.fabric);
  parts.read("progress", &progress);
  parts.finish();
  if (!progress.empty() && progress != "manual")
    fail(ErrorKind::init, "RAILSHMEM_LIBFABRIC: progress=", progress, ": expected auto or manual");
  out.manual_progress = progress == "manual";
  return out;
}

}  // namespace

const char* name_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::automatic:
      return "auto";
    case DeviceKind::cpu:
      return "cpu";
    case DeviceKind::cuda:
      return "cuda";
    case DeviceKind::hip:
      return "hip";
  }
  return "unknown";
}

const char* name_of(ProviderKind kind) {
  switch (kind) {
    case ProviderKind::automatic:
      return "auto";
    case ProviderKind::none:
      return "none";
    case ProviderKind::emulated:
      return "emulated";
    case ProviderKind::verbs:
      return "verbs";
    case ProviderKind::libfabric:
      return "libfabric";
  }
  return "unknown";
}

Span<const SettingInfo> setting_table() {
  return {kTable, sizeof kTable / sizeof kTable[0]};
}

SettingValue setting_value(const Lookup& lookup, const SettingInfo& setting) {
  for (const char* name : {setting.name, setting.standard}) {
    const char* found = name == nullptr ? nullptr : lookup(name);
    if (found != nullptr && *found != '\0') return {found, name};
  }
  return {setting.fallback, ""};
}

uint64_t parse_bytes(const std::string& value) {
  char* end = nullptr;
  const double number = std::strtod(value.c_str(), &end);
  if (end == value.c_str())
    fail(ErrorKind::argument, "'", value, "' is not a size such as 4096, 64M or 1.5G");
  std::string suffix = end;
  if (!suffix.empty() && (suffix.back() == 'B' || suffix.back() == 'b')) suffix.pop_back();
  if (suffix.size() == 2 && (suffix[1] == 'i' || suffix[1] == 'I')) suffix.pop_back();
  int shift = 0;
  if (suffix == "K" || suffix == "k")
    shift = 10;
  else if (suffix == "M" || suffix == "m")
    shift = 20;
  else if (suffix == "G" || suffix == "g")
    shift = 30;
  else if (suffix == "T" || suffix == "t")
    shift = 40;
  else if (!suffix.empty())
    fail(ErrorKind::argument, "'", value, "' is not a size such as 4096, 64M or 1.5G");
  const double bytes = std::ldexp(number, shift);
  if (!(bytes >= 0) || bytes >= 9.2e18)
    fail(ErrorKind::argument, "'", value, "' is not a size from 0 to 2^63");
  return static_cast<uint64_t>(bytes);
}

Settings read_settings(const Lookup& lookup) {
  Settings out;
  const SettingValue heap = find_setting(lookup, "RAILSHMEM_HEAP_SIZE");
  out.heap_bytes = parse_size(heap.variable.empty() ? "RAILSHMEM_HEAP_SIZE" : heap.variable,
                              heap.value, 4096, uint64_t{1} << 46);

  const std::string timeout = value_of(lookup, "RAILSHMEM_TIMEOUT_S");
  char* end = nullptr;
  out.timeout_s = std::strtod(timeout.c_str(), &end);
  if (*end != '\0' || !(out.timeout_s > 0) || out.timeout_s > 1e8)
    fail(ErrorKind::init, "RAILSHMEM_TIMEOUT_S=", timeout,
         ": expected seconds, more than 0, up to 1e8");

  const auto count = [&](const char* name, uint64_t low, uint64_t high) {
    return static_cast<uint32_t>(parse_count(name, value_of(lookup, name), low, high));
  };
  out.device = parse_device(value_of(lookup, "RAILSHMEM_DEVICE"));
  out.gpu_driver = value_of(lookup, "RAILSHMEM_GPU_DRIVER");
  const std::string gpu = value_of(lookup, "RAILSHMEM_GPU");
  if (!gpu.empty()) out.gpu = static_cast<int>(parse_count("RAILSHMEM_GPU", gpu, 0, 1023));
  out.nodes = count("RAILSHMEM_NODES", 0, 1 << 20);
  out.rails = count("RAILSHMEM_RAILS", 0, 16);
  out.emulated = parse_emulated(value_of(lookup, "RAILSHMEM_EMULATED"));
  out.emulated.faults = parse_faults(value_of(lookup, "RAILSHMEM_FAULTS"));
  out.provider = parse_provider(value_of(lookup, "RAILSHMEM_PROVIDER"));
  out.nics = value_of(lookup, "RAILSHMEM_NICS");
  out.verbs = parse_verbs(value_of(lookup, "RAILSHMEM_VERBS"));
  out.libfabric = parse_libfabric(value_of(lookup, "RAILSHMEM_LIBFABRIC"));
  out.lanes = count("RAILSHMEM_LANES", 1, 64);
  out.ring_commands = parse_power("RAILSHMEM_RING", value_of(lookup, "RAILSHMEM_RING"), 4, 1 << 24);
  out.contexts = static_cast<uint32_t>(
      parse_count("RAILSHMEM_CONTEXTS", value_of(lookup, "RAILSHMEM_CONTEXTS"), 0, 1024));
  out.teams = static_cast<uint32_t>(
      parse_count("RAILSHMEM_TEAMS", value_of(lookup, "RAILSHMEM_TEAMS"), 3, 1024));
  out.queue_depth =
      parse_power("RAILSHMEM_QUEUE_DEPTH", value_of(lookup, "RAILSHMEM_QUEUE_DEPTH"), 8, 16384);
  out.inflight_bytes =
      parse_size("RAILSHMEM_INFLIGHT_BYTES", value_of(lookup, "RAILSHMEM_INFLIGHT_BYTES"), 1,
                 uint64_t{1} << 50);
  out.chunk_bytes = parse_size("RAILSHMEM_CHUNK", value_of(lookup, "RAILSHMEM_CHUNK"), 64, 1 << 30);
  out.trace = value_of(lookup, "RAILSHMEM_TRACE");
  out.interface = value_of(lookup, "RAILSHMEM_INTERFACE");
  out.kernels = value_of(lookup, "RAILSHMEM_KERNELS");
  for (const SettingInfo& row : kTable)
    if (!row.may_differ) out.source += text(row.name, "=", value_of(lookup, row.name), "\n");
  out.source += text("heap bytes=", out.heap_bytes, "\n");
  return out;
}

Settings read_settings_from_environment() {
  return read_settings([](const char* name) { return std::getenv(name); });
}

}  // namespace railshmem
