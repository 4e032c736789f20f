// Loops that `railshmem bench` times without Python's own cost, and the physical limits beside
// them. Every loop returns the seconds it took. Addresses come from numpy views as integers.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "kernels/ep/rows.hpp"
#include "kernels/shmem/put.hpp"
#include "python/bindings/bindings.hpp"
#include "shmem/api/runtime.hpp"
#include "shmem/api/waits.hpp"

namespace railshmem::python {
namespace {

using Clock = std::chrono::steady_clock;
using RuntimePtr = std::shared_ptr<Runtime>;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

template <class T = void>
T* pointer(uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

// ---- the library
// ---------------------------------------------------------------------------------

double put(const RuntimePtr& rt, uintptr_t dest, uintptr_t source, std::size_t bytes, int pe,
           uint64_t count) {
  const HookScope hook;
  const auto start = Clock::now();
  for (uint64_t i = 0; i < count; ++i)
    rt->default_context().put(pointer(dest), pointer(source), bytes, pe);
  rt->default_context().quiet();
  return seconds_since(start);
}

double barrier(const RuntimePtr& rt, uint64_t count) {
  const HookScope hook;
  const auto start = Clock::now();
  for (uint64_t i = 0; i < count; ++i) rt->barrier_all();
  return seconds_since(start);
}

// A kernel that posts immediates back to back, then waits for all of them.
double commands(const RuntimePtr& rt, uintptr_t word, int pe, uint64_t count) {
  const HookScope hook;
  const auto start = Clock::now();
  rt->launch(1, [&, ctx = &rt->context()] {
    for (uint64_t i = 0; i < count; ++i)
      if (!device::put_immediate<device::Transport::proxy>(ctx, pointer<uint64_t>(word), i, pe))
        return;
    device::quiet_lane(ctx, pe, 0);
  });
  return seconds_since(start);
}

// A kernel that waits for each immediate before it posts the next.
double round_trips(const RuntimePtr& rt, uintptr_t word, int pe, uint64_t count) {
  const HookScope hook;
  const auto start = Clock::now();
  rt->launch(1, [&, ctx = &rt->context()] {
    for (uint64_t i = 0; i < count; ++i) {
      if (!device::put_immediate<device::Transport::proxy>(ctx, pointer<uint64_t>(word), i, pe))
        return;
      if (!device::quiet_lane(ctx, pe, 0)) return;
    }
  });
  return seconds_since(start);
}

// ---- physical limits
// -----------------------------------------------------------------------------

// memcpy to where `dest` is mapped for `pe`; to `dest` itself where it is not, or not in the heap.
double copy(const RuntimePtr& rt, uintptr_t dest, uintptr_t source, std::size_t bytes, int pe,
            uint64_t count) {
  void* to = pointer(dest);
  if (rt->in_heap(to, bytes))
    if (void* mapped = rt->ptr(to, pe)) to = mapped;
  const py::gil_scoped_release release;
  const auto start = Clock::now();
  for (uint64_t i = 0; i < count; ++i) {
    std::memcpy(to, pointer(source), bytes);
    asm volatile("" ::: "memory");  // each copy happens
  }
  return seconds_since(start);
}

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
  auto start = Clock::now();
  for (uint64_t trip = 0; trip <= trips; ++trip) {
    if (trip == 1) start = Clock::now();  // trip 0 brings the two together
    const uint64_t value = base + trip + 1;
    if (first) arch::store_release(theirs, value);
    // The library's wait, so that a peer that is gone ends this one, too.
    if (arch::load_acquire(mine) < value)
      signal_wait_until(*rt, mine, device::Compare::greater_equal, value);
    if (!first) arch::store_release(theirs, value);
  }
  base += trips + 1;
  return seconds_since(start);
}

// The same between two threads of this process.
double pass_line_between_threads(uint64_t count) {
  const py::gil_scoped_release release;
  PaddedWord words[2];
  const uint64_t trips = count / 2;
  std::thread partner([&] {
    LinePlayer player(&words[1].value, &words[0].value);
    for (uint64_t value = 1; value <= trips + 1; ++value) {
      player.receive(value);
      player.send(value);
    }
  });
  LinePlayer player(&words[0].value, &words[1].value);
  auto start = Clock::now();
  for (uint64_t value = 1; value <= trips + 1; ++value) {
    if (value == 2) start = Clock::now();  // the first trip waits for the thread to start
    player.send(value);
    player.receive(value);
  }
  const double taken = seconds_since(start);
  partner.join();
  return taken;
}

// 64-byte commands through the library's slot format, between two threads that do nothing else.
double ring(uint64_t count) {
  constexpr uint32_t kShift = 10;
  constexpr uint64_t kSlots = uint64_t{1} << kShift;
  const py::gil_scoped_release release;
  std::vector<device::CommandSlot> slots(kSlots);
  PaddedWord head, ready;
  std::thread reader([&] {
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
  const auto start = Clock::now();
  device::Command command;
  command.op = device::CommandOp::put_immediate;
  for (uint64_t index = 0; index < count; ++index) {
    if (index >= kSlots) wait_for(&head.value, index - kSlots + 1);
    device::write_command(&slots[index % kSlots], device::lap_of(index, kShift), command);
  }
  wait_for(&head.value, count);
  const double taken = seconds_since(start);
  reader.join();
  return taken;
}

// ---- the rival's reduction
// -----------------------------------------------------------------------

// out[t] = sum over i of rows[places[i, t]], times weights[i, t] where those are given, in float32;
// place -1 holds nothing.
template <class Number>
void sum_rows_of(const py::array_t<uint8_t>& rows, const py::array_t<int32_t>& places,
                 py::array_t<uint8_t>& out, const std::optional<py::array_t<float>>& weights) {
  const auto row_bytes = out.shape(1);
  const auto hidden = static_cast<std::size_t>(row_bytes) / sizeof(Number);
  std::vector<float> sum(hidden);
  for (py::ssize_t token = 0; token < out.shape(0); ++token) {
    std::fill(sum.begin(), sum.end(), 0.0f);
    for (py::ssize_t part = 0; part < places.shape(0); ++part) {
      const int32_t place = places.at(part, token);
      if (place < 0) continue;
      const auto* row = reinterpret_cast<const Number*>(rows.data(place, 0));
      if (weights)
        device::ep::add_weighted_row(sum.data(), row, weights->at(part, token), hidden);
      else
        device::ep::add_row(sum.data(), row, hidden);
    }
    auto* to = reinterpret_cast<Number*>(out.mutable_data(token, 0));
    for (std::size_t i = 0; i < hidden; ++i) to[i] = device::ep::narrow<Number>(sum[i]);
  }
}

void sum_rows(const py::array_t<uint8_t>& rows, const py::array_t<int32_t>& places,
              py::array_t<uint8_t>& out, const std::string& type,
              const std::optional<py::array_t<float>>& weights) {
  if (type == "bf16")
    sum_rows_of<device::ep::Bf16>(rows, places, out, weights);
  else if (type == "fp32")
    sum_rows_of<float>(rows, places, out, weights);
  else if (type == "fp16")
    sum_rows_of<device::ep::Fp16>(rows, places, out, weights);
  else
    fail(ErrorKind::argument, "sum_rows: type ", type, " is not bf16, fp16 or fp32");
}

}  // namespace

void bind_bench(py::module_& module) {
  py::module_ m = module.def_submodule("bench", "Loops that `railshmem bench` times");
  m.def("put", &put, py::arg("runtime"), py::arg("dest"), py::arg("source"), py::arg("bytes"),
        py::arg("pe"), py::arg("count"));
  m.def("barrier", &barrier, py::arg("runtime"), py::arg("count"));
  m.def("commands", &commands, py::arg("runtime"), py::arg("word"), py::arg("pe"),
        py::arg("count"));
  m.def("round_trips", &round_trips, py::arg("runtime"), py::arg("word"), py::arg("pe"),
        py::arg("count"));
  m.def("copy", &copy, py::arg("runtime"), py::arg("dest"), py::arg("source"), py::arg("bytes"),
        py::arg("pe"), py::arg("count"));
  m.def("pass_line", &pass_line, py::arg("runtime"), py::arg("words"), py::arg("other"),
        py::arg("count"));
  m.def("pass_line_between_threads", &pass_line_between_threads, py::arg("count"));
  m.def("ring", &ring, py::arg("count"));
  m.def("sum_rows", &sum_rows, py::arg("rows").noconvert(), py::arg("places").noconvert(),
        py::arg("out").noconvert(), py::arg("type"), py::arg("weights") = py::none());
}

}  // namespace railshmem::python
