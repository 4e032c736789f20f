// GPUs that are not there, as their driver shows them. Memory is memory of this process, streams
// are threads, kernels are those of kernels/entry compiled for the host.
//
// Read from the environment whenever the driver is initialised:
//   STANDIN_DEVICES     how many (2)
//   STANDIN_MEMORY      bytes of each, K, M, G (8G); what other processes take is not counted
//   STANDIN_PROCESSORS  of each: as many blocks wait for each other (16)
//   STANDIN_VERSION     of the driver (13000; HIP: 70200000)
//   STANDIN_FABRIC      1: fabric handles work; claimed: the driver says so and refuses (0)
//   STANDIN_PEERS       0: no GPU reaches another (1)
//   STANDIN_CROWDED     1: reserved addresses lie directly above something (0)
//   STANDIN_LOG         file to which each call is appended: name(arguments) = answer
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/device_memory_map.hpp"
#include "tests/gpu/kernels.hpp"
#include "tests/gpu/refusal.hpp"
#include "tests/gpu/stream.hpp"

namespace railshmem::standin {

enum class Fabric { none, works, claimed };

struct Setup {
  std::vector<int> visible;  // the cards behind the process's devices
  int processors = 0;
  int version = 0;
  Fabric fabric = Fabric::none;
  bool peers = true;
  bool crowded = false;
  std::string log;
};

struct Grid {
  uint32_t blocks;
  uint32_t threads;
  uint32_t shared_bytes;
  bool at_once;
};

class Machine {
 public:
  // `visible_by`: the variable that names the devices that a process may see.
  void initialise(const char* visible_by, const char* version);
  // Null until then. Another thread may initialise it again.
  std::shared_ptr<const Setup> setup() const {
    const std::lock_guard<std::mutex> held(setup_mutex_);
    return setup_;
  }

  int n_devices() const { return static_cast<int>(setup()->visible.size()); }
  void check_device(int device) const {
    require(device >= 0 && device < n_devices(), kInvalidDevice);
  }
  std::string bus_id(int device) const;
  Card& card(int device) { return cards_.at(static_cast<std::size_t>(device)); }
  MemoryMap& memory() { return memory_; }

  // Of this thread; -1: none.
  static int& current();
  void retain_context(int device);
  // The last one carries out what the device's streams still have, and ends them.
  void release_context(int device);

  void copy(uint64_t to, uint64_t from, uint64_t bytes, void* stream);
  void fill(uint64_t at, unsigned char value, uint64_t bytes, void* stream);

  // `apart`: it neither waits for the default stream nor makes that wait.
  void* create_stream(int device, bool apart);
  void destroy_stream(void* stream);
  void check_stream(void* stream_name) { stream(stream_name); }
  void synchronize(void* stream);
  bool idle(void* stream);
  // No thread that has nothing to do is left: a fork would leave it behind.
  void rest_streams();
  void* create_event();
  void destroy_event(void* event);
  void record(void* event, void* stream);
  void wait(void* stream, void* event);
  bool reached(void* event);
  // Of two points that were reached.
  float milliseconds_between(void* start, void* end);

  // Machine code for a GPU, or the bytes "STANDIN": either stands for the kernels of this library.
  void* load(const void* image);
  void unload(void* module);
  void* function(void* module, const char* name);
  static unsigned n_functions();
  void functions(void* module, unsigned count, void** out);
  // One that was not loaded is when it is first launched, and waits with that for what runs.
  void load_function(void* function);
  void allow_shared(void* function, uint32_t bytes);
  int blocks_per_processor(void* function, uint32_t threads, uint32_t shared_bytes);
  void launch(void* function, const Grid& grid, void* stream, void** arguments);

 private:
  struct Function {
    EntryKernel kernel;
    void* module;
    uint32_t shared_allowed;
  };
  // Where it was recorded last, and when that was reached: 0 until then.
  struct Event {
    Stream::Point point;
    std::shared_ptr<std::atomic<int64_t>> reached_ns;
  };
  struct NamedStream {
    std::shared_ptr<Stream> queue;
    bool apart;
  };
  // null: the current device's default stream.
  std::shared_ptr<Stream> stream(void* stream);
  // Where work goes next, in the order that streams keep among each other.
  std::shared_ptr<Stream> stream_for_work(void* stream);
  void wait_for_all(int device);
  // With mutex_ held.
  Function& known(void* function);
  Event& known_event(void* event);

  static constexpr int kMostDevices = 16;
  mutable std::mutex setup_mutex_;
  std::shared_ptr<const Setup> setup_;
  std::array<Card, kMostDevices> cards_;
  MemoryMap memory_;
  std::mutex mutex_;  // of what follows
  uintptr_t last_ = 0;
  std::map<void*, NamedStream> streams_;
  std::map<int, std::shared_ptr<Stream>> default_streams_;
  std::map<int, int> retained_;
  std::map<void*, Event> events_;
  std::set<void*> modules_;
  std::map<void*, Function> functions_;
  std::set<std::pair<void*, std::string>> loaded_;  // by module and name
};

// This process's. A forked child has one of its own, without what its parent made.
Machine& machine();

void append_to_log(const std::string& path, const std::string& line);

// As much as there is room for, and a 0.
void copy_text(const std::string& from, char* to, int room);

// Carries out one call of the driver and answers it.
template <class Body, class... Arguments>
int answer(const char* call, const Body& body, const Arguments&... arguments) {
  int result = kSuccess;
  try {
    body();
  } catch (const Refusal& refusal) {
    result = refusal.answer;
  } catch (const std::exception&) {
    result = kUnknown;
  }
  const std::shared_ptr<const Setup> setup = machine().setup();
  if (setup != nullptr && !setup->log.empty()) {
    std::ostringstream line;
    [[maybe_unused]] const char* between = "";
    line << call << '(';
    ((line << between << arguments, between = ", "), ...);
    line << ") = " << result << '\n';
    append_to_log(setup->log, line.str());
  }
  return result;
}

}  // namespace railshmem::standin
