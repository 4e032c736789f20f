// The command format and the ring, without any NIC: one consumer made by hand.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "kernels/shmem/atomic.hpp"
#include "shmem/transport/proxy/lane_state.hpp"

using namespace railshmem;
using namespace railshmem::device;

namespace {

struct HandMadeRing {
  explicit HandMadeRing(uint32_t shift) : slots(std::size_t{1} << shift) {
    ring = {slots.data(), shift, &tail, &head_seen, &head, &dead, &full_waits, &sleeping};
    ctx.n_pes = 1;
    ctx.n_lanes = 1;
    ctx.lanes = &lane;
    ctx.progress = &progress;
    ctx.rings = &ring;
    ctx.stop = &stop;
    ctx.stop_claim = &stop.stop;
    ctx.job_stop = &stop.stop;
    ctx.timeout_ns = 30'000'000'000ull;
    lane.connected = 1;
  }
  // Starts as if `commands` had gone through already.
  void start_at(uint64_t commands) {
    tail = head = head_seen = commands;
    for (uint64_t i = 0; i < slots.size(); ++i) {
      // The last command each slot held.
      uint64_t last = commands - 1 - (commands - 1 - i) % slots.size();
      write_command(&slots[i], lap_of(last, ring.shift), Command());
    }
  }
  bool take(Command* command) {
    if (!read_command(&slots[head & (slots.size() - 1)], lap_of(head, ring.shift), command))
      return false;
    arch::store_release(&head, head + 1);
    return true;
  }

  std::vector<CommandSlot> slots;
  uint64_t tail = 0, head_seen = 0, head = 0;
  uint32_t dead = 0, sleeping = 0;
  uint64_t full_waits = 0;
  Ring ring = {};
  Lane lane = {};
  LaneProgress progress = {};
  StopRecord stop = {};
  DeviceContext ctx = {};
};

}  // namespace

TEST_CASE("command: every field survives, at its full width") {
  CommandSlot slot = {};
  Command in;
  in.op = CommandOp::atomic;
  in.atomic_op = AtomicOp::bit_xor;
  in.lane = 0xfedc;
  in.pe = 0x7fffffff;
  in.target = 0x123456789abcdef0;
  in.source = ~0ull;
  in.bytes = 0xfedcba9876543210;
  in.signal = 0x0f0f0f0f0f0f0f0f;
  in.value = 0x8000000000000001;
  write_command(&slot, 5, in);
  Command out;
  CHECK_FALSE(read_command(&slot, 4, &out));
  CHECK_FALSE(read_command(&slot, 6, &out));
  REQUIRE(read_command(&slot, 5, &out));
  CHECK(out.op == in.op);
  CHECK(out.atomic_op == in.atomic_op);
  CHECK(out.lane == in.lane);
  CHECK(out.pe == in.pe);
  CHECK(out.target == in.target);
  CHECK(out.source == in.source);
  CHECK(out.bytes == in.bytes);
  CHECK(out.signal == in.signal);
  CHECK(out.value == in.value);
}

TEST_CASE("command: one with a quarter of the previous lap is not yet whole") {
  for (const int quarter : {0, 1, 2, 3}) {
    CommandSlot slot = {};
    write_command(&slot, 9, Command());
    const uint64_t old_tag = tagged(8, 0);
    slot.words[2 * quarter] = old_tag;
    Command out;
    CHECK_FALSE(read_command(&slot, 9, &out));
  }
}

TEST_CASE(
    "ring: four producers and a ring of 4 lose nothing, repeat nothing, and keep each one's "
    "order") {
  HandMadeRing hand(2);
  constexpr uint64_t kEach = 5000;
  constexpr int kProducers = 4;
  std::vector<std::thread> producers;
  for (int producer = 0; producer < kProducers; ++producer)
    producers.emplace_back([&, producer] {
      for (uint64_t i = 0; i < kEach; ++i) {
        Command c;
        c.op = CommandOp::put_immediate;
        c.source = static_cast<uint64_t>(producer) << 32 | i;
        post(&hand.ctx, c);
      }
    });
  uint64_t next[kProducers] = {};
  uint64_t wrong = 0;
  for (uint64_t taken = 0; taken < kEach * kProducers;) {
    Command c;
    if (!hand.take(&c)) {
      std::this_thread::yield();
      continue;
    }
    wrong += next[c.source >> 32]++ != (c.source & 0xffffffff);
    ++taken;
  }
  for (std::thread& producer : producers) producer.join();
  CHECK(wrong == 0);
  CHECK(hand.lane.posted == kEach * kProducers);
}

TEST_CASE("ring: lap numbers and indices survive the wrap of 32 bits") {
  HandMadeRing hand(2);
  hand.start_at((uint64_t{1} << 34) - 6);  // lap numbers pass 2^32 - 1 and 0 during the test
  for (uint64_t i = 0; i < 40; ++i) {
    Command c;
    CHECK_FALSE(hand.take(&c));
    c.op = CommandOp::put_immediate;
    c.source = i;
    REQUIRE(post(&hand.ctx, c));
    REQUIRE(hand.take(&c));
    CHECK(c.source == i);
  }
}

TEST_CASE(
    "ring: a producer that finds no room gives up at its deadline and nothing after it hangs") {
  HandMadeRing hand(2);
  hand.ctx.timeout_ns = 20'000'000;
  for (int i = 0; i < 4; ++i) CHECK(post(&hand.ctx, Command()));
  CHECK_FALSE(post(&hand.ctx, Command()));
  CHECK(hand.stop.stop == static_cast<uint32_t>(Stop::timeout));
  CHECK(hand.stop.report.waiting == Waiting::ring_room);
  CHECK(hand.dead == 1);
  CHECK_FALSE(post(&hand.ctx, Command()));
}

TEST_CASE("quiet: waits for what was posted before it, not for what is posted meanwhile") {
  HandMadeRing hand(4);
  for (int i = 0; i < 3; ++i) CHECK(post(&hand.ctx, Command()));
  hand.progress.completed = 3;
  CHECK(quiet_lane(&hand.ctx, 0, 0));
  CHECK(post(&hand.ctx, Command()));
  hand.ctx.timeout_ns = 20'000'000;
  CHECK_FALSE(quiet_lane(&hand.ctx, 0, 0));
  CHECK(hand.stop.report.waiting == Waiting::quiet);
  CHECK(hand.stop.report.expected == 4);
  CHECK(hand.stop.report.seen == 3);
}

TEST_CASE("quiet: ends beside a thread that never stops posting") {
  // Elsewhere it waited for what was posted later, too.
  HandMadeRing hand(4);
  for (int i = 0; i < 3; ++i) CHECK(post(&hand.ctx, Command()));
  std::atomic<bool> over{false};
  std::thread others([&] {
    Command c;
    while (!over && post(&hand.ctx, Command())) {
      while (hand.take(&c)) continue;
      // The latest is always unfinished.
      arch::store_release(&hand.progress.completed, arch::load_relaxed(&hand.lane.posted) - 1);
    }
  });
  const bool ended = quiet_lane(&hand.ctx, 0, 0);
  const uint64_t completed = arch::load_acquire(&hand.progress.completed);
  over = true;
  others.join();
  CHECK(ended);
  CHECK(completed >= 3);
}

TEST_CASE("quiet: counts that pass 2^16 and 2^32 end it when all is done and no earlier") {
  // Counters of 16 and 32 bits were compared across their wrap elsewhere: quiet returned early, and
  // 8 MB "moved" faster than any wire.
  for (const uint64_t wrap : {uint64_t{1} << 16, uint64_t{1} << 32}) {
    HandMadeRing hand(4);
    hand.start_at(wrap - 3);
    hand.lane.posted = hand.progress.completed = wrap - 3;
    for (int i = 0; i < 6; ++i) REQUIRE(post(&hand.ctx, Command()));
    hand.ctx.timeout_ns = 1'000'000;
    for (const uint64_t done : {wrap - 3, wrap - 1, wrap, wrap + 2}) {
      hand.stop = {};
      hand.progress.completed = done;
      CHECK_FALSE(quiet_lane(&hand.ctx, 0, 0));
      CHECK(hand.stop.report.expected == wrap + 3);
      CHECK(hand.stop.report.seen == done);
    }
    hand.progress.completed = wrap + 3;
    CHECK(quiet_lane(&hand.ctx, 0, 0));
  }
}

TEST_CASE("results: a slot that its waiter gave up is free again once its operation has ended") {
  HandMadeRing hand(2);
  ResultSlot slots[1] = {};
  uint64_t claim = 0;
  uint64_t hint = 0;
  hand.ctx.result_claims = &claim;
  hand.ctx.result_slots = slots;
  hand.ctx.n_result_slots = 1;
  hand.ctx.result_hint = &hint;
  hand.ctx.timeout_ns = 20'000'000;
  uint32_t slot = 9;
  uint64_t value = 0;
  REQUIRE(take_slot(&hand.ctx, &slot));
  CHECK_FALSE(collect_slot(&hand.ctx, slot, 0, &value));  // at its deadline
  hand.stop = {};
  CHECK_FALSE(take_slot(&hand.ctx, &slot));  // the operation may still write it
  hand.stop = {};
  end_slot(slots, 5, true);
  REQUIRE(take_slot(&hand.ctx, &slot));
  end_slot(slots, 6, true);
  CHECK(collect_slot(&hand.ctx, slot, 0, &value));
  CHECK(value == 6);
  // A slot whose operation ended in error stayed taken for ever: after one lap nobody got one.
  for (int lap = 0; lap < 3; ++lap) {
    REQUIRE(take_slot(&hand.ctx, &slot));
    end_slot(slots, 7, false);
    CHECK_FALSE(collect_slot(&hand.ctx, slot, 0, &value));
  }
  CHECK(value == 6);
}

TEST_CASE("results: a slot whose command could not be posted is free at once") {
  // Each time a stop came between claim and post a slot was lost.
  HandMadeRing hand(2);
  ResultSlot slots[1] = {};
  uint64_t claim = 0;
  uint64_t hint = 0;
  hand.ctx.result_claims = &claim;
  hand.ctx.result_slots = slots;
  hand.ctx.n_result_slots = 1;
  hand.ctx.result_hint = &hint;
  hand.ctx.atomics_posted = true;
  uint64_t word = 0;
  uint32_t slot = 9;
  hand.ctx.heap = reinterpret_cast<char*>(&word);
  for (int lap = 0; lap < 3; ++lap) {
    hand.stop.stop = static_cast<uint32_t>(Stop::interrupted);
    CHECK_FALSE(post_fetch<uint64_t>(&hand.ctx, AtomicOp::add, &word, 1, 0, 0, &slot, 0));
    hand.stop.stop = static_cast<uint32_t>(Stop::none);
  }
  uint64_t value = 0;
  REQUIRE(post_fetch<uint64_t>(&hand.ctx, AtomicOp::add, &word, 1, 0, 0, &slot, 0));
  end_slot(slots, 8, true);
  CHECK(collect_slot(&hand.ctx, slot, 0, &value));
  CHECK(value == 8);
}

TEST_CASE("stop words: producers with words of their own report there and hear from the job") {
  HandMadeRing hand(4);
  uint32_t claim = 0;
  uint32_t job = 0;
  hand.ctx.stop_claim = &claim;
  hand.ctx.job_stop = &job;
  CHECK(post(&hand.ctx, Command()));
  SUBCASE("their own timeout, whose report the host finds and clears") {
    hand.ctx.timeout_ns = 20'000'000;
    CHECK_FALSE(quiet_lane(&hand.ctx, 0, 0));
    CHECK(hand.stop.stop == static_cast<uint32_t>(Stop::timeout));
    CHECK(hand.stop.report.waiting == Waiting::quiet);
    CHECK(job == 0);
    CHECK_FALSE(post(&hand.ctx, Command()));
    claim = 0;
    hand.stop = {};
    CHECK(post(&hand.ctx, Command()));
  }
  SUBCASE("the job's stop ends their waits, and the report stays the job's") {
    job = static_cast<uint32_t>(Stop::aborted);
    CHECK_FALSE(quiet_lane(&hand.ctx, 0, 0));
    CHECK(claim == 0);
    CHECK(hand.stop.stop == 0);
  }
  SUBCASE("what is complete may have failed") {
    hand.progress.completed = 1;
    CHECK(quiet_lane(&hand.ctx, 0, 0));
    job = static_cast<uint32_t>(Stop::network);
    CHECK_FALSE(quiet_lane(&hand.ctx, 0, 0));
  }
}

TEST_CASE("completion window: the prefix moves only when the gap closes") {
  proxy::CompletionWindow window(4);
  for (uint64_t i = 0; i < 4; ++i) CHECK(window.issue() == i);
  CHECK(window.full());
  CHECK(window.finish(2) == 0);
  CHECK(window.finish(1) == 0);
  CHECK(window.full());
  CHECK(window.finish(0) == 3);
  CHECK(window.outstanding() == 1);
  CHECK(window.issue() == 4);
  CHECK(window.finish(4) == 3);
  CHECK(window.finish(3) == 5);
  CHECK(window.outstanding() == 0);
}
