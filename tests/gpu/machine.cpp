#include "tests/gpu/machine.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "shmem/base/file_descriptor.hpp"

namespace railshmem::standin {
namespace {

constexpr uint32_t kSharedByDefault = 48 * 1024;
constexpr uint32_t kMostShared = 227 * 1024;
constexpr uint32_t kMostThreads = 1024;
constexpr uint64_t kGiveBackFrom = uint64_t{1} << 20;

std::string setting(const char* name, const char* fallback) {
  const char* const value = std::getenv(name);
  return value == nullptr ? fallback : value;
}
uint64_t number(const char* name, const char* fallback) {
  const std::string value = setting(name, fallback);
  char* unit = nullptr;
  const uint64_t count = std::strtoull(value.c_str(), &unit, 10);
  switch (*unit) {
    case 'K':
      return count << 10;
    case 'M':
      return count << 20;
    case 'G':
      return count << 30;
    default:
      return count;
  }
}

// Numbers up to the first that names no card, as the drivers read it.
std::vector<int> visible_cards(const char* variable, int cards) {
  std::vector<int> visible;
  const char* const list = std::getenv(variable);
  if (list == nullptr) {
    for (int card = 0; card < cards; ++card) visible.push_back(card);
    return visible;
  }
  std::istringstream in(list);
  std::string entry;
  while (std::getline(in, entry, ',')) {
    char* end = nullptr;
    const long card = std::strtol(entry.c_str(), &end, 10);
    if (end == entry.c_str() || card < 0 || card >= cards) break;
    visible.push_back(static_cast<int>(card));
  }
  return visible;
}

}  // namespace

const char* text_of(int answer) {
  switch (answer) {
    case kSuccess:
      return "no error";
    case kInvalidValue:
      return "invalid argument";
    case kOutOfMemory:
      return "out of memory";
    case kNotInitialized:
      return "initialization error";
    case kNoDevice:
      return "no device is detected";
    case kInvalidDevice:
      return "invalid device ordinal";
    case kInvalidImage:
      return "device kernel image is invalid";
    case kInvalidContext:
      return "invalid device context";
    case kInvalidHandle:
      return "invalid resource handle";
    case kNotFound:
      return "named symbol not found";
    case kNotReady:
      return "device not ready";
    case kAlreadyRegistered:
      return "part or all of the requested memory range is already mapped";
    case kNotRegistered:
      return "pointer does not correspond to a registered memory region";
    case kGridTooLarge:
      return "too many blocks in cooperative launch";
    case kNotPermitted:
      return "operation not permitted";
    case kNotSupported:
      return "operation not supported";
    default:
      return "unknown error";
  }
}

void Machine::initialise(const char* visible_by, const char* version) {
  const int cards = static_cast<int>(number("STANDIN_DEVICES", "2"));
  require(cards <= kMostDevices);
  const auto made = std::make_shared<Setup>();
  made->visible = visible_cards(visible_by, cards);
  made->processors = static_cast<int>(number("STANDIN_PROCESSORS", "16"));
  made->version = static_cast<int>(number("STANDIN_VERSION", version));
  const std::string fabric = setting("STANDIN_FABRIC", "0");
  made->fabric = fabric == "1"         ? Fabric::works
                 : fabric == "claimed" ? Fabric::claimed
                                       : Fabric::none;
  made->peers = setting("STANDIN_PEERS", "1") != "0";
  made->crowded = setting("STANDIN_CROWDED", "0") == "1";
  made->log = setting("STANDIN_LOG", "");
  for (Card& card : cards_) memory_.set_total(card, number("STANDIN_MEMORY", "8G"));
  const std::lock_guard<std::mutex> held(setup_mutex_);
  setup_ = made;
}

std::string Machine::bus_id(int device) const {
  char text[16];
  std::snprintf(text, sizeof text, "0000:%02x:00.0",
                0x10 + setup()->visible.at(static_cast<std::size_t>(device)));
  return text;
}

int& Machine::current() {
  static thread_local int device = -1;
  return device;
}

void Machine::retain_context(int device) {
  const std::lock_guard<std::mutex> held(mutex_);
  ++retained_[device];
}

void Machine::release_context(int device) {
  std::vector<std::shared_ptr<Stream>> ending;
  {
    const std::lock_guard<std::mutex> held(mutex_);
    require(retained_[device] > 0, kInvalidContext);
    if (--retained_[device] > 0) return;
    ending.push_back(std::exchange(default_streams_[device], nullptr));
    for (auto stream = streams_.begin(); stream != streams_.end();) {
      if (stream->second.queue->device() != device) {
        ++stream;
        continue;
      }
      ending.push_back(stream->second.queue);
      stream = streams_.erase(stream);
    }
  }
  for (const std::shared_ptr<Stream>& stream : ending)
    if (stream) stream->finish();
}

// ---- streams and events
// --------------------------------------------------------------------------

void* Machine::create_stream(int device, bool apart) {
  const std::lock_guard<std::mutex> held(mutex_);
  void* const name = reinterpret_cast<void*>(++last_);
  streams_[name] = {std::make_shared<Stream>(device), apart};
  return name;
}

void Machine::destroy_stream(void* stream) {
  const std::lock_guard<std::mutex> held(mutex_);
  require(streams_.erase(stream) == 1, kInvalidHandle);
}

std::shared_ptr<Stream> Machine::stream(void* stream) {
  const std::lock_guard<std::mutex> held(mutex_);
  if (stream == nullptr) {
    std::shared_ptr<Stream>& own = default_streams_[current()];
    if (!own) own = std::make_shared<Stream>(current());
    return own;
  }
  const auto found = streams_.find(stream);
  require(found != streams_.end(), kInvalidHandle);
  return found->second.queue;
}

std::shared_ptr<Stream> Machine::stream_for_work(void* stream_name) {
  std::shared_ptr<Stream> queue = stream(stream_name);
  std::vector<Stream::Point> before;
  {
    const std::lock_guard<std::mutex> held(mutex_);
    if (stream_name == nullptr) {
      for (const auto& other : streams_)
        if (!other.second.apart && other.second.queue->device() == queue->device())
          before.push_back(other.second.queue->now());
    } else if (const auto own = default_streams_.find(queue->device());
               own != default_streams_.end() && own->second && !streams_.at(stream_name).apart) {
      before.push_back(own->second->now());
    }
  }
  for (const Stream::Point& point : before)
    if (!point.reached()) queue->enqueue([point] { point.wait(); });
  return queue;
}

void Machine::synchronize(void* stream_name) {
  stream_for_work(stream_name)->synchronize();
}

bool Machine::idle(void* stream_name) {
  return stream_for_work(stream_name)->idle();
}

void Machine::rest_streams() {
  const std::lock_guard<std::mutex> held(mutex_);
  for (const auto& stream : streams_) stream.second.queue->rest();
  for (const auto& stream : default_streams_)
    if (stream.second) stream.second->rest();
}

void* Machine::create_event() {
  const std::lock_guard<std::mutex> held(mutex_);
  void* const name = reinterpret_cast<void*>(++last_);
  events_[name] = {};
  return name;
}

void Machine::destroy_event(void* event) {
  const std::lock_guard<std::mutex> held(mutex_);
  require(events_.erase(event) == 1, kInvalidHandle);
}

Machine::Event& Machine::known_event(void* event) {
  const auto found = events_.find(event);
  require(found != events_.end(), kInvalidHandle);
  return found->second;
}

void Machine::record(void* event, void* stream_name) {
  const std::shared_ptr<Stream> queue = stream_for_work(stream_name);
  const std::lock_guard<std::mutex> held(mutex_);
  Event& recorded = known_event(event);
  const auto reached_ns = std::make_shared<std::atomic<int64_t>>(0);
  queue->enqueue([reached_ns] {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    *reached_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  });
  recorded = {queue->now(), reached_ns};
}

void Machine::wait(void* stream_name, void* event) {
  const std::shared_ptr<Stream> queue = stream_for_work(stream_name);
  const std::lock_guard<std::mutex> held(mutex_);
  queue->enqueue([point = known_event(event).point] { point.wait(); });
}

bool Machine::reached(void* event) {
  const std::lock_guard<std::mutex> held(mutex_);
  return known_event(event).point.reached();
}

float Machine::milliseconds_between(void* start, void* end) {
  const std::lock_guard<std::mutex> held(mutex_);
  int64_t at[2] = {};
  for (int i = 0; i < 2; ++i) {
    const Event& event = known_event(i == 0 ? start : end);
    require(event.reached_ns != nullptr, kInvalidHandle);
    at[i] = *event.reached_ns;
    require(at[i] != 0, kNotReady);
  }
  return static_cast<float>(at[1] - at[0]) / 1e6f;
}

// ---- copies
// ----------------------------------------------------------------------------------------

void Machine::copy(uint64_t to, uint64_t from, uint64_t bytes, void* stream_name) {
  const std::shared_ptr<Stream> queue = stream_for_work(stream_name);
  if (bytes == 0) return;
  memory_.check_reachable(to, bytes);
  memory_.check_reachable(from, bytes);
  int device;
  const bool to_program = memory_.place_of(to, &device) == Place::unknown;
  const bool from_program = memory_.place_of(from, &device) == Place::unknown;
  void* const target = reinterpret_cast<void*>(to);
  const auto* const source = reinterpret_cast<const char*>(from);
  // What the program owns is read before the call returns, and written, too.
  if (from_program)
    queue->enqueue([target, data = std::vector<char>(source, source + bytes)] {
      std::memcpy(target, data.data(), data.size());
    });
  else
    queue->enqueue([target, source, bytes] { std::memcpy(target, source, bytes); });
  if (to_program) queue->synchronize();
}

void Machine::fill(uint64_t at, unsigned char value, uint64_t bytes, void* stream_name) {
  const std::shared_ptr<Stream> queue = stream_for_work(stream_name);
  if (bytes == 0) return;
  memory_.check_reachable(at, bytes);
  int device;
  require(memory_.place_of(at, &device) != Place::unknown);
  // A file's pages that are given back read as zeros: a heap takes what it touches.
  const bool give_back = value == 0 && bytes >= kGiveBackFrom && memory_.in_files(at, bytes);
  queue->enqueue([=] {
    void* const memory = reinterpret_cast<void*>(at);
    if (!give_back || ::madvise(memory, bytes, MADV_REMOVE) != 0) std::memset(memory, value, bytes);
  });
}

// ---- kernels
// ---------------------------------------------------------------------------------------

void* Machine::load(const void* image) {
  const auto* const text = static_cast<const char*>(image);
  require(text != nullptr &&
              (std::strncmp(text, "STANDIN", 7) == 0 || std::strncmp(text, "\177ELF", 4) == 0),
          kInvalidImage);
  const std::lock_guard<std::mutex> held(mutex_);
  void* const name = reinterpret_cast<void*>(++last_);
  modules_.insert(name);
  return name;
}

void Machine::unload(void* module) {
  const std::lock_guard<std::mutex> held(mutex_);
  require(modules_.erase(module) == 1, kInvalidHandle);
  for (auto loaded = loaded_.begin(); loaded != loaded_.end();)
    loaded = loaded->first == module ? loaded_.erase(loaded) : ++loaded;
  for (auto function = functions_.begin(); function != functions_.end();)
    function = function->second.module == module ? functions_.erase(function) : ++function;
}

void* Machine::function(void* module, const char* name) {
  const std::lock_guard<std::mutex> held(mutex_);
  require(modules_.count(module) == 1, kInvalidHandle);
  for (const EntryKernel& kernel : all_entry_kernels()) {
    if (std::strcmp(kernel.name, name) != 0) continue;
    void* const out = reinterpret_cast<void*>(++last_);
    functions_[out] = {kernel, module, kSharedByDefault};
    return out;
  }
  throw Refusal{kNotFound};
}

unsigned Machine::n_functions() {
  return static_cast<unsigned>(all_entry_kernels().size());
}

void Machine::functions(void* module, unsigned count, void** out) {
  for (const EntryKernel& kernel : all_entry_kernels()) {
    if (count-- == 0) return;
    *out++ = function(module, kernel.name);
  }
}

void Machine::load_function(void* function) {
  const std::lock_guard<std::mutex> held(mutex_);
  const Function& found = known(function);
  loaded_.emplace(found.module, found.kernel.name);
}

void Machine::wait_for_all(int device) {
  std::vector<Stream::Point> running;
  {
    const std::lock_guard<std::mutex> held(mutex_);
    for (const auto& stream : streams_)
      if (stream.second.queue->device() == device) running.push_back(stream.second.queue->now());
    const auto own = default_streams_.find(device);
    if (own != default_streams_.end() && own->second) running.push_back(own->second->now());
  }
  for (const Stream::Point& point : running) point.wait();
}

Machine::Function& Machine::known(void* function) {
  const auto found = functions_.find(function);
  require(found != functions_.end(), kInvalidHandle);
  return found->second;
}

void Machine::allow_shared(void* function, uint32_t bytes) {
  const std::lock_guard<std::mutex> held(mutex_);
  Function& found = known(function);
  require(bytes <= kMostShared);
  found.shared_allowed = bytes > kSharedByDefault ? bytes : kSharedByDefault;
}

int Machine::blocks_per_processor(void* function, uint32_t threads, uint32_t shared_bytes) {
  const std::lock_guard<std::mutex> held(mutex_);
  const Function& found = known(function);
  require(threads > 0 && threads <= kMostThreads);
  return shared_bytes <= found.shared_allowed ? 1 : 0;
}

void Machine::launch(void* function, const Grid& grid, void* stream_name, void** arguments) {
  const std::shared_ptr<Stream> queue = stream_for_work(stream_name);
  std::unique_lock<std::mutex> lock(mutex_);
  const Function found = known(function);
  require(grid.blocks > 0 && grid.threads > 0 && grid.threads <= kMostThreads);
  require(grid.shared_bytes <= found.shared_allowed);
  require(!grid.at_once || grid.blocks <= static_cast<uint32_t>(setup()->processors),
          kGridTooLarge);
  const bool lazy = loaded_.emplace(found.module, found.kernel.name).second;
  lock.unlock();
  if (lazy) wait_for_all(queue->device());
  queue->enqueue([kernel = found.kernel.bind(arguments), grid] {
    run_blocks(kernel, grid.blocks, grid.at_once);
  });
}

Machine& machine() {
  // Never destroyed: its threads run on while the process ends. A forked child has none of them.
  static std::mutex mutex;
  static pid_t owner = 0;
  static Machine* made = nullptr;
  const std::lock_guard<std::mutex> held(mutex);
  if (made == nullptr) ::pthread_atfork([] { machine().rest_streams(); }, nullptr, nullptr);
  if (made == nullptr || owner != ::getpid()) {
    made = std::make_unique<Machine>().release();
    owner = ::getpid();
    Machine::current() = -1;
  }
  return *made;
}

void append_to_log(const std::string& path, const std::string& line) {
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644));
  if (::write(file.get(), line.data(), line.size()) < 0) return;  // the tests will miss it
}

void copy_text(const std::string& from, char* to, int room) {
  require(room > 0);
  const auto length = std::min(from.size(), static_cast<std::size_t>(room) - 1);
  std::memcpy(to, from.data(), length);
  to[length] = 0;
}

}  // namespace railshmem::standin
