#include "shmem/transport/proxy/proxy.hpp"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace railshmem::proxy {
namespace {

constexpr uint32_t kResultSlots = 1024;
constexpr uint32_t kIdleYields = 100;    // before the idle thread sleeps
constexpr int64_t kSleepNs = 100000000;  // a lost wake would cost this much, never a hang

uint32_t log2_of(uint32_t power) {
  uint32_t shift = 0;
  while ((1u << shift) < power) ++shift;
  return shift;
}

}  // namespace

Proxy::Proxy(const ProxyParts& parts)
    : parts_(parts),
      atomics_(parts.connections, parts.keys, parts.context.heap, parts.context.heap_bytes,
               parts.scratch_offset, parts.native_atomics, *this),
      slots_(parts.settings.ring_commands),
      claims_(kResultSlots),
      results_(kResultSlots) {
  device::DeviceContext& ctx = parts_.context;
  const uint32_t stride = ctx.lane_stride;
  const std::size_t count = static_cast<std::size_t>(ctx.n_pes) * stride;
  device_lanes_ = std::vector<device::Lane>(count);
  progress_ = std::vector<device::LaneProgress>(count);
  for (std::size_t index = 0; index < count; ++index) {
    const int pe = static_cast<int>(index / stride);
    // Contexts share the queue pairs of the default context's lanes.
    const auto queue_pair = static_cast<uint32_t>(index % stride) % parts_.settings.lanes;
    device_lanes_[index].connected = 1;
    lanes_.push_back(std::make_unique<LaneState>(pe, parts_.connections.data(pe, queue_pair),
                                                 &progress_[index], parts_.settings.queue_depth));
  }
  for (const auto& channel : parts_.connections.all())
    if (channel) channel->trace = ctx.trace;
  ring_ = {slots_.data(),      log2_of(parts_.settings.ring_commands),
           &words_.tail,       &words_.head_seen,
           &words_.head,       &words_.dead,
           &words_.full_waits, parts_.provider.sleep_word()};
  ctx.rings = &ring_;
  ctx.lanes = device_lanes_.data();
  ctx.progress = progress_.data();
  ctx.result_claims = claims_.data();
  ctx.result_slots = results_.data();
  ctx.n_result_slots = kResultSlots;
  ctx.result_hint = &words_.result_hint;
}

void Proxy::start() {
  // Signals are for the interpreter's thread: this one must not take them.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Proxy::stop() {
  stopping_.store(true, std::memory_order_seq_cst);  // ordered before the look at the sleep word
  arch::wake(ring_.sleep_word);
  if (thread_.joinable()) thread_.join();
}

void Proxy::run() {
  pthread_setname_np(pthread_self(), "rsh-progress");
  parts_.provider.begin_driving();
  uint32_t idle = 0;
  while (!stopping_.load(std::memory_order_acquire)) {
    if (step()) {
      idle = 0;
    } else if (++idle <= parts_.spins) {
      arch::relax();
    } else if (idle <= parts_.spins + kIdleYields) {
      sched_yield();
    } else {
      sleep();
    }
  }
  parts_.provider.end_driving();
}

void Proxy::sleep() {
  uint32_t* word = ring_.sleep_word;
  arch::store_ordered(word, 1u);
  arch::fence_system();  // the look below comes after the store: the sleeper's half of arch::wake
  if (!step() && !stopping_.load(std::memory_order_seq_cst)) {
    sleeps_.add();
    const timespec limit{0, kSleepNs};
    syscall(SYS_futex, word, FUTEX_WAIT, 1, &limit, nullptr, 0);
  }
  arch::store_relaxed(word, 0u);
}

// One round of everything; true when something moved.
bool Proxy::step() {
  polls_.add();
  bool moved = false;
  for (const auto& nic : parts_.provider.nics()) moved |= nic->progress();
  moved |= poll();
  if (!failing_.empty()) moved |= pump_failovers();
  moved |= parts_.connections.drain();
  if (!stalled_.empty()) {
    const std::vector<uint32_t> again = std::move(stalled_);
    stalled_.clear();
    for (const uint32_t index : again) pump_signals(*lanes_[index], index);
  }
  moved |= take_commands();
  parts_.connections.ring_doorbells();
  return moved;
}

bool Proxy::take_commands() {
  // A batch, so that completions and peers' requests are served in between.
  constexpr int kBatch = 64;
  int taken = 0;
  while (taken < kBatch && (current_.active || read_next())) {
    if (!issue()) {
      stalls_.add();
      break;
    }
    record_issued();
    current_.active = false;
    ++taken;
  }
  return taken > 0;
}

bool Proxy::read_next() {
  const uint64_t mask = slots_.size() - 1;
  current_ = Current();
  if (!device::read_command(&slots_[taken_ & mask], device::lap_of(taken_, ring_.shift),
                            &current_.command))
    return false;
  ++taken_;
  arch::store_release(&words_.head, taken_);  // the slot may be written again
  current_.active = true;
  if (parts_.context.trace != nullptr) current_.taken_ns = arch::clock_ns();
  return true;
}

Statistics Proxy::statistics() const {
  Statistics out;
  for (std::size_t index = 0; index < lanes_.size(); ++index) {
    const LaneState& lane = *lanes_[index];
    out.lanes.push_back({lane.pe, static_cast<uint32_t>(index % parts_.context.lane_stride),
                         arch::load_relaxed(&lane.progress->rail), lane.commands.get(),
                         lane.bytes.get(), arch::load_relaxed(&lane.progress->completed),
                         lane.replayed.get()});
  }
  const auto& nics = parts_.provider.nics();
  for (std::size_t index = 0; index < nics.size(); ++index) {
    const RailCounters& rail = parts_.connections.rails()[index];
    out.rails.push_back({static_cast<int>(nics[index]->rail()), rail.requests.get(),
                         rail.bytes.get(), rail.completions.get(), rail.errors.get(),
                         rail.doorbells.get()});
  }
  out.failovers = failovers_.get();
  out.ring_full = arch::load_relaxed(&words_.full_waits);
  out.stalls = stalls_.get();
  out.credit_waits = atomics_.credit_waits();
  out.atomic_retries = atomics_.retries();
  out.polls = polls_.get();
  out.sleeps = sleeps_.get();
  return out;
}

// From the ring to the last request posted: its waits for room are in between.
void Proxy::record_issued() const {
  const device::Trace* trace = parts_.context.trace;
  if (trace == nullptr) return;
  const device::Command& c = current_.command;
  trace->record(trace->recorder,
                {current_.taken_ns, arch::clock_ns() - current_.taken_ns, c.bytes, taken_ - 1, c.pe,
                 current_.lane == nullptr ? -1 : current_.lane->data->rail(), c.lane,
                 number_of(device::Moment::ring_command)});
}

}  // namespace railshmem::proxy
