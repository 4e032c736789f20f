// A second ring beside the host's, as a GPU has it: its producers share no word with the consumer
// that both would change, cannot wake it, and have stop words of their own.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "tests/cpp/proxy_pes.hpp"

using namespace railshmem;
using namespace railshmem::testing;
using arch::Scope;
using device::AtomicOp;
using device::Compare;
using device::DeviceContext;
using device::Stop;
using device::Transport;

namespace {

constexpr int kTo = 1;

// Runs the call in `threads` threads, as a grid of so many blocks would.
template <class Call>
void grid(uint32_t threads, const Call& call) {
  std::vector<std::thread> all;
  for (uint32_t thread = 0; thread < threads; ++thread)
    all.emplace_back([&call, thread] { call(thread); });
  for (std::thread& thread : all) thread.join();
}

// A word of another PE, once it holds what is expected.
bool holds(const ProxyPe& pe, const uint64_t* word, uint64_t expected) {
  uint64_t last;
  return device::wait_until(&pe.host, word, Compare::equal, expected, &last);
}

struct World {
  Environment network;
  bool gpu_memory;
};
std::vector<World> all_worlds() {
  std::vector<World> out;
  for (const bool gpu_memory : {false, true})
    for (const char* emulated : {"", "atomics=off", "ordered=off", "ordered=off,atomics=off"})
      out.push_back({{{"RAILSHMEM_EMULATED", emulated}}, gpu_memory});
  return out;
}

}  // namespace

TEST_CASE("device ring: puts, signals, gets, atomics and quiet on every kind of network") {
  for (const World& world : all_worlds()) {
    ProxyPes pes(2, world.network, 64, 16, world.gpu_memory);
    ProxyPe& me = pes[0];
    const DeviceContext* ctx = &me.gpu;
    constexpr uint64_t kBytes = 100000;
    auto* source = me.at<char>(0);
    for (uint64_t i = 0; i < kBytes; ++i) source[i] = static_cast<char>(i % 251);
    uint64_t* signal = me.at<uint64_t>(1 << 20);
    REQUIRE(device::put_signal<Transport::proxy, Scope::thread>(
        ctx, source, source, kBytes, device::add_signal(signal, 3), kTo));
    REQUIRE(holds(pes[kTo], pes[kTo].at<uint64_t>(1 << 20), 3));
    CHECK(std::equal(source, source + kBytes, pes[kTo].at<char>(0)));

    auto* back = me.at<char>(2 << 20);
    REQUIRE(device::get<Transport::proxy, Scope::thread>(ctx, back, source, kBytes, kTo));
    CHECK(std::equal(source, source + kBytes, back));

    uint64_t* count = me.at<uint64_t>((1 << 20) + 64);
    uint32_t* narrow = me.at<uint32_t>((1 << 20) + 128);
    grid(4, [&](uint32_t) {
      for (int i = 0; i < 50; ++i) {
        uint64_t before = 0;
        device::atomic_fetch<uint64_t>(ctx, AtomicOp::add, count, 1, 0, kTo, &before);
        device::atomic_update<uint32_t>(ctx, AtomicOp::add, narrow, 1, kTo);
      }
    });
    REQUIRE(device::quiet(ctx));
    CHECK(*pes[kTo].at<uint64_t>((1 << 20) + 64) == 200);
    CHECK(*pes[kTo].at<uint32_t>((1 << 20) + 128) == 200);
    CHECK_FALSE(device::stopped(ctx));
    CHECK_FALSE(device::stopped(&me.host));
    CHECK((me.played_gpu().runs() > 0) == world.gpu_memory);
    CHECK((pes[kTo].played_gpu().runs() > 0) == world.gpu_memory);  // atomics by message
  }
}

TEST_CASE("device ring: a fence keeps puts before it ahead of puts after it") {
  for (const World& world : all_worlds()) {
    ProxyPes pes(2, world.network, 64, 16, world.gpu_memory);
    ProxyPe& me = pes[0];
    constexpr uint64_t kRounds = 300;
    std::atomic<uint64_t> rounds_read{0};  // what is read is not overwritten meanwhile
    std::thread reader([&] {
      const auto* data = pes[kTo].at<uint64_t>(0);
      const auto* flag = pes[kTo].at<uint64_t>(4096);
      for (uint64_t round = 1; round <= kRounds; ++round) {
        uint64_t last = 0;
        if (!device::wait_until(&pes[kTo].host, flag, Compare::greater_equal, round, &last)) break;
        for (uint64_t i = 0; i < 8; ++i) CHECK(arch::load_relaxed(data + i) >= last);
        rounds_read.store(round, std::memory_order_release);
      }
      rounds_read.store(kRounds, std::memory_order_release);
    });
    auto* source = me.at<uint64_t>(8192);
    for (uint64_t round = 1; round <= kRounds; ++round) {
      while (rounds_read.load(std::memory_order_acquire) + 1 < round) std::this_thread::yield();
      for (uint64_t i = 0; i < 8; ++i) source[(round % 64) * 8 + i] = round;
      device::put<Transport::proxy, Scope::thread>(&me.gpu, me.at<uint64_t>(0),
                                                   source + (round % 64) * 8, 64, kTo);
      device::fence(&me.gpu);
      device::put_immediate<Transport::proxy>(&me.gpu, me.at<uint64_t>(4096), round, kTo);
      if (round % 60 == 0) REQUIRE(device::quiet(&me.gpu));
    }
    REQUIRE(device::quiet(&me.gpu));
    reader.join();
  }
}

TEST_CASE("device ring: a small ring takes any load, and both rings are served and counted") {
  ProxyPes pes(2, {{"RAILSHMEM_LANES", "2"}, {"RAILSHMEM_RAILS", "2"}}, 8);
  ProxyPe& me = pes[0];
  constexpr uint64_t kEach = 2000;
  std::thread host([&] {
    for (uint64_t i = 0; i < kEach; ++i)
      device::put_immediate<Transport::proxy>(&me.host, me.at<uint64_t>(0) + i, i + 1, kTo);
    device::quiet(&me.host);
  });
  grid(4, [&](uint32_t thread) {
    uint64_t* words = me.at<uint64_t>(0) + (thread + 1) * kEach;
    for (uint64_t i = 0; i < kEach; ++i)
      device::put_immediate<Transport::proxy>(&me.gpu, words + i, i + 1, kTo, device::no_signal(),
                                              thread % 2);
  });
  REQUIRE(device::quiet(&me.gpu));
  host.join();
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < 5 * kEach; ++i) wrong += pes[kTo].at<uint64_t>(0)[i] != i % kEach + 1;
  CHECK(wrong == 0);
  const proxy::Statistics seen = me.proxy().statistics();
  CHECK(seen.ring_full > 0);
  uint64_t of_gpu = 0;
  for (const proxy::LaneStatistics& lane : seen.lanes)
    if (lane.pe == kTo && lane.lane >= me.host.lane_stride) of_gpu += lane.completed;
  CHECK(of_gpu == 4 * kEach);
  const auto to = static_cast<std::size_t>(kTo) * me.host.lane_stride;
  CHECK(seen.lanes[to].completed == kEach);
}

TEST_CASE("device ring: what nobody wakes the progress thread for is served all the same") {
  ProxyPes pes(2);
  ProxyPe& me = pes[0];
  const uint64_t before = me.proxy().statistics().sleeps;
  while (me.proxy().statistics().sleeps < before + 3) std::this_thread::yield();
  CHECK(device::put_immediate<Transport::proxy>(&me.gpu, me.at<uint64_t>(0), uint64_t{7}, kTo));
  CHECK(device::quiet(&me.gpu));
  CHECK(*pes[kTo].at<uint64_t>(0) == 7);
}

TEST_CASE("device ring: a kernel's timeout is its own, and a killed ring leaves the host's alone") {
  ProxyPes pes(2, {}, 4);
  ProxyPe& me = pes[0];
  me.gpu.timeout_ns = 20'000'000;
  SUBCASE("a wait for a word") {
    uint64_t last;
    CHECK_FALSE(
        device::wait_until(&me.gpu, me.at<uint64_t>(0), Compare::equal, uint64_t{1}, &last));
  }
  SUBCASE("a full ring that nobody empties") {
    me.proxy().stop();
    for (int i = 0; i < 4; ++i)
      CHECK(device::put_immediate<Transport::proxy>(&me.gpu, me.at<uint64_t>(0), uint64_t{7}, kTo));
    CHECK_FALSE(
        device::put_immediate<Transport::proxy>(&me.gpu, me.at<uint64_t>(0), uint64_t{7}, kTo));
    CHECK(me.gpu_stop.report.waiting == device::Waiting::ring_room);
    CHECK(arch::load_acquire(&me.gpu_ring().words->dead) == 1);
    CHECK(arch::load_acquire(me.host.rings->dead) == 0);
    me.proxy().start();
  }
  CHECK(arch::load_acquire(&me.gpu_stop.stop) == static_cast<uint32_t>(Stop::timeout));
  CHECK(device::stopped(&me.gpu));
  CHECK(arch::load_acquire(&me.stop.stop) == 0);
  CHECK(device::put_immediate<Transport::proxy>(&me.host, me.at<uint64_t>(64), uint64_t{7}, kTo));
  CHECK(device::quiet(&me.host));
}

TEST_CASE("device ring: an error on the network ends kernels' waits by the PE's stop word") {
  ProxyPes pes(2, {{"RAILSHMEM_FAULTS", "pe=0,fail=write@10"}});
  ProxyPe& me = pes[0];
  bool went = true;
  for (uint64_t i = 0; i < 100 && went; ++i)
    went = device::put_immediate<Transport::proxy>(&me.gpu, me.at<uint64_t>(0) + i, i, kTo);
  CHECK_FALSE(device::quiet(&me.gpu));
  CHECK(arch::load_acquire(&me.stop.stop) == static_cast<uint32_t>(Stop::network));
  CHECK(arch::load_acquire(&me.gpu_stop.stop) == 0);
}

TEST_CASE("device ring: results that nobody waits for any more do not reach the next one") {
  ProxyPes pes(2, {}, 64, 1);
  ProxyPe& me = pes[0];
  me.proxy().stop();
  me.gpu.timeout_ns = 5'000'000;
  uint64_t value = 0;
  CHECK_FALSE(device::atomic_fetch<uint64_t>(&me.gpu, AtomicOp::add, me.at<uint64_t>(0), 5, 0, kTo,
                                             &value));
  me.clear_stops();
  me.gpu.timeout_ns = 30'000'000'000;
  me.proxy().start();
  REQUIRE(device::atomic_fetch<uint64_t>(&me.gpu, AtomicOp::add, me.at<uint64_t>(0), 1, 0, kTo,
                                         &value));
  CHECK(value == 5);
}

TEST_CASE("device ring: its lanes go on over another rail when theirs is down") {
  bool gpu_memory = false;
  SUBCASE("host memory") {}
  SUBCASE("GPU memory") {
    gpu_memory = true;
  }
  ProxyPes pes(
      2,
      {{"RAILSHMEM_RAILS", "2"}, {"RAILSHMEM_LANES", "2"}, {"RAILSHMEM_FAULTS", "pe=0,rail=1@300"}},
      64, 16, gpu_memory);
  ProxyPe& me = pes[0];
  constexpr uint64_t kCount = 200;
  for (uint64_t round = 0; round < 10; ++round) {
    for (uint64_t i = 0; i < kCount; ++i)
      for (uint32_t lane = 0; lane < me.gpu.n_lanes; ++lane)
        REQUIRE(device::put_immediate<Transport::proxy>(&me.gpu,
                                                        me.at<uint64_t>(0) + lane * kCount + i,
                                                        round + i, kTo, device::no_signal(), lane));
    REQUIRE(device::quiet(&me.gpu));
    for (uint64_t i = 0; i < kCount * me.gpu.n_lanes; ++i)
      REQUIRE(pes[kTo].at<uint64_t>(0)[i] == round + i % kCount);
  }
  CHECK(me.proxy().statistics().failovers > 0);
  CHECK(arch::load_acquire(&me.stop.stop) == 0);
}
