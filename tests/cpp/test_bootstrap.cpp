#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "shmem/base/error.hpp"
#include "shmem/bootstrap/threads.hpp"
#include "tests/cpp/thread_pes.hpp"

using namespace railshmem;
using namespace railshmem::testing;

TEST_CASE("threads: a thousand allgathers give every rank everybody's record of the same round") {
  constexpr int kSize = 4;
  const auto job = std::make_shared<ThreadJob>(kSize, 30);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int rank = 0; rank < kSize; ++rank)
    threads.emplace_back([&, rank] {
      ThreadBootstrap bootstrap(job, rank);
      for (int round = 0; round < 1000; ++round) {
        const auto all = allgather(bootstrap, round * 10 + rank);
        for (int other = 0; other < kSize; ++other)
          wrong += all[static_cast<std::size_t>(other)] != round * 10 + other;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("threads: a rank that does not come is named") {
  // init hung for ever elsewhere when one rank did not come.
  const auto job = std::make_shared<ThreadJob>(3, 0.05);
  ThreadBootstrap bootstrap(job, 1);
  try {
    bootstrap.barrier();
    FAIL("the barrier returned without ranks 0 and 2");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::timeout);
    CHECK(std::string(error.what()).find("had not come: 0, 2") != std::string::npos);
  }
}

TEST_CASE("init: settings that differ between PEs are named on every PE") {
  const auto job = std::make_shared<ThreadJob>(2, 30);
  std::atomic<int> named{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      try {
        Runtime runtime(std::make_shared<ThreadBootstrap>(job, rank),
                        settings_from({{"RAILSHMEM_LANES", rank == 0 ? "1" : "2"}}));
      } catch (const Error& error) {
        const std::string what = error.what();
        named += what.find("RAILSHMEM_LANES=1 against RAILSHMEM_LANES=2") != std::string::npos;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(named == 2);
}

TEST_CASE(
    "init: more nodes than PEs is refused with both numbers; no NIC is needed inside one node") {
  CHECK_THROWS_WITH_AS(run_pes(2, {{"RAILSHMEM_NODES", "3"}}, [](Runtime&) {}),
                       doctest::Contains("RAILSHMEM_NODES=3 with only 2 PEs"), Error);
  CHECK_NOTHROW(run_pes(2, {}, [](Runtime& runtime) {
    if (runtime.n_queue_pairs() != 0) fail(ErrorKind::init, "queue pairs without a need");
  }));
}

TEST_CASE("finalize: twice is fine, and operations after it are refused, not undefined") {
  CHECK_NOTHROW(run_pes(2, {{"RAILSHMEM_NODES", "2"}}, [](Runtime& runtime) {
    auto* word = static_cast<uint64_t*>(runtime.malloc(8));
    runtime.finalize();
    runtime.finalize();
    try {
      runtime.default_context().put(word, word, 8, 0);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::argument) return;
    }
    fail(ErrorKind::init, "a put after finalize was accepted");
  }));
}
