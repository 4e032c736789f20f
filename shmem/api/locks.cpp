// A queue lock. Every copy of the word has two halves. In the copy of the lock's home PE the upper
// half is the tail of the queue: the PE that came last, plus one; 0 when the lock is free. In each
// PE's own copy the lower half is its place in the queue: the PE behind it, plus one, and whether
// it still waits or holds the lock. All changes are atomics on the whole word, so that they meet in
// the heap's one atomic domain and the two halves never disturb each other.
#include "shmem/api/locks.hpp"

#include "kernels/shmem/wait.hpp"
#include "shmem/api/context.hpp"
#include "shmem/api/runtime_parts.hpp"

namespace railshmem {
namespace {

using device::AtomicOp;

constexpr uint64_t kWaits = uint64_t{1} << 31;
constexpr uint64_t kHolds = uint64_t{1} << 30;
constexpr uint64_t kNextMask = kHolds - 1;

uint64_t next_of(uint64_t word) {
  return word & kNextMask;
}
uint64_t tail_of(uint64_t word) {
  return word >> 32;
}

class Lock {
 public:
  Lock(Runtime& runtime, const char* call, uint64_t* word) : runtime_(runtime), word_(word) {
    runtime.parts().require_usable();
    runtime.parts().check_word(call, "lock", word, 8);
    // Locks beside each other live on different PEs.
    const uint64_t index = device::offset_of(&runtime.context(), word) / sizeof *word;
    home_ = static_cast<int>(index % static_cast<uint64_t>(runtime.n_pes()));
  }

  uint64_t self() const { return static_cast<uint64_t>(runtime_.my_pe()) + 1; }
  uint64_t look() const { return runtime_.parts().memory.load(word_); }
  bool holds() const { return (look() & kHolds) != 0; }
  bool held() const { return (look() & (kHolds | kWaits)) != 0; }

  // Puts this PE at the end of the queue; returns the one before it, plus one. With `only_if_free`
  // the queue stays as it is where it is not empty.
  uint64_t join(bool only_if_free) {
    uint64_t seen = fetch(home_);
    for (;;) {
      if (only_if_free && tail_of(seen) != 0) return tail_of(seen);
      const uint64_t wanted = self() << 32 | (seen & UINT32_MAX);
      const uint64_t found = swap_if(home_, seen, wanted);
      if (found == seen) return tail_of(seen);
      seen = found;
    }
  }

  void wait_for_turn(int predecessor) {
    device::Waiter waiter(&runtime_.context(), device::Waiting::lock, predecessor,
                          device::offset_of(&runtime_.context(), word_));
    uint64_t seen;
    while (((seen = look()) & kWaits) != 0)
      if (!waiter.again(seen)) runtime_.parts().raise_stopped();
  }

  // Leaves the queue if this PE is its end.
  bool leave_if_last() {
    uint64_t seen = fetch(home_);
    while (tail_of(seen) == self()) {
      const uint64_t found = swap_if(home_, seen, seen & UINT32_MAX);
      if (found == seen) return true;
      seen = found;
    }
    return false;
  }

  // The PE behind this one: it has joined, and is about to say so.
  int wait_for_next() {
    device::Waiter waiter(&runtime_.context(), device::Waiting::lock, -1,
                          device::offset_of(&runtime_.context(), word_));
    uint64_t seen;
    while (next_of(seen = look()) == 0)
      if (!waiter.again(seen)) runtime_.parts().raise_stopped();
    return static_cast<int>(next_of(seen)) - 1;
  }

  // Adds to a PE's half of the word; no part of it ever overflows into another.
  void add(int pe, uint64_t value) {
    runtime_.default_context().atomic_fetch(AtomicOp::add, word_, 8, value, 0, pe);
  }

 private:
  uint64_t fetch(int pe) {
    return runtime_.default_context().atomic_fetch(AtomicOp::fetch, word_, 8, 0, 0, pe);
  }
  uint64_t swap_if(int pe, uint64_t expected, uint64_t value) {
    return runtime_.default_context().atomic_fetch(AtomicOp::compare_swap, word_, 8, value,
                                                   expected, pe);
  }

  Runtime& runtime_;
  uint64_t* word_;
  int home_;
};

}  // namespace

void set_lock(Runtime& runtime, uint64_t* word) {
  Lock lock(runtime, "shmem_set_lock", word);
  if (lock.held())
    fail(ErrorKind::argument, "shmem_set_lock: PE ", runtime.my_pe(),
         " is in this lock's queue already");
  const int me = runtime.my_pe();
  lock.add(me, kWaits);  // before the one in front can see this PE
  const uint64_t before = lock.join(false);
  if (before != 0) {
    const int predecessor = static_cast<int>(before) - 1;
    lock.add(predecessor, static_cast<uint64_t>(me) + 1);
    lock.wait_for_turn(predecessor);
    lock.add(me, kHolds);
  } else {
    lock.add(me, kHolds - kWaits);
  }
}

bool test_lock(Runtime& runtime, uint64_t* word) {
  Lock lock(runtime, "shmem_test_lock", word);
  if (lock.held())
    fail(ErrorKind::argument, "shmem_test_lock: PE ", runtime.my_pe(),
         " is in this lock's queue already");
  if (lock.join(true) != 0) return false;
  lock.add(runtime.my_pe(), kHolds);
  return true;
}

void clear_lock(Runtime& runtime, uint64_t* word) {
  Lock lock(runtime, "shmem_clear_lock", word);
  const int me = runtime.my_pe();
  if (!lock.holds())
    fail(ErrorKind::argument, "shmem_clear_lock: PE ", me, " does not hold this lock");
  runtime.default_context().quiet();
  if (lock.leave_if_last()) return lock.add(me, 0 - kHolds);
  const int next = lock.wait_for_next();
  lock.add(me, 0 - kHolds - (static_cast<uint64_t>(next) + 1));
  lock.add(next, 0 - kWaits);
}

}  // namespace railshmem
