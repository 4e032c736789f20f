#include "shmem/transport/proxy/proxy.hpp"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

namespace railshmem::proxy {
namespace {

constexpr uint32_t kIdleYields = 100;    // before the idle thread sleeps
constexpr int64_t kSleepNs = 100000000;  // a lost wake would cost this much, never a hang
// Where some producers, or the NICs, cannot wake it: what they bring waits for so long at the most,
// while looking costs an idle core little. NICs without news for a while are looked at less often.
constexpr int64_t kNapNs = 50000;
constexpr int64_t kLongNapNs = 1000000;
constexpr uint32_t kShortNaps = 400;
constexpr uint32_t kYieldsBeforeNaps = 2000;

RingShape host_ring(const ProxyParts& parts) {
  return {parts.settings.ring_commands, parts.context.n_pes, parts.context.lane_stride};
}

}  // namespace

Proxy::Proxy(const ProxyParts& parts)
    : parts_(parts),
      atomics_(parts.connections, parts.keys, parts.context.heap, parts.context.heap_bytes,
               parts.scratch_offset, parts.native_atomics, parts.moves, *this),
      consumer_block_(ConsumerSide::bytes(host_ring(parts))),
      producer_block_(ProducerSide::bytes(host_ring(parts))),
      helpable_(!parts.provider.wakes() && parts.moves == nullptr),
      driver_{[](void* proxy) { return static_cast<Proxy*>(proxy)->help(); }, this} {
  attach(ConsumerSide(host_ring(parts), consumer_block_.data()));
  const auto address = reinterpret_cast<uint64_t>(producer_block_.data());
  const ProducerSide producers(sources_.front().ring, address, parts.provider.sleep_word());
  std::memcpy(producer_block_.data(), producers.image().data(), producers.image().size());
  producers.join(parts.context);
  for (const auto& channel : parts_.connections.all())
    if (channel) channel->trace = parts.context.trace;
}

void Proxy::attach(const ConsumerSide& ring) {
  uint32_t lane_number = 0;
  for (const Source& other : sources_) lane_number += other.ring.shape.lanes;
  sources_.push_back({ring, lanes_.size(), lane_number});
  const ConsumerSide& its = sources_.back().ring;
  for (std::size_t index = 0; index < its.shape.all_lanes(); ++index) {
    const auto pe = static_cast<int>(index / its.shape.lanes);
    // Contexts share the queue pairs of the default context's lanes.
    const auto queue_pair = static_cast<uint32_t>(index % its.shape.lanes) % parts_.settings.lanes;
    lanes_.push_back(std::make_unique<LaneState>(
        its, index, parts_.connections.data(pe, queue_pair), parts_.settings.queue_depth));
  }
}

void Proxy::start() {
  // Signals are for the interpreter's thread: this one must not take them.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  stopping_.store(false, std::memory_order_relaxed);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Proxy::stop() {
  stopping_.store(true, std::memory_order_seq_cst);  // ordered before the look at the sleep word
  arch::wake(parts_.provider.sleep_word());
  if (thread_.joinable()) thread_.join();
}

void Proxy::run() {
  pthread_setname_np(pthread_self(), "rsh-progress");
  parts_.provider.begin_driving();
  const bool naps = sources_.size() > 1 || (!parts_.provider.wakes() && !parts_.provider.sleep(0));
  const uint32_t yields = naps ? kYieldsBeforeNaps : kIdleYields;
  uint32_t idle = 0;
  uint64_t helped = 0;
  while (!stopping_.load(std::memory_order_acquire)) {
    // Somebody who waits does the work: two at it would be in each other's way.
    if (const uint64_t rounds = helped_.load(std::memory_order_relaxed); rounds != helped) {
      helped = rounds;
      const timespec nap{0, kNapNs};
      nanosleep(&nap, nullptr);
    }
    if (locked_step()) {
      idle = 0;
      naps_ = 0;
    } else if (++idle <= parts_.spins) {
      arch::relax();
    } else if (idle <= parts_.spins + yields) {
      sched_yield();
    } else {
      sleep();
    }
  }
  parts_.provider.end_driving();
}

int64_t Proxy::sleep_ns() {
  if (sources_.size() > 1) return kNapNs;
  if (parts_.provider.wakes()) return kSleepNs;
  return naps_++ < kShortNaps ? kNapNs : kLongNapNs;
}

void Proxy::sleep() {
  // What kernels post meanwhile waits until the time is up; whoever waits for it helps.
  if (helpable_ && parts_.provider.sleep(static_cast<uint64_t>(sleep_ns()))) {
    sleeps_.add();
    return;
  }
  uint32_t* word = parts_.provider.sleep_word();
  arch::store_ordered(word, 1u);
  arch::fence_system();  // the look below comes after the store: the sleeper's half of arch::wake
  if (!locked_step() && !stopping_.load(std::memory_order_seq_cst)) {
    sleeps_.add();
    const timespec limit{0, sleep_ns()};
    syscall(SYS_futex, word, FUTEX_WAIT, 1, &limit, nullptr, 0);
  }
  arch::store_relaxed(word, 0u);
}

bool Proxy::locked_step() {
  std::unique_lock<std::mutex> held(driving_, std::defer_lock);
  if (helpable_) held.lock();
  return step();
}

bool Proxy::help() {
  const std::unique_lock<std::mutex> held(driving_, std::try_to_lock);
  if (!held) return false;
  helped_.store(helped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  return step();
}

// One round of everything; true when something moved.
bool Proxy::step() {
  polls_.add();
  bool moved = false;
  for (const auto& nic : parts_.provider.nics()) moved |= nic->progress();
  if (parts_.moves != nullptr) moved |= parts_.moves->progress();
  moved |= atomics_.pump_answers();
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
  bool moved = false;
  for (Source& source : sources_) {
    source_ = &source;
    moved |= take_from_source();
  }
  return moved;
}

bool Proxy::take_from_source() {
  // A batch, so that completions, peers' requests and other sources are served in between.
  constexpr int kBatch = 64;
  int taken = 0;
  while (taken < kBatch && (current().active || read_next())) {
    if (!issue()) {
      stalls_.add();
      break;
    }
    record_issued();
    current().active = false;
    ++taken;
  }
  return taken > 0;
}

bool Proxy::read_next() {
  const ConsumerSide& ring = source_->ring;
  uint64_t& taken = source_->taken;
  current() = Current();
  if (!device::read_command(ring.slots + (taken & (ring.shape.commands - 1)),
                            device::lap_of(taken, ring.shift), &current().command))
    return false;
  ++taken;
  arch::store_release(&ring.words->head, taken);  // the slot may be written again
  current().active = true;
  if (parts_.context.trace != nullptr) current().taken_ns = arch::clock_ns();
  return true;
}

Statistics Proxy::statistics() const {
  Statistics out;
  for (const Source& source : sources_) {
    const RingShape& shape = source.ring.shape;
    for (std::size_t index = 0; index < shape.all_lanes(); ++index) {
      const LaneState& lane = *lanes_[source.first_lane + index];
      out.lanes.push_back({lane.pe, source.lane_number + static_cast<uint32_t>(index % shape.lanes),
                           arch::load_relaxed(&lane.progress->rail), lane.commands.get(),
                           lane.bytes.get(), arch::load_relaxed(&lane.progress->completed),
                           lane.replayed.get()});
    }
    out.ring_full += arch::load_relaxed(&source.ring.words->full_waits);
  }
  const auto& nics = parts_.provider.nics();
  for (std::size_t index = 0; index < nics.size(); ++index) {
    const RailCounters& rail = parts_.connections.rails()[index];
    out.rails.push_back({static_cast<int>(nics[index]->rail()), rail.requests.get(),
                         rail.bytes.get(), rail.completions.get(), rail.errors.get(),
                         rail.doorbells.get()});
  }
  out.failovers = failovers_.get();
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
  const device::Command& c = current().command;
  trace->record(
      trace->recorder,
      {current().taken_ns, arch::clock_ns() - current().taken_ns, c.bytes, source_->taken - 1, c.pe,
       current().lane == nullptr ? -1 : current().lane->data->rail(), c.lane + source_->lane_number,
       number_of(device::Moment::ring_command)});
}

}  // namespace railshmem::proxy
