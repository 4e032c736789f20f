// The physical limits that `railshmem bench` prints beside the library's figures.
#include <sched.h>

#include <cstring>
#include <thread>
#include <vector>

#include "python/bindings/bench.hpp"
#include "shmem/api/waits.hpp"

namespace railshmem::python {
namespace {

// Where `address` lies in `pe`; `address` itself where that is not mapped, or not in the heap.
template <class T = void>
T* mapped(const RuntimePtr& rt, uintptr_t address, std::size_t bytes, int pe) {
  auto* here = pointer<T>(address);
  if (rt->in_heap(here, bytes))
    if (void* there = rt->ptr(here, pe)) return static_cast<T*>(there);
  return here;
}

// The work is done in every round, as far as the compiler can tell.
void keep() {
  asm volatile("" ::: "memory");
}

template <class Work>
double timed(uint64_t count, const Work& work) {
  const py::gil_scoped_release release;
  const Stopwatch watch;
  for (uint64_t i = 0; i < count; ++i) {
    work();
    keep();
  }
  return watch.seconds();
}

// memcpy to `dest` in `pe`.
double copy(const RuntimePtr& rt, uintptr_t dest, uintptr_t source, std::size_t bytes, int pe,
            uint64_t count) {
  void* const to = mapped(rt, dest, bytes, pe);
  return timed(count, [&] { std::memcpy(to, pointer(source), bytes); });
}

// memcpy from `source` in `pe`.
double copy_from(const RuntimePtr& rt, uintptr_t dest, uintptr_t source, std::size_t bytes, int pe,
                 uint64_t count) {
  const void* const from = mapped(rt, source, bytes, pe);
  return timed(count, [&] { std::memcpy(pointer(dest), from, bytes); });
}

// A word stored into `pe`, and everything before it made visible.
double store_fence(const RuntimePtr& rt, uintptr_t word, int pe, uint64_t count) {
  auto* const there = mapped<uint64_t>(rt, word, 8, pe);
  return timed(count, [&] {
    arch::store_relaxed(there, count);
    arch::fence_system();
  });
}

// The core's own atomic on a word of `pe`.
double fetch_add_bare(const RuntimePtr& rt, uintptr_t word, int pe, uint64_t count) {
  auto* const there = mapped<uint64_t>(rt, word, 8, pe);
  return timed(count, [&] { arch::fetch_add(there, uint64_t{1}); });
}

// A call that takes what shmem_put takes and does nothing.
void empty_call(py::handle, py::handle, long long) {}

// The threads of a limit run on cores of their own, as far as this process may use several: a new
// thread often begins on its maker's core, and two that share one measure the scheduler.
class OwnCore {
 public:
  // The cores this process may use, before anybody binds its threads.
  OwnCore() { sched_getaffinity(0, sizeof allowed_, &allowed_); }

  // For the calling thread: any core but `taken`.
  void take_beside(int taken) const {
    cpu_set_t others = allowed_;
    if (taken >= 0) CPU_CLR(static_cast<unsigned>(taken), &others);
    if (CPU_COUNT(&others) > 0) sched_setaffinity(0, sizeof others, &others);
  }

 private:
  cpu_set_t allowed_;
};

// Two parties hand a cache line to and fro, spinning, and yielding where they share a core.
class LinePlayer {
 public:
  LinePlayer(uint64_t* mine, uint64_t* theirs) : mine_(mine), theirs_(theirs) {}

  void send(uint64_t value) { arch::store_release(theirs_, value); }
  void receive(uint64_t value) {
    for (uint32_t looks = 0; arch::load_acquire(mine_) < value; ++looks) {
      arch::relax();
      if (looks > kSpins) sched_yield();
    }
  }

 private:
  static constexpr uint32_t kSpins = 2000;
  uint64_t* mine_;
  uint64_t* theirs_;
};

struct alignas(128) PaddedWord {
  uint64_t value = 0;
};

// Called by two PEs of a node: seconds in which a line makes `count` one-way trips between them.
// `words` is symmetric memory of 256 bytes that starts as zeros: the line, and this PE's count of
// trips.
double pass_line(const RuntimePtr& rt, uintptr_t words, int other, uint64_t count) {
  const HookScope hook;
  auto* mine = pointer<uint64_t>(words);
  auto* theirs = static_cast<uint64_t*>(rt->ptr(mine, other));
  if (theirs == nullptr)
    fail(ErrorKind::argument, "pass_line: PE ", other, " is not mapped by PE ", rt->my_pe());
  const bool first = rt->my_pe() < other;
  uint64_t& base = mine[16];  // advances alike on both sides
  const uint64_t trips = count / 2;
  Stopwatch watch;
  for (uint64_t trip = 0; trip <= trips; ++trip) {
    if (trip == 1) watch = Stopwatch();  // trip 0 brings the two together
    const uint64_t value = base + trip + 1;
    if (first) arch::store_release(theirs, value);
    // The library's wait, so that a peer that is gone ends this one, too.
    if (arch::load_acquire(mine) < value)
      signal_wait_until(*rt, mine, device::Compare::greater_equal, value);
    if (!first) arch::store_release(theirs, value);
  }
  base += trips + 1;
  return watch.seconds();
}

// The same between two threads of this process.
double pass_line_between_threads(const OwnCore& cores, uint64_t count) {
  const py::gil_scoped_release release;
  const int here = sched_getcpu();
  PaddedWord words[2];
  const uint64_t trips = count / 2;
  std::thread partner([&] {
    cores.take_beside(here);
    LinePlayer player(&words[1].value, &words[0].value);
    for (uint64_t value = 1; value <= trips + 1; ++value) {
      player.receive(value);
      player.send(value);
    }
  });
  LinePlayer player(&words[0].value, &words[1].value);
  Stopwatch watch;
  for (uint64_t value = 1; value <= trips + 1; ++value) {
    if (value == 2) watch = Stopwatch();  // the first trip waits for the thread to start
    player.send(value);
    player.receive(value);
  }
  const double taken = watch.seconds();
  partner.join();
  return taken;
}

// 64-byte commands through the library's slot format, between two threads that do nothing else.
double ring(const OwnCore& cores, uint64_t count) {
  constexpr uint32_t kShift = 10;
  constexpr uint64_t kSlots = uint64_t{1} << kShift;
  const py::gil_scoped_release release;
  const int here = sched_getcpu();
  std::vector<device::CommandSlot> slots(kSlots);
  PaddedWord head, ready;
  std::thread reader([&] {
    cores.take_beside(here);
    arch::store_release(&ready.value, uint64_t{1});
    device::Command command;
    for (uint64_t index = 0; index < count; ++index) {
      for (uint32_t looks = 0;
           !device::read_command(&slots[index % kSlots], device::lap_of(index, kShift), &command);
           ++looks)
        if (looks > 2000) sched_yield();
      if (index % 64 == 63) arch::store_release(&head.value, index + 1);
    }
    arch::store_release(&head.value, count);
  });
  const auto wait_for = [](const uint64_t* word, uint64_t value) {
    for (uint32_t looks = 0; arch::load_acquire(word) < value; ++looks)
      if (looks > 2000) sched_yield();
  };
  wait_for(&ready.value, 1);
  const Stopwatch watch;
  device::Command command;
  command.op = device::CommandOp::put_immediate;
  for (uint64_t index = 0; index < count; ++index) {
    if (index >= kSlots) wait_for(&head.value, index - kSlots + 1);
    device::write_command(&slots[index % kSlots], device::lap_of(index, kShift), command);
  }
  wait_for(&head.value, count);
  const double taken = watch.seconds();
  reader.join();
  return taken;
}

}  // namespace

void bind_bench_limits(py::module_& m) {
  const auto transfer = [&](const char* name, auto loop) {
    m.def(name, loop, py::arg("runtime"), py::arg("dest"), py::arg("source"), py::arg("bytes"),
          py::arg("pe"), py::arg("count"));
  };
  transfer("copy", &copy);
  transfer("copy_from", &copy_from);
  const auto on_word = [&](const char* name, auto loop) {
    m.def(name, loop, py::arg("runtime"), py::arg("word"), py::arg("pe"), py::arg("count"));
  };
  on_word("store_fence", &store_fence);
  on_word("fetch_add_bare", &fetch_add_bare);
  m.def("empty_call", &empty_call, py::arg("dest"), py::arg("source"), py::arg("pe"));
  m.def("pass_line", &pass_line, py::arg("runtime"), py::arg("words"), py::arg("other"),
        py::arg("count"));
  const OwnCore cores;
  m.def(
      "pass_line_between_threads",
      [cores](uint64_t count) { return pass_line_between_threads(cores, count); },
      py::arg("count"));
  m.def("ring", [cores](uint64_t count) { return ring(cores, count); }, py::arg("count"));
}

}  // namespace railshmem::python
