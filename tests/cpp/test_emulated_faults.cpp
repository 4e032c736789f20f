// What the emulated NIC refuses, and that every request gets its one answer all the same.
#include <doctest/doctest.h>

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "emulated_pair.hpp"
#include "shmem/nic/emulated/address.hpp"
#include "shmem/nic/emulated/emulated_nic.hpp"

using namespace railshmem;
using namespace railshmem::nic;

namespace {

// A pair for every request, because the first error ends a queue pair.
template <class Change>
Status status_of(Opcode op, uint32_t bytes, const Change& change,
                 const EmulatedSettings& settings = {}) {
  Pair pair(settings);
  WorkRequest request = pair.request(op, 0, 0, bytes);
  change(pair, request);
  return pair.a.run(request);
}

constexpr std::size_t kEnd = Side::kHeapBytes;

}  // namespace

TEST_CASE("emulated NIC: keys and bounds are checked on both sides") {
  for (const Opcode op : {Opcode::write, Opcode::read}) {
    for (const EmulatedSettings& settings : {EmulatedSettings(), unordered()}) {
      const auto status = [&](const auto& change) { return status_of(op, 64, change, settings); };
      CHECK(status([](Pair&, WorkRequest&) {}) == Status::ok);
      CHECK(status([](Pair& p, WorkRequest& r) { r.local = p.a.at(kEnd - 64); }) == Status::ok);
      CHECK(status([](Pair& p, WorkRequest& r) { r.remote = p.b.at(kEnd - 64); }) == Status::ok);

      CHECK(status([](Pair&, WorkRequest& r) { r.lkey += 1; }) == Status::local_protection);
      CHECK(status([](Pair&, WorkRequest& r) { r.lkey = 0; }) == Status::local_protection);
      CHECK(status([](Pair&, WorkRequest& r) { r.lkey = ~0u; }) == Status::local_protection);
      CHECK(status([](Pair&, WorkRequest& r) { --r.local; }) == Status::local_protection);
      CHECK(status([](Pair& p, WorkRequest& r) { r.local = p.a.at(kEnd - 63); }) ==
            Status::local_protection);
      CHECK(status([](Pair&, WorkRequest& r) { r.local = ~0ull - 8; }) == Status::local_protection);

      CHECK(status([](Pair&, WorkRequest& r) { r.rkey += 1; }) == Status::remote_access);
      CHECK(status([](Pair&, WorkRequest& r) { r.rkey = 0; }) == Status::remote_access);
      CHECK(status([](Pair&, WorkRequest& r) { r.rkey = ~0u; }) == Status::remote_access);
      CHECK(status([](Pair&, WorkRequest& r) { --r.remote; }) == Status::remote_access);
      CHECK(status([](Pair& p, WorkRequest& r) { r.remote = p.b.at(kEnd - 63); }) ==
            Status::remote_access);
      CHECK(status([](Pair&, WorkRequest& r) { r.remote = ~0ull - 8; }) == Status::remote_access);
    }
  }
}

TEST_CASE("emulated NIC: a region grants what it was registered for, and no more") {
  struct Case {
    Opcode op;
    uint32_t right;
  };
  for (const Case& one : {Case{Opcode::write, kAccessRemoteWrite},
                          {Opcode::read, kAccessRemoteRead},
                          {Opcode::fetch_add, kAccessRemoteAtomic},
                          {Opcode::compare_swap, kAccessRemoteAtomic}}) {
    for (const uint32_t granted : {one.right, kAccessRemoteAll & ~one.right}) {
      const Status got = status_of(one.op, 8, [&](Pair& p, WorkRequest& r) {
        r.rkey = p.b.nic.register_memory(p.b.heap.data(), kEnd, granted, &p.b.handle).rkey;
      });
      CHECK(got == (granted == one.right ? Status::ok : Status::remote_access));
    }
  }
}

TEST_CASE("emulated NIC: a region that starts inside its segment has its own bounds") {
  // Another library put wrong bytes here: region [4160, 8192) of an allocation of 1 MiB.
  Pair pair;
  const MemoryKey key =
      pair.b.nic.register_memory(pair.b.heap.data() + 4160, 4032, kAccessRemoteAll, &pair.b.handle);
  WorkRequest first = pair.put(uint64_t{1}, 4160);
  WorkRequest last = pair.put(uint64_t{2}, 8184);
  WorkRequest beyond = pair.put(uint64_t{3}, 8185);
  first.rkey = last.rkey = beyond.rkey = key.rkey;
  CHECK(pair.a.run(first) == Status::ok);
  CHECK(pair.a.run(last) == Status::ok);
  CHECK(pair.b.word<uint64_t>(4160) == 1);
  CHECK(pair.b.word<uint64_t>(8184) == 2);
  CHECK(pair.a.run(beyond) == Status::remote_access);
}

TEST_CASE("emulated NIC: deregistered memory is out of reach, also under a recycled slot") {
  Pair pair;
  CHECK(pair.a.run(pair.put(uint64_t{1}, 0)) == Status::ok);  // the key is known to the engine now
  pair.b.nic.deregister_memory(pair.b.key);
  CHECK(pair.a.run(pair.put(uint64_t{2}, 0)) == Status::remote_access);
  CHECK(pair.b.word<uint64_t>(0) == 1);
  CHECK(contains(error_of([&] { pair.b.nic.deregister_memory(pair.b.key); }),
                 "no region has the key"));

  Side alone(5, {});
  for (int i = 0; i < 40000; ++i) {
    const MemoryKey key = alone.nic.register_memory(alone.heap.data(), 64, kAccessLocal, nullptr);
    REQUIRE(key.lkey != 0);
    REQUIRE(key.lkey != alone.key.lkey);
    alone.nic.deregister_memory(key);
  }
}

TEST_CASE("emulated NIC: deregistration waits for the copy that is under way") {
  for (int round = 0; round < 10; ++round) {
    Pair pair;
    std::atomic<bool> started{false};
    std::thread writer([&] {
      while (pair.a.run(pair.request(Opcode::write, 0, 0, 1 << 18)) == Status::ok) started = true;
      started = true;
    });
    while (!started) std::this_thread::yield();
    pair.b.nic.deregister_memory(pair.b.key);
    std::memset(pair.b.heap.data(), 7, 1 << 18);  // ours again: the thread sanitizer watches
    writer.join();
    CHECK(pair.b.word<uint8_t>(0) == 7);
  }
}

TEST_CASE("emulated NIC: regions that peers cannot map are refused at registration") {
  Side side(0, {});
  CHECK(contains(error_of([&] {
                   side.nic.register_memory(side.heap.data(), 64, kAccessRemoteWrite, nullptr);
                 }),
                 "shared segment"));
  CHECK(contains(error_of([&] {
                   side.nic.register_memory(side.heap.data() + 8, kEnd, kAccessRemoteWrite,
                                            &side.handle);
                 }),
                 "not inside the segment"));
}

TEST_CASE("emulated NIC: atomics need 8 aligned bytes and a NIC that has them") {
  EmulatedSettings none;
  none.atomics = false;
  for (const Opcode op : {Opcode::fetch_add, Opcode::compare_swap}) {
    CHECK(status_of(op, 8, [](Pair&, WorkRequest& r) { r.remote += 4; }) ==
          Status::remote_operation);
    CHECK(status_of(op, 8, [](Pair&, WorkRequest&) {}, none) == Status::remote_operation);
    CHECK(status_of(op, 8, [](Pair&, WorkRequest& r) { r.lkey = 0; }) == Status::local_protection);
  }
}

TEST_CASE("emulated NIC: after an error everything is flushed, one answer each") {
  for (const EmulatedSettings& settings : {EmulatedSettings(), unordered(5)}) {
    Pair pair(settings, 16);
    WorkRequest bad = pair.put(uint64_t{3}, 16);
    bad.rkey = 0;
    REQUIRE(pair.a.endpoint->post(pair.put(uint64_t{1}, 0)));
    REQUIRE(pair.a.endpoint->post(pair.put(uint64_t{2}, 8)));
    REQUIRE(pair.a.endpoint->post(bad));
    for (int i = 0; i < 13; ++i) REQUIRE(pair.a.endpoint->post(pair.put(uint64_t{4}, 24)));
    CHECK_FALSE(pair.a.endpoint->post(pair.put(uint64_t{5}, 24)));
    const auto got = pair.a.complete(16);
    for (uint64_t i = 0; i < 16; ++i) {
      CHECK(got[i].index == i);
      CHECK(got[i].status == (i < 2    ? Status::ok
                              : i == 2 ? Status::remote_access
                                       : Status::flushed));
    }
    CHECK(pair.b.word<uint64_t>(8) == 2);
    CHECK(pair.b.word<uint64_t>(16) == 0);
    // Later requests too, for as many laps as somebody goes on; and the other side hears of it.
    for (int i = 0; i < 100; ++i) CHECK(pair.a.run(pair.put(uint64_t{5}, 0)) == Status::flushed);
    CHECK(pair.b.word<uint64_t>(0) == 1);
    WorkRequest back = pair.put(uint64_t{6}, 0);
    back.remote = pair.a.at(0);
    back.rkey = pair.a.key.rkey;
    CHECK(pair.b.run(back) == Status::peer_unreachable);
  }
}

TEST_CASE("emulated NIC: a corrupted entry is answered, not executed") {
  Pair pair;
  REQUIRE(pair.a.endpoint->post(pair.put(uint64_t{1}, 0)));
  auto& endpoint = dynamic_cast<emulated::EmulatedEndpoint&>(*pair.a.endpoint);
  auto& entry = const_cast<mlx5::Entry&>(endpoint.queue_pair().entries[0]);
  entry.bytes[2] ^= 1;  // as if it had been written for another place in the queue
  CHECK(pair.a.complete(1)[0].status == Status::local_operation);
  CHECK(pair.b.word<uint64_t>(0) == 0);
}

TEST_CASE("emulated NIC: what no entry can hold is refused at post") {
  Pair pair;
  const auto why = [&](const WorkRequest& request) {
    return error_of([&] { pair.a.endpoint->post(request); });
  };
  WorkRequest write = pair.request(Opcode::write, 0, 0, 29);
  write.inlined = true;
  CHECK(contains(why(write), "at most 28 bytes can be inlined"));
  WorkRequest send = pair.request(Opcode::send_imm, 0, 0, 45);
  send.inlined = true;
  CHECK(contains(why(send), "at most 44 bytes can be inlined"));
  CHECK(contains(why(pair.request(Opcode::write, 0, 0, (1u << 30) + 1)), "1 GiB"));
  CHECK(contains(why(pair.request(Opcode::fetch_add, 0, 0, 4)), "8 bytes"));
  CHECK(pair.a.endpoint->posted() == 0);

  const auto loose = pair.a.nic.create_endpoint(8, 8);
  CHECK(contains(error_of([&] { loose->post(pair.put(1, 0)); }), "not connected"));
  CHECK(contains(error_of([&] { pair.a.nic.create_endpoint(12, 8); }), "powers of two"));
  CHECK(contains(error_of([&] { pair.a.nic.create_endpoint(1u << 15, 8); }), "powers of two"));
  CHECK(contains(error_of([&] { pair.a.connect(pair.b); }), "already connected"));
}

TEST_CASE("emulated NIC: receivers that are not ready, too small or unregistered") {
  CHECK(status_of(Opcode::send_imm, 8, [](Pair&, WorkRequest&) {}) == Status::receiver_not_ready);
  CHECK(status_of(Opcode::write_imm, 8, [](Pair&, WorkRequest&) {}) == Status::receiver_not_ready);

  Pair small;
  REQUIRE(small.b.endpoint->post_receive(small.b.at(0), small.b.key.lkey, 7));
  CHECK(small.a.run(small.request(Opcode::send_imm, 0, 0, 8)) == Status::remote_operation);
  CHECK(small.b.complete(1)[0].status == Status::local_length);

  Pair gone;
  REQUIRE(gone.b.endpoint->post_receive(gone.b.at(0), gone.b.key.lkey, 8));
  gone.b.nic.deregister_memory(gone.b.key);
  CHECK(gone.a.run(gone.request(Opcode::send_imm, 0, 0, 8)) == Status::remote_operation);
  CHECK(gone.b.complete(1)[0].status == Status::local_protection);

  // Peers write into receive buffers, so private memory will not do.
  const MemoryKey local = gone.b.nic.register_memory(gone.b.heap.data(), 64, kAccessLocal, nullptr);
  CHECK(contains(error_of([&] { gone.b.endpoint->post_receive(gone.b.at(0), local.lkey, 8); }),
                 "shared segment"));
}

TEST_CASE("emulated NIC: receive completions cannot be promised twice") {
  Side side(0, {});
  std::vector<std::unique_ptr<Endpoint>> all;
  const std::string why = error_of([&] {
    for (int i = 0; i < 100; ++i) all.push_back(side.nic.create_endpoint(8, 4096));
  });
  CHECK(contains(why, "receive completions"));
  CHECK(all.size() == 64);
  all.pop_back();
  CHECK(error_of([&] { all.push_back(side.nic.create_endpoint(8, 4096)); }) == "no error");
}

TEST_CASE("emulated NIC: a peer that has closed is unreachable") {
  EmulatedSettings settings;
  Side a(0, settings);
  a.open();
  auto b = std::make_unique<Side>(1, settings);
  b->open();
  a.connect(*b);
  WorkRequest put;
  put.inlined = true;
  put.local = a.at(0);
  put.length = 8;
  put.remote = b->at(0);
  put.rkey = b->key.rkey;
  SUBCASE("before it connected") {
    CHECK(a.run(put) == Status::peer_unreachable);
  }
  SUBCASE("after its provider was destroyed") {
    b->connect(a);
    CHECK(a.run(put) == Status::ok);
    const NicAddress nic = b->nic.address();
    const EndpointAddress endpoint = b->endpoint->address();
    b.reset();
    CHECK(a.run(put) == Status::peer_unreachable);
    const auto late = a.nic.create_endpoint(8, 8);
    CHECK(contains(error_of([&] { late->connect(nic, endpoint); }), "is closed"));
  }
  SUBCASE("and an endpoint made in its place does not answer for it") {
    b->connect(a);
    CHECK(a.run(put) == Status::ok);
    b->endpoint.reset();
    b->open();
    CHECK(a.run(put) == Status::peer_unreachable);
  }
}

TEST_CASE("emulated NIC: a connection says why memory cannot be mapped") {
  Pair pair;
  auto location = emulated::unpack<emulated::NicLocation>(pair.b.nic.address());
  location.segment.inode += 1000000;  // as if the process number belonged to another host
  const auto endpoint = pair.a.nic.create_endpoint(8, 8);
  const std::string why = error_of(
      [&] { endpoint->connect(emulated::pack<NicAddress>(location), pair.b.endpoint->address()); });
  for (const char* part : {"emu0 of PE 0", "cannot reach emu0 of PE 1", "is not the segment meant"})
    CHECK_MESSAGE(contains(why, part), why);
  CHECK(contains(error_of([&] { endpoint->connect(NicAddress{}, pair.b.endpoint->address()); }),
                 "another provider"));
}

TEST_CASE("emulated NIC: a peer killed while it holds the NIC's mutex does not stop the others") {
  Pair pair;
  REQUIRE(pair.b.endpoint->post_receive(0, 0, 0));
  auto& shared = dynamic_cast<emulated::EmulatedNic&>(pair.b.nic).shared();
  int holds[2];
  REQUIRE(::pipe(holds) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    pthread_mutex_lock(&shared.mutex);
    // As if it had been killed between publishing an arrival and counting it.
    emulated::Answer answer;
    answer.kind = mlx5::CqeOpcode::received_write_imm;
    answer.qpn = pair.b.endpoint->id();
    answer.imm = 77;
    emulated::publish(&shared.receive_cq[shared.arrived % emulated::kReceiveCqEntries], answer, 1);
    const bool told = ::write(holds[1], "x", 1) == 1;
    while (told) ::pause();
    ::_exit(1);
  }
  char byte;
  REQUIRE(::read(holds[0], &byte, 1) == 1);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(holds[0]);
  ::close(holds[1]);

  WorkRequest add = pair.request(Opcode::fetch_add, 0, 8, 8);
  add.operand = 5;
  CHECK(pair.a.run(add) == Status::ok);
  CHECK(pair.b.word<uint64_t>(8) == 5);
  WorkRequest message = pair.request(Opcode::write_imm, 0, 0, 0);
  message.imm = 78;
  CHECK(pair.a.run(message) == Status::ok);
  const auto got = pair.b.complete(2);
  CHECK(got[0].imm == 77);
  CHECK(got[1].imm == 78);
}

TEST_CASE("emulated NIC: peers in two processes; one dies in the middle of a copy") {
  struct Card {
    NicAddress nic;
    EndpointAddress endpoint;
    uint64_t heap;
    uint64_t rkey;
  };
  const auto card_of = [](const Side& side) {
    return Card{side.nic.address(), side.endpoint->address(), side.at(0), side.key.rkey};
  };
  int sockets[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
  // Swapping cards twice is the barrier after connect() that every job needs.
  const auto swap = [&](int which, const Card& mine) {
    Card theirs;
    const bool ok = ::write(sockets[which], &mine, sizeof mine) == sizeof mine &&
                    ::read(sockets[which], &theirs, sizeof theirs) == sizeof theirs;
    if (!ok) throw std::runtime_error("the other process is gone");
    return theirs;
  };
  const auto put_to = [](const Side& from, const Card& to, std::size_t offset) {
    WorkRequest out;
    out.local = from.at(0);
    out.lkey = from.key.lkey;
    out.length = 4096;
    out.remote = to.heap + offset;
    out.rkey = to.rkey;
    return out;
  };

  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::close(sockets[0]);
    Side b(1, {});
    b.provider->begin_driving();
    b.open();
    const Card a = swap(1, card_of(b));
    b.endpoint->connect(a.nic, a.endpoint);
    swap(1, card_of(b));
    std::memset(b.heap.data(), 0xb, 4096);
    if (b.run(put_to(b, a, 4096)) != Status::ok) ::_exit(1);
    auto& endpoint = dynamic_cast<emulated::EmulatedEndpoint&>(*b.endpoint);
    arch::store_release(&endpoint.queue_pair().slot.visits, uint64_t{99});  // inside a's memory
    swap(1, card_of(b));
    while (true) ::pause();
  }
  ::close(sockets[1]);
  Side a(0, {});
  a.open();
  const Card b = swap(0, card_of(a));
  a.endpoint->connect(b.nic, b.endpoint);
  swap(0, card_of(a));
  swap(0, card_of(a));
  CHECK(a.word<uint8_t>(4096) == 0xb);
  CHECK(a.word<uint8_t>(8191) == 0xb);
  WorkRequest read = put_to(a, b, 0);
  read.op = Opcode::read;
  CHECK(a.run(read) == Status::ok);
  CHECK(a.word<uint8_t>(4095) == 0xb);

  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(sockets[0]);
  // Its memory is still mapped here: a WRITE into it was reported as done.
  CHECK(a.run(put_to(a, b, 0)) == Status::peer_ended);
  a.nic.deregister_memory(a.key);  // does not wait for the dead
}
