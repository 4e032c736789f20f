#include <doctest/doctest.h>
#include <poll.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <thread>

#include "shmem/api/waits.hpp"
#include "shmem/base/error.hpp"
#include "shmem/bootstrap/tcp/frames.hpp"
#include "shmem/bootstrap/tcp/hub.hpp"
#include "shmem/bootstrap/tcp/link.hpp"
#include "shmem/bootstrap/tcp/tcp_bootstrap.hpp"
#include "tests/cpp/thread_pes.hpp"

using namespace railshmem;
using namespace railshmem::testing;
using tcp::Hub;
using tcp::JobId;
using tcp::Place;
using tcp::TcpBootstrap;

namespace {

constexpr double kPatienceS = 30;

// Each place's body runs in a thread of its own; returns what each ended with: "" or
// "<kind>: <text>".
std::vector<std::string> run_all(const std::vector<std::function<void()>>& bodies) {
  std::vector<std::string> out(bodies.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < bodies.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        bodies[i]();
      } catch (const Error& error) {
        out[i] = text(static_cast<int>(error.kind()), ": ", error.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
  return out;
}

std::vector<std::string> run_places(const JobId& id, const std::vector<Place>& places,
                                    double timeout_s,
                                    const std::function<void(TcpBootstrap&)>& body) {
  std::vector<std::function<void()>> bodies;
  for (const Place& place : places)
    bodies.emplace_back([&id, place, timeout_s, &body] {
      TcpBootstrap bootstrap(id, place, timeout_s);
      body(bootstrap);
    });
  return run_all(bodies);
}

std::vector<Place> ranks(int n) {
  std::vector<Place> out;
  for (int rank = 0; rank < n; ++rank) out.push_back({rank, n, rank == 0});
  return out;
}

// Counts the end of a scope, however it ends.
class Counted {
 public:
  explicit Counted(std::atomic<int>& count) : count_(count) {}
  ~Counted() { ++count_; }

 private:
  std::atomic<int>& count_;
};

bool is(const std::string& ended, ErrorKind kind, const std::string& part) {
  const bool found = ended.rfind(text(static_cast<int>(kind), ": "), 0) == 0 &&
                     ended.find(part) != std::string::npos;
  if (!found)
    MESSAGE("'", ended, "' is not of kind ", static_cast<int>(kind), " with '", part, "'");
  return found;
}

// A connection to the hub that does not behave like this library.
class Stranger {
 public:
  explicit Stranger(const JobId& id) : link_(tcp::start_connecting(id.addresses[0], id.port)) {
    wait(POLLOUT);
  }
  void say(const void* data, std::size_t bytes) {
    link_.send(std::string(static_cast<const char*>(data), bytes));
    REQUIRE(link_.flush());
  }
  // The hub's answer; kind welcome with code -1 when it closed the connection instead.
  tcp::Frame answer() {
    tcp::Frame frame;
    while (!link_.take(frame, tcp::kMostText)) {
      wait(POLLIN);
      if (!link_.receive()) return {{tcp::Kind::welcome, -1, -1, 0, 0}, "closed"};
    }
    return frame;
  }

 private:
  void wait(short events) {
    pollfd polled = {link_.fd(), events, 0};
    REQUIRE(::poll(&polled, 1, 10000) == 1);
  }
  tcp::Link link_;
};

}  // namespace

TEST_CASE("tcp: an id survives being text, and what is no id is refused by name") {
  const JobId id{40123, tcp::random_secret(), {"192.0.2.2", "fd00::2"}};
  const JobId again = JobId::parse(id.str());
  CHECK(again.port == id.port);
  CHECK(again.secret == id.secret);
  CHECK(again.addresses == id.addresses);
  CHECK(id.str().find_first_of(" \t\n\"'$;&|") == std::string::npos);
  const std::string secret(32, '0');
  for (const std::string& bad :
       {std::string(), std::string("railshmem1"), "railshmem1/0/" + secret + "/127.0.0.1",
        "railshmem1/65536/" + secret + "/127.0.0.1", "railshmem1/1x/" + secret + "/127.0.0.1",
        std::string("railshmem1/1/00/127.0.0.1"), "railshmem1/1/" + secret + "/",
        "railshmem1/1/" + secret + "/localhost", "railshmem2/1/" + secret + "/127.0.0.1",
        "railshmem1/1/" + std::string(32, 'g') + "/127.0.0.1", std::string(100000, 'a')})
    CHECK_THROWS_WITH_AS(JobId::parse(bad), doctest::Contains("is not a job id of this library"),
                         Error);
}

TEST_CASE("tcp: every allgather and alltoall gives each rank the records of the same round") {
  for (const int n : {1, 2, 5}) {
    const Hub hub;
    const auto ended = run_places(hub.id(), ranks(n), kPatienceS, [n](TcpBootstrap& job) {
      const auto size = static_cast<std::size_t>(n);
      for (int round = 0; round < 200; ++round) {
        const auto all = allgather(job, round * 10 + job.rank());
        std::vector<int> mine(size);
        std::vector<int> theirs(size);
        for (int to = 0; to < n; ++to)
          mine[static_cast<std::size_t>(to)] = round * 100 + job.rank() * 10 + to;
        job.alltoall(mine.data(), sizeof(int), theirs.data());
        job.barrier();
        for (int other = 0; other < n; ++other)
          if (all[static_cast<std::size_t>(other)] != round * 10 + other ||
              theirs[static_cast<std::size_t>(other)] != round * 100 + other * 10 + job.rank())
            fail(ErrorKind::init, "round ", round, " gave the wrong record of rank ", other);
      }
      job.leave();
    });
    CHECK(ended == std::vector<std::string>(static_cast<std::size_t>(n)));
  }
}

TEST_CASE("tcp: megabytes go through, larger than any socket's buffer") {
  const Hub hub;
  const auto ended = run_places(hub.id(), ranks(3), kPatienceS, [](TcpBootstrap& job) {
    constexpr std::size_t kBytes = 5 << 20;
    const std::vector<char> mine(kBytes, static_cast<char>('a' + job.rank()));
    std::vector<char> all(3 * kBytes);
    job.allgather(mine.data(), kBytes, all.data());
    for (std::size_t at = 0; at < all.size(); at += 4096)
      if (all[at] != static_cast<char>('a' + at / kBytes)) fail(ErrorKind::init, "wrong at ", at);
    job.leave();
  });
  CHECK(ended == std::vector<std::string>(3));
}

// Init hung for ever when one rank did not come.
TEST_CASE("tcp: a rank that does not come to init is named on all that came") {
  const Hub hub;
  const auto ended =
      run_places(hub.id(), {{0, 4}, {3, 4}}, 0.3, [](TcpBootstrap&) { FAIL("joined"); });
  for (const std::string& one : ended)
    CHECK(is(one, ErrorKind::timeout, "these ranks had not come in time: 1, 2"));
}

TEST_CASE("tcp: a rank that does not come to a later exchange is named, and nothing hangs after") {
  const Hub hub;
  std::atomic<int> waited{0};
  const auto ended = run_places(hub.id(), ranks(3), 0.3, [&](TcpBootstrap& job) {
    if (job.rank() == 1) {
      while (waited < 2) std::this_thread::yield();
      const Counted end(waited);
      return job.barrier();  // comes when the others have given up
    }
    try {
      job.barrier();
    } catch (const Error&) {
      ++waited;
      CHECK_THROWS_WITH_AS(job.barrier(), doctest::Contains("an earlier exchange failed"), Error);
      while (waited < 3) std::this_thread::yield();  // its end would be news
      throw;
    }
  });
  for (const std::string& one : ended)
    CHECK(is(one, ErrorKind::timeout, "these ranks had not come in time: 1"));
}

TEST_CASE("tcp: processes that do not fit together are told so, all of them, with both sides") {
  struct Case {
    Place odd;
    const char* named;
  };
  for (const Case& one :
       {Case{{1, 2, false}, "two processes came as the same rank: rank 1 (pid"},
        Case{{0, 3, false}, "says that the job has"}, Case{{2, 2, false}, "rank 2 (pid"},
        Case{{-1, 2, false}, "rank -1 (pid"}, Case{{0, 0, false}, "says that the job has"}}) {
    const Hub hub;
    const auto ended = run_places(hub.id(), {{1, 2, false}, one.odd}, kPatienceS,
                                  [](TcpBootstrap&) { FAIL("joined"); });
    for (const std::string& text : ended) CHECK(is(text, ErrorKind::argument, one.named));
    // Whoever comes later hears the same.
    const auto late =
        run_places(hub.id(), {{0, 2, false}}, kPatienceS, [](TcpBootstrap&) { FAIL("joined"); });
    CHECK(is(late[0], ErrorKind::argument, one.named));
  }
}

TEST_CASE("tcp: strangers learn nothing and do not disturb the job") {
  const Hub hub;
  const JobId& id = hub.id();
  Stranger silent(id);
  Stranger noise(id);
  const std::string words =
      "GET / HTTP/1.1\r\nHost: somebody\r\nAccept: everything there is\r\n\r\n";
  noise.say(words.data(), words.size());
  CHECK(noise.answer().body == "closed");

  tcp::Hello hello;
  hello.secret = id.secret;
  hello.version = tcp::kVersion + 1;
  Stranger newer(id);
  newer.say(&hello, sizeof hello);
  const tcp::Frame refusal = newer.answer();
  CHECK(refusal.head.kind == tcp::Kind::stranger);
  CHECK(refusal.body ==
        "the process that made the id speaks version 1 of the protocol, this one "
        "version 2");

  JobId other = id;
  other.secret[15] ^= 1;
  const auto wrong = run_places(other, {{0, 1}}, kPatienceS, [](TcpBootstrap&) { FAIL("joined"); });
  CHECK(is(wrong[0], ErrorKind::init, "refused: the secret is another job's"));

  const auto ended = run_places(id, ranks(2), kPatienceS, [&](TcpBootstrap& job) {
    job.barrier();
    if (job.rank() == 0) {  // an id serves one job
      const auto late =
          run_places(id, {{1, 2, false}}, kPatienceS, [](TcpBootstrap&) { FAIL("joined"); });
      CHECK(is(late[0], ErrorKind::init, "came to a job whose 2 PEs are all there"));
    }
    job.leave();
  });
  CHECK(ended == std::vector<std::string>(2));
}

TEST_CASE("tcp: a message longer than allowed ends its sender, not the hub's memory") {
  const Hub hub;
  tcp::Hello hello;
  hello.secret = hub.id().secret;
  hello.n_pes = 2;
  hello.timeout_s = kPatienceS;
  const auto ended = run_all({[&] {
                                Stranger process(hub.id());
                                process.say(&hello, sizeof hello);
                                CHECK(process.answer().head.kind == tcp::Kind::welcome);
                                tcp::Head head{tcp::Kind::gather};
                                head.bytes = uint64_t{1} << 60;
                                process.say(&head, sizeof head);
                                // The job that cannot come about any more says so first.
                                CHECK(process.answer().head.kind != tcp::Kind::result);
                              },
                              [&] { TcpBootstrap(hub.id(), {1, 2, false}, kPatienceS); }});
  CHECK(ended[0] == "");
  CHECK(is(ended[1], ErrorKind::init, "left before all ranks had come"));
}

TEST_CASE("tcp: when the process that made the id is gone, joining says where it was looked for") {
  JobId id;
  {
    id = Hub("lo").id();
  }
  const auto ended = run_places(id, {{0, 2}}, kPatienceS, [](TcpBootstrap&) { FAIL("joined"); });
  CHECK(is(ended[0], ErrorKind::init, "cannot reach the process that made the job's id, on port"));
  CHECK(is(ended[0], ErrorKind::init, "127.0.0.1: errno 111"));
}

TEST_CASE("tcp: a process that ends while others wait in an exchange is named to them") {
  const Hub hub;
  const auto ended = run_places(hub.id(), ranks(3), kPatienceS, [](TcpBootstrap& job) {
    job.barrier();
    if (job.rank() != 2) job.barrier();
  });
  CHECK(ended[2] == "");
  for (const int rank : {0, 1})
    CHECK(is(ended[static_cast<std::size_t>(rank)], ErrorKind::peer_lost, "the process of PE 2"));
}

TEST_CASE("tcp: the end of the hub is the end of the PE that holds it") {
  auto hub = std::make_unique<Hub>();
  const JobId id = hub->id();
  std::atomic<int> joined{0};
  const auto ended = run_places(id, ranks(3), kPatienceS, [&](TcpBootstrap& job) {
    ++joined;
    if (job.rank() == 0) {
      while (joined < 3) std::this_thread::yield();
      hub.reset();
      return;
    }
    job.barrier();
  });
  for (const int rank : {1, 2})
    CHECK(is(ended[static_cast<std::size_t>(rank)], ErrorKind::peer_lost, "the process of PE 0"));
}

TEST_CASE("tcp: whoever leaves with all the others is not missed, also by the slowest") {
  for (int job = 0; job < 20; ++job) {  // one after the other in one process
    const Hub hub;
    const auto ended = run_places(hub.id(), ranks(4), kPatienceS, [](TcpBootstrap& place) {
      place.leave();
      CHECK(place.news().kind == JobNews::Kind::none);
      CHECK_THROWS_WITH_AS(place.barrier(), doctest::Contains("this PE has left the job"), Error);
    });
    CHECK(ended == std::vector<std::string>(4));
  }
}

TEST_CASE("tcp: an abort reaches PEs in an exchange and PEs that ask for news") {
  const Hub hub;
  std::atomic<int> told{0};
  const auto ended = run_places(hub.id(), ranks(3), kPatienceS, [&](TcpBootstrap& job) {
    if (job.rank() == 0) job.abort(7, "the shelf is empty");
    if (job.rank() == 2) {
      pollfd polled = {job.news_fd(), POLLIN, 0};
      CHECK(::poll(&polled, 1, 20000) == 1);
      const JobNews news = job.news();
      CHECK(news.kind == JobNews::Kind::aborted);
      CHECK(news.rank == 0);
      CHECK(news.code == 7);
      CHECK(news.why == "the shelf is empty");
    }
    ++told;
    if (job.rank() == 1) job.barrier();
    while (told < 3) std::this_thread::yield();
  });
  CHECK(is(ended[1], ErrorKind::aborted, "PE 0 aborted the job: the shelf is empty"));
}

TEST_CASE("tcp: runtimes work, and a PE that goes ends the others' waits in the heap") {
  for (const char* nodes : {"0", "2"}) {
    const Hub hub;
    const Settings settings = settings_from({{"RAILSHMEM_NODES", nodes}});
    std::vector<std::unique_ptr<Runtime>> runtimes(2);  // end when all threads have
    std::atomic<bool> waited{false};                    // PE 0 has what the abort would end
    std::vector<std::function<void()>> bodies;
    for (int rank = 0; rank < 2; ++rank)
      bodies.emplace_back([&, rank] {
        auto bootstrap = std::make_shared<TcpBootstrap>(hub.id(), Place{rank, 2}, kPatienceS);
        auto& runtime = runtimes[static_cast<std::size_t>(rank)];
        runtime = std::make_unique<Runtime>(bootstrap, settings);
        auto* word = static_cast<uint64_t*>(runtime->malloc(16));
        word[0] = word[1] = 0;
        runtime->barrier_all();
        const uint64_t value = 40 + static_cast<uint64_t>(rank);
        runtime->default_context().put(word, &value, 8, 1 - rank);
        const uint64_t none = 0;
        CHECK(wait_until(*runtime, word, device::Compare::not_equal, none) == 41u - rank);
        if (rank == 0) {
          waited = true;
          wait_until(*runtime, word + 1, device::Compare::equal, value);
        } else {
          while (!waited) std::this_thread::yield();
          bootstrap->abort(3, "no reason");
        }
      });
    const auto ended = run_all(bodies);
    CHECK(ended[1] == "");
    CHECK(is(ended[0], ErrorKind::aborted, "the job is being aborted by PE 1"));
  }
}

TEST_CASE(
    "tcp: the interface is chosen by name or address, and a wrong one names those there are") {
  CHECK(Hub("lo").id().addresses == std::vector<std::string>{"127.0.0.1"});
  CHECK(Hub("127.0.0.1").id().addresses == std::vector<std::string>{"127.0.0.1"});
  CHECK_THROWS_WITH_AS(Hub("eth77"), doctest::Contains("RAILSHMEM_INTERFACE=eth77: this host has"),
                       Error);
  CHECK_THROWS_WITH_AS(Hub("eth77"), doctest::Contains("lo (127.0.0.1)"), Error);
  CHECK_FALSE(Hub().id().addresses.empty());
}

TEST_CASE("tcp: the first addresses of an id may be wrong") {
  const Hub hub("lo");
  JobId id = hub.id();
  id.addresses.insert(id.addresses.begin(), {"127.0.0.2", "::1"});
  const auto ended = run_places(id, ranks(2), kPatienceS, [](TcpBootstrap& job) { job.leave(); });
  CHECK(ended == std::vector<std::string>(2));
}
