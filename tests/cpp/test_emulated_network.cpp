// The faults that an emulated NIC produces on purpose, and what an end that is shut has executed.
#include <doctest/doctest.h>

#include "emulated_pair.hpp"
#include "shmem/nic/emulated/emulated_nic.hpp"

using namespace railshmem;
using namespace railshmem::nic;

namespace {

EmulatedSettings with_faults(const std::string& faults, bool ordered = true) {
  EmulatedSettings out;
  out.ordered = ordered;
  out.faults = parse_faults(faults);
  return out;
}

// Posts `count` words to b and polls for many rounds, however many completions come.
std::vector<Completion> put_words(Pair& pair, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) REQUIRE(pair.a.endpoint->post(pair.put(i + 1, i * 8)));
  pair.a.endpoint->ring_doorbell();
  std::vector<Completion> out;
  Completion next;
  for (int round = 0; round < 1000 || pair.a.nic.progress(); ++round) {
    pair.a.nic.progress();
    while (pair.a.nic.poll(&next, 1) == 1) out.push_back(next);
  }
  return out;
}

uint64_t words_at_b(const Pair& pair, uint64_t count) {
  uint64_t found = 0;
  for (uint64_t i = 0; i < count; ++i) found += pair.b.word<uint64_t>(i * 8) == i + 1;
  return found;
}

}  // namespace

TEST_CASE("emulated faults: a lost completion is of a request that was executed") {
  for (const bool ordered : {true, false}) {
    Pair pair(with_faults("pe=0,lose=@3", ordered));
    const auto got = put_words(pair, 5);
    CHECK(words_at_b(pair, 5) == 5);
    REQUIRE(got.size() == 4);
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK(got[i].index == (i < 2 ? i : i + 1));
      CHECK(got[i].status == Status::ok);
    }
  }
}

TEST_CASE("emulated faults: shares are drawn from the seed, the same in every run") {
  const auto lost_with = [](uint32_t seed) {
    EmulatedSettings settings = with_faults("pe=0,lose=0.3");
    settings.seed = seed;
    Pair pair(settings);
    std::vector<uint64_t> out;
    for (const Completion& one : put_words(pair, 60)) out.push_back(one.index);
    return out;
  };
  CHECK(lost_with(1) == lost_with(1));
  CHECK(lost_with(1) != lost_with(2));
  CHECK(lost_with(1).size() > 30);
  CHECK(lost_with(1).size() < 55);
}

TEST_CASE("emulated faults: the n-th request of an operation fails as told, and only that one") {
  struct Case {
    const char* faults;
    Status status;
  };
  for (const Case& one : {Case{"pe=0,fail=write@3", Status::remote_operation},
                          {"pe=0,fail=any@3:access", Status::remote_access},
                          {"pe=0,fail=write@3:retry", Status::peer_unreachable}}) {
    CAPTURE(one.faults);
    Pair pair(with_faults(one.faults));
    const auto got = put_words(pair, 5);
    REQUIRE(got.size() == 5);
    CHECK(got[1].status == Status::ok);
    CHECK(got[2].status == one.status);
    CHECK(got[3].status == Status::flushed);
    if (one.status != Status::peer_unreachable) CHECK(words_at_b(pair, 5) == 2);
  }
  Pair pair(with_faults("pe=0,fail=read@1"));
  CHECK(put_words(pair, 5).back().status == Status::ok);
  CHECK(pair.a.run(pair.request(Opcode::read, 0, 0, 8)) == Status::remote_operation);
}

TEST_CASE("emulated faults: what is held up stays in order and arrives") {
  for (const bool ordered : {true, false}) {
    Pair pair(with_faults("delay=0.5:100us", ordered));
    const auto got = put_words(pair, 60);
    REQUIRE(got.size() == 60);
    for (uint64_t i = 0; i < 60; ++i) CHECK(got[i].index == i);
    CHECK(words_at_b(pair, 60) == 60);
  }
}

TEST_CASE("emulated faults: completions of different queue pairs overtake each other") {
  EmulatedSettings settings = with_faults("reorder=on");
  Pair pair(settings);
  const auto second_a = pair.a.nic.create_endpoint(64, 16);
  const auto second_b = pair.b.nic.create_endpoint(64, 16);
  second_a->connect(pair.b.nic.address(), second_b->address());
  second_b->connect(pair.a.nic.address(), second_a->address());
  for (uint64_t i = 0; i < 30; ++i) {
    REQUIRE(pair.a.endpoint->post(pair.put(i, 0)));
    REQUIRE(second_a->post(pair.put(i, 8)));
  }
  second_a->ring_doorbell();
  const auto got = pair.a.complete(60);
  uint64_t next[2] = {0, 0};
  uint64_t turns = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const std::size_t which = got[i].endpoint == second_a->id() ? 1 : 0;
    CHECK(got[i].index == next[which]++);  // of one queue pair they keep their order
    turns += i > 0 && got[i].endpoint != got[i - 1].endpoint;
  }
  CHECK(turns > 10);
}

TEST_CASE("emulated faults: a rail that goes down takes all its queue pairs, and only those") {
  for (const char* faults : {"pe=0,rail=0@4", "pe=0,rail=0@0s"}) {
    CAPTURE(faults);
    const bool at_once = std::string(faults) == "pe=0,rail=0@0s";
    Pair pair(with_faults(faults));
    const auto got = put_words(pair, 6);
    REQUIRE(got.size() == 6);
    CHECK(got[2].status == (at_once ? Status::flushed : Status::ok));
    CHECK(got[at_once ? 0 : 3].status == Status::peer_unreachable);
    CHECK(got[5].status == Status::flushed);
    // The fourth was executed: only its acknowledgement was lost.
    CHECK(words_at_b(pair, 6) == (at_once ? 0 : 4));
    // The other end cannot come in any more.
    WorkRequest back = pair.put(uint64_t{6}, 0);
    back.remote = pair.a.at(0);
    back.rkey = pair.a.key.rkey;
    CHECK(pair.b.run(back) == Status::peer_unreachable);
    CHECK(pair.a.word<uint64_t>(0) == 0);
    // A queue pair of the same NIC that was idle finds out when it is used.
    const auto idle = pair.a.nic.create_endpoint(8, 8);
    pair.b.open();
    idle->connect(pair.b.nic.address(), pair.b.endpoint->address());
    REQUIRE(idle->post(pair.put(uint64_t{1}, 80)));
    idle->ring_doorbell();
    Completion completion;
    pair.a.nic.progress();
    REQUIRE(pair.a.nic.poll(&completion, 1) == 1);
    CHECK(completion.status == Status::peer_unreachable);
  }
  // Another rail's NIC of the same PE goes on.
  const EmulatedSettings other = with_faults("rail=1@0s");
  Side a(0, other, 2);
  Side b(1, other, 2);
  a.open();
  b.open();
  a.connect(b);
  b.connect(a);
  WorkRequest put;
  put.inlined = true;
  put.local = a.at(0);
  put.length = 8;
  put.remote = b.at(0);
  put.rkey = b.key.rkey;
  CHECK(a.run(put) == Status::ok);
  CHECK(contains(error_of([&] { make_emulated_provider(0, 1, other); }), "rails are 0 to 0"));
}

TEST_CASE("an end that is shut lets nothing in and knows exactly what it let in before") {
  for (const bool ordered : {true, false})
    for (uint32_t seed = 1; seed <= 8; ++seed) {
      CAPTURE(seed);
      EmulatedSettings settings = with_faults("pe=0,fail=write@7:retry", ordered);
      settings.seed = seed;
      Pair pair(settings);
      const auto got = put_words(pair, 12);
      REQUIRE(got.size() == 12);
      CHECK(got[6].status == Status::peer_unreachable);
      REQUIRE(pair.b.endpoint->shut());
      // The seventh or not: the initiator cannot tell, the target can. Without order also some that
      // were flushed behind it.
      const uint64_t executed = pair.b.endpoint->executed();
      CHECK(executed >= 6);
      CHECK(words_at_b(pair, executed) == executed);
      if (ordered) CHECK(words_at_b(pair, 12) == executed);
      CHECK(pair.a.run(pair.put(uint64_t{9}, 400)) == Status::flushed);
      CHECK(pair.b.run(pair.put(uint64_t{9}, 400)) == Status::flushed);
    }
  // A healthy one, with requests posted and not yet served.
  Pair pair;
  CHECK(pair.a.run(pair.put(uint64_t{1}, 0)) == Status::ok);
  REQUIRE(pair.a.endpoint->post(pair.put(uint64_t{2}, 8)));
  REQUIRE(pair.a.endpoint->shut());
  CHECK(pair.a.complete(1)[0].status == Status::flushed);
  CHECK(pair.b.endpoint->executed() == 1);
  CHECK(pair.a.endpoint->executed() == 0);
}

TEST_CASE("emulated NIC: no entry asks for a fence") {
  // SEND_FENCE on every signal write stalled one vendor's completions; WRITE after WRITE needs
  // none.
  Pair pair;
  REQUIRE(pair.b.endpoint->post_receive(0, 0, 0));
  WorkRequest message;
  message.op = Opcode::send_imm;
  const std::vector<WorkRequest> all = {
      pair.request(Opcode::write, 0, 64, 32),      pair.put(uint64_t{1}, 0),
      pair.request(Opcode::read, 0, 64, 32),       pair.request(Opcode::fetch_add, 0, 8, 8),
      pair.request(Opcode::compare_swap, 0, 8, 8), message};
  for (const WorkRequest& request : all) CHECK(pair.a.run(request) == Status::ok);
  const auto& entries =
      dynamic_cast<emulated::EmulatedEndpoint&>(*pair.a.endpoint).queue_pair().entries;
  for (std::size_t i = 0; i < all.size(); ++i)
    CHECK(entries[i].bytes[11] == mlx5::kAskCompletion);  // the fence mode is in bits 5 to 7
}
