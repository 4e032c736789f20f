// The C++ operations by their names in the specification. One process has one default runtime, so
// this job has one PE, which is its own peer; the operations between PEs are tested on runtimes.
#include <doctest/doctest.h>

#include "shmem/include/railshmem/shmem.hpp"
#include "tests/cpp/thread_pes.hpp"

using namespace railshmem;

TEST_CASE("the shmem_ functions work on the default runtime and refuse to work without one") {
  CHECK_THROWS_WITH_AS(shmem_my_pe(), doctest::Contains("shmem_init has not been called"), Error);
  const auto alone = [] {
    return std::make_shared<ThreadBootstrap>(std::make_shared<ThreadJob>(1, 10), 0);
  };
  shmem_init(alone(), testing::settings_from({}));
  CHECK_THROWS_WITH_AS(shmem_init(alone()), doctest::Contains("already initialised"), Error);
  CHECK(shmem_my_pe() == 0);
  CHECK(shmem_n_pes() == 1);

  auto* data = static_cast<double*>(shmem_malloc(4 * sizeof(double)));
  auto* words = static_cast<int32_t*>(shmem_malloc(2 * sizeof(int32_t)));
  auto* signal = static_cast<uint64_t*>(shmem_malloc(sizeof(uint64_t)));
  CHECK(shmem_malloc(0) == nullptr);
  CHECK(shmem_ptr(data, 0) == data);
  words[0] = words[1] = 0;
  *signal = 0;
  shmem_barrier_all();

  const double source[] = {1.5, -2, 3, 4};
  shmem_put(data, source, 4, 0);
  shmem_fence();
  shmem_quiet();
  double back[4] = {};
  shmem_get(back, data, 4, 0);
  CHECK(back[3] == 4);
  shmem_put_signal(data, source + 1, 1, signal, 7, SHMEM_SIGNAL_SET, 0);
  CHECK(shmem_signal_wait_until(signal, SHMEM_CMP_EQ, 7) == 7);
  CHECK(data[0] == -2);

  shmem_atomic_set(words, -5, 0);
  CHECK(shmem_atomic_fetch_add(words, 3, 0) == -5);
  CHECK(shmem_atomic_fetch_inc(words, 0) == -2);
  CHECK(shmem_atomic_swap(words, 12, 0) == -1);
  CHECK(shmem_atomic_compare_swap(words, 12, 10, 0) == 12);
  CHECK(shmem_atomic_fetch_and(words, 6, 0) == 10);
  CHECK(shmem_atomic_fetch_or(words, 5, 0) == 2);
  CHECK(shmem_atomic_fetch_xor(words, 1, 0) == 7);
  shmem_atomic_inc(words, 0);
  shmem_atomic_add(words, -10, 0);
  CHECK(shmem_wait_until(words, SHMEM_CMP_LT, 0) == -3);
  CHECK(words[1] == 0);
  CHECK(shmem_atomic_swap(data, 0.25, 0) == -2);
  CHECK(shmem_atomic_fetch(data, 0) == 0.25);

  shmem_free(data);
  shmem_finalize();
  shmem_finalize();
  CHECK_THROWS_WITH_AS(shmem_barrier_all(), doctest::Contains("finalized"), Error);
  set_default_runtime(nullptr);
}
