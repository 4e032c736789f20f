// The progress thread's promises under load, and what it counts. Each test guards against a fault
// that users of comparable systems reported.
#include <doctest/doctest.h>

#include <sched.h>

#include <cstring>

#include "kernels/shmem/order.hpp"
#include "shmem/transport/proxy/notice.hpp"
#include "tests/cpp/thread_pes.hpp"

using namespace railshmem;
using namespace railshmem::testing;
using device::AtomicOp;
using device::Compare;

namespace {

template <class T>
T* symmetric(Runtime& runtime, std::size_t count) {
  T* memory = static_cast<T*>(runtime.malloc(count * sizeof(T)));
  std::memset(memory, 0, count * sizeof(T));
  runtime.barrier_all();
  return memory;
}

// Threads made in its scope share one core.
class OneCore {
 public:
  OneCore() {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &before_)) {
        CPU_SET(core, &one);
        break;
      }
    sched_setaffinity(0, sizeof one, &one);
  }
  ~OneCore() { sched_setaffinity(0, sizeof before_, &before_); }
  OneCore(const OneCore&) = delete;
  OneCore& operator=(const OneCore&) = delete;

 private:
  cpu_set_t before_;
};

}  // namespace

TEST_CASE("a ring of 64 takes 10,000 puts from each of 64 producers, all on one core") {
  // A ring of 1,024 slots stalled at 4,096 tokens elsewhere and was "fixed" by 65,536 slots.
  const OneCore one_core;
  CHECK_NOTHROW(
      run_pes(2, {{"RAILSHMEM_NODES", "2"}, {"RAILSHMEM_RING", "64"}}, [](Runtime& runtime) {
        constexpr uint64_t kEach = 10000;
        constexpr uint32_t kProducers = 64;
        auto* words = symmetric<uint64_t>(runtime, kEach * kProducers);
        const device::DeviceContext* ctx = &runtime.context();
        if (ctx->pe == 0)
          runtime.launch(kProducers, [&] {
            uint64_t* mine = words + arch::block() * kEach;
            for (uint64_t i = 0; i < kEach; ++i)
              if (!device::put_immediate(ctx, mine + i, i + 1, 1)) return;
          });
        runtime.barrier_all();
        if (ctx->pe == 0) {
          if (runtime.statistics().ring_full == 0)
            fail(ErrorKind::argument, "the ring was never full");
          return;
        }
        for (uint64_t i = 0; i < kEach * kProducers; ++i)
          if (words[i] != i % kEach + 1) fail(ErrorKind::argument, "word ", i, " is ", words[i]);
      }));
}

TEST_CASE("threads that wait do the progress thread's work, where NICs do not wake it") {
  CHECK_NOTHROW(run_pes(
      3, {{"RAILSHMEM_NODES", "3"}, {"RAILSHMEM_EMULATED", "wakes=off"}}, [](Runtime& runtime) {
        constexpr uint64_t kEach = 300;
        constexpr uint32_t kThreads = 3;
        const device::DeviceContext* ctx = &runtime.context();
        if (ctx->driver == nullptr) fail(ErrorKind::argument, "nobody helps");
        auto* words = symmetric<uint64_t>(runtime, kThreads * kEach);
        auto* sum = symmetric<uint64_t>(runtime, 1);
        const int peer = (ctx->pe + 1) % ctx->n_pes;
        runtime.launch(kThreads, [&] {
          uint64_t* mine = words + arch::block() * kEach;
          for (uint64_t i = 0; i < kEach; ++i) {
            device::put_immediate(ctx, mine + i, i + 1, peer);
            if (i % 10 == 0 && !device::quiet(ctx, device::all_lanes(ctx))) return;
            uint64_t before = 0;
            device::atomic_fetch<uint64_t>(ctx, AtomicOp::add, sum, 1, 0, peer, &before);
          }
        });
        runtime.barrier_all();
        if (*sum != kThreads * kEach) fail(ErrorKind::argument, "sum ", *sum);
        for (uint64_t i = 0; i < kThreads * kEach; ++i)
          if (words[i] != i % kEach + 1) fail(ErrorKind::argument, "word ", i, " is ", words[i]);
      }));
}

TEST_CASE("messages wait for the peer's receive buffers: 16 of them serve any load") {
  // 128 receive buffers ran out elsewhere: credits, never an assumption.
  CHECK_NOTHROW(run_pes(4, {{"RAILSHMEM_NODES", "4"}, {"RAILSHMEM_EMULATED", "atomics=off"}},
                        [](Runtime& runtime) {
                          constexpr uint64_t kEach = 500;
                          auto* count = symmetric<uint64_t>(runtime, 1);
                          const device::DeviceContext* ctx = &runtime.context();
                          runtime.launch(4, [&] {
                            for (uint64_t i = 0; i < kEach; ++i)
                              if (!device::atomic_update<uint64_t>(ctx, AtomicOp::add, count, 1, 0))
                                return;
                          });
                          runtime.barrier_all();
                          const proxy::Statistics seen = runtime.statistics();
                          if (ctx->pe == 0 && *count != 4 * 4 * kEach)
                            fail(ErrorKind::argument, "count ", *count);
                          if (seen.credit_waits == 0)
                            fail(ErrorKind::argument, "no message waited for a credit");
                          if (seen.rails[0].errors != 0)
                            fail(ErrorKind::argument, "receivers were not ready");
                        }));
}

TEST_CASE("an immediate value is the one at the call, whatever becomes of the variable") {
  // Elsewhere it was sent from a pointer to the stack of the kernel. A queue of 8 makes most wait.
  for (const char* emulated : {"", "ordered=off"})
    CHECK_NOTHROW(run_pes(2,
                          {{"RAILSHMEM_NODES", "2"},
                           {"RAILSHMEM_QUEUE_DEPTH", "8"},
                           {"RAILSHMEM_EMULATED", emulated}},
                          [](Runtime& runtime) {
                            auto* words = symmetric<uint64_t>(runtime, 1000);
                            auto* signals = symmetric<uint64_t>(runtime, 1000);
                            const device::DeviceContext* ctx = &runtime.context();
                            runtime.launch(1, [&] {
                              for (uint64_t i = 0; i < 1000; ++i) {
                                uint64_t value = i + 1;
                                uint64_t announced = i + 2;
                                device::put_immediate(ctx, words + i, value, 1 - ctx->pe,
                                                      device::set_signal(signals + i, announced));
                                value = announced = ~0ull;
                              }
                            });
                            runtime.barrier_all();
                            for (uint64_t i = 0; i < 1000; ++i)
                              if (words[i] != i + 1 || signals[i] != i + 2)
                                fail(ErrorKind::argument, "words of ", i, ": ", words[i], " and ",
                                     signals[i]);
                          }));
}

TEST_CASE("puts reach the PE they are meant for where some peers need no queue pair") {
  // A flat array of queues skipped peers without one elsewhere: posts went to the wrong queue.
  CHECK_NOTHROW(
      run_pes(4, {{"RAILSHMEM_NODES", "2"}, {"RAILSHMEM_RAILS", "2"}, {"RAILSHMEM_LANES", "3"}},
              [](Runtime& runtime) {
                auto* words = symmetric<uint64_t>(runtime, 12);
                const device::DeviceContext* ctx = &runtime.context();
                const auto me = static_cast<uint64_t>(ctx->pe);
                runtime.launch(1, [&] {
                  for (int pe = 0; pe < 4; ++pe)
                    for (uint32_t lane = 0; lane < 3; ++lane)
                      device::put_immediate(ctx, words + me * 3 + lane,
                                            me * 100 + static_cast<uint64_t>(pe) * 10 + lane + 1,
                                            pe, device::no_signal(), lane);
                });
                runtime.barrier_all();
                for (uint64_t from = 0; from < 4; ++from)
                  for (uint64_t lane = 0; lane < 3; ++lane)
                    if (words[from * 3 + lane] != from * 100 + me * 10 + lane + 1)
                      fail(ErrorKind::argument, "from ", from, ": ", words[from * 3 + lane]);
              }));
}

TEST_CASE("a put of a whole warp or block is one command, like that of a thread") {
  // All 64 lanes of a warp posted the same command elsewhere: 64 times the traffic.
  CHECK_NOTHROW(run_pes(2, {{"RAILSHMEM_NODES", "2"}}, [](Runtime& runtime) {
    constexpr uint32_t kBlocks = 4;
    auto* source = symmetric<uint64_t>(runtime, 64);
    auto* words = symmetric<uint64_t>(runtime, 64);
    runtime.default_context().quiet();
    const proxy::Statistics before = runtime.statistics();
    const device::DeviceContext* ctx = &runtime.context();
    const int to = 1 - ctx->pe;
    runtime.launch(kBlocks, [&] {
      device::put<arch::Scope::thread>(ctx, words, source, 512, to);
      device::put<arch::Scope::warp>(ctx, words, source, 512, to);
      device::put<arch::Scope::block>(ctx, words, source, 512, to);
      device::quiet<arch::Scope::block>(ctx);
    });
    const proxy::Statistics after = runtime.statistics();
    const auto lane = static_cast<std::size_t>(to) * ctx->lane_stride;
    const uint64_t commands = after.lanes[lane].commands - before.lanes[lane].commands;
    const uint64_t bytes = after.rails[0].bytes - before.rails[0].bytes;
    if (commands != 3 * kBlocks || bytes != 3 * kBlocks * 512)
      fail(ErrorKind::argument, commands, " commands, ", bytes, " bytes");
    runtime.barrier_all();
  }));
}

TEST_CASE("the counts say what was done, and an idle progress thread rings nothing and sleeps") {
  // Looking at queues before there was work crashed a driver elsewhere, and 64 threads that spin
  // are 64 cores less.
  CHECK_NOTHROW(run_pes(2, {{"RAILSHMEM_NODES", "2"}}, [](Runtime& runtime) {
    auto* words = symmetric<uint64_t>(runtime, 100);
    runtime.default_context().quiet();
    const proxy::Statistics before = runtime.statistics();
    const device::DeviceContext* ctx = &runtime.context();
    const int to = 1 - ctx->pe;
    runtime.launch(1, [&] {
      for (uint64_t i = 0; i < 100; ++i) device::put_immediate(ctx, words + i, i, to);
      device::quiet(ctx);
    });
    const proxy::Statistics after = runtime.statistics();
    const auto lane = static_cast<std::size_t>(to) * ctx->lane_stride;
    const auto require = [](bool holds, const char* what) {
      if (!holds) fail(ErrorKind::argument, what);
    };
    require(after.lanes[lane].pe == to && after.lanes[lane].lane == 0, "another lane");
    require(after.lanes[lane].commands - before.lanes[lane].commands == 100, "commands");
    require(after.lanes[lane].bytes - before.lanes[lane].bytes == 800, "bytes of the lane");
    require(after.lanes[lane].completed == after.lanes[lane].commands, "completed");
    require(after.rails[0].requests - before.rails[0].requests == 100, "requests");
    require(after.rails[0].bytes - before.rails[0].bytes == 800, "bytes of the rail");
    require(after.rails[0].completions - before.rails[0].completions == 100, "completions");
    const uint64_t rung = after.rails[0].doorbells - before.rails[0].doorbells;
    require(rung >= 1 && rung <= 100, "doorbells");
    require(after.rails[0].errors == 0 && after.failovers == 0, "errors");
    while (runtime.statistics().sleeps == after.sleeps) std::this_thread::yield();
    require(runtime.statistics().rails[0].doorbells == after.rails[0].doorbells,
            "rung for nothing");
    runtime.barrier_all();
  }));
}

TEST_CASE("a notice says which queue pair and how far, also where the count wraps") {
  using proxy::Notice;
  for (const uint64_t first : {uint64_t{0}, (uint64_t{1} << 24) - 3, uint64_t{1} << 24,
                               (uint64_t{1} << 32) - 5, (uint64_t{7} << 40) + (1u << 24) - 1})
    for (const uint64_t ahead : {0u, 1u, 5u, 16384u}) {
      const Notice got = Notice::from(Notice{66, first + ahead, false}.imm());
      CHECK(got.slot == 66);
      CHECK_FALSE(got.refused);
      CHECK(got.executed_from(first) == first + ahead);
    }
  // Less than what is known to be complete: nothing of what is unfinished was executed.
  CHECK(Notice::from(Notice{0, (1u << 24) - 1, false}.imm()).executed_from(uint64_t{1} << 24) ==
        uint64_t{1} << 24);
  CHECK(Notice::from(Notice{127, 5, true}.imm()).refused);
}
