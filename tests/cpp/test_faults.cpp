// What a job sees when its network fails: lost and failed completions, and rails that go down.
#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <string>

#include "kernels/shmem/order.hpp"
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

// The kind of what `call` throws and its text; "nothing" where it throws nothing.
struct Thrown {
  ErrorKind kind = ErrorKind::argument;
  std::string what = "nothing";
  bool says(const std::string& part) const { return what.find(part) != std::string::npos; }
};
Thrown thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return {error.kind(), error.what()};
  }
  return {};
}

void require_says(const Thrown& thrown, ErrorKind kind, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    if (thrown.kind != kind || !thrown.says(part))
      fail(ErrorKind::init, "expected '", part, "' in: ", thrown.what);
}

uint64_t requests_posted(Runtime& runtime) {
  uint64_t all = 0;
  for (const proxy::RailStatistics& rail : runtime.statistics().rails) all += rail.requests;
  return all;
}

// PE 0 of two nodes does `operation` on a symmetric word; the `nth` request that this posts (from
// 1) ends in an error. Returns what the operation and the quiet after it threw; then the job ends.
Thrown error_of_request(uint64_t nth, const std::string& emulated,
                        const std::function<void(Runtime&, uint64_t*)>& operation) {
  Environment environment = {{"RAILSHMEM_NODES", "2"}, {"RAILSHMEM_EMULATED", emulated}};
  const auto prepare = [](Runtime& runtime) {
    auto* word = symmetric<uint64_t>(runtime, 4096);
    runtime.default_context()
        .quiet();  // the barrier's own signal has left, so that requests can be counted
    return word;
  };
  std::atomic<uint64_t> before{0};
  run_pes(2, environment, [&](Runtime& runtime) {
    prepare(runtime);
    if (runtime.my_pe() == 0) before = requests_posted(runtime);
    runtime.barrier_all();
  });
  environment["RAILSHMEM_FAULTS"] = text("pe=0,fail=any@", before + nth);
  Thrown thrown;
  const Thrown ending = thrown_by([&] {
    run_pes(2, environment, [&](Runtime& runtime) {
      uint64_t* word = prepare(runtime);
      if (runtime.my_pe() != 0) {
        wait_until<uint64_t>(runtime, word + 4000, Compare::equal, 1);  // ends with the job
        return;
      }
      thrown = thrown_by([&] {
        operation(runtime, word);
        runtime.default_context().quiet();
      });
      // It stays: nobody may take what was lost for done.
      for (const auto& again : {thrown_by([&] { runtime.default_context().quiet(); }),
                                thrown_by([&] { runtime.default_context().put(word, word, 8, 1); }),
                                thrown_by([&] { runtime.default_context().get(word, word, 8, 1); }),
                                thrown_by([&] { runtime.barrier_all(); })})
        require_says(again, ErrorKind::network, {thrown.what});
      fail(ErrorKind::argument, "the end of the test");
    });
  });
  CHECK_MESSAGE(ending.what == "the end of the test", ending.what);
  return thrown;
}

void check_says(const Thrown& thrown, const std::vector<std::string>& parts) {
  CHECK_MESSAGE(thrown.kind == ErrorKind::network, thrown.what);
  for (const std::string& part : parts) CHECK_MESSAGE(thrown.says(part), thrown.what);
}

}  // namespace

TEST_CASE("an error completion on data, signal, atomic or get, each alone, is raised and named") {
  // Slots of requests that ended in error were never freed elsewhere, and quiet counted them as
  // done.
  const auto put_signal = [](Runtime& runtime, uint64_t* word) {
    runtime.default_context().put_signal(word, word + 1, 800, word + 2048, 7, AtomicOp::set, 1);
  };
  for (const char* emulated : {"", "ordered=off"}) {
    CAPTURE(emulated);
    check_says(error_of_request(1, emulated, put_signal),
               {"PE 0: WRITE of 800 bytes to PE 1, heap offset ", "on rail 0 failed: remote oper"});
    check_says(error_of_request(2, emulated, put_signal),
               {"PE 0: WRITE of 8 bytes to PE 1, heap offset ", "on rail 0 failed: remote oper"});
    check_says(error_of_request(1, emulated,
                                [](Runtime& runtime, uint64_t* word) {
                                  runtime.default_context().atomic_fetch(AtomicOp::add, word, 8, 1,
                                                                         0, 1);
                                }),
               {"PE 0: FETCH_AND_ADD of 8 bytes to PE 1, heap offset ", "on rail 0 failed: "});
    check_says(error_of_request(1, emulated,
                                [](Runtime& runtime, uint64_t* word) {
                                  runtime.default_context().get(word, word + 8, 64, 1);
                                }),
               {"PE 0: READ of 64 bytes to PE 1, heap offset ", "on rail 0 failed: "});
  }
  check_says(error_of_request(1, "atomics=off",
                              [](Runtime& runtime, uint64_t* word) {
                                runtime.default_context().atomic_update(AtomicOp::add, word, 8, 1,
                                                                        1);
                              }),
             {"PE 0: SEND_WITH_IMM of 8 bytes to PE 1, heap offset "});
}

TEST_CASE("a lost completion ends at the deadline: no wait hangs, and none succeeds") {
  // A lost acknowledgement left a transfer in progress for ever.
  const Environment environment = {{"RAILSHMEM_NODES", "2"},
                                   {"RAILSHMEM_TIMEOUT_S", "0.4"},
                                   {"RAILSHMEM_FAULTS", "pe=0,lose=1"}};
  std::atomic<bool> over{false};
  Thrown first;
  Thrown second;
  const Thrown thrown = thrown_by([&] {
    run_pes(2, environment, [&](Runtime& runtime) {
      if (runtime.my_pe() == 1) {
        while (!over) std::this_thread::yield();
        return;
      }
      const device::DeviceContext* ctx = &runtime.context();
      // Not from malloc, whose barrier would be the first to wait.
      auto* word = reinterpret_cast<uint64_t*>(ctx->heap) + 4000;
      first = thrown_by([&] {
        runtime.launch(1, [&] {
          device::put_immediate(ctx, word, uint64_t{5}, 1);
          device::quiet(ctx);
        });
      });
      second = thrown_by([&] { runtime.default_context().quiet(); });
      over = true;
      fail(ErrorKind::argument, "the end of the test");
    });
  });
  for (const Thrown& one : {first, second}) {
    CHECK(one.kind == ErrorKind::timeout);
    for (const char* part : {"PE 0: gave up after 0.4", "quiet: posted commands to complete",
                             "peer PE 1", "rail 0", "expected 1, seen 0"})
      CHECK_MESSAGE(one.says(part), one.what);
  }
  CHECK_MESSAGE(thrown.what == "the end of the test", thrown.what);
}

namespace {

struct Outage {
  std::string emulated;
  std::string lanes;
  std::string faults;
};

// Rounds of data with a signal in a ring of PEs while rails fail: every word of the data must be of
// the round that its signal announces, and no signal goes backwards.
void stream(Runtime& runtime, uint64_t rounds) {
  constexpr std::size_t kWords = 600;  // two pieces
  const device::DeviceContext* ctx = &runtime.context();
  const auto lanes = static_cast<uint64_t>(ctx->n_lanes);
  auto* inbox = symmetric<uint64_t>(runtime, lanes * kWords);
  auto* outbox = symmetric<uint64_t>(runtime, lanes * kWords);
  auto* back = symmetric<uint64_t>(runtime, kWords);
  auto* arrived = symmetric<uint64_t>(runtime, lanes);
  auto* taken = symmetric<uint64_t>(runtime, lanes);
  const int to = (ctx->pe + 1) % ctx->n_pes;
  const int from = (ctx->pe + ctx->n_pes - 1) % ctx->n_pes;
  std::atomic<uint64_t> wrong{0};
  runtime.launch(1, [&] {
    for (uint64_t round = 1; round <= rounds; ++round)
      for (uint32_t lane = 0; lane < lanes; ++lane) {
        uint64_t* out = outbox + lane * kWords;
        uint64_t* in = inbox + lane * kWords;
        // The source may change when what was posted from it is complete.
        if (!device::quiet_lane(ctx, to, lane)) return;
        std::fill(out, out + kWords, round);
        if (!device::put_signal<arch::Scope::thread>(
                ctx, in, out, kWords * 8, device::set_signal(arrived + lane, round), to, lane))
          return;
        uint64_t seen = 0;
        if (!device::wait_until(ctx, arrived + lane, Compare::greater_equal, round, &seen,
                                device::Waiting::signal, from))
          return;
        wrong += seen != round;
        for (std::size_t i = 0; i < kWords; ++i) wrong += in[i] != round;
        if (round % 8 == 0) {
          if (!device::get<arch::Scope::thread>(ctx, back, out, kWords * 8, from, lane)) return;
          wrong += back[0] + 1 < round || back[0] > round + 1;
        }
        // Only what was read may be overwritten.
        if (!device::ring_signal(ctx, device::set_signal(taken + lane, round), from, lane) ||
            !device::wait_for_sequence(ctx, taken + lane, round, device::Waiting::signal, to))
          return;
        wrong += arch::load_acquire(arrived + lane) < round;
      }
    device::quiet(ctx);
  });
  if (wrong != 0) fail(ErrorKind::argument, wrong.load(), " wrong words or signals");
  runtime.barrier_all();
}

}  // namespace

TEST_CASE("a rail goes down in the middle: data and signals arrive over another, in order") {
  for (const Outage& outage : {
           Outage{"", "1", "rail=0@300"},
           Outage{"", "1", "pe=1,rail=0@200"},
           Outage{"", "1", "rail=0@20ms,delay=0.05:300us,reorder=on"},
           Outage{"", "3", "rail=1@300"},
           Outage{"", "2", "pe=0,rail=1@450"},
           Outage{"ordered=off", "1", "rail=0@300"},
           Outage{"ordered=off", "2", "rail=1@20ms,delay=0.05:200us"},
           Outage{"atomics=off", "2", "rail=0@300"},
       })
    for (const int n_pes : {2, 4}) {
      CAPTURE(outage.emulated);
      CAPTURE(outage.faults);
      CAPTURE(n_pes);
      const Environment environment = {{"RAILSHMEM_NODES", std::to_string(n_pes)},
                                       {"RAILSHMEM_RAILS", "2"},
                                       {"RAILSHMEM_CHUNK", "4096"},
                                       {"RAILSHMEM_LANES", outage.lanes},
                                       {"RAILSHMEM_FAULTS", outage.faults},
                                       {"RAILSHMEM_EMULATED", outage.emulated}};
      std::atomic<uint64_t> failovers{0};
      CHECK_NOTHROW(run_pes(n_pes, environment, [&](Runtime& runtime) {
        stream(runtime, 120);
        failovers += runtime.statistics().failovers;
      }));
      const bool by_time = outage.faults.find("ms") != std::string::npos;  // it may come too late
      CHECK((by_time || failovers > 0));
    }
}

TEST_CASE("a lost acknowledgement of one queue pair: nothing is done twice on the new one") {
  // Commands that the peer had executed, repeated, would show the receiver old data and old signals
  // again. Every request in turn is the one whose answer is lost.
  for (uint64_t nth = 1; nth <= 24; ++nth) {
    CAPTURE(nth);
    const Environment environment = {{"RAILSHMEM_NODES", "2"},
                                     {"RAILSHMEM_RAILS", "2"},
                                     {"RAILSHMEM_EMULATED", text("seed=", nth)},
                                     {"RAILSHMEM_FAULTS", text("pe=0,fail=write@", nth, ":retry")}};
    CHECK_NOTHROW(run_pes(2, environment, [](Runtime& runtime) {
      auto* words = symmetric<uint64_t>(runtime, 64);
      const device::DeviceContext* ctx = &runtime.context();
      std::atomic<bool> over{false};
      std::atomic<uint64_t> backwards{0};
      std::thread observer([&] {
        for (uint64_t last = 0; !over;) {
          const uint64_t seen = arch::load_acquire(words);
          backwards += seen < last;
          last = seen;
        }
      });
      if (ctx->pe == 0)
        runtime.launch(1, [&] {
          for (uint64_t i = 1; i <= 40; ++i)
            device::put_immediate(ctx, words + i, i, 1, device::set_signal(words, i));
          device::quiet(ctx);
        });
      const Thrown thrown = thrown_by([&] { runtime.barrier_all(); });
      over = true;
      observer.join();
      if (thrown.what != "nothing") throw Error(thrown.kind, thrown.what);
      if (backwards != 0) fail(ErrorKind::argument, backwards.load(), " steps back");
      for (uint64_t i = 1; ctx->pe == 1 && i <= 40; ++i)
        if (words[i] != i) fail(ErrorKind::argument, "word ", i, " is ", words[i]);
    }));
  }
}

TEST_CASE("where no other rail joins two PEs, a dead one is an error that names it") {
  for (const char* emulated : {"", "ordered=off"}) {
    CAPTURE(emulated);
    Thrown thrown;
    const Environment environment = {{"RAILSHMEM_NODES", "2"},
                                     {"RAILSHMEM_RAILS", "1"},
                                     {"RAILSHMEM_FAULTS", "pe=0,rail=0@30"},
                                     {"RAILSHMEM_EMULATED", emulated}};
    CHECK_THROWS_AS(run_pes(2, environment,
                            [&](Runtime& runtime) {
                              const Thrown mine = thrown_by([&] { stream(runtime, 100); });
                              if (runtime.my_pe() == 0) thrown = mine;
                              if (mine.what != "nothing") throw Error(mine.kind, mine.what);
                            }),
                    Error);
    check_says(thrown, {"PE 0: WRITE of ", "to PE 1", "on rail 0 failed: peer unreachable",
                        "no other rail joins PE 0 and PE 1"});
  }
}

TEST_CASE("atomics are never repeated: in flight they are lost, later they are refused") {
  for (const char* emulated : {"", "atomics=off"})
    for (const char* fault : {"fail=atomic@1:retry", "fail=send@1:retry"}) {
      const bool by_message = std::string(emulated) == "atomics=off";
      if (by_message != (std::string(fault).find("send") != std::string::npos)) continue;
      CAPTURE(fault);
      const Environment environment = {{"RAILSHMEM_NODES", "2"},
                                       {"RAILSHMEM_RAILS", "2"},
                                       {"RAILSHMEM_EMULATED", emulated},
                                       {"RAILSHMEM_FAULTS", text("pe=0,", fault)}};
      Thrown thrown;
      CHECK_THROWS_AS(run_pes(2, environment,
                              [&](Runtime& runtime) {
                                auto* word = symmetric<uint64_t>(runtime, 1);
                                if (runtime.my_pe() == 1)
                                  wait_until<uint64_t>(runtime, word, Compare::equal, 1000);
                                thrown = thrown_by([&] {
                                  runtime.default_context().atomic_fetch(AtomicOp::add, word, 8, 1,
                                                                         0, 1);
                                });
                                fail(ErrorKind::argument, "the end of the test");
                              }),
                      Error);
      check_says(thrown, {"of 8 bytes to PE 1", "peer unreachable",
                          "may or may not have been executed, and is not repeated"});
    }
}

TEST_CASE("with the home rail down, data still moves and atomics are refused before they leave") {
  for (const char* emulated : {"", "atomics=off"}) {
    CAPTURE(emulated);
    const Environment environment = {{"RAILSHMEM_NODES", "2"},
                                     {"RAILSHMEM_RAILS", "2"},
                                     {"RAILSHMEM_EMULATED", emulated},
                                     {"RAILSHMEM_FAULTS", "rail=0@40"}};
    Thrown thrown;
    uint64_t word_of_1 = 99;
    CHECK_THROWS_AS(run_pes(2, environment,
                            [&](Runtime& runtime) {
                              auto* word = symmetric<uint64_t>(runtime, 1);
                              stream(runtime, 50);
                              if (runtime.my_pe() == 0)
                                thrown = thrown_by([&] {
                                  runtime.default_context().atomic_update(AtomicOp::add, word, 8, 1,
                                                                          1);
                                  runtime.default_context().quiet();
                                });
                              else
                                word_of_1 = *word;
                              if (runtime.my_pe() == 0)
                                fail(ErrorKind::argument, "the end of the test");
                            }),
                    Error);
    check_says(thrown, {"was not sent: rail 0, through which all atomics on the heap of PE 1 go"});
    CHECK(word_of_1 == 0);
  }
}

TEST_CASE("a peer whose end failed for a reason of its own refuses the other rail at once") {
  // PE 0's own mistake ends the queue pair; PE 1 would have waited for its answer until the
  // deadline.
  const Environment environment = {
      {"RAILSHMEM_NODES", "2"}, {"RAILSHMEM_RAILS", "2"}, {"RAILSHMEM_LANES", "2"}};
  Thrown at_1;
  std::atomic<bool> over{false};
  CHECK_THROWS_AS(
      run_pes(2, environment,
              [&](Runtime& runtime) {
                auto* word = symmetric<uint64_t>(runtime, 1);
                const device::DeviceContext* ctx = &runtime.context();
                const auto put_to = [&](uint64_t* to, int pe) {
                  return device::put_immediate(ctx, to, uint64_t{1}, pe, device::no_signal(), 1) &&
                         device::quiet(ctx);
                };
                if (ctx->pe == 0) {
                  const Thrown mine = thrown_by([&] {
                    runtime.launch(1, [&] {
                      put_to(reinterpret_cast<uint64_t*>(ctx->heap + ctx->heap_bytes + 64), 1);
                    });
                  });
                  while (!over) std::this_thread::yield();  // PE 1's loop ends
                  require_says(mine, ErrorKind::network, {"remote access error"});
                  throw Error(mine.kind, mine.what);
                }
                at_1 = thrown_by([&] {
                  runtime.launch(1, [&] {
                    for (int i = 0; i < 1000000 && put_to(word, 0); ++i) std::this_thread::yield();
                  });
                });
                over = true;
              }),
      Error);
  check_says(at_1, {"PE 1: WRITE of 8 bytes to PE 0", "rail 1 failed: peer unreachable"});
  CHECK_FALSE(at_1.says("no other rail"));
}

TEST_CASE("delays and reordered completions change nothing but the time") {
  for (const char* emulated : {"", "ordered=off", "atomics=off"}) {
    CAPTURE(emulated);
    const Environment environment = {{"RAILSHMEM_NODES", "2"},
                                     {"RAILSHMEM_RAILS", "2"},
                                     {"RAILSHMEM_LANES", "2"},
                                     {"RAILSHMEM_EMULATED", emulated},
                                     {"RAILSHMEM_FAULTS", "delay=0.1:100us,reorder=on"}};
    CHECK_NOTHROW(run_pes(4, environment, [](Runtime& runtime) {
      auto* count = symmetric<uint64_t>(runtime, 1);
      stream(runtime, 30);
      for (int i = 0; i < 30; ++i)
        for (int pe = 0; pe < 4; ++pe)
          runtime.default_context().atomic_update(AtomicOp::add, count, 8, 1, pe);
      runtime.barrier_all();
      if (runtime.default_context().atomic_fetch(AtomicOp::fetch, count, 8, 0, 0,
                                                 runtime.my_pe()) != 120)
        fail(ErrorKind::argument, "count is ", *count);
    }));
  }
}
