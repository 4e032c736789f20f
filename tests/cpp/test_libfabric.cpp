// The libfabric provider over this host's loopback: two providers in one process.
#include <doctest/doctest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "shmem/base/error.hpp"
#include "shmem/base/file_descriptor.hpp"
#include "shmem/memory/host_segment.hpp"
#include "shmem/nic/libfabric/address.hpp"
#include "shmem/nic/libfabric/libfabric.hpp"

using namespace railshmem;
using namespace railshmem::nic;

namespace {

template <class Action>
std::string why(const Action& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct Side {
  static constexpr std::size_t kHeapBytes = 4 << 20;

  explicit Side(const LibfabricSettings& settings)
      : heap(HostSegment::create("test heap", kHeapBytes)),
        provider(make_libfabric_provider("lo", settings)),
        nic(*provider->nics().at(0)),
        handle(heap.handle()),
        key(nic.register_memory(heap.data(), kHeapBytes, kAccessRemoteAll, &handle)) {}

  uint64_t at(std::size_t offset) const { return reinterpret_cast<uint64_t>(heap.data()) + offset; }
  template <class T>
  T& word(std::size_t offset) const {
    return *reinterpret_cast<T*>(heap.data() + offset);
  }
  Endpoint& open(uint32_t depth = 64, uint32_t receive_depth = 16) {
    endpoints.push_back(nic.create_endpoint(depth, receive_depth));
    return *endpoints.back();
  }

  HostSegment heap;
  std::unique_ptr<Provider> provider;
  Nic& nic;
  SegmentHandle handle;
  MemoryKey key;
  std::vector<std::unique_ptr<Endpoint>> endpoints;  // after the provider: destroyed first
};

// Two PEs joined by one connection.
struct Pair {
  explicit Pair(const LibfabricSettings& settings = {}, uint32_t depth = 64)
      : a(settings), b(settings), from(&a.open(depth)), to(&b.open(depth)) {
    join(*from, *to);
  }

  void join(Endpoint& at_a, Endpoint& at_b) {
    at_a.connect(b.nic.address(), at_b.address());
    at_b.connect(a.nic.address(), at_a.address());
  }
  WorkRequest request(Opcode op, std::size_t at_a, std::size_t at_b, uint32_t bytes) const {
    WorkRequest out;
    out.op = op;
    out.local = a.at(at_a);
    out.lkey = a.key.lkey;
    out.length = bytes;
    out.remote = b.at(at_b);
    out.rkey = b.key.rkey;
    return out;
  }
  // Drives both until that many came to `side`; every wait has an end.
  std::vector<Completion> complete(Side& side, std::size_t count) {
    for (const auto& endpoint : side.endpoints) endpoint->ring_doorbell();
    std::vector<Completion> out(count);
    std::size_t found = 0;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (found < count && std::chrono::steady_clock::now() < deadline) {
      a.nic.progress();
      b.nic.progress();
      found += side.nic.poll(out.data() + found, count - found);
    }
    REQUIRE_MESSAGE(found == count, "expected ", count, " completions, ", found, " came");
    return out;
  }
  Status run(const WorkRequest& request) {
    REQUIRE(from->post(request));
    return complete(a, 1)[0].status;
  }

  Side a;
  Side b;
  Endpoint* from;
  Endpoint* to;
};

LibfabricSettings manual() {
  LibfabricSettings out;
  out.manual_progress = true;
  return out;
}

void fill(Side& side, std::size_t bytes, uint32_t seed) {
  for (std::size_t i = 0; i < bytes; ++i)
    side.word<uint8_t>(i) = static_cast<uint8_t>((i * 2654435761u + seed) >> 7);
}

}  // namespace

TEST_CASE("libfabric: the loopback is found by its names, and says what it can do") {
  CHECK(why_no_libfabric("lo", {}) == "");
  CHECK(why_no_libfabric("127.0.0.1", {}) == "");
  const auto provider = make_libfabric_provider("lo", {});
  REQUIRE(provider->nics().size() == 1);
  const Nic& nic = *provider->nics()[0];
  CHECK(nic.name() == "lo");
  CHECK(contains(nic.network(), "127.0.0.0/8"));
  CHECK(nic.capabilities().max_inline >= 64);
  CHECK(nic.capabilities().max_send >= 64);
  CHECK(nic.capabilities().max_message >= 1u << 20);
  CHECK_FALSE(nic.capabilities().atomics);
}

TEST_CASE("libfabric: what cannot be used says why in one sentence") {
  CHECK(contains(why_no_libfabric("nosuch0", {}), "takes none of the NICs"));
  LibfabricSettings odd;
  odd.fabric = "nosuch";
  CHECK(contains(why_no_libfabric("", odd), "nosuch"));
  CHECK(contains(why([&] { make_libfabric_provider("", odd); }), "no reliable datagrams"));
}

TEST_CASE("libfabric: WRITE and READ of all sizes are exact, with both kinds of progress") {
  for (const LibfabricSettings& settings : {LibfabricSettings{}, manual()}) {
    Pair pair(settings);
    CHECK(pair.run(pair.request(Opcode::write, 0, 0, 0)) == Status::ok);
    for (const uint32_t bytes : {1u, 8u, 64u, 65u, 4096u, 16384u, 65537u, 1u << 20}) {
      fill(pair.a, bytes, bytes);
      CHECK(pair.run(pair.request(Opcode::write, 0, 1 << 20, bytes)) == Status::ok);
      CHECK(std::memcmp(&pair.a.word<char>(0), &pair.b.word<char>(1 << 20), bytes) == 0);
      CHECK(pair.run(pair.request(Opcode::read, 2 << 20, 1 << 20, bytes)) == Status::ok);
      CHECK(std::memcmp(&pair.a.word<char>(0), &pair.a.word<char>(2 << 20), bytes) == 0);
    }
  }
}

TEST_CASE("libfabric: what is inlined may change after post, and the queue holds what it says") {
  Pair pair({}, 16);
  for (uint64_t round = 0; round < 10; ++round) {
    for (uint64_t i = 0; i < 16; ++i) {
      uint64_t value = round * 100 + i;
      WorkRequest put = pair.request(Opcode::write, 0, i * 8, 8);
      put.inlined = true;
      put.lkey = 0;
      put.local = reinterpret_cast<uint64_t>(&value);
      REQUIRE(pair.from->post(put));
      value = ~uint64_t{0};
    }
    CHECK_FALSE(pair.from->post(pair.request(Opcode::write, 0, 0, 8)));
    const auto got = pair.complete(pair.a, 16);
    for (uint64_t i = 0; i < 16; ++i) {
      CHECK(got[i].index == round * 16 + i);
      CHECK(got[i].status == Status::ok);
      CHECK(pair.b.word<uint64_t>(i * 8) == round * 100 + i);
    }
  }
}

TEST_CASE("libfabric: messages find their endpoint and their buffer, and carry immediates") {
  Pair pair;
  Endpoint& other_a = pair.a.open();
  Endpoint& other_b = pair.b.open();
  pair.join(other_a, other_b);
  REQUIRE(pair.to->post_receive(pair.b.at(0), pair.b.key.lkey, 64));
  REQUIRE(other_b.post_receive(pair.b.at(64), pair.b.key.lkey, 64));
  REQUIRE(other_b.post_receive(0, 0, 0));
  fill(pair.a, 64, 3);
  WorkRequest message = pair.request(Opcode::send_imm, 0, 0, 40);
  message.imm = 0xffffffff;
  REQUIRE(other_a.post(message));
  message.length = 0;
  message.imm = 7;
  REQUIRE(other_a.post(message));
  pair.complete(pair.a, 2);
  const auto got = pair.complete(pair.b, 2);
  for (const Completion& one : got) {
    CHECK(one.received);
    CHECK(one.endpoint == other_b.id());
    CHECK(one.status == Status::ok);
  }
  CHECK(got[0].index == 0);
  CHECK(got[0].bytes == 40);
  CHECK(got[0].imm == 0xffffffff);
  CHECK(got[1].index == 1);
  CHECK(got[1].bytes == 0);
  CHECK(got[1].imm == 7);
  CHECK(std::memcmp(&pair.a.word<char>(0), &pair.b.word<char>(64), 40) == 0);
}

TEST_CASE("libfabric: a message without a buffer waits for one; one too large is an error") {
  Pair pair;
  WorkRequest message = pair.request(Opcode::send_imm, 0, 0, 8);
  message.imm = 1;
  CHECK(pair.run(message) == Status::ok);
  REQUIRE(pair.to->post_receive(pair.b.at(0), pair.b.key.lkey, 8));
  CHECK(pair.complete(pair.b, 1)[0].imm == 1);
  REQUIRE(pair.to->post_receive(pair.b.at(0), pair.b.key.lkey, 7));
  REQUIRE(pair.from->post(message));
  pair.from->ring_doorbell();
  CHECK(pair.complete(pair.b, 1)[0].status == Status::local_length);
}

TEST_CASE("libfabric: local keys and bounds are checked, and the first error ends an endpoint") {
  Pair pair;
  CHECK(pair.run(pair.request(Opcode::write, Side::kHeapBytes - 8, 0, 8)) == Status::ok);
  REQUIRE(pair.from->post(pair.request(Opcode::write, 0, 0, 8)));
  REQUIRE(pair.from->post(pair.request(Opcode::write, Side::kHeapBytes - 7, 0, 8)));
  REQUIRE(pair.from->post(pair.request(Opcode::write, 0, 0, 8)));
  const auto got = pair.complete(pair.a, 3);
  CHECK(got[0].status == Status::ok);
  CHECK(got[1].status == Status::local_protection);
  CHECK(got[2].status == Status::flushed);
  for (int i = 0; i < 200; ++i)
    CHECK(pair.run(pair.request(Opcode::write, 0, 0, 8)) == Status::flushed);
}

TEST_CASE("libfabric: remote keys and bounds are checked") {
  for (const int what : {0, 1, 2}) {
    Pair pair;
    WorkRequest bad = pair.request(Opcode::write, 0, 0, 8);
    if (what == 0) bad.rkey += 1;
    if (what == 1) bad.remote = pair.b.at(Side::kHeapBytes - 7);
    if (what == 2) bad.op = Opcode::read, bad.rkey += 1;
    pair.b.word<uint64_t>(0) = 1;
    const Status status = pair.run(bad);
    const bool told = status == Status::remote_access || status == Status::peer_unreachable;
    CHECK_MESSAGE(told, what);  // a tcp closes the connection
    CHECK(pair.b.word<uint64_t>(0) == 1);
    CHECK(pair.run(pair.request(Opcode::write, 0, 0, 8)) == Status::flushed);
  }
}

TEST_CASE("libfabric: one endpoint's error is no other's") {
  Pair pair;
  Endpoint& other_a = pair.a.open();
  Endpoint& other_b = pair.b.open();
  pair.join(other_a, other_b);
  WorkRequest bad = pair.request(Opcode::write, 0, 0, 8);
  bad.rkey += 1;
  CHECK(pair.run(bad) != Status::ok);
  pair.a.word<uint64_t>(0) = 5;
  REQUIRE(other_a.post(pair.request(Opcode::write, 0, 8, 8)));
  const Completion got = pair.complete(pair.a, 1)[0];
  CHECK(got.endpoint == other_a.id());
  CHECK(got.status == Status::ok);
  CHECK(pair.b.word<uint64_t>(8) == 5);
}

TEST_CASE("libfabric: what no request can say is refused at post") {
  Pair pair;
  const auto refusal = [&](const WorkRequest& request) {
    return why([&] { pair.from->post(request); });
  };
  WorkRequest write = pair.request(Opcode::write, 0, 0, 65);
  write.inlined = true;
  CHECK(contains(refusal(write), "at most 64 bytes can be inlined"));
  CHECK(contains(refusal(pair.request(Opcode::write_imm, 0, 0, 8)), "not offered"));
  CHECK(contains(refusal(pair.request(Opcode::fetch_add, 0, 0, 8)), "not offered"));
  CHECK(contains(refusal(pair.request(Opcode::write, 0, 0, (1u << 30) + 1)), "1 GiB"));
  CHECK(contains(why([&] { pair.from->connect(pair.b.nic.address(), pair.to->address()); }),
                 "already connected"));
  Endpoint& loose = pair.a.open();
  CHECK(contains(why([&] { loose.post(pair.request(Opcode::write, 0, 0, 8)); }), "not connected"));
  CHECK(contains(why([&] { loose.connect(NicAddress{}, EndpointAddress{}); }), "another provider"));
  CHECK(contains(why([&] { pair.a.nic.create_endpoint(12, 8); }), "powers of two"));
  CHECK(contains(why([&] { pair.to->post_receive(pair.b.at(0), 0, 8); }), "registered region"));
}

TEST_CASE("libfabric: shut() flushes, and a peer that has gone is unreachable") {
  Pair pair;
  REQUIRE(pair.from->post(pair.request(Opcode::write, 0, 0, 8)));
  CHECK(pair.from->shut());
  CHECK(pair.complete(pair.a, 1)[0].status == Status::flushed);

  Side gone({});
  Endpoint& end = gone.open();
  Endpoint& mine = pair.a.open();
  mine.connect(gone.nic.address(), end.address());
  WorkRequest put = pair.request(Opcode::write, 0, 0, 8);
  put.remote = gone.at(0);
  put.rkey = gone.key.rkey;
  gone.endpoints.clear();
  gone.provider.reset();
  REQUIRE(mine.post(put));
  CHECK(pair.complete(pair.a, 1)[0].status == Status::peer_unreachable);
}

TEST_CASE("libfabric: regions come and go, and old keys are refused") {
  Side side({});
  for (int i = 0; i < 2000; ++i) {
    const MemoryKey key = side.nic.register_memory(side.heap.data(), 64, kAccessRemoteAll, nullptr);
    REQUIRE(key.lkey != 0);
    REQUIRE(key.rkey != side.key.rkey);
    side.nic.deregister_memory(key);
    CHECK(contains(why([&] { side.nic.deregister_memory(key); }), "no region has the key"));
  }
}

namespace {

void set_loopback(bool up) {
  const FileDescriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request = {};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = static_cast<short>(up ? IFF_UP : 0);
  if (::ioctl(socket.get(), SIOCSIFFLAGS, &request) != 0)
    fail(ErrorKind::init, "lo cannot be set: ", errno_text());
}

void expect(bool so, const char* what) {
  if (!so) fail(ErrorKind::init, "not so: ", what);
}

void lose_the_interface() {
  set_loopback(true);
  Pair pair;
  const WorkRequest put = pair.request(Opcode::write, 0, 0, 8);
  expect(pair.run(put) == Status::ok, "a WRITE over an interface that is up ends well");
  set_loopback(false);
  for (int i = 0; i < 3; ++i)
    expect(pair.from->post(pair.request(Opcode::write, 0, 0, 1 << 20)), "there is room");
  const auto got = pair.complete(pair.a, 3);
  expect(got[0].status == Status::peer_unreachable, "the first is told that nobody answers");
  expect(got[2].status == Status::flushed, "the others are flushed");
  set_loopback(true);
  Endpoint& late = pair.a.open();
  late.connect(pair.b.nic.address(), pair.to->address());
  expect(late.post(put), "there is room in a new endpoint");
  expect(pair.complete(pair.a, 1)[0].status == Status::peer_unreachable, "a dead NIC stays dead");
}

}  // namespace

// In a network of the child's own, whose loopback nobody else needs.
TEST_CASE("libfabric: an interface that goes down fails what is posted, and stays out of use") {
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr int kNotAllowed = 77;
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) std::_Exit(kNotAllowed);
    try {
      lose_the_interface();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      std::_Exit(1);
    }
    std::_Exit(0);
  }
  int status = 0;  // every wait of the child has an end
  REQUIRE(::waitpid(child, &status, 0) == child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
    MESSAGE("not run: no network namespace may be made here");
  else
    CHECK(status == 0);
}
