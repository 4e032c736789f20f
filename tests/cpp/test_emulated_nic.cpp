// What the emulated NIC does when all is well: the effect of every operation, order, wraps, rails.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "emulated_pair.hpp"
#include "kernels/arch/arch.hpp"

using namespace railshmem;
using namespace railshmem::nic;

TEST_CASE("emulated NIC: says what it is") {
  Pair pair;
  CHECK(pair.a.nic.name() == "emu0");
  CHECK(pair.a.nic.rail() == 0);
  const Capabilities& can = pair.a.nic.capabilities();
  CHECK(can.atomics);
  CHECK(can.ordered);
  CHECK(can.device_queues);
  CHECK(can.max_inline == 28);
  CHECK(can.max_send == 44);
  CHECK(can.max_message == 1u << 30);
  const Side other(2, unordered());
  CHECK_FALSE(other.nic.capabilities().ordered);
}

TEST_CASE("emulated NIC: WRITE and READ of every length move exactly those bytes") {
  Pair pair;
  for (uint32_t bytes : {0u, 1u, 2u, 3u, 4u, 7u, 8u, 9u, 28u, 64u, 4096u, 100001u}) {
    for (std::size_t shift : {0u, 1u}) {
      std::memset(pair.b.heap.data(), 0, 200000);
      for (uint32_t i = 0; i < bytes; ++i)
        pair.a.word<uint8_t>(64 + i) = static_cast<uint8_t>(i + 1);
      CHECK(pair.a.run(pair.request(Opcode::write, 64, 64 + shift, bytes)) == Status::ok);
      CHECK(std::memcmp(pair.a.heap.data() + 64, pair.b.heap.data() + 64 + shift, bytes) == 0);
      CHECK(pair.b.word<uint8_t>(63 + shift) == 0);
      CHECK(pair.b.word<uint8_t>(64 + shift + bytes) == 0);

      CHECK(pair.a.run(pair.request(Opcode::read, 300000, 64 + shift, bytes)) == Status::ok);
      CHECK(std::memcmp(pair.a.heap.data() + 64, pair.a.heap.data() + 300000, bytes) == 0);
      CHECK(pair.a.word<uint8_t>(300000 + bytes) == 0);
      std::memset(pair.a.heap.data(), 0, 500000);
    }
  }
}

TEST_CASE("emulated NIC: inline bytes may change after post") {
  Pair pair;
  REQUIRE(pair.a.endpoint->post(pair.put(uint64_t{0x1122334455667788}, 8)));
  pair.values.back() = 0;
  CHECK(pair.a.complete(1)[0].status == Status::ok);
  CHECK(pair.b.word<uint64_t>(8) == 0x1122334455667788);
}

TEST_CASE("emulated NIC: polling finds nothing before any work was posted") {
  // It crashed a driver elsewhere: without work, no completion may be looked for in a queue.
  Side unconnected(0, {});
  Pair pair;
  Completion got;
  for (Nic* nic : {&unconnected.nic, &pair.a.nic, &pair.b.nic}) {
    CHECK(nic->poll(&got, 1) == 0);
    CHECK_FALSE(nic->progress());
    CHECK(nic->poll(&got, 1) == 0);
  }
  CHECK(pair.a.run(pair.put(uint64_t{7}, 0)) == Status::ok);
  CHECK(pair.b.word<uint64_t>(0) == 7);
  CHECK(pair.a.nic.poll(&got, 1) == 0);
}

TEST_CASE("emulated NIC: nothing happens before the doorbell") {
  Pair pair;
  REQUIRE(pair.a.endpoint->post(pair.put(uint32_t{5}, 0)));
  CHECK_FALSE(pair.a.nic.progress());
  CHECK(pair.b.word<uint32_t>(0) == 0);
  CHECK(pair.a.complete(1)[0].status == Status::ok);
  CHECK(pair.b.word<uint32_t>(0) == 5);
}

TEST_CASE("emulated NIC: atomics return what was there") {
  Pair pair;
  pair.b.word<uint64_t>(16) = 40;
  WorkRequest add = pair.request(Opcode::fetch_add, 0, 16, 8);
  add.operand = 2;
  CHECK(pair.a.run(add) == Status::ok);
  CHECK(pair.a.word<uint64_t>(0) == 40);
  CHECK(pair.b.word<uint64_t>(16) == 42);

  WorkRequest swap = pair.request(Opcode::compare_swap, 8, 16, 8);
  swap.compare = 41;
  swap.operand = 7;
  CHECK(pair.a.run(swap) == Status::ok);
  CHECK(pair.a.word<uint64_t>(8) == 42);
  CHECK(pair.b.word<uint64_t>(16) == 42);
  swap.compare = 42;
  CHECK(pair.a.run(swap) == Status::ok);
  CHECK(pair.a.word<uint64_t>(8) == 42);
  CHECK(pair.b.word<uint64_t>(16) == 7);
}

TEST_CASE("emulated NIC: messages and immediates use up receive buffers in order") {
  Pair pair;
  for (std::size_t i = 0; i < 3; ++i)
    REQUIRE(pair.b.endpoint->post_receive(pair.b.at(1000 * i), pair.b.key.lkey, 100));
  std::strcpy(pair.a.heap.data(), "gathered");
  WorkRequest gathered = pair.request(Opcode::send_imm, 0, 0, 9);
  gathered.imm = 1;
  const char text[] = "inside the entry";
  WorkRequest inlined = pair.request(Opcode::send_imm, 0, 0, sizeof text);
  inlined.inlined = true;
  inlined.local = reinterpret_cast<uint64_t>(text);
  inlined.imm = 0xcafef00d;
  WorkRequest written = pair.request(Opcode::write_imm, 0, 5000, 9);
  written.imm = 3;
  for (const WorkRequest& request : {gathered, inlined, written})
    CHECK(pair.a.run(request) == Status::ok);

  const auto got = pair.b.complete(3);
  for (uint64_t i = 0; i < 3; ++i) {
    CHECK(got[i].received);
    CHECK(got[i].status == Status::ok);
    CHECK(got[i].index == i);
    CHECK(got[i].endpoint == pair.b.endpoint->id());
  }
  CHECK(got[0].bytes == 9);
  CHECK(got[0].imm == 1);
  CHECK(got[1].bytes == sizeof text);
  CHECK(got[1].imm == 0xcafef00d);
  CHECK(got[2].bytes == 9);
  CHECK(got[2].imm == 3);
  CHECK(std::string(pair.b.heap.data()) == "gathered");
  CHECK(std::string(pair.b.heap.data() + 1000) == text);
  CHECK(pair.b.word<char>(2000) == 0);  // an immediate leaves its buffer as it is
  CHECK(std::string(pair.b.heap.data() + 5000) == "gathered");
}

TEST_CASE("emulated NIC: a receive queue is used for many laps and refuses when full") {
  Pair pair;
  uint64_t posted = 0;
  while (pair.b.endpoint->post_receive(0, 0, 0)) ++posted;
  CHECK(posted == 16);
  for (uint32_t i = 0; i < 200000; ++i) {
    WorkRequest request = pair.request(Opcode::write_imm, 0, 0, 0);
    request.imm = i;
    REQUIRE(pair.a.run(request) == Status::ok);
    const Completion got = pair.b.complete(1)[0];
    REQUIRE(got.imm == i);
    REQUIRE(got.index == i);
    REQUIRE(pair.b.endpoint->post_receive(0, 0, 0));
  }
  CHECK_FALSE(pair.b.endpoint->post_receive(0, 0, 0));
}

TEST_CASE("emulated NIC: an arrival wakes whoever sleeps") {
  Pair pair;
  REQUIRE(pair.b.endpoint->post_receive(0, 0, 0));
  REQUIRE(pair.b.endpoint->post_receive(0, 0, 0));
  uint32_t* word = pair.b.provider->sleep_word();
  CHECK(pair.a.run(pair.request(Opcode::write_imm, 0, 0, 0)) == Status::ok);
  CHECK(arch::load_relaxed(word) == 0);
  pair.b.complete(1);

  // A real sleeper: it announces itself, looks once more and waits; unless woken it hangs.
  std::thread sleeper([&] {
    Completion got;
    while (pair.b.nic.poll(&got, 1) == 0) {
      arch::store_ordered(word, 1u);
      if (pair.b.nic.poll(&got, 1) != 0) break;
      while (arch::load_acquire(word) == 1)
        syscall(SYS_futex, word, FUTEX_WAIT, 1, nullptr, nullptr, 0);
    }
    arch::store_relaxed(word, 0u);
  });
  CHECK(pair.a.run(pair.request(Opcode::send_imm, 0, 0, 0)) == Status::ok);
  sleeper.join();
}

TEST_CASE("emulated NIC: a full queue refuses until completions are polled") {
  Pair pair({}, 8);
  for (uint64_t i = 0; i < 8; ++i) REQUIRE(pair.a.endpoint->post(pair.put(i, 8 * i)));
  CHECK_FALSE(pair.a.endpoint->post(pair.put(uint64_t{9}, 0)));
  pair.a.endpoint->ring_doorbell();
  CHECK(pair.a.nic.progress());
  CHECK_FALSE(pair.a.endpoint->post(pair.put(uint64_t{9}, 0)));
  CHECK(pair.a.endpoint->completed() == 0);
  Completion got;
  CHECK(pair.a.nic.poll(&got, 1) == 1);
  CHECK(pair.a.endpoint->post(pair.put(uint64_t{9}, 0)));
  pair.a.complete(8);
  CHECK(pair.a.endpoint->posted() == 9);
  CHECK(pair.a.endpoint->completed() == 9);
  CHECK(pair.b.word<uint64_t>(0) == 9);
}

TEST_CASE("emulated NIC: indices of 16 bits wrap unnoticed") {
  for (const uint32_t depth : {8u, 64u}) {
    Pair pair({}, depth);
    uint64_t sent = 0;
    for (uint64_t done = 0; done < 150000;) {
      while (pair.a.endpoint->post(pair.put(sent + 1, 8 * (sent % 8)))) ++sent;
      const auto got = pair.a.complete(3);
      for (const Completion& one : got) {
        REQUIRE(one.status == Status::ok);
        REQUIRE(one.index == done++);
      }
    }
    pair.a.complete(sent - pair.a.endpoint->completed());
    for (uint64_t i = sent - 8; i < sent; ++i) CHECK(pair.b.word<uint64_t>(8 * (i % 8)) == i + 1);
  }
}

TEST_CASE("emulated NIC: a word put after data announces the data") {
  Pair pair;
  constexpr uint64_t kRounds = 2000;
  std::atomic<uint64_t> seen{0};
  std::thread reader([&] {
    for (uint64_t round = 1; round <= kRounds; ++round) {
      while (arch::load_acquire(&pair.b.word<uint64_t>(0)) < round) arch::relax();
      for (std::size_t i = 0; i < 100; ++i)
        if (pair.b.word<uint64_t>(64 + 8 * i) != round) return;
      seen.store(round, std::memory_order_release);  // pairs with the writer's wait
    }
  });
  bool ok = true;
  for (uint64_t round = 1; ok && round <= kRounds; ++round) {
    for (std::size_t i = 0; i < 100; ++i) pair.a.word<uint64_t>(64 + 8 * i) = round;
    REQUIRE(pair.a.endpoint->post(pair.request(Opcode::write, 64, 64, 800)));
    REQUIRE(pair.a.endpoint->post(pair.put(round, 0)));
    pair.a.complete(2);
    arch::Backoff backoff(1000);
    for (int i = 0; i < 100000 && seen.load(std::memory_order_acquire) < round; ++i) backoff.step();
    ok = seen.load() == round;
  }
  CHECK_MESSAGE(ok, "the reader saw the word before the data");
  if (!ok) arch::store_release(&pair.b.word<uint64_t>(0), kRounds);
  reader.join();
}

TEST_CASE("emulated NIC: without order, later WRITEs overtake earlier ones, and all arrive") {
  Pair pair(unordered(7));
  int overtaken = 0;
  for (uint64_t round = 1; round <= 300; ++round) {
    for (std::size_t i = 0; i < 200; ++i)
      pair.a.word<uint8_t>(64 + i) = static_cast<uint8_t>(round + i);
    REQUIRE(pair.a.endpoint->post(pair.request(Opcode::write, 64, 64, 200)));
    REQUIRE(pair.a.endpoint->post(pair.put(round, 0)));
    pair.a.endpoint->ring_doorbell();
    // Watch the words land, before anything has completed.
    for (bool more = true; more;) {
      more = pair.a.nic.progress();
      const bool data = std::memcmp(pair.a.heap.data() + 64, pair.b.heap.data() + 64, 200) == 0;
      if (pair.b.word<uint64_t>(0) == round && !data) ++overtaken;
    }
    const auto got = pair.a.complete(2);
    CHECK(got[0].status == Status::ok);
    CHECK(got[0].index == 2 * (round - 1));
    CHECK(got[1].index == 2 * (round - 1) + 1);
    REQUIRE(std::memcmp(pair.a.heap.data() + 64, pair.b.heap.data() + 64, 200) == 0);
    REQUIRE(pair.b.word<uint64_t>(0) == round);
  }
  CHECK_MESSAGE(overtaken > 50, "the word came before the data ", overtaken, " times");
}

TEST_CASE("emulated NIC: without order, a completion means that all the bytes are there") {
  Pair pair(unordered(3));
  std::vector<uint32_t> lengths;
  for (uint32_t i = 0; i < 2000; ++i) lengths.push_back(1 + i * 7919 % 500);
  for (uint32_t i = 0; i < 512 * 64; ++i) pair.a.word<uint8_t>(i) = static_cast<uint8_t>(i * 31);
  uint64_t posted = 0;
  for (uint64_t done = 0; done < lengths.size();) {
    while (posted < lengths.size()) {
      const std::size_t place = 512 * (posted % 64);
      if (posted - done < 64) std::memset(pair.b.heap.data() + place, 0, 512);
      if (!pair.a.endpoint->post(pair.request(Opcode::write, place, place, lengths[posted]))) break;
      ++posted;
    }
    const Completion got = pair.a.complete(1)[0];
    REQUIRE(got.status == Status::ok);
    REQUIRE(got.index == done);
    const std::size_t place = 512 * (done % 64);
    REQUIRE(std::memcmp(pair.a.heap.data() + place, pair.b.heap.data() + place, lengths[done]) ==
            0);
    ++done;
  }
}

TEST_CASE("emulated NIC: rails are isolated, unless they are said not to be") {
  EmulatedSettings settings;
  const Side a(0, settings, 2);
  const Side b(3, settings, 2);
  Nic& a0 = *a.provider->nics()[0];
  Nic& b1 = *b.provider->nics()[1];
  CHECK(b1.rail() == 1);
  CHECK(b1.name() == "emu1");
  const auto from = a0.create_endpoint(8, 8);
  const auto to = b1.create_endpoint(8, 8);
  const std::string why = error_of([&] { from->connect(b1.address(), to->address()); });
  for (const char* part : {"emu0", "PE 0", "emu1", "PE 3", "rail 1", "rails are isolated"})
    CHECK_MESSAGE(contains(why, part), why);

  settings.isolated = false;
  const Side c(4, settings);
  const auto free = c.nic.create_endpoint(8, 8);
  CHECK(error_of([&] { free->connect(b1.address(), to->address()); }) == "no error");
}

TEST_CASE("emulated NIC: atomics of two initiators through one NIC add up") {
  const EmulatedSettings settings;
  Side target(0, settings);
  constexpr uint64_t kAdds = 20000;
  std::vector<std::unique_ptr<Side>> sides;
  std::vector<std::unique_ptr<Endpoint>> ends;
  for (int pe = 1; pe <= 2; ++pe) {
    sides.push_back(std::make_unique<Side>(pe, settings));
    Side& side = *sides.back();
    side.open();
    ends.push_back(target.nic.create_endpoint(8, 8));
    side.endpoint->connect(target.nic.address(), ends.back()->address());
    ends.back()->connect(side.nic.address(), side.endpoint->address());
  }
  std::vector<std::thread> threads;
  for (const auto& side : sides)
    threads.emplace_back([&target, &side] {
      WorkRequest add;
      add.op = Opcode::fetch_add;
      add.local = side->at(0);
      add.lkey = side->key.lkey;
      add.length = 8;
      add.remote = target.at(8);
      add.rkey = target.key.rkey;
      add.operand = 1;
      uint64_t before = 0;
      for (uint64_t i = 0; i < kAdds; ++i) {
        REQUIRE(side->run(add) == Status::ok);
        REQUIRE(side->word<uint64_t>(0) >= before);
        before = side->word<uint64_t>(0) + 1;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(target.word<uint64_t>(8) == 2 * kAdds);
}

TEST_CASE("emulated NIC: two initiators send to one NIC at once and nothing is lost") {
  const EmulatedSettings settings;
  Side target(0, settings);
  constexpr uint32_t kMessages = 5000;
  std::vector<std::unique_ptr<Side>> sides;
  std::vector<std::unique_ptr<Endpoint>> ends;
  for (int pe = 1; pe <= 2; ++pe) {
    sides.push_back(std::make_unique<Side>(pe, settings));
    sides.back()->open();
    ends.push_back(target.nic.create_endpoint(8, 8));
    sides.back()->endpoint->connect(target.nic.address(), ends.back()->address());
    ends.back()->connect(sides.back()->nic.address(), sides.back()->endpoint->address());
  }
  // Credits: the sender may be ahead of the receiver by as many messages as there are buffers.
  std::atomic<uint32_t> taken[2] = {};
  std::vector<std::thread> threads;
  for (std::size_t which = 0; which < 2; ++which) {
    for (int i = 0; i < 8; ++i)
      REQUIRE(ends[which]->post_receive(target.at(512 * which + 64 * i), target.key.lkey, 64));
    threads.emplace_back([&, which] {
      for (uint32_t i = 0; i < kMessages; ++i) {
        arch::Backoff backoff(100);
        while (i - taken[which].load(std::memory_order_acquire) >= 8) backoff.step();
        WorkRequest message;
        message.op = Opcode::send_imm;
        message.inlined = true;
        message.local = reinterpret_cast<uint64_t>(&i);
        message.length = 4;
        message.imm = i;
        REQUIRE(sides[which]->run(message) == Status::ok);
      }
    });
  }
  uint32_t next[2] = {};
  arch::Backoff backoff(100);
  while (next[0] < kMessages || next[1] < kMessages) {
    Completion got;
    if (target.nic.poll(&got, 1) == 0) {
      backoff.step();
      continue;
    }
    const std::size_t which = got.endpoint == ends[0]->id() ? 0 : 1;
    const std::size_t buffer = 512 * which + 64 * (got.index % 8);
    CHECK(got.imm == next[which]);
    CHECK(target.word<uint32_t>(buffer) == next[which]);
    ++next[which];
    REQUIRE(ends[which]->post_receive(target.at(buffer), target.key.lkey, 64));
    taken[which].store(next[which], std::memory_order_release);  // pairs with the sender's credit
  }
  for (std::thread& thread : threads) thread.join();
}
