// The host as an architecture: a warp of one lane, a block of one thread, a grid of one block or of
// one thread per block. Warp-stride loops become plain loops and warp copies become memcpy.
#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "kernels/arch/host_copy.hpp"
#include "kernels/arch/integers.hpp"

#define RSH_DEVICE inline
#define RSH_DEVICE_CALL inline
#define RSH_UNROLL
#define RSH_ROLLED
#define RSH_KERNEL extern "C" __attribute__((visibility("default"))) void
#define RSH_WARP_KERNEL RSH_KERNEL

namespace railshmem::arch {

enum class Scope : uint8_t { thread, warp, block };

constexpr bool kOnHost = true;

// ---- who am I ----------------------------------------------------------------------------------

// What a block learns when it has done its part: whether it is the last one, and then, whether all
// are well. The last sees what the others did; they do not wait.
struct Arrival {
  bool last;
  bool ok;
};
// Where the threads of a grid meet; made by host_launch.hpp.
class GridMeeting {
 public:
  virtual bool meet(bool ok) = 0;
  virtual Arrival arrive(bool ok) = 0;

 protected:
  ~GridMeeting() = default;
};
struct GridPosition {
  uint32_t block = 0;
  uint32_t blocks = 1;
  GridMeeting* meeting = nullptr;  // null: there is one block
};
// Stands for blockIdx and gridDim, which device code finds in registers.
inline thread_local GridPosition this_block;

template <Scope S>
RSH_DEVICE uint32_t rank() {
  return 0;
}
template <Scope S>
RSH_DEVICE uint32_t size() {
  return 1;
}
template <Scope S>
RSH_DEVICE bool leader() {
  return true;
}
template <Scope S>
RSH_DEVICE void sync() {}
// True for every thread of the scope when it is true for all of them; they meet here.
template <Scope S>
RSH_DEVICE bool all(bool mine) {
  return mine;
}

RSH_DEVICE uint32_t block() {
  return this_block.block;
}
RSH_DEVICE uint32_t blocks() {
  return this_block.blocks;
}
// What the blocks of a grid meet at on other architectures.
struct GridWords {
  uint32_t met;
  uint32_t came;
};
// All blocks meet and learn whether all are well. Every block must come, also after a failure: a
// block that stays away would hang the others.
RSH_DEVICE bool sync_grid(GridWords*, bool ok) {
  return this_block.meeting != nullptr ? this_block.meeting->meet(ok) : ok;
}
RSH_DEVICE Arrival arrive_at_grid(GridWords*, bool ok) {
  return this_block.meeting != nullptr ? this_block.meeting->arrive(ok) : Arrival{true, ok};
}

// ---- memory that others see --------------------------------------------------------------------

template <class T>
RSH_DEVICE T load_relaxed(const T* at) {
  return __atomic_load_n(at, __ATOMIC_RELAXED);
}
template <class T>
RSH_DEVICE T load_acquire(const T* at) {
  return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}
template <class T>
RSH_DEVICE void store_relaxed(T* at, T value) {
  __atomic_store_n(at, value, __ATOMIC_RELAXED);
}
template <class T>
RSH_DEVICE void store_release(T* at, T value) {
  __atomic_store_n(at, value, __ATOMIC_RELEASE);
}
// Ordered with a later load of another word: the half of Dekker's handshake that a sleeper needs.
template <class T>
RSH_DEVICE void store_ordered(T* at, T value) {
  __atomic_store_n(at, value, __ATOMIC_SEQ_CST);
}
template <class T>
RSH_DEVICE T load_ordered(const T* at) {
  return __atomic_load_n(at, __ATOMIC_SEQ_CST);
}
template <class T>
RSH_DEVICE T fetch_add(T* at, T value) {
  return __atomic_fetch_add(at, value, __ATOMIC_ACQ_REL);
}
template <class T>
RSH_DEVICE T fetch_and(T* at, T value) {
  return __atomic_fetch_and(at, value, __ATOMIC_ACQ_REL);
}
template <class T>
RSH_DEVICE T fetch_or(T* at, T value) {
  return __atomic_fetch_or(at, value, __ATOMIC_ACQ_REL);
}
template <class T>
RSH_DEVICE T fetch_xor(T* at, T value) {
  return __atomic_fetch_xor(at, value, __ATOMIC_ACQ_REL);
}
template <class T>
RSH_DEVICE T exchange(T* at, T value) {
  return __atomic_exchange_n(at, value, __ATOMIC_ACQ_REL);
}
// Among the kernels of this PE only: for counters that hand out places.
template <class T>
RSH_DEVICE T claim_add(T* at, T value) {
  return fetch_add(at, value);
}
// Returns what was there; stores `value` when that equals `expected`.
template <class T>
RSH_DEVICE T compare_swap(T* at, T expected, T value) {
  __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  return expected;
}
// Among the kernels of this PE only.
template <class T>
RSH_DEVICE T claim_swap(T* at, T expected, T value) {
  return compare_swap(at, expected, value);
}
// What nobody changes while a kernel runs.
template <class T>
RSH_DEVICE const T& fixed(const T& at) {
  return at;
}
// The word as it is, or as it was when this thread last waited for something.
RSH_DEVICE uint32_t load_lately(const uint32_t* at) {
  return load_relaxed(at);
}
// Adds to a counter whose value nobody wants now.
RSH_DEVICE void count_one(uint64_t* counter) {
  fetch_add(counter, uint64_t{1});
}
// claim_add of 1, for threads that come at the same time.
RSH_DEVICE uint64_t claim_together(uint64_t* counter) {
  return claim_add(counter, uint64_t{1});
}
// Before a command that announces data which kernels wrote. Here the command's own release does it.
RSH_DEVICE void fence_payload() {}
// Two words of 8 bytes, of several pairs of which store_last_pair is the last.
RSH_DEVICE void store_pair(uint64_t* at, uint64_t first, uint64_t second) {
  store_relaxed(at + 1, second);
  store_relaxed(at, first);
}
// A pair whose first word tells that both are there: who acquires it sees the second.
RSH_DEVICE void store_tagged(uint64_t* at, uint64_t tag, uint64_t value) {
  store_relaxed(at + 1, value);
  store_release(at, tag);
}
// The tag, and what was stored with it.
RSH_DEVICE uint64_t load_tagged(const uint64_t* at, uint64_t* value) {
  const uint64_t tag = load_acquire(at);
  *value = load_relaxed(at + 1);
  return tag;
}
// Publishes all pairs to whoever acquires its first word. Ordered with a look at the sleep word of
// the reader that may have to be woken.
RSH_DEVICE void store_last_pair(uint64_t* at, uint64_t first, uint64_t second) {
  store_relaxed(at + 1, second);
  store_ordered(at, first);
}
// Everything this thread wrote or saw is visible to whoever sees what it writes next.
RSH_DEVICE void fence_system() {
#if defined(__SANITIZE_THREAD__)
  // The thread sanitizer does not understand fences; a read-modify-write of one shared word orders
  // at least as much and it understands that.
  static uint64_t fenced = 0;
  __atomic_fetch_add(&fenced, uint64_t{1}, __ATOMIC_SEQ_CST);
#else
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

// Aligned words of 1, 2, 4 and 8 bytes are stored whole: a peer that polls one never sees half of
// it. Release, so that a word put after data announces the data.
RSH_DEVICE bool store_whole(void* to, const void* from, uint64_t bytes) {
  const auto misaligned = reinterpret_cast<uintptr_t>(to) & (bytes - 1);
  if (bytes > 8 || misaligned != 0) return false;
  switch (bytes) {
    case 8: {
      uint64_t word;
      memcpy(&word, from, 8);
      store_release(static_cast<uint64_t*>(to), word);
      return true;
    }
    case 4: {
      uint32_t word;
      memcpy(&word, from, 4);
      store_release(static_cast<uint32_t*>(to), word);
      return true;
    }
    case 2: {
      uint16_t word;
      memcpy(&word, from, 2);
      store_release(static_cast<uint16_t*>(to), word);
      return true;
    }
    case 1:
      store_release(static_cast<uint8_t*>(to), *static_cast<const uint8_t*>(from));
      return true;
    default:
      return false;
  }
}

// What a GPU loads and stores at once.
struct alignas(16) Vec16 {
  uint32_t x, y, z, w;
};
RSH_DEVICE Vec16 load_once(const Vec16* at) {
  return *at;
}
RSH_DEVICE void store_once(Vec16* at, const Vec16& v) {
  *at = v;
}

// Where order costs something, this one has none.
RSH_DEVICE bool store_whole_relaxed(void* to, const void* from, uint64_t bytes) {
  return store_whole(to, from, bytes);
}

// The scope's threads copy together; nobody may rely on the result before sync<S>().
template <Scope S>
RSH_DEVICE void copy(void* to, const void* from, uint64_t bytes) {
  copy_bytes(to, from, bytes);
}

// ---- time and waiting --------------------------------------------------------------------------

RSH_DEVICE uint64_t clock_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

// Tells the core that this is a spin loop.
RSH_DEVICE void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// How the host looks after a thread that waits long: returns true when the wait should end
// (Ctrl-C). Set by whoever calls into the library on behalf of an interpreter.
using WaitHook = bool (*)();
inline thread_local WaitHook wait_hook = nullptr;

// Spins, then yields, then sleeps: PEs that outnumber the cores must let each other run.
class Backoff {
 public:
  explicit Backoff(uint32_t spins) : spins_(spins) {}

  // `worked`: there was something better to do than to wait.
  void step(bool worked = false) {
    ++looks_;
    if (worked) return;
    if (count_ < spins_) {
      // What is about to come is seen soonest without a pause, which takes many cycles itself.
      if (count_ >= kHot) relax();
    } else if (count_ < spins_ + kYields) {
      sched_yield();
    } else {
      const timespec nap{0, 50000};
      nanosleep(&nap, nullptr);
    }
    ++count_;
  }
  // Looking at the clock and at the host is worth its cost only now and then.
  bool long_look() const { return looks_ > spins_ && (looks_ & 31) == 0; }
  bool interrupted() const { return wait_hook != nullptr && wait_hook(); }

 private:
  static constexpr uint32_t kHot = 64;
  static constexpr uint32_t kYields = 4000;
  uint32_t spins_;
  uint32_t count_ = 0;  // of looks after which there was nothing to do
  uint32_t looks_ = 0;
};

// Wakes the thread that sleeps on `word`, if it does: the waker's half of the handshake whose other
// half is "store 1 (ordered), look for work once more, futex-wait while 1". The caller has
// published its work with store_ordered, so either it sees the 1 here or the sleeper sees the work.
RSH_DEVICE void wake(uint32_t* word) {
  if (load_ordered(word) != 0 && exchange(word, 0u) != 0)
    syscall(SYS_futex, word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

}  // namespace railshmem::arch
