#include "shmem/nic/moves/gpu_runner.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <mutex>

#include "shmem/base/error.hpp"

namespace railshmem::nic {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kMostBlocks = 32;  // the other SMs are the user's
constexpr uint64_t kPage = 4096;
constexpr uint64_t kBatchBytes =
    (MoveRunner::kBatches * sizeof(moves::Batch) + kPage - 1) / kPage * kPage;

// Of [begin, end), whose first byte is the host's and whose last is a GPU's: where that begins.
uint64_t first_of_device(const gpu::Driver& driver, uint64_t begin, uint64_t end) {
  uint64_t host = begin / kPage;
  uint64_t device = (end - 1) / kPage;
  while (device - host > 1) {
    const uint64_t middle = host + (device - host) / 2;
    (driver.device_of(reinterpret_cast<void*>(middle * kPage)) < 0 ? host : device) = middle;
  }
  return device * kPage;
}

}  // namespace

GpuMoveRunner::GpuMoveRunner(const gpu::Site& site, const void* image) : site_(site) {
  gpu::Driver& driver = *site_.driver;
  driver.use(site_.device);
  void* pages =
      ::mmap(nullptr, kBatchBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED)
    fail(ErrorKind::gpu, "no memory for ", bytes_text(kBatchBytes), " of batches: ", errno_text());
  batches_ = static_cast<moves::Batch*>(pages);
  try {
    driver.register_host(pages, kBatchBytes);
    registered_ = true;
    scratch_ = driver.allocate(sizeof(moves::Scratch));
    driver.fill(scratch_, 0, sizeof(moves::Scratch), nullptr);
    driver.synchronize(nullptr);
    module_ = driver.load(image);
    function_ = driver.function(module_, "rsh_moves");
    stream_ = driver.create_stream(true);
  } catch (const Error&) {
    release();
    throw;
  }
}

GpuMoveRunner::~GpuMoveRunner() {
  release();
}

void GpuMoveRunner::release() {
  gpu::Driver& driver = *site_.driver;
  try {
    driver.use(site_.device);
    if (stream_ != nullptr) driver.synchronize(stream_);
    if (stream_ != nullptr) driver.destroy_stream(stream_);
    if (module_ != nullptr) driver.unload(module_);
    if (scratch_ != 0) driver.free(scratch_);
    if (registered_) driver.unregister_host(batches_);
  } catch (const Error&) {
    return;  // the driver is at its end; pages that it may still know stay
  }
  ::munmap(batches_, kBatchBytes);
}

void GpuMoveRunner::learn(const void* address, uint64_t bytes) {
  if (bytes == 0) return;
  const auto begin = reinterpret_cast<uint64_t>(address);
  const std::lock_guard<std::shared_mutex> held(mutex_);
  const auto known = ranges_.find(begin);
  if (known != ranges_.end()) {
    ++known->second.learned;
    return;
  }
  const gpu::Driver& driver = *site_.driver;
  const uint64_t end = begin + bytes;
  if (driver.device_of(reinterpret_cast<void*>(end - 1)) < 0) return;  // all the host's
  const bool whole = driver.device_of(address) >= 0;
  ranges_[begin] = {whole ? begin : first_of_device(driver, begin, end), end, 1};
}

void GpuMoveRunner::forget(const void* address) {
  const std::lock_guard<std::shared_mutex> held(mutex_);
  const auto known = ranges_.find(reinterpret_cast<uint64_t>(address));
  if (known != ranges_.end() && --known->second.learned == 0) ranges_.erase(known);
}

MoveBy GpuMoveRunner::kind(const void* address) const {
  const auto at = reinterpret_cast<uint64_t>(address);
  const std::shared_lock<std::shared_mutex> held(mutex_);
  auto next = ranges_.upper_bound(at);
  if (next == ranges_.begin()) return MoveBy::cpu;
  const Range& range = (--next)->second;
  if (at >= range.end) return MoveBy::cpu;
  return at >= range.device ? MoveBy::kernel : MoveBy::both;
}

void GpuMoveRunner::copy(uint64_t to, uint64_t from, uint64_t bytes) {
  site_.driver->use(site_.device);
  site_.driver->copy(to, from, bytes, stream_);
}

void GpuMoveRunner::run(moves::Batch* batch, uint64_t number) {
  gpu::Driver& driver = *site_.driver;
  driver.use(site_.device);
  gpu::Launch how;
  constexpr uint32_t kWarps = kThreads / 32;
  how.blocks = std::clamp((batch->n_moves + kWarps - 1) / kWarps, 1u, kMostBlocks);
  how.threads = kThreads;
  how.stream = stream_;
  void* arguments[] = {&batch, &number, &scratch_};
  driver.launch(function_, how, arguments);
}

void GpuMoveRunner::check() {
  site_.driver->use(site_.device);
  site_.driver->idle(stream_);
}

}  // namespace railshmem::nic
