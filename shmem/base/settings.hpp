// Every setting of the library, read once from the environment when a runtime is made. The table in
// settings.cpp is the only place that knows their names, defaults and meanings.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "shmem/base/fault_settings.hpp"
#include "shmem/base/span.hpp"

namespace railshmem {

// What the emulated NICs can do and how they behave: RAILSHMEM_EMULATED="atomics=off,ordered=off".
struct EmulatedSettings {
  bool atomics = true;   // FETCH_AND_ADD and COMPARE_AND_SWAP are executed
  bool ordered = true;   // WRITEs of one queue pair are placed in order and whole
  bool isolated = true;  // a NIC connects only to NICs of its own rail
  uint64_t region = 0;   // bytes of the largest region a NIC registers; 0: any
  bool wakes = true;     // what a NIC brings wakes the thread that drives it
  uint32_t seed = 1;     // of the reordering and of the faults
  FaultSettings faults;  // RAILSHMEM_FAULTS
};

// Whose NICs join the PEs that cannot map each other's memory.
enum class ProviderKind : uint8_t { automatic, none, emulated, verbs, libfabric };
const char* name_of(ProviderKind kind);

// RAILSHMEM_VERBS="gid=3,tc=106,timeout=18": of the NICs that libibverbs drives.
struct VerbsSettings {
  int gid = -1;                // index in the port's table; -1: chosen, RoCE v2 on IPv4 first
  uint32_t traffic_class = 0;  // of RoCE packets
  uint32_t service_level = 0;
  uint32_t mtu = 0;          // bytes; 0: the port's
  uint32_t timeout = 14;     // a retry after 4.096 us * 2^timeout without an answer
  uint32_t retries = 7;      // before the peer counts as unreachable
  uint32_t rnr_retries = 7;  // while the peer has no receive buffer; 7: without end
  bool relaxed = false;      // PCIe may reorder what the NIC writes
  bool atomics = true;       // native ones, where a probe shows that they work
  uint64_t region = 0;       // bytes of the largest region; 0: the device's limit
};

// RAILSHMEM_LIBFABRIC="fabric=tcp;ofi_rxm,progress=manual"
struct LibfabricSettings {
  std::string fabric;            // libfabric's name of its provider; empty: the best there is
  bool manual_progress = false;  // asked for, even where the provider could progress by itself
};

// Where the symmetric heap lies and kernels run.
enum class DeviceKind : uint8_t { automatic, cpu, cuda, hip };
const char* name_of(DeviceKind kind);

struct Settings {
  uint64_t heap_bytes = 0;  // usable bytes of the symmetric heap
  DeviceKind device = DeviceKind::automatic;
  std::string gpu_driver;  // the library to open; empty: the system's
  int gpu = -1;            // of this PE; -1: by its place among the PEs of its host
  double timeout_s = 0;    // every wait's deadline
  uint32_t nodes = 0;      // split this job's PEs into so many nodes; 0: as the hosts are
  uint32_t rails = 0;      // emulated NICs per PE
  EmulatedSettings emulated;
  ProviderKind provider = ProviderKind::automatic;
  std::string nics;  // which of the host's; see nic/selection.hpp
  VerbsSettings verbs;
  LibfabricSettings libfabric;
  uint32_t lanes = 0;           // ordered channels per remote peer
  uint32_t contexts = 0;        // besides the default one
  uint32_t teams = 0;           // the predefined ones included
  uint32_t ring_commands = 0;   // slots of a command ring, a power of two
  uint32_t queue_depth = 0;     // work-queue entries per queue pair, a power of two
  uint64_t inflight_bytes = 0;  // bytes posted and not completed, per lane
  uint64_t chunk_bytes = 0;     // larger puts and gets are cut into pieces of this size
  std::string trace;            // directory of the timelines; empty: none are written
  std::string interface;        // where a job's id is made: the network to listen on; empty: all
  std::string kernels;          // folder of the kernels of C++ programs
  std::string source;           // every name=value, for the comparison between PEs

  uint64_t timeout_ns() const { return static_cast<uint64_t>(timeout_s * 1e9); }
};

struct SettingInfo {
  const char* name;
  const char* fallback;
  const char* meaning;
  bool may_differ = false;         // between PEs
  const char* standard = nullptr;  // the specification's name for it, asked when ours is not set
};

// The table itself, for `railshmem env` and the documentation.
Span<const SettingInfo> setting_table();

using Lookup = std::function<const char*(const char* name)>;

struct SettingValue {
  std::string value;
  std::string variable;  // that holds it; empty: none, it is the default
};

// What read_settings takes for this setting, valid or not. An empty variable counts as not set.
SettingValue setting_value(const Lookup& lookup, const SettingInfo& setting);

// Throws Error(init) naming the variable, its value and what is allowed.
Settings read_settings(const Lookup& lookup);
Settings read_settings_from_environment();

// "64M", "1.5G", "4096" -> bytes. Throws Error(argument).
uint64_t parse_bytes(const std::string& value);

}  // namespace railshmem
