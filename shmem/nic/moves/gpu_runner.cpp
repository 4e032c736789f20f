#include "shmem/nic/moves/gpu_runner.hpp"

#include <algorithm>
#include <iterator>

#include "shmem/base/error.hpp"

namespace railshmem::nic {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kMostBlocks = 32;  // the other SMs are the user's
constexpr uint64_t kPage = 4096;

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

GpuMoveRunner::GpuMoveRunner(const gpu::Site& site, gpu::Function kernel)
    : site_(site),
      kernel_(kernel),
      batches_(site, kBatches * sizeof(moves::Batch)),
      scratch_(site, sizeof(moves::Scratch)),
      stream_(site, true, true) {}

GpuMoveRunner::~GpuMoveRunner() {
  try {
    site_.driver->use(site_.device);
    site_.driver->synchronize(stream_.get());
  } catch (const Error&) {
    return;  // the driver is at its end, and all work with it
  }
}

void GpuMoveRunner::learn(const void* address, uint64_t bytes) {
  if (bytes == 0) return;
  const auto begin = reinterpret_cast<uint64_t>(address);
  const std::lock_guard<std::mutex> held(mutex_);
  const auto known = ranges_.find(begin);
  if (known != ranges_.end()) {
    ++known->second.learned;
    return;
  }
  const gpu::Driver& driver = *site_.driver;
  const uint64_t end = begin + bytes;
  if (driver.device_of(reinterpret_cast<void*>(end - 1)) < 0) return;  // all the host's
  const bool whole = driver.device_of(address) >= 0;
  ranges_[begin] = {begin, whole ? begin : first_of_device(driver, begin, end), end, 1};
  changes_.fetch_add(1, std::memory_order_release);  // pairs with kind(), as below
}

void GpuMoveRunner::forget(const void* address) {
  const std::lock_guard<std::mutex> held(mutex_);
  const auto known = ranges_.find(reinterpret_cast<uint64_t>(address));
  if (known == ranges_.end() || --known->second.learned != 0) return;
  ranges_.erase(known);
  changes_.fetch_add(1, std::memory_order_release);
}

MoveBy GpuMoveRunner::kind(const void* address) const {
  if (changes_.load(std::memory_order_acquire) != known_changes_) {
    const std::lock_guard<std::mutex> held(mutex_);
    known_.clear();
    for (const auto& range : ranges_) known_.push_back(range.second);
    known_changes_ = changes_.load(std::memory_order_relaxed);
  }
  const auto at = reinterpret_cast<uint64_t>(address);
  const auto after =
      std::upper_bound(known_.begin(), known_.end(), at,
                       [](uint64_t value, const Range& range) { return value < range.begin; });
  if (after == known_.begin() || at >= std::prev(after)->end) return MoveBy::cpu;
  return at >= std::prev(after)->device ? MoveBy::kernel : MoveBy::both;
}

void GpuMoveRunner::copy(uint64_t to, uint64_t from, uint64_t bytes) {
  site_.driver->use(site_.device);
  site_.driver->copy(to, from, bytes, stream_.get());
}

void GpuMoveRunner::run(moves::Batch* batch, uint64_t number) {
  gpu::Driver& driver = *site_.driver;
  driver.use(site_.device);
  gpu::Launch how;
  constexpr uint32_t kWarps = kThreads / 32;
  how.blocks = std::clamp((batch->n_moves + kWarps - 1) / kWarps, 1u, kMostBlocks);
  how.threads = kThreads;
  how.stream = stream_.get();
  auto* scratch = scratch_.as<moves::Scratch>();
  void* arguments[] = {&batch, &number, &scratch};
  driver.launch(kernel_, how, arguments);
}

void GpuMoveRunner::check() {
  site_.driver->use(site_.device);
  site_.driver->idle(stream_.get());
}

}  // namespace railshmem::nic
