// Waiting: every wait of the library goes through Waiter, which ends it by its condition, by the
// PE's stop word, or by its deadline, and then says what it waited for.
#pragma once

#include "kernels/shmem/context.hpp"

namespace railshmem::device {

// Sets the reason once; the first one wins, because it is the cause and the rest are consequences.
// A claim of its own keeps what it was given until the host clears it.
RSH_DEVICE void stop_with(const DeviceContext* ctx, Stop reason, const Report& report) {
  const auto none = static_cast<uint32_t>(Stop::none);
  if (arch::claim_swap(arch::fixed(ctx->stop_claim), none, static_cast<uint32_t>(Stop::writing)) !=
      none)
    return;
  ctx->stop->report = report;
  arch::store_release(&ctx->stop->stop, static_cast<uint32_t>(reason));  // publishes the report
}

// Relaxed: only the host reads the report.
RSH_DEVICE bool stopped(const DeviceContext* ctx) {
  return arch::load_relaxed(arch::fixed(ctx->stop_claim)) != static_cast<uint32_t>(Stop::none);
}

// Whether it was so when this thread last waited: for those that do not wait.
RSH_DEVICE bool stopped_lately(const DeviceContext* ctx) {
  return arch::load_lately(arch::fixed(ctx->stop_claim)) != static_cast<uint32_t>(Stop::none);
}

// Dear on a GPU: the word is the host's.
RSH_DEVICE Stop job_stop(const DeviceContext* ctx) {
  return static_cast<Stop>(arch::load_acquire(arch::fixed(ctx->job_stop)));
}

// Counts of what is complete include what has failed; the failure is published before the count.
RSH_DEVICE bool network_failed(const DeviceContext* ctx) {
  const Stop stop = job_stop(ctx);
  return stop >= Stop::network && stop <= Stop::atomics_down;
}

class Waiter {
 public:
  RSH_DEVICE Waiter(const DeviceContext* ctx, Waiting what, int peer, uint64_t word = kNoWord,
                    uint64_t expected = 0, int rail = -1)
      : ctx_(ctx),
        what_(what),
        peer_(peer),
        rail_(rail),
        word_(word),
        expected_(expected),
        backoff_(arch::fixed(ctx->spins)) {}

  // A wait whose first look failed is a span in the timeline.
  RSH_DEVICE ~Waiter() {
    if (traced_ns_ == 0) return;
    const auto moment = number_of(Moment::waiting) + static_cast<uint32_t>(what_);
    const uint64_t waited = arch::clock_ns() - traced_ns_;
    ctx_->trace->record(ctx_->trace->recorder,
                        {traced_ns_, waited, expected_, word_, peer_, rail_, 0, moment});
  }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  // Call after each failed look; `seen` is what the look saw. False: give up.
  RSH_DEVICE bool again(uint64_t seen) {
    if (recording(ctx_->trace) && traced_ns_ == 0) traced_ns_ = arch::clock_ns();
    // A GPU looks at these now and then: each would take as long as the look at what is waited for.
    if (arch::kOnHost && stopped(ctx_)) return false;
    const bool helped =
        arch::kOnHost && ctx_->driver != nullptr && ctx_->driver->help(ctx_->driver->proxy);
    backoff_.step(helped);
    if (!backoff_.long_look()) return true;
    if (stopped(ctx_) || job_stop(ctx_) != Stop::none) return false;
    const uint64_t now = arch::clock_ns();
    if (started_ns_ == 0) started_ns_ = now;
    const uint64_t waited = now - started_ns_;
    if (waited > arch::fixed(ctx_->timeout_ns)) return give_up(Stop::timeout, seen, waited);
    if (backoff_.interrupted()) return give_up(Stop::interrupted, seen, waited);
    return true;
  }

 private:
  RSH_DEVICE bool give_up(Stop reason, uint64_t seen, uint64_t waited) {
    stop_with(ctx_, reason, {what_, peer_, rail_, 0, 0, word_, expected_, seen, waited, 0});
    return false;
  }

  const DeviceContext* ctx_;
  Waiting what_;
  int peer_;
  int rail_;
  uint64_t word_;
  uint64_t expected_;
  uint64_t started_ns_ = 0;
  uint64_t traced_ns_ = 0;
  arch::Backoff backoff_;
};

enum class Compare : uint8_t { equal, not_equal, greater, greater_equal, less, less_equal };

template <class T>
RSH_DEVICE bool holds(Compare compare, T seen, T expected) {
  switch (compare) {
    case Compare::equal:
      return seen == expected;
    case Compare::not_equal:
      return seen != expected;
    case Compare::greater:
      return seen > expected;
    case Compare::greater_equal:
      return seen >= expected;
    case Compare::less:
      return seen < expected;
    case Compare::less_equal:
      return seen <= expected;
  }
  return false;
}

// Waits until the local symmetric word compares; T is an integer of 4 or 8 bytes. The acquire pairs
// with the release of the store, atomic or NIC write that changed the word, so that data put before
// its signal is visible. False: stopped; `*last` is what was seen.
template <class T>
RSH_DEVICE bool wait_until(const DeviceContext* ctx, const T* word, Compare compare, T expected,
                           T* last, Waiting what = Waiting::word, int peer = -1) {
  T seen = arch::load_acquire(word);
  if (!holds(compare, seen, expected)) {
    Waiter waiter(ctx, what, peer, offset_of(ctx, word), static_cast<uint64_t>(expected));
    do {
      const bool stop = !waiter.again(static_cast<uint64_t>(seen));
      seen = arch::load_acquire(word);  // also after a stop: the word may have come just before it
      if (stop && !holds(compare, seen, expected)) return false;
    } while (!holds(compare, seen, expected));
  }
  *last = seen;
  return true;
}

// The form our own protocols use: a single-writer word that only grows.
RSH_DEVICE bool wait_for_sequence(const DeviceContext* ctx, const uint64_t* word, uint64_t at_least,
                                  Waiting what, int peer) {
  uint64_t last;
  return wait_until(ctx, word, Compare::greater_equal, at_least, &last, what, peer);
}

}  // namespace railshmem::device
