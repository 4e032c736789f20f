// What every NIC must do, whatever is behind it: the same checks for each provider. A test file
// describes how two PEs of one process get NICs that can reach each other, as a class:
//
//   struct Wire {
//     static std::string absent();      // why there are no such NICs here; empty: there are
//     Provider& provider(int pe);       // of PE 0 and 1; NIC r of both is rail r
//     static constexpr int kRounds;     // of what is repeated: many where the NIC is fast
//     static constexpr bool kIsolated;  // NICs of different rails cannot be connected
//     static constexpr bool kRefusesUnready;  // a message without a buffer ends in an error
//   };
//
// and says NIC_CONFORMANCE(Wire, ...). Settings that make errors come soon (timeouts, retries) are
// the wire's. Every wait ends: see Joined::complete.
#pragma once

#include <doctest/doctest.h>
#include <sched.h>

#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/arch/arch.hpp"
#include "shmem/base/error.hpp"
#include "shmem/nic/nic.hpp"

namespace railshmem::nic::conformance {

constexpr std::size_t kHeapBytes = 4 << 20;
constexpr std::size_t kEnd = kHeapBytes;
constexpr auto kPatience = std::chrono::seconds(60);

// One PE's end of the wire: a heap that is registered, and an endpoint.
struct End {
  End(Nic& its_nic, uint32_t depth, uint32_t receive_depth)
      : nic(its_nic),
        heap(HostSegment::create("conformance heap", kHeapBytes)),
        handle(heap.handle()),
        key(nic.register_memory(heap.data(), kHeapBytes, kAccessRemoteAll, &handle)),
        endpoint(nic.create_endpoint(depth, receive_depth)) {}
  ~End() {
    endpoint.reset();
    nic.deregister_memory(key);
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  uint64_t at(std::size_t offset) const { return reinterpret_cast<uint64_t>(heap.data()) + offset; }
  template <class T>
  T& word(std::size_t offset) const {
    return *reinterpret_cast<T*>(heap.data() + offset);
  }
  void connect(const End& peer) { endpoint->connect(peer.nic.address(), peer.endpoint->address()); }

  Nic& nic;
  HostSegment heap;
  SegmentHandle handle;
  MemoryKey key;
  std::unique_ptr<Endpoint> endpoint;
};

template <class Wire>
struct Joined {
  explicit Joined(uint32_t depth = 64, uint32_t receive_depth = 16)
      : a(*wire.provider(0).nics()[0], depth, receive_depth),
        b(*wire.provider(1).nics()[0], depth, receive_depth) {
    a.connect(b);
    b.connect(a);
  }

  // One round of both PEs' NICs, whose completions wait in `ended`.
  void serve() {
    const auto look = [](End& end, std::deque<Completion>& ended) {
      Completion batch[8];
      end.nic.progress();
      const std::size_t count = end.nic.poll(batch, 8);
      for (std::size_t i = 0; i < count; ++i)
        if (end.endpoint && batch[i].endpoint == end.endpoint->id()) ended.push_back(batch[i]);
    };
    look(a, ended_a);
    look(b, ended_b);
  }

  // Until it is so; false when it took too long.
  bool wait(const std::function<bool()>& so) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!so()) {
      if (std::chrono::steady_clock::now() > end) return false;
      serve();
      sched_yield();
    }
    return true;
  }

  // Rings, and serves until `count` more completions came.
  std::vector<Completion> complete(End& end, std::size_t count) {
    if (end.endpoint) end.endpoint->ring_doorbell();
    auto& ended = &end == &a ? ended_a : ended_b;
    const bool came = wait([&] { return ended.size() >= count; });
    REQUIRE_MESSAGE(came, "expected ", count, " completions, ", ended.size(), " came");
    const auto last = ended.begin() + static_cast<std::ptrdiff_t>(count);
    std::vector<Completion> out(ended.begin(), last);
    ended.erase(ended.begin(), last);
    return out;
  }
  Status run(const WorkRequest& request) {
    REQUIRE(a.endpoint->post(request));
    return complete(a, 1)[0].status;
  }

  // `bytes` from a's heap at `from` to b's (READ: the other way), both sides' keys right.
  WorkRequest request(Opcode op, std::size_t from, std::size_t to, uint32_t bytes) const {
    WorkRequest out;
    out.op = op;
    out.local = a.at(from);
    out.lkey = a.key.lkey;
    out.length = bytes;
    out.remote = b.at(to);
    out.rkey = b.key.rkey;
    return out;
  }
  // An inline WRITE of `value` to offset `to` of b's heap.
  WorkRequest put(uint64_t value, std::size_t to) {
    values.push_back(value);
    WorkRequest out = request(Opcode::write, 0, to, sizeof value);
    out.inlined = true;
    out.local = reinterpret_cast<uint64_t>(&values.back());
    return out;
  }
  WorkRequest message(uint32_t imm, std::size_t from = 0, uint32_t bytes = 0) const {
    WorkRequest out = request(Opcode::send_imm, from, 0, bytes);
    out.imm = imm;
    return out;
  }

  Wire wire;
  End a;
  End b;
  std::deque<uint64_t> values;  // of put(): they do not move
  std::deque<Completion> ended_a;
  std::deque<Completion> ended_b;
};

template <class Wire>
bool is_absent() {
  const std::string why = Wire::absent();
  if (!why.empty()) MESSAGE("not run: ", why);
  return !why.empty();
}

inline std::string error_text(const std::function<void()>& action, ErrorKind kind) {
  try {
    action();
  } catch (const Error& error) {
    CHECK(error.kind() == kind);
    return error.what();
  }
  return "";
}

// A pair for every request, because the first error ends a queue pair.
template <class Wire>
Status status_of(Opcode op, uint32_t bytes,
                 const std::function<void(Joined<Wire>&, WorkRequest&)>& change) {
  Joined<Wire> pair;
  WorkRequest request = pair.request(op, 0, 0, bytes);
  change(pair, request);
  return pair.run(request);
}

}  // namespace railshmem::nic::conformance

namespace {

using namespace railshmem;
using namespace railshmem::nic;
using namespace railshmem::nic::conformance;

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("any NIC: says what it is", Wire, nic_facts) {
  if (is_absent<Wire>()) return;
  Wire wire;
  for (int pe : {0, 1}) {
    REQUIRE_FALSE(wire.provider(pe).nics().empty());
    CHECK(wire.provider(pe).sleep_word() != nullptr);
    for (const auto& nic : wire.provider(pe).nics()) {
      CHECK_FALSE(nic->name().empty());
      CHECK_FALSE(nic->network().empty());
      CHECK(nic->capabilities().max_inline >= 8);
      CHECK(nic->capabilities().max_message >= 1u << 20);
      CHECK(nic->capabilities().max_region >= kHeapBytes);
    }
  }
  CHECK(wire.provider(0).nics()[0]->network() == wire.provider(1).nics()[0]->network());
}

TEST_CASE_TEMPLATE_DEFINE("any NIC: WRITE and READ of every length move exactly those bytes", Wire,
                          nic_lengths) {
  if (is_absent<Wire>()) return;
  Joined<Wire> pair;
  for (uint32_t bytes : {0u, 1u, 3u, 4u, 8u, 9u, 64u, 1024u, 4097u, 100001u, 1u << 20}) {
    const std::size_t shift = bytes % 2;
    const std::size_t back = 2 << 20;
    std::memset(pair.b.heap.data(), 0, bytes + 200);
    for (uint32_t i = 0; i < bytes; ++i)
      pair.a.template word<uint8_t>(64 + i) = static_cast<uint8_t>(i * 7 + 1);
    REQUIRE(pair.run(pair.request(Opcode::write, 64, 64 + shift, bytes)) == Status::ok);
    CHECK(std::memcmp(pair.a.heap.data() + 64, pair.b.heap.data() + 64 + shift, bytes) == 0);
    CHECK(pair.b.template word<uint8_t>(63 + shift) == 0);
    CHECK(pair.b.template word<uint8_t>(64 + shift + bytes) == 0);

    REQUIRE(pair.run(pair.request(Opcode::read, back, 64 + shift, bytes)) == Status::ok);
    CHECK(std::memcmp(pair.a.heap.data() + 64, pair.a.heap.data() + back, bytes) == 0);
    CHECK(pair.a.template word<uint8_t>(back + bytes) == 0);
    std::memset(pair.a.heap.data() + back, 0, bytes);
  }
}

TEST_CASE_TEMPLATE_DEFINE("any NIC: inline bytes may change after post", Wire, nic_inline) {
  if (is_absent<Wire>()) return;
  Joined<Wire> pair;
  const uint32_t most = std::min(pair.a.nic.capabilities().max_inline, 256u);
  std::vector<char> bytes(most);
  WorkRequest request = pair.request(Opcode::write, 0, 0, most);
  request.inlined = true;
  request.lkey = 0;
  request.local = reinterpret_cast<uint64_t>(bytes.data());
  for (uint32_t round = 0; round < 8; ++round) {
    std::memset(bytes.data(), 'a' + static_cast<int>(round), most);
    request.remote = pair.b.at(round * 512);
    REQUIRE(pair.a.endpoint->post(request));
    std::memset(bytes.data(), 0, most);
  }
  for (const Completion& one : pair.complete(pair.a, 8)) CHECK(one.status == Status::ok);
  for (uint32_t round = 0; round < 8; ++round)
    for (uint32_t i : {0u, most - 1})
      CHECK(pair.b.template word<char>(round * 512 + i) == static_cast<char>('a' + round));
}

TEST_CASE_TEMPLATE_DEFINE("any NIC: polling finds nothing where nothing was posted", Wire,
                          nic_nothing) {
  // It crashed a driver elsewhere: without work, no completion may be looked for in a queue.
  if (is_absent<Wire>()) return;
  Joined<Wire> pair;
  const auto unconnected = pair.a.nic.create_endpoint(8, 8);
  Completion got;
  for (Nic* nic : {&pair.a.nic, &pair.b.nic}) {
    CHECK(nic->poll(&got, 1) == 0);
    nic->progress();
    CHECK(nic->poll(&got, 1) == 0);
  }
  CHECK(pair.run(pair.put(7, 0)) == Status::ok);
  CHECK(pair.b.template word<uint64_t>(0) == 7);
  CHECK(pair.a.nic.poll(&got, 1) == 0);
}

TEST_CASE_TEMPLATE_DEFINE("any NIC: atomics return what was there", Wire, nic_atomics) {
  if (is_absent<Wire>()) return;
  Joined<Wire> pair;
  if (!pair.a.nic.capabilities().atomics) {
    MESSAGE("not run: no atomics");
    return;
  }
  pair.b.template word<uint64_t>(16) = 40;
  WorkRequest add = pair.request(Opcode::fetch_add, 0, 16, 8);
  add.operand = 2;
  CHECK(pair.run(add) == Status::ok);
  CHECK(pair.a.template word<uint64_t>(0) == 40);
  CHECK(pair.b.template word<uint64_t>(16) == 42);
  add.operand = ~uint64_t{0};
  CHECK(pair.run(add) == Status::ok);
  CHECK(pair.b.template word<uint64_t>(16) == 41);

  WorkRequest swap = pair.request(Opcode::compare_swap, 8, 16, 8);
  swap.compare = 42;
  swap.operand = 7;
  CHECK(pair.run(swap) == Status::ok);
  CHECK(pair.a.template word<uint64_t>(8) == 41);
  CHECK(pair.b.template word<uint64_t>(16) == 41);
  swap.compare = 41;
  CHECK(pair.run(swap) == Status::ok);
  CHECK(pair.a.template word<uint64_t>(8) == 41);
  CHECK(pair.b.template word<uint64_t>(16) == 7);
}

TEST_CASE_TEMPLATE_DEFINE("any NIC: atomics of a batch each return their own value", Wire,
                          nic_many_atomics) {
  if (is_absent<Wire>()) return;
  Joined<Wire> pair(32);
  if (!pair.a.nic.capabilities().atomics) {
    MESSAGE("not run: no atomics");
    return;
  }
  WorkRequest add = pair.request(Opcode::fetch_add, 0, 0, 8);
  add.operand = 3;
  for (std::size_t i = 0; i < 32; ++i) {
    add.local = pair.a.at(8 * i);
    REQUIRE(pair.a.endpoint->post(add));
  }
  for (const Completion& one : pair.complete(pair.a, 32)) CHECK(one.status == Status::ok);
  for (std::size_t i = 0; i < 32; ++i) CHECK(pair.a.template word<uint64_t>(8 * i) == 3 * i);
  CHECK(pair.b.template word<uint64_t>(0) == 96);
}

TEST_CASE_TEMPLATE_DEFINE("any NIC: messages and immediates use up receive buffers in order", Wire,
                          nic_messages) {
  if (is_absent<Wire>()) return;
  Joined<Wire> pair;
  for (std::size_t i = 0; i < 4; ++i)
    REQUIRE(pair.b.endpoint->post_receive(pair.b.at(1000 * i), pair.b.key.lkey, 100));
  std::strcpy(pair.a.heap.data(), "gathered");
  WorkRequest inlined = pair.message(0xcafef00d, 0, 8);
  const char text[] = "in here";
  inlined.inlined = true;
  inlined.local = reinterpret_cast<uint64_t>(text);
  WorkRequest written = pair.request(Opcode::write_imm, 0, 5000, 9);
  written.imm = 3;
  for (const WorkRequest& request : {pair.message(1, 0, 9), inlined, written, pair.message(4)})
    CHECK(pair.run(request) == Status::ok);

  const auto got = pair.complete(pair.b, 4);
  for (uint64_t i = 0; i < 4; ++i) {
    CHECK(got[i].received);
    CHECK(got[i].status == Status::ok);
    CHECK(got[i].index == i);
    CHECK(got[i].endpoint == pair.b.endpoint->id());
  }
  CHECK(got[0].bytes == 9);
  CHECK(got[0].imm == 1);
  CHECK(got[1].bytes == 8);
  CHECK(got[1].imm == 0xcafef00d);
  CHECK(got[2].bytes == 9);
  CHECK(got[2].imm == 3);
  CHECK(got[3].bytes == 0);
  CHECK(got[3].imm == 4);
  CHECK(std::string(pair.b.heap.data()) == "gathered");
  CHECK(std::string(pair.b.heap.data() + 1000) == text);
  CHECK(pair.b.template word<char>(2000) == 0);  // an immediate leaves its buffer as it is
  CHECK(std::string(pair.b.heap.data() + 5000) == "gathered");
}

TEST_CASE_TEMPLATE_DEFINE("any NIC: buffers without memory take messages without bytes", Wire,
                          nic_notices) {
  if (is_absent<Wire>()) return;
  Joined<Wire> pair;
  REQUIRE(pair.b.endpoint->post_receive(0, 0, 0));
  REQUIRE(pair.b.endpoint->post_receive(0, 0, 0));
  WorkRequest written = pair.request(Opcode::write_imm, 0, 0, 0);
  written.imm = 9;
  CHECK(pair.run(pair.message(8)) == Status::ok);
  CHECK(pair.run(written) == Status::ok);
  const auto got = pair.complete(pair.b, 2);
  CHECK(got[0].imm == 8);
  CHECK(got[1].imm == 9);
  CHECK(got[1].bytes == 0);
}

TEST_CASE_TEMPLATE_DEFINE("any NIC: a receive queue is used for many laps and refuses when full",
                          Wire, nic_receive_laps) {
  if (is_absent<Wire>()) return;
  Joined<Wire> pair(64, 8);
  uint64_t posted = 0;
  while (posted <= 8 && pair.b.endpoint->post_receive(0, 0, 0)) ++posted;
  CHECK(posted == 8);
  for (uint32_t i = 0; i < static_cast<uint32_t>(Wire::kRounds); ++i) {
    REQUIRE(pair.run(pair.message(i)) == Status::ok);
    const Completion got = pair.complete(pair.b, 1)[0];
    REQUIRE(got.imm == i);
    REQUIRE(got.index == i);
    REQUIRE(pair.b.endpoint->post_receive(0, 0, 0));
  }
  CHECK_FALSE(pair.b.endpoint->post_receive(0, 0, 0));
}

TEST_CASE_TEMPLATE_DEFINE("any NIC: buffers posted before connect are there afterwards", Wire,
                          nic_early_receives) {
  if (is_absent<Wire>()) return;
  Wire wire;
  End a(*wire.provider(0).nics()[0], 8, 8);
  End b(*wire.provider(1).nics()[0], 8, 8);
  for (std::size_t i = 0; i < 3; ++i)
    REQUIRE(b.endpoint->post_receive(b.at(64 * i), b.key.lkey, 64));
  a.connect(b);
  b.connect(a);
  WorkRequest message;
  message.op = Opcode::send_imm;
  message.local = a.at(0);
  message.lkey = a.key.lkey;
  message.length = 8;
  for (uint64_t i = 0; i < 3; ++i) {
    a.word<uint64_t>(0) = 100 + i;
    REQUIRE(a.endpoint->post(message));
    a.endpoint->ring_doorbell();
    std::size_t sent = 0;
    std::size_t arrived = 0;
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (sent + arrived < 2 && std::chrono::steady_clock::now() < end) {
      Completion got;
      for (End* side : {&a, &b}) {
        side->nic.progress();
        if (side->nic.poll(&got, 1) == 0) continue;
        CHECK(got.status == Status::ok);
        ++(got.received ? arrived : sent);
      }
      sched_yield();
    }
    REQUIRE(sent == 1);
    REQUIRE(arrived == 1);
    CHECK(b.word<uint64_t>(64 * i) == 100 + i);
  }
}

TEST_CASE_TEMPLATE_DEFINE("any NIC: a full queue refuses until completions are polled", Wire,
                          nic_full_queue) {
  if (is_absent<Wire>()) return;
  Joined<Wire> pair(8);
  for (uint64_t i = 0; i < 8; ++i) REQUIRE(pair.a.endpoint->post(pair.put(i, 8 * i)));
  CHECK_FALSE(pair.a.endpoint->post(pair.put(9, 0)));
  pair.a.endpoint->ring_doorbell();
  CHECK_FALSE(pair.a.endpoint->post(pair.put(9, 0)));
  CHECK(pair.a.endpoint->completed() == 0);
  CHECK(pair.complete(pair.a, 1)[0].index == 0);
  REQUIRE(pair.a.endpoint->completed() >= 1);
  REQUIRE(pair.a.endpoint->post(pair.put(9, 0)));
  pair.complete(pair.a, 8);
  CHECK(pair.a.endpoint->posted() == 9);
  CHECK(pair.a.endpoint->completed() == 9);
  CHECK(pair.b.template word<uint64_t>(0) == 9);
}

TEST_CASE_TEMPLATE_DEFINE("any NIC: many requests over small queues, each one completion in order",
                          Wire, nic_many) {
  if (is_absent<Wire>()) return;
  for (const uint32_t depth : {2u, 8u, 64u}) {
    Joined<Wire> pair(depth);
    uint64_t sent = 0;
    uint64_t done = 0;
    const auto total = static_cast<uint64_t>(Wire::kRounds);
    while (done < total) {
      // Batches of every size, so that doorbells come at every place of the queue.
      for (uint64_t batch = 1 + sent % (depth + 3); batch > 0 && sent < total; --batch) {
        pair.values.clear();
        if (!pair.a.endpoint->post(pair.put(sent + 1, 8 * (sent % 8)))) break;
        ++sent;
      }
      for (const Completion& one : pair.complete(pair.a, 1)) {
        REQUIRE(one.status == Status::ok);
        REQUIRE_FALSE(one.received);
        REQUIRE(one.index == done++);
      }
    }
    for (uint64_t i = sent - 8; pair.a.nic.capabilities().ordered && i < sent; ++i)
      CHECK(pair.b.template word<uint64_t>(8 * (i % 8)) == i + 1);
  }
}

TEST_CASE_TEMPLATE_DEFINE("any NIC: what is called ordered is", Wire, nic_order) {
  if (is_absent<Wire>()) return;
  Joined<Wire> pair;
  if (!pair.a.nic.capabilities().ordered) {
    MESSAGE("not run: not ordered");
    return;
  }
  constexpr uint32_t kBytes = 20000;
  for (int round = 1; round <= 30; ++round) {
    std::memset(pair.a.heap.data() + 4096, round, kBytes);
    for (uint32_t part = 0; part < 4; ++part)
      REQUIRE(pair.a.endpoint->post(pair.request(Opcode::write, 4096 + part * kBytes / 4,
                                                 4096 + part * kBytes / 4, kBytes / 4)));
    WorkRequest word = pair.put(static_cast<uint64_t>(round), 0);
    word.order = Order::after;
    REQUIRE(pair.a.endpoint->post(word));
    pair.a.endpoint->ring_doorbell();
    // Pairs with the NIC, which places the word last.
    const auto* seen = &pair.b.template word<uint64_t>(0);
    REQUIRE(pair.wait([&] { return arch::load_acquire(seen) == static_cast<uint64_t>(round); }));
    CHECK(pair.b.template word<char>(4096) == static_cast<char>(round));
    CHECK(pair.b.template word<char>(4096 + kBytes - 1) == static_cast<char>(round));
    for (const Completion& one : pair.complete(pair.a, 5)) REQUIRE(one.status == Status::ok);
  }
}

TEST_CASE_TEMPLATE_DEFINE("any NIC: a fenced WRITE comes after the READ before it", Wire,
                          nic_read_write) {
  if (is_absent<Wire>()) return;
  Joined<Wire> pair;
  if (!pair.a.nic.capabilities().ordered) {
    MESSAGE("not run: not ordered");
    return;
  }
  for (uint64_t round = 1; round <= 30; ++round) {
    REQUIRE(pair.a.endpoint->post(pair.request(Opcode::read, 8, 0, 8)));
    WorkRequest next = pair.put(round, 0);
    next.order = Order::fence;
    REQUIRE(pair.a.endpoint->post(next));
    for (const Completion& one : pair.complete(pair.a, 2)) REQUIRE(one.status == Status::ok);
    CHECK(pair.a.template word<uint64_t>(8) == round - 1);
  }
}

TEST_CASE_TEMPLATE_DEFINE("any NIC: keys, bounds and rights are checked on both sides", Wire,
                          nic_bounds) {
  if (is_absent<Wire>()) return;
  using Change = std::function<void(Joined<Wire>&, WorkRequest&)>;
  for (const Opcode op : {Opcode::write, Opcode::read}) {
    const auto status = [&](const Change& change) { return status_of<Wire>(op, 64, change); };
    CHECK(status([](auto& p, WorkRequest& r) { r.remote = p.b.at(kEnd - 64); }) == Status::ok);
    CHECK(status([](auto&, WorkRequest& r) { r.lkey ^= 0x5500; }) == Status::local_protection);
    CHECK(status([](auto& p, WorkRequest& r) { r.local = p.a.at(kEnd - 63); }) ==
          Status::local_protection);
    CHECK(status([](auto&, WorkRequest& r) { r.rkey ^= 0x5500; }) == Status::remote_access);
    CHECK(status([](auto& p, WorkRequest& r) { r.remote = p.b.at(kEnd - 63); }) ==
          Status::remote_access);
    CHECK(status([](auto&, WorkRequest& r) { --r.remote; }) == Status::remote_access);

    Joined<Wire> pair;
    const uint32_t other = op == Opcode::write ? kAccessRemoteRead : kAccessRemoteWrite;
    const MemoryKey less =
        pair.b.nic.register_memory(pair.b.heap.data(), 4096, other, &pair.b.handle);
    WorkRequest request = pair.request(op, 0, 0, 64);
    request.rkey = less.rkey;
    CHECK(pair.run(request) == Status::remote_access);
    pair.b.nic.deregister_memory(less);
  }
}

TEST_CASE_TEMPLATE_DEFINE("any NIC: a key is of no use after deregistration", Wire, nic_stale_key) {
  if (is_absent<Wire>()) return;
  Joined<Wire> pair;
  const MemoryKey key =
      pair.b.nic.register_memory(pair.b.heap.data(), 4096, kAccessRemoteAll, &pair.b.handle);
  WorkRequest request = pair.put(1, 0);
  request.rkey = key.rkey;
  CHECK(pair.run(request) == Status::ok);
  pair.b.nic.deregister_memory(key);
  request.order = Order::free;
  CHECK(pair.run(request) == Status::remote_access);
}

TEST_CASE_TEMPLATE_DEFINE("any NIC: the first error ends a queue pair, and nothing is lost", Wire,
                          nic_flush) {
  if (is_absent<Wire>()) return;
  Joined<Wire> pair;
  for (uint64_t i = 0; i < 12; ++i) {
    WorkRequest request = pair.put(i + 1, 8 * i);
    if (i == 4) request.rkey ^= 0x5500;
    REQUIRE(pair.a.endpoint->post(request));
  }
  const auto got = pair.complete(pair.a, 12);
  for (uint64_t i = 0; i < 12; ++i) {
    CHECK(got[i].index == i);
    const Status expected = i < 4 ? Status::ok : i == 4 ? Status::remote_access : Status::flushed;
    CHECK(got[i].status == expected);
    // Without order later ones may be under way already.
    if (i < 4 || pair.a.nic.capabilities().ordered)
      CHECK(pair.b.template word<uint64_t>(8 * i) == (i < 4 ? i + 1 : 0));
  }
  // Later ones too, for as long as anybody posts.
  for (int lap = 0; lap < 3; ++lap) {
    for (uint64_t i = 0; i < 40; ++i) REQUIRE(pair.a.endpoint->post(pair.put(1, 0)));
    for (const Completion& one : pair.complete(pair.a, 40)) CHECK(one.status == Status::flushed);
  }
  CHECK(pair.a.endpoint->posted() == pair.a.endpoint->completed());
}

TEST_CASE_TEMPLATE_DEFINE("any NIC: one endpoint's error is no other's", Wire, nic_others) {
  if (is_absent<Wire>()) return;
  Joined<Wire> pair;
  const auto from = pair.a.nic.create_endpoint(8, 8);
  const auto to = pair.b.nic.create_endpoint(8, 8);
  from->connect(pair.b.nic.address(), to->address());
  to->connect(pair.a.nic.address(), from->address());
  CHECK(from->id() != pair.a.endpoint->id());
  WorkRequest bad = pair.put(1, 0);
  bad.rkey ^= 0x5500;
  REQUIRE(from->post(bad));
  from->ring_doorbell();
  Completion got;
  got.endpoint = pair.a.endpoint->id();
  const bool came = pair.wait([&] { return pair.a.nic.poll(&got, 1) != 0; });
  // serve() of the wait drops what is of other endpoints: either saw it.
  if (came && got.endpoint == from->id()) CHECK(got.status == Status::remote_access);
  CHECK(pair.run(pair.put(5, 8)) == Status::ok);
  CHECK(pair.b.template word<uint64_t>(8) == 5);
}

TEST_CASE_TEMPLATE_DEFINE("any NIC: a peer that has gone is unreachable", Wire, nic_gone) {
  if (is_absent<Wire>()) return;
  Joined<Wire> pair;
  CHECK(pair.run(pair.put(1, 0)) == Status::ok);
  pair.b.endpoint.reset();
  CHECK(pair.run(pair.put(2, 0)) == Status::peer_unreachable);
  CHECK(pair.run(pair.put(3, 0)) == Status::flushed);
  CHECK(pair.b.template word<uint64_t>(0) == 1);
}

TEST_CASE_TEMPLATE_DEFINE("any NIC: after shut nothing of the peer is let in", Wire, nic_shut) {
  if (is_absent<Wire>()) return;
  Joined<Wire> pair;
  for (uint64_t i = 0; i < 3; ++i) CHECK(pair.run(pair.put(1, 0)) == Status::ok);
  REQUIRE(pair.wait([&] { return pair.b.endpoint->shut(); }));
  CHECK(pair.b.endpoint->shut());
  if (pair.b.nic.capabilities().counts) CHECK(pair.b.endpoint->executed() == 3);
  if (!pair.b.nic.capabilities().counts) CHECK(pair.b.endpoint->executed() == 0);
  if (pair.b.nic.capabilities().shuts) {
    CHECK(pair.run(pair.put(2, 0)) == Status::peer_unreachable);
    CHECK(pair.b.template word<uint64_t>(0) == 1);
  }
  // What the end that was shut posts is flushed.
  WorkRequest own = pair.put(3, 0);
  own.remote = pair.a.at(0);
  own.rkey = pair.a.key.rkey;
  REQUIRE(pair.b.endpoint->post(own));
  CHECK(pair.complete(pair.b, 1)[0].status == Status::flushed);
}

TEST_CASE_TEMPLATE_DEFINE("any NIC: shut flushes what is posted", Wire, nic_shut_posted) {
  if (is_absent<Wire>()) return;
  Joined<Wire> pair;
  for (uint64_t i = 0; i < 5; ++i) REQUIRE(pair.a.endpoint->post(pair.put(1, 0)));
  REQUIRE(pair.wait([&] { return pair.a.endpoint->shut(); }));
  for (const Completion& one : pair.complete(pair.a, 5)) CHECK(one.status == Status::flushed);
}

TEST_CASE_TEMPLATE_DEFINE("any NIC: a message without a buffer finds the receiver not ready", Wire,
                          nic_unready) {
  if (is_absent<Wire>() || !Wire::kRefusesUnready) return;
  Joined<Wire> pair;
  CHECK(pair.run(pair.message(1)) == Status::receiver_not_ready);
}

TEST_CASE_TEMPLATE_DEFINE("any NIC: a message larger than its buffer is an error of both", Wire,
                          nic_too_large) {
  if (is_absent<Wire>()) return;
  Joined<Wire> pair;
  REQUIRE(pair.b.endpoint->post_receive(pair.b.at(0), pair.b.key.lkey, 16));
  CHECK(pair.run(pair.message(1, 0, 64)) == Status::remote_operation);
  CHECK(pair.b.template word<char>(16) == 0);
}

TEST_CASE_TEMPLATE_DEFINE("any NIC: a misaligned atomic is refused", Wire, nic_misaligned) {
  if (is_absent<Wire>()) return;
  Joined<Wire> pair;
  if (!pair.a.nic.capabilities().atomics) {
    MESSAGE("not run: no atomics");
    return;
  }
  WorkRequest add = pair.request(Opcode::fetch_add, 0, 20, 8);
  add.operand = 1;
  CHECK(pair.run(add) == Status::remote_operation);
}

TEST_CASE_TEMPLATE_DEFINE("any NIC: what no entry can say is refused before anything is done", Wire,
                          nic_refuses) {
  if (is_absent<Wire>()) return;
  Joined<Wire> pair;
  const auto refused = [&](const WorkRequest& request) {
    return !error_text([&] { pair.a.endpoint->post(request); }, ErrorKind::argument).empty();
  };
  CHECK(refused(pair.request(Opcode::fetch_add, 0, 0, 4)));
  CHECK(refused(pair.request(Opcode::compare_swap, 0, 0, 16)));
  WorkRequest large = pair.put(0, 0);
  large.length = pair.a.nic.capabilities().max_inline + 1;
  CHECK(refused(large));
  WorkRequest inlined_read = pair.request(Opcode::read, 0, 0, 8);
  inlined_read.inlined = true;
  CHECK(refused(inlined_read));
  CHECK(pair.a.endpoint->posted() == 0);
  const auto unconnected = pair.a.nic.create_endpoint(8, 8);
  const std::string why =
      error_text([&] { unconnected->post(pair.put(0, 0)); }, ErrorKind::argument);
  CHECK_MESSAGE(why.find("not connected") != std::string::npos, why);
}

TEST_CASE_TEMPLATE_DEFINE("any NIC: rails that are isolated do not connect", Wire, nic_isolated) {
  if (is_absent<Wire>() || !Wire::kIsolated) return;
  Wire wire;
  REQUIRE(wire.provider(0).nics().size() > 1);
  End a(*wire.provider(0).nics()[0], 8, 8);
  End b(*wire.provider(1).nics()[1], 8, 8);
  const std::string why = error_text([&] { a.connect(b); }, ErrorKind::init);
  CHECK_MESSAGE(why.find(a.nic.name()) != std::string::npos, why);
  CHECK_MESSAGE(why.find(b.nic.name()) != std::string::npos, why);
}

TEST_CASE_TEMPLATE_DEFINE("any NIC: both rails of a PE work at once", Wire, nic_two_rails) {
  if (is_absent<Wire>()) return;
  Wire wire;
  if (wire.provider(0).nics().size() < 2) {
    MESSAGE("not run: one rail");
    return;
  }
  std::deque<End> ends;
  for (std::size_t rail : {0u, 1u})
    for (int pe : {0, 1}) ends.emplace_back(*wire.provider(pe).nics()[rail], 8u, 8u);
  for (std::size_t i : {0u, 2u}) {
    ends[i].connect(ends[i + 1]);
    ends[i + 1].connect(ends[i]);
  }
  for (std::size_t i : {0u, 2u}) {
    ends[i].word<uint64_t>(0) = 10 + i;
    WorkRequest write;
    write.local = ends[i].at(0);
    write.lkey = ends[i].key.lkey;
    write.length = 8;
    write.remote = ends[i + 1].at(8);
    write.rkey = ends[i + 1].key.rkey;
    REQUIRE(ends[i].endpoint->post(write));
    ends[i].endpoint->ring_doorbell();
  }
  std::size_t done = 0;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (done < 2 && std::chrono::steady_clock::now() < end) {
    for (End& one : ends) {
      Completion got;
      one.nic.progress();
      if (one.nic.poll(&got, 1) == 0) continue;
      CHECK(got.status == Status::ok);
      ++done;
    }
    sched_yield();
  }
  REQUIRE(done == 2);
  CHECK(ends[1].word<uint64_t>(8) == 10);
  CHECK(ends[3].word<uint64_t>(8) == 12);
}

#define NIC_CONFORMANCE(...)                                  \
  TEST_CASE_TEMPLATE_INVOKE(nic_facts, __VA_ARGS__);          \
  TEST_CASE_TEMPLATE_INVOKE(nic_lengths, __VA_ARGS__);        \
  TEST_CASE_TEMPLATE_INVOKE(nic_inline, __VA_ARGS__);         \
  TEST_CASE_TEMPLATE_INVOKE(nic_nothing, __VA_ARGS__);        \
  TEST_CASE_TEMPLATE_INVOKE(nic_atomics, __VA_ARGS__);        \
  TEST_CASE_TEMPLATE_INVOKE(nic_many_atomics, __VA_ARGS__);   \
  TEST_CASE_TEMPLATE_INVOKE(nic_messages, __VA_ARGS__);       \
  TEST_CASE_TEMPLATE_INVOKE(nic_notices, __VA_ARGS__);        \
  TEST_CASE_TEMPLATE_INVOKE(nic_receive_laps, __VA_ARGS__);   \
  TEST_CASE_TEMPLATE_INVOKE(nic_early_receives, __VA_ARGS__); \
  TEST_CASE_TEMPLATE_INVOKE(nic_full_queue, __VA_ARGS__);     \
  TEST_CASE_TEMPLATE_INVOKE(nic_many, __VA_ARGS__);           \
  TEST_CASE_TEMPLATE_INVOKE(nic_order, __VA_ARGS__);          \
  TEST_CASE_TEMPLATE_INVOKE(nic_read_write, __VA_ARGS__);     \
  TEST_CASE_TEMPLATE_INVOKE(nic_bounds, __VA_ARGS__);         \
  TEST_CASE_TEMPLATE_INVOKE(nic_stale_key, __VA_ARGS__);      \
  TEST_CASE_TEMPLATE_INVOKE(nic_flush, __VA_ARGS__);          \
  TEST_CASE_TEMPLATE_INVOKE(nic_others, __VA_ARGS__);         \
  TEST_CASE_TEMPLATE_INVOKE(nic_gone, __VA_ARGS__);           \
  TEST_CASE_TEMPLATE_INVOKE(nic_shut, __VA_ARGS__);           \
  TEST_CASE_TEMPLATE_INVOKE(nic_shut_posted, __VA_ARGS__);    \
  TEST_CASE_TEMPLATE_INVOKE(nic_unready, __VA_ARGS__);        \
  TEST_CASE_TEMPLATE_INVOKE(nic_too_large, __VA_ARGS__);      \
  TEST_CASE_TEMPLATE_INVOKE(nic_misaligned, __VA_ARGS__);     \
  TEST_CASE_TEMPLATE_INVOKE(nic_refuses, __VA_ARGS__);        \
  TEST_CASE_TEMPLATE_INVOKE(nic_isolated, __VA_ARGS__);       \
  TEST_CASE_TEMPLATE_INVOKE(nic_two_rails, __VA_ARGS__)
