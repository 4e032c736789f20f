// The library's operations in C++ loops, without Python's own cost.
#include "python/bindings/bench.hpp"
#include "shmem/api/collectives.hpp"
#include "shmem/api/waits.hpp"

namespace railshmem::python {
namespace {

using device::AtomicOp;
using device::Compare;

// What is called `count` times, and what completes it all.
template <class Call>
double timed(const RuntimePtr& rt, uint64_t count, const Call& call) {
  Context& context = rt->default_context();
  const HookScope hook;
  const Stopwatch watch;
  for (uint64_t i = 0; i < count; ++i) call(context);
  context.quiet();
  return watch.seconds();
}

double put(const RuntimePtr& rt, uintptr_t dest, uintptr_t source, std::size_t bytes, int pe,
           uint64_t count) {
  return timed(rt, count,
               [&](Context& ctx) { ctx.put(pointer(dest), pointer(source), bytes, pe); });
}

double put_quiet(const RuntimePtr& rt, uintptr_t dest, uintptr_t source, std::size_t bytes, int pe,
                 uint64_t count) {
  return timed(rt, count, [&](Context& ctx) {
    ctx.put(pointer(dest), pointer(source), bytes, pe);
    ctx.quiet();
  });
}

double get(const RuntimePtr& rt, uintptr_t dest, uintptr_t source, std::size_t bytes, int pe,
           uint64_t count) {
  return timed(rt, count,
               [&](Context& ctx) { ctx.get(pointer(dest), pointer(source), bytes, pe); });
}

double fetch_add(const RuntimePtr& rt, uintptr_t word, int pe, uint64_t count) {
  return timed(rt, count,
               [&](Context& ctx) { ctx.atomic_fetch(AtomicOp::add, pointer(word), 8, 1, 0, pe); });
}

double add(const RuntimePtr& rt, uintptr_t word, int pe, uint64_t count) {
  return timed(rt, count,
               [&](Context& ctx) { ctx.atomic_update(AtomicOp::add, pointer(word), 8, 1, pe); });
}

double barrier(const RuntimePtr& rt, uint64_t count) {
  return timed(rt, count, [&](Context&) { rt->barrier_all(); });
}

// One of the collectives of the world, on doubles; `bytes` of one PE's array (alltoall: of one
// pair's). A broadcast ends with a barrier, without which the root would run ahead.
double collective(const RuntimePtr& rt, const std::string& name, uintptr_t dest, uintptr_t source,
                  std::size_t bytes, uint64_t count) {
  Team& world = *rt->world();
  void* const to = pointer(dest);
  const void* const from = pointer(source);
  const auto repeated = [&](const auto& call) {
    return timed(rt, count, [&](Context&) { call(); });
  };
  if (name == "broadcast")
    return repeated([&] {
      broadcast(*rt, world, to, from, bytes, 0);
      rt->barrier_all();
    });
  if (name == "fcollect") return repeated([&] { fcollect(*rt, world, to, from, bytes); });
  if (name == "alltoall") return repeated([&] { alltoall(*rt, world, to, from, bytes); });
  if (name == "sum_reduce")
    return repeated([&] {
      reduce(*rt, world, to, from, bytes / sizeof(double), ElementType::float64, ReduceOp::sum);
    });
  fail(ErrorKind::argument, "bench.collective: unknown collective ", name);
}

// Called by two PEs: the lower sends a word to `other`, which sends it back, `count` times. `words`
// is symmetric memory of 256 bytes: the word, 8 bytes that travel before it where `with_data` says
// so, and this PE's count of round trips so far.
double signals(const RuntimePtr& rt, uintptr_t words, int other, bool with_data, uint64_t count) {
  Context& context = rt->default_context();
  auto* const word = pointer<uint64_t>(words);
  auto* const data = word + 8;
  uint64_t& base = word[16];
  const bool first = rt->my_pe() <= other;  // who is alone plays with itself
  const auto send = [&](uint64_t value) {
    if (with_data)
      context.put_signal(data, &base, 8, word, value, AtomicOp::set, other);
    else
      context.put(word, &value, 8, other);
  };
  const HookScope hook;
  const Stopwatch watch;
  for (uint64_t trip = base + 1; trip <= base + count; ++trip) {
    if (first) send(trip);
    signal_wait_until(*rt, word, Compare::greater_equal, trip);
    if (!first) send(trip);
  }
  base += count;
  return watch.seconds();
}

// A kernel whose blocks post immediates back to back, together `count`, then wait for all of them.
double commands(const RuntimePtr& rt, uintptr_t word, int pe, uint32_t producers, uint64_t count) {
  const uint64_t each = count / producers;
  const HookScope hook;
  const Stopwatch watch;
  rt->launch(producers, [&, ctx = &rt->context()] {
    auto* const own = pointer<uint64_t>(word) + arch::block();
    for (uint64_t i = 0; i < each; ++i)
      if (!device::put_immediate<device::Transport::proxy>(ctx, own, i, pe)) return;
    device::quiet_lane(ctx, pe, 0);
  });
  return watch.seconds();
}

// A kernel that waits for each immediate before it posts the next.
double round_trips(const RuntimePtr& rt, uintptr_t word, int pe, uint64_t count) {
  const HookScope hook;
  const Stopwatch watch;
  rt->launch(1, [&, ctx = &rt->context()] {
    for (uint64_t i = 0; i < count; ++i) {
      if (!device::put_immediate<device::Transport::proxy>(ctx, pointer<uint64_t>(word), i, pe))
        return;
      if (!device::quiet_lane(ctx, pe, 0)) return;
    }
  });
  return watch.seconds();
}

}  // namespace

void bind_bench_operations(py::module_& m) {
  const auto transfer = [&](const char* name, auto loop) {
    m.def(name, loop, py::arg("runtime"), py::arg("dest"), py::arg("source"), py::arg("bytes"),
          py::arg("pe"), py::arg("count"));
  };
  transfer("put", &put);
  transfer("put_quiet", &put_quiet);
  transfer("get", &get);
  const auto on_word = [&](const char* name, auto loop) {
    m.def(name, loop, py::arg("runtime"), py::arg("word"), py::arg("pe"), py::arg("count"));
  };
  on_word("fetch_add", &fetch_add);
  on_word("add", &add);
  on_word("round_trips", &round_trips);
  m.def("barrier", &barrier, py::arg("runtime"), py::arg("count"));
  m.def("collective", &collective, py::arg("runtime"), py::arg("name"), py::arg("dest"),
        py::arg("source"), py::arg("bytes"), py::arg("count"));
  m.def("signals", &signals, py::arg("runtime"), py::arg("words"), py::arg("other"),
        py::arg("with_data"), py::arg("count"));
  m.def("commands", &commands, py::arg("runtime"), py::arg("word"), py::arg("pe"),
        py::arg("producers"), py::arg("count"));
}

}  // namespace railshmem::python
