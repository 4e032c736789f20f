// Memory that the CPU does not touch: the queue of moves, and emulated NICs and the progress thread
// on top of it. The GPU is played by a thread.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/cpp/emulated_pair.hpp"
#include "tests/cpp/played_gpu.hpp"

using namespace railshmem;
using namespace railshmem::nic;
using device::AtomicOp;
using railshmem::testing::PlayedGpu;

namespace {

struct Told final : MoveQueue::Owner {
  void moved(uint64_t tag, bool well) override {
    tags.push_back(tag);
    all_well = all_well && well;
  }
  std::vector<uint64_t> tags;
  bool all_well = true;
};

template <class Until>
void drive(MoveQueue& queue, const Until& until) {
  for (int idle = 0; !until() && idle < 10'000'000; ++idle)
    if (!queue.progress())
      return;
    else
      std::this_thread::yield();
}
void drive(MoveQueue& queue) {
  drive(queue, [] { return false; });
}

}  // namespace

TEST_CASE("moves: words come after the data before them, and each chain's in its order") {
  PlayedGpu gpu;
  MoveQueue queue(gpu);
  Told a, b;
  std::vector<uint64_t> source(512), target(512), words(4);
  gpu.mark(target.data(), target.size() * 8);
  gpu.mark(words.data(), words.size() * 8);
  for (uint64_t round = 1; round <= 200; ++round) {
    std::fill(source.begin(), source.end(), round);
    const uint64_t after = round;
    REQUIRE(queue.add_copy(a, 0, Order::free, target.data(), source.data(), 4096, false));
    REQUIRE(queue.add_copy(a, 1, Order::after, &words[0], &after, 8, true));
    REQUIRE(queue.add_copy(b, 2, Order::after, &words[1], &after, 8, true));
    REQUIRE(queue.add_atomic(a, 3, AtomicOp::compare_swap, &words[0], 8, round + 1000, round,
                             &words[2]));
    REQUIRE(queue.add_copy(a, 4, Order::after, &words[3], &after, 4, true));
    gpu.hold(round % 2 == 0);
    queue.progress();
    gpu.hold(false);
    // Whoever sees the last word of a chain sees all that came before.
    while (static_cast<uint32_t>(arch::load_acquire(&words[3])) != round) std::this_thread::yield();
    CHECK(arch::load_relaxed(&words[0]) == round + 1000);
    CHECK(arch::load_relaxed(&words[2]) == round);
    CHECK(std::all_of(target.begin(), target.end(), [&](uint64_t v) { return v == round; }));
    drive(queue);
    CHECK(words[1] == round);
  }
  CHECK(a.tags.size() == 200 * 4);
  CHECK(b.tags.size() == 200);
  CHECK((a.all_well && b.all_well));
}

TEST_CASE("moves: what follows a fence is placed after everything before it") {
  PlayedGpu gpu;
  MoveQueue queue(gpu);
  Told owner;
  std::vector<uint64_t> target(64);
  for (uint64_t round = 1; round <= 300; ++round)
    while (!queue.add_copy(owner, round, Order::fence, target.data() + round % 3, &round, 8, true))
      queue.progress();
  drive(queue);
  CHECK(target[0] == 300);
  CHECK(target[1] == 298);
  CHECK(target[2] == 299);
  CHECK(std::is_sorted(owner.tags.begin(), owner.tags.end()));
}

TEST_CASE("moves: while the GPU is busy they gather: thousands need few launches") {
  PlayedGpu gpu;
  MoveQueue queue(gpu);
  Told owner;
  std::vector<uint64_t> target(1000);
  gpu.hold(true);
  for (uint64_t i = 0; i < 1000; ++i) {
    REQUIRE(queue.add_copy(owner, i, Order::free, &target[i], &i, 8, true));
    queue.progress();
  }
  CHECK(gpu.runs() <= 2 + 1000 / 64);
  gpu.hold(false);
  drive(queue);
  for (uint64_t i = 0; i < 1000; ++i) CHECK(target[i] == i);
  CHECK(owner.tags.size() == 1000);
}

TEST_CASE("moves: a queue that is full says so, and every size and alignment arrives") {
  PlayedGpu gpu;
  MoveQueue queue(gpu);
  Told owner;
  gpu.hold(true);
  uint64_t word = 0;
  uint64_t added = 0;
  while (queue.add_copy(owner, added, Order::fence, &word, &added, 8, true)) ++added;
  CHECK(added >= 8);
  gpu.hold(false);
  drive(queue);
  CHECK(word == added - 1);
  CHECK(owner.tags.size() == added);

  std::vector<unsigned char> source(300000), target(300000);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<unsigned char>(i % 251);
  for (const uint32_t bytes :
       {1u, 2u, 3u, 7u, 8u, 9u, 24u, 28u, 4095u, 4097u, 65536u, 65537u, 200001u})
    for (const uint32_t skew : {0u, 1u, 4u}) {
      std::fill(target.begin(), target.end(), static_cast<unsigned char>(255));
      const bool inlined = bytes <= moves::kPayload;
      REQUIRE(
          queue.add_copy(owner, 0, Order::free, &target[skew], &source[skew + 1], bytes, inlined));
      drive(queue);
      CHECK(std::equal(target.begin() + skew, target.begin() + skew + bytes,
                       source.begin() + skew + 1));
      CHECK(target[skew + bytes] == 255);
    }
  CHECK(gpu.copies() > 0);
}

TEST_CASE("moves: a GPU that breaks down fails what was handed to it, and all that follows") {
  for (const bool silent : {false, true}) {
    PlayedGpu gpu;
    MoveQueue queue(gpu);
    Told before, after;
    uint64_t word = 0;
    REQUIRE(queue.add_copy(before, 0, Order::free, &word, &word, 8, true));
    drive(queue);
    gpu.break_down(silent);
    REQUIRE(queue.add_copy(after, 1, Order::free, &word, &word, 8, true));
    drive(queue);
    REQUIRE(queue.add_copy(after, 2, Order::free, &word, &word, 8, true));
    drive(queue);
    CHECK(before.all_well);
    CHECK(after.tags == std::vector<uint64_t>{1, 2});
    CHECK_FALSE(after.all_well);
  }
}

namespace {

// Both heaps' upper halves are GPUs'.
struct GpuPair {
  static constexpr std::size_t kDevice = Side::kHeapBytes / 2;

  explicit GpuPair(const EmulatedSettings& settings = {}, uint32_t depth = 64)
      : queue(gpu), pair(settings, depth, &queue) {
    gpu.mark(pair.a.heap.data() + kDevice, kDevice);
    gpu.mark(pair.b.heap.data() + kDevice, kDevice);
  }
  std::vector<Completion> complete(std::size_t count) {
    pair.a.endpoint->ring_doorbell();
    std::vector<Completion> out(count);
    std::size_t found = 0;
    for (int idle = 0; found < count && idle < 1'000'000; ++idle) {
      pair.a.nic.progress();
      queue.progress();
      const std::size_t more = pair.a.nic.poll(out.data() + found, count - found);
      if (more != 0)
        idle = 0;
      else
        std::this_thread::yield();
      found += more;
    }
    REQUIRE_MESSAGE(found == count, "expected ", count, " completions, ", found, " came");
    return out;
  }
  Status run(const WorkRequest& request) {
    REQUIRE(pair.a.endpoint->post(request));
    return complete(1)[0].status;
  }

  PlayedGpu gpu;
  MoveQueue queue;
  Pair pair;
};

constexpr std::size_t kDevice = GpuPair::kDevice;

}  // namespace

TEST_CASE("emulated NIC on a GPU's memory: WRITE, READ and atomics between all kinds of memory") {
  for (const bool ordered : {true, false}) {
    EmulatedSettings settings;
    settings.ordered = ordered;
    GpuPair on(settings);
    std::vector<char> data(70000);
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i % 251);
    for (const std::size_t from : {std::size_t{0}, kDevice})
      for (const std::size_t to : {std::size_t{0}, kDevice})
        for (const uint32_t bytes : {1u, 8u, 100u, 5000u, 70000u})
          for (const Opcode op : {Opcode::write, Opcode::read}) {
            char* local = on.pair.a.heap.data() + from;
            char* remote = on.pair.b.heap.data() + to;
            std::memset(local, 0, data.size());
            std::memset(remote, 0, data.size());
            std::memcpy(op == Opcode::write ? local : remote, data.data(), bytes);
            REQUIRE(on.run(on.pair.request(op, from, to, bytes)) == Status::ok);
            CHECK(std::memcmp(op == Opcode::write ? remote : local, data.data(), bytes) == 0);
          }
    CHECK(on.gpu.runs() > 0);

    on.pair.b.word<uint64_t>(kDevice) = 5;
    WorkRequest add = on.pair.request(Opcode::fetch_add, 64, kDevice, 8);
    add.operand = 3;
    REQUIRE(on.run(add) == Status::ok);
    CHECK(on.pair.a.word<uint64_t>(64) == 5);
    WorkRequest swap = on.pair.request(Opcode::compare_swap, 64, kDevice, 8);
    swap.operand = 9;
    swap.compare = 8;
    REQUIRE(on.run(swap) == Status::ok);
    CHECK(on.pair.a.word<uint64_t>(64) == 8);
    CHECK(on.pair.b.word<uint64_t>(kDevice) == 9);
  }
}

TEST_CASE("emulated NIC on a GPU's memory: the order of a queue pair is kept") {
  GpuPair on;
  auto& flag = on.pair.b.word<uint64_t>(kDevice + 65536);
  auto& host_flag = on.pair.b.word<uint64_t>(0);
  for (uint64_t round = 1; round <= 100; ++round) {
    for (std::size_t i = 0; i < 512; ++i) on.pair.a.word<uint64_t>(kDevice + i * 8) = round;
    REQUIRE(on.pair.a.endpoint->post(on.pair.request(Opcode::write, kDevice, kDevice, 4096)));
    WorkRequest signal = on.pair.put(round, kDevice + 65536);
    signal.order = Order::after;
    REQUIRE(on.pair.a.endpoint->post(signal));
    REQUIRE(on.pair.a.endpoint->post(on.pair.put(round, 0)));  // to the host's memory
    on.pair.a.endpoint->ring_doorbell();
    while (arch::load_acquire(&host_flag) != round) {
      on.pair.a.nic.progress();
      on.queue.progress();
    }
    CHECK(arch::load_acquire(&flag) == round);
    for (std::size_t i = 0; i < 512; ++i) CHECK(on.pair.b.word<uint64_t>(kDevice + i * 8) == round);
    on.complete(3);
  }
}

TEST_CASE("emulated NIC on a GPU's memory: a READ sees the WRITEs before it") {
  GpuPair on;
  for (uint64_t round = 1; round <= 50; ++round) {
    on.pair.a.word<uint64_t>(kDevice) = round;
    on.pair.a.word<uint64_t>(kDevice + 8192) = round;
    REQUIRE(on.pair.a.endpoint->post(on.pair.request(Opcode::write, kDevice, kDevice, 16)));
    REQUIRE(on.pair.a.endpoint->post(on.pair.request(Opcode::read, kDevice + 4096, kDevice, 16)));
    on.complete(2);
    CHECK(on.pair.a.word<uint64_t>(kDevice + 4096) == round);
  }
}

TEST_CASE("emulated NIC on a GPU's memory: bad keys and bounds are answered as anywhere") {
  GpuPair on;
  WorkRequest beyond = on.pair.request(Opcode::write, kDevice, Side::kHeapBytes - 8, 16);
  CHECK(on.run(beyond) == Status::remote_access);
  GpuPair other;
  WorkRequest wrong = other.pair.request(Opcode::write, kDevice, kDevice, 16);
  wrong.lkey += 1;
  CHECK(other.run(wrong) == Status::local_protection);
}

TEST_CASE("emulated NIC on a GPU's memory: what the GPU cannot do ends the queue pair") {
  for (const bool silent : {false, true}) {
    GpuPair on;
    on.gpu.break_down(silent);
    for (int i = 0; i < 3; ++i)
      REQUIRE(on.pair.a.endpoint->post(on.pair.request(Opcode::write, kDevice, kDevice, 64)));
    const auto seen = on.complete(3);
    CHECK(seen[0].status == Status::local_operation);
    CHECK(seen[2].status == Status::flushed);
  }
}

TEST_CASE("emulated NIC on a GPU's memory: the peer takes its memory back when moves have ended") {
  GpuPair on;
  on.gpu.hold(true);
  REQUIRE(on.pair.a.endpoint->post(on.pair.request(Opcode::write, kDevice, kDevice, 64)));
  on.pair.a.endpoint->ring_doorbell();
  on.pair.a.nic.progress();
  on.queue.progress();
  CHECK_FALSE(on.pair.b.endpoint->shut());
  on.gpu.hold(false);
  on.complete(1);
  CHECK(on.pair.b.endpoint->shut());
  CHECK(on.pair.b.endpoint->executed() == 1);
}

TEST_CASE("emulated NIC on a GPU's memory: the queue learns what is registered and mapped") {
  PlayedGpu gpu;
  MoveQueue queue(gpu);
  {
    Pair pair({}, 64, &queue);
    CHECK(gpu.learned() == 4);  // both heaps, in their owner and in the peer
    pair.a.nic.deregister_memory(pair.a.key);
    CHECK(gpu.learned() == 3);
  }
}
