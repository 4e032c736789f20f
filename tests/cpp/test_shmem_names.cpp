// The C++ operations by their names in the specification. One process has one default runtime: the
// jobs here have one PE, which is its own peer, or PEs that are processes of their own.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "shmem/include/railshmem/shmem.hpp"
#include "tests/cpp/forked_pes.hpp"

using namespace railshmem;

namespace {

// The default runtime, of one PE.
class Alone {
 public:
  Alone() { shmem_init(bootstrap(), testing::settings_from({})); }
  ~Alone() {
    shmem_finalize();
    set_default_runtime(nullptr);
  }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;

  static std::shared_ptr<Bootstrap> bootstrap() {
    return std::make_shared<ThreadBootstrap>(std::make_shared<ThreadJob>(1, 10), 0);
  }
};

// What a PE that is no test of its own finds wrong ends it.
void expect(bool holds, const char* what, int line) {
  if (!holds) fail(ErrorKind::argument, "line ", line, ": not so: ", what);
}
#define EXPECT(...) expect((__VA_ARGS__), #__VA_ARGS__, __LINE__)

// Calls body() on the default runtimes of jobs of one to kForkedPes PEs, in one node and several.
void on_jobs(void (*body)()) {
  for (int n_pes = 1; n_pes <= testing::kForkedPes; ++n_pes)
    for (const std::string nodes : {"0", "2"}) {
      if (n_pes == 1 && nodes == "2") continue;
      const std::string failures = testing::run_forked_pes(n_pes, [&](const auto& bootstrap) {
        shmem_init(bootstrap, testing::settings_from({{"RAILSHMEM_NODES", nodes}}));
        body();
        shmem_finalize();
        set_default_runtime(nullptr);
      });
      INFO("PEs ", n_pes, ", nodes ", nodes);
      CHECK(failures == "");
    }
}

// Whom the operations of this PE reach: what it does there, the previous PE does here.
int next_pe() {
  return (shmem_my_pe() + 1) % shmem_n_pes();
}

// What was posted on the context, or on the default one.
template <class... Ctx>
void complete(const Ctx&... ctx) {
  (shmem_ctx_quiet(ctx), ...);
  shmem_quiet();
}

// Symmetric elements that start as zeros.
template <class T>
T* elements(std::size_t count) {
  return static_cast<T*>(shmem_calloc(count, sizeof(T)));
}

// ---- the typed names: tables of functions, so that their exact types are checked, too ----

// Ctx is empty, or the context that comes first.
template <class T, class... Ctx>
struct RmaNames {
  void (*put)(Ctx..., T*, const T*, std::size_t, int);
  void (*put_nbi)(Ctx..., T*, const T*, std::size_t, int);
  void (*get)(Ctx..., T*, const T*, std::size_t, int);
  void (*get_nbi)(Ctx..., T*, const T*, std::size_t, int);
  void (*p)(Ctx..., T*, T, int);
  T (*g)(Ctx..., const T*, int);
  void (*iput)(Ctx..., T*, const T*, std::ptrdiff_t, std::ptrdiff_t, std::size_t, int);
  void (*iget)(Ctx..., T*, const T*, std::ptrdiff_t, std::ptrdiff_t, std::size_t, int);
  void (*put_signal)(Ctx..., T*, const T*, std::size_t, uint64_t*, uint64_t, AtomicOp, int);
  void (*put_signal_nbi)(Ctx..., T*, const T*, std::size_t, uint64_t*, uint64_t, AtomicOp, int);
};

template <class T, class... Ctx>
void check_rma(const RmaNames<T, Ctx...>& names, Ctx... ctx) {
  T* to = elements<T>(8);
  auto* signal = elements<uint64_t>(1);
  const T from[] = {T(1), T(2), T(3), T(4)};
  names.put(ctx..., to, from, 1, next_pe());
  names.put_nbi(ctx..., to + 1, from + 1, 1, next_pe());
  names.p(ctx..., to + 2, T(3), next_pe());
  names.iput(ctx..., to + 3, from, 2, 3, 2, next_pe());
  names.put_signal(ctx..., to + 6, from + 2, 1, signal, 5, SHMEM_SIGNAL_SET, next_pe());
  names.put_signal_nbi(ctx..., to + 7, from + 3, 1, signal, 2, SHMEM_SIGNAL_ADD, next_pe());
  complete(ctx...);
  shmem_barrier_all();
  const T expected[] = {T(1), T(2), T(3), T(1), T(0), T(4), T(3), T(4)};
  EXPECT(std::equal(to, to + 8, expected));
  EXPECT(*signal == 7);
  T back[5] = {};
  names.get(ctx..., back, to, 2, next_pe());
  names.get_nbi(ctx..., back + 2, to + 2, 1, next_pe());
  names.iget(ctx..., back + 3, to + 3, 1, 2, 2, next_pe());
  complete(ctx...);
  const T got[] = {T(1), T(2), T(3), T(1), T(4)};
  EXPECT(std::equal(back, back + 5, got));
  EXPECT(names.g(ctx..., to + 1, next_pe()) == T(2));
  shmem_free(signal);
  shmem_free(to);
}

template <class T, class... Ctx>
struct ExtendedAtomicNames {
  T (*fetch)(Ctx..., const T*, int);
  void (*set)(Ctx..., T*, T, int);
  T (*swap)(Ctx..., T*, T, int);
  void (*fetch_nbi)(Ctx..., T*, const T*, int);
  void (*swap_nbi)(Ctx..., T*, T*, T, int);
};

template <class T, class... Ctx>
void check_extended(const ExtendedAtomicNames<T, Ctx...>& names, Ctx... ctx) {
  T* word = elements<T>(2);
  names.set(ctx..., word, T(3), next_pe());
  complete(ctx...);
  EXPECT(names.swap(ctx..., word, T(4), next_pe()) == T(3));
  T old[2] = {};
  names.fetch_nbi(ctx..., old, word, next_pe());
  complete(ctx...);
  names.swap_nbi(ctx..., old + 1, word, T(5), next_pe());
  complete(ctx...);
  EXPECT(old[0] == T(4));
  EXPECT(old[1] == T(4));
  EXPECT(names.fetch(ctx..., word, next_pe()) == T(5));
  shmem_barrier_all();
  EXPECT(word[0] == T(5));
  EXPECT(word[1] == T(0));
  shmem_free(word);
}

template <class T, class... Ctx>
struct AtomicNames {
  T (*compare_swap)(Ctx..., T*, T, T, int);
  T (*fetch_inc)(Ctx..., T*, int);
  void (*inc)(Ctx..., T*, int);
  T (*fetch_add)(Ctx..., T*, T, int);
  void (*add)(Ctx..., T*, T, int);
  void (*compare_swap_nbi)(Ctx..., T*, T*, T, T, int);
  void (*fetch_inc_nbi)(Ctx..., T*, T*, int);
  void (*fetch_add_nbi)(Ctx..., T*, T*, T, int);
};

template <class T, class... Ctx>
void check_atomics(const AtomicNames<T, Ctx...>& names, Ctx... ctx) {
  T* word = elements<T>(1);
  EXPECT(names.compare_swap(ctx..., word, T(0), T(7), next_pe()) == T(0));
  EXPECT(names.fetch_inc(ctx..., word, next_pe()) == T(7));
  names.inc(ctx..., word, next_pe());
  complete(ctx...);
  EXPECT(names.fetch_add(ctx..., word, T(10), next_pe()) == T(9));
  names.add(ctx..., word, T(1), next_pe());
  complete(ctx...);
  T old[3] = {};
  names.compare_swap_nbi(ctx..., old, word, T(20), T(30), next_pe());
  complete(ctx...);
  names.fetch_inc_nbi(ctx..., old + 1, word, next_pe());
  complete(ctx...);
  names.fetch_add_nbi(ctx..., old + 2, word, T(5), next_pe());
  complete(ctx...);
  const T expected[] = {T(20), T(30), T(31)};
  EXPECT(std::equal(old, old + 3, expected));
  shmem_barrier_all();
  EXPECT(*word == T(36));
  shmem_free(word);
}

template <class T, class... Ctx>
struct BitwiseNames {
  T (*fetch_and)(Ctx..., T*, T, int);
  T (*fetch_or)(Ctx..., T*, T, int);
  T (*fetch_xor)(Ctx..., T*, T, int);
  void (*bit_and)(Ctx..., T*, T, int);
  void (*bit_or)(Ctx..., T*, T, int);
  void (*bit_xor)(Ctx..., T*, T, int);
  void (*fetch_and_nbi)(Ctx..., T*, T*, T, int);
  void (*fetch_or_nbi)(Ctx..., T*, T*, T, int);
  void (*fetch_xor_nbi)(Ctx..., T*, T*, T, int);
};

template <class T, class... Ctx>
void check_bitwise(const BitwiseNames<T, Ctx...>& names, Ctx... ctx) {
  T* word = elements<T>(1);
  EXPECT(names.fetch_or(ctx..., word, T(12), next_pe()) == T(0));
  EXPECT(names.fetch_and(ctx..., word, T(6), next_pe()) == T(12));
  EXPECT(names.fetch_xor(ctx..., word, T(5), next_pe()) == T(4));
  names.bit_or(ctx..., word, T(24), next_pe());
  complete(ctx...);
  names.bit_and(ctx..., word, T(17), next_pe());
  complete(ctx...);
  names.bit_xor(ctx..., word, T(2), next_pe());
  complete(ctx...);
  T old[3] = {};
  names.fetch_or_nbi(ctx..., old, word, T(4), next_pe());
  complete(ctx...);
  names.fetch_and_nbi(ctx..., old + 1, word, T(7), next_pe());
  complete(ctx...);
  names.fetch_xor_nbi(ctx..., old + 2, word, T(1), next_pe());
  complete(ctx...);
  const T expected[] = {T(19), T(23), T(7)};
  EXPECT(std::equal(old, old + 3, expected));
  shmem_barrier_all();
  EXPECT(*word == T(6));
  shmem_free(word);
}

template <class T>
struct CollectiveNames {
  int (*broadcast)(const shmem_team_t&, T*, const T*, std::size_t, int);
  int (*collect)(const shmem_team_t&, T*, const T*, std::size_t);
  int (*fcollect)(const shmem_team_t&, T*, const T*, std::size_t);
  int (*alltoall)(const shmem_team_t&, T*, const T*, std::size_t);
  int (*alltoalls)(const shmem_team_t&, T*, const T*, std::ptrdiff_t, std::ptrdiff_t, std::size_t);
};

// Every source is 1, 2, 3, 4.
template <class T>
void check_collectives(const CollectiveNames<T>& names) {
  const auto n = static_cast<std::size_t>(shmem_n_pes());
  T* from = elements<T>(4 * n);
  T* to = elements<T>(4 * n);
  for (std::size_t i = 0; i < 4 * n; ++i) from[i] = T(static_cast<char>(i % 4 + 1));
  // dest is `times` times the `pattern`, and zeros after it.
  const auto holds = [&](std::size_t times, const std::vector<T>& pattern) {
    bool same = true;
    for (std::size_t i = 0; i < 4 * n; ++i)
      same = same && to[i] == (i < times * pattern.size() ? pattern[i % pattern.size()] : T(0));
    shmem_barrier_all();
    std::fill_n(to, 4 * n, T(0));
    shmem_barrier_all();
    return same;
  };
  shmem_barrier_all();
  EXPECT(names.broadcast(SHMEM_TEAM_WORLD, to, from, 3, shmem_n_pes() - 1) == 0);
  EXPECT(holds(1, {T(1), T(2), T(3)}));
  EXPECT(names.collect(SHMEM_TEAM_WORLD, to, from, 2) == 0);
  EXPECT(holds(n, {T(1), T(2)}));
  EXPECT(names.fcollect(SHMEM_TEAM_WORLD, to, from, 3) == 0);
  EXPECT(holds(n, {T(1), T(2), T(3)}));
  EXPECT(names.alltoall(SHMEM_TEAM_WORLD, to, from, 4) == 0);
  EXPECT(holds(n, {T(1), T(2), T(3), T(4)}));
  EXPECT(names.alltoalls(SHMEM_TEAM_WORLD, to, from, 2, 2, 2) == 0);
  EXPECT(holds(n, {T(1), T(0), T(3), T(0)}));
  shmem_free(to);
  shmem_free(from);
}

// Every source is 3; `expected`: of that many of them.
template <class T>
void check_reduction(int (*reduce_by_name)(const shmem_team_t&, T*, const T*, std::size_t),
                     const std::array<int, 3>& expected) {
  T* from = elements<T>(2);
  T* to = elements<T>(2);
  from[0] = from[1] = T(3);
  EXPECT(reduce_by_name(SHMEM_TEAM_WORLD, to, from, 1) == 0);
  EXPECT(to[0] == T(static_cast<char>(expected[static_cast<std::size_t>(shmem_n_pes() - 1)])));
  EXPECT(to[1] == T(0));
  shmem_free(to);
  shmem_free(from);
}

template <class T>
struct WaitNames {
  template <class R>
  using Many = R (*)(const T*, std::size_t, const int*, Compare, T);
  template <class R>
  using ManyVector = R (*)(const T*, std::size_t, const int*, Compare, const T*);
  using Some = std::size_t (*)(const T*, std::size_t, std::size_t*, const int*, Compare, T);
  using SomeVector = std::size_t (*)(const T*, std::size_t, std::size_t*, const int*, Compare,
                                     const T*);

  T (*wait)(const T*, Compare, T);
  Many<void> wait_all;
  Many<std::size_t> wait_any;
  Some wait_some;
  ManyVector<void> wait_all_vector;
  ManyVector<std::size_t> wait_any_vector;
  SomeVector wait_some_vector;
  int (*test)(const T*, Compare, T);
  Many<int> test_all;
  Many<std::size_t> test_any;
  Some test_some;
  ManyVector<int> test_all_vector;
  ManyVector<std::size_t> test_any_vector;
  SomeVector test_some_vector;
};

template <class T>
void check_waits(const WaitNames<T>& names) {
  T* words = elements<T>(3);
  const T values[] = {T(7), T(8), T(9)};
  shmem_put(words, values, 3, next_pe());
  const int second[] = {1, 0, 1};
  const int none[] = {1, 1, 1};
  std::size_t found[3] = {};
  EXPECT(names.wait(words, SHMEM_CMP_NE, T(0)) == T(7));
  names.wait_all(words, 3, nullptr, SHMEM_CMP_GE, T(7));
  EXPECT(names.wait_any(words, 3, nullptr, SHMEM_CMP_EQ, T(8)) == 1);
  EXPECT(names.wait_some(words, 3, found, nullptr, SHMEM_CMP_NE, T(8)) == 2);
  EXPECT(found[1] == 2);
  names.wait_all_vector(words, 3, nullptr, SHMEM_CMP_EQ, values);
  EXPECT(names.wait_any_vector(words, 3, second, SHMEM_CMP_EQ, values) == 1);
  EXPECT(names.wait_some_vector(words, 3, found, second, SHMEM_CMP_EQ, values) == 1);
  EXPECT(found[0] == 1);
  EXPECT(names.wait_any(words, 3, none, SHMEM_CMP_EQ, T(0)) == SIZE_MAX);
  EXPECT(names.test(words, SHMEM_CMP_LT, T(8)) == 1);
  EXPECT(names.test(words, SHMEM_CMP_LT, T(7)) == 0);
  EXPECT(names.test_all(words, 3, nullptr, SHMEM_CMP_LE, T(9)) == 1);
  EXPECT(names.test_any(words, 3, nullptr, SHMEM_CMP_EQ, T(6)) == SIZE_MAX);
  EXPECT(names.test_some(words, 3, found, nullptr, SHMEM_CMP_GT, T(8)) == 1);
  EXPECT(found[0] == 2);
  EXPECT(names.test_all_vector(words, 3, nullptr, SHMEM_CMP_NE, values) == 0);
  EXPECT(names.test_any_vector(words, 3, second, SHMEM_CMP_EQ, values) == 1);
  EXPECT(names.test_some_vector(words, 3, found, none, SHMEM_CMP_EQ, values) == 0);
  shmem_free(words);
}

}  // namespace

TEST_CASE("the shmem_ functions work on the default runtime and refuse to work without one") {
  CHECK_THROWS_WITH_AS(shmem_my_pe(), doctest::Contains("shmem_init has not been called"), Error);
  {
    const Alone job;
    CHECK_THROWS_WITH_AS(shmem_init(Alone::bootstrap()), doctest::Contains("already initialised"),
                         Error);
    CHECK(shmem_my_pe() == 0);
    CHECK(shmem_n_pes() == 1);
    shmem_finalize();
    CHECK_THROWS_WITH_AS(shmem_barrier_all(), doctest::Contains("finalized"), Error);
  }
  CHECK_THROWS_AS(shmem_barrier_all(), Error);
}

TEST_CASE("queries, thread levels and memory") {
  int provided = -1;
  CHECK_THROWS_WITH_AS(shmem_init_thread(4, &provided, Alone::bootstrap()),
                       doctest::Contains("level 4"), Error);
  CHECK(provided == -1);
  const Alone job;
  shmem_query_thread(&provided);
  CHECK(provided == SHMEM_THREAD_MULTIPLE);
  int major = 0;
  int minor = 0;
  shmem_info_get_version(&major, &minor);
  CHECK(major == 1);
  CHECK(minor == 5);
  char name[SHMEM_MAX_NAME_LEN];
  shmem_info_get_name(name);
  CHECK(std::string(name) == SHMEM_VENDOR_STRING);

  auto* block = static_cast<char*>(shmem_malloc(100));
  CHECK(shmem_malloc(0) == nullptr);
  CHECK(shmem_ptr(block, 0) == block);
  CHECK(shmem_ptr(&major, 0) == nullptr);
  CHECK(shmem_pe_accessible(0) == 1);
  CHECK(shmem_pe_accessible(1) == 0);
  CHECK(shmem_addr_accessible(block, 0) == 1);
  CHECK(shmem_addr_accessible(&major, 0) == 0);
  CHECK(reinterpret_cast<uintptr_t>(shmem_align(4096, 8)) % 4096 == 0);
  block[99] = 7;
  block = static_cast<char*>(shmem_realloc(block, 5000));
  CHECK(block[99] == 7);
  shmem_free(block);
  CHECK(shmem_malloc_with_hints(8, SHMEM_MALLOC_SIGNAL_REMOTE) != nullptr);
  CHECK_THROWS_WITH_AS(shmem_malloc_with_hints(8, 4), doctest::Contains("hints 4"), Error);
}

TEST_CASE("values beside a pointer take its type") {
  const Alone job;
  auto* word = elements<uint64_t>(1);
  shmem_p(word, 1, 0);
  shmem_atomic_add(word, 2, 0);
  CHECK(shmem_atomic_compare_swap(SHMEM_CTX_DEFAULT, word, 3, 4, 0) == 3);
  CHECK(shmem_wait_until(word, SHMEM_CMP_EQ, 4) == 4);
  CHECK(shmem_test_any(word, 1, nullptr, SHMEM_CMP_GT, 3) == 0);
}

TEST_CASE("teams, contexts, locks and what moves bytes") {
  const Alone job;
  shmem_team_t team;
  const shmem_team_config_t config{2};
  CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, 1, &config, SHMEM_TEAM_NUM_CONTEXTS,
                                 &team) == 0);
  CHECK(shmem_team_my_pe(team) == 0);
  CHECK(shmem_team_n_pes(team) == 1);
  CHECK(shmem_team_my_pe(SHMEM_TEAM_INVALID) == -1);
  CHECK(shmem_team_translate_pe(team, 0, SHMEM_TEAM_SHARED) == 0);
  CHECK(shmem_team_translate_pe(team, 1, SHMEM_TEAM_WORLD) == -1);
  shmem_team_config_t found{0};
  CHECK(shmem_team_get_config(team, SHMEM_TEAM_NUM_CONTEXTS, &found) == 0);
  CHECK(found.num_contexts == 2);
  CHECK(shmem_team_get_config(SHMEM_TEAM_INVALID, SHMEM_TEAM_NUM_CONTEXTS, &found) == -1);
  shmem_team_t row;
  shmem_team_t column;
  CHECK(shmem_team_split_2d(team, 3, nullptr, 0, &row, nullptr, 0, &column) == 0);
  CHECK(shmem_sync(row) == 0);
  CHECK(shmem_team_sync(column) == 0);
  shmem_sync_all();

  shmem_ctx_t ctx;
  CHECK(shmem_team_create_ctx(team, SHMEM_CTX_PRIVATE, &ctx) == 0);
  shmem_team_t of_ctx;
  CHECK(shmem_ctx_get_team(ctx, &of_ctx) == 0);
  CHECK(of_ctx == team);
  CHECK(shmem_ctx_get_team(SHMEM_CTX_INVALID, &of_ctx) == -1);
  CHECK(of_ctx == SHMEM_TEAM_INVALID);
  auto* bytes = elements<char>(8);
  auto* signal = elements<uint64_t>(1);
  char back[8] = {};
  shmem_putmem(bytes, "ab", 2, 0);
  shmem_ctx_putmem_nbi(ctx, bytes + 2, "cd", 2, 0);
  shmem_putmem_signal(bytes + 4, "ef", 2, signal, 1, SHMEM_SIGNAL_ADD, 0);
  shmem_ctx_putmem_signal_nbi(ctx, bytes + 6, "gh", 2, signal, 1, SHMEM_SIGNAL_ADD, 0);
  shmem_ctx_fence(ctx);
  shmem_ctx_quiet(ctx);
  CHECK(shmem_signal_wait_until(signal, SHMEM_CMP_EQ, 2) == 2);
  CHECK(shmem_signal_fetch(signal) == 2);
  shmem_getmem(back, bytes, 4, 0);
  shmem_ctx_getmem_nbi(ctx, back + 4, bytes + 4, 4, 0);
  shmem_ctx_quiet(ctx);
  CHECK(std::string(back, 8) == "abcdefgh");
  CHECK_THROWS_WITH_AS(shmem_put(SHMEM_CTX_INVALID, bytes, bytes, 1, 0),
                       doctest::Contains("names no context"), Error);
  auto* copy = elements<char>(8);
  CHECK(shmem_broadcastmem(team, copy, bytes, 8, 0) == 0);
  CHECK(shmem_fcollectmem(team, copy, bytes, 8) == 0);
  CHECK(shmem_collectmem(team, copy, bytes, 8) == 0);
  CHECK(shmem_alltoallmem(team, copy, bytes, 8) == 0);
  CHECK(shmem_alltoallsmem(team, copy, bytes, 1, 1, 8) == 0);
  CHECK(std::string(copy, 8) == "abcdefgh");
  shmem_ctx_destroy(ctx);
  shmem_team_destroy(team);

  auto* lock = elements<long>(1);
  shmem_set_lock(lock);
  shmem_clear_lock(lock);
  CHECK(shmem_test_lock(lock) == 0);
  shmem_clear_lock(lock);
}

namespace {

void names_of_rma() {
  shmem_ctx_t ctx;
  shmem_ctx_create(0, &ctx);
#define CHECK_RMA(N, T)                                                                            \
  check_rma<T>({shmem_##N##_put, shmem_##N##_put_nbi, shmem_##N##_get, shmem_##N##_get_nbi,        \
                shmem_##N##_p, shmem_##N##_g, shmem_##N##_iput, shmem_##N##_iget,                  \
                shmem_##N##_put_signal, shmem_##N##_put_signal_nbi});                              \
  check_rma<T, const shmem_ctx_t&>(                                                                \
      {shmem_ctx_##N##_put, shmem_ctx_##N##_put_nbi, shmem_ctx_##N##_get, shmem_ctx_##N##_get_nbi, \
       shmem_ctx_##N##_p, shmem_ctx_##N##_g, shmem_ctx_##N##_iput, shmem_ctx_##N##_iget,           \
       shmem_ctx_##N##_put_signal, shmem_ctx_##N##_put_signal_nbi},                                \
      ctx);
  RAILSHMEM_RMA_TYPES(CHECK_RMA)
  shmem_ctx_destroy(ctx);
}

void names_of_atomics() {
  shmem_ctx_t ctx;
  shmem_ctx_create(0, &ctx);
#define CHECK_EXTENDED(N, T)                                                                    \
  check_extended<T>({shmem_##N##_atomic_fetch, shmem_##N##_atomic_set, shmem_##N##_atomic_swap, \
                     shmem_##N##_atomic_fetch_nbi, shmem_##N##_atomic_swap_nbi});               \
  check_extended<T, const shmem_ctx_t&>(                                                        \
      {shmem_ctx_##N##_atomic_fetch, shmem_ctx_##N##_atomic_set, shmem_ctx_##N##_atomic_swap,   \
       shmem_ctx_##N##_atomic_fetch_nbi, shmem_ctx_##N##_atomic_swap_nbi},                      \
      ctx);
  RAILSHMEM_EXTENDED_ATOMIC_TYPES(CHECK_EXTENDED)
#define CHECK_ATOMICS(N, T)                                                                       \
  check_atomics<T>({shmem_##N##_atomic_compare_swap, shmem_##N##_atomic_fetch_inc,                \
                    shmem_##N##_atomic_inc, shmem_##N##_atomic_fetch_add, shmem_##N##_atomic_add, \
                    shmem_##N##_atomic_compare_swap_nbi, shmem_##N##_atomic_fetch_inc_nbi,        \
                    shmem_##N##_atomic_fetch_add_nbi});                                           \
  check_atomics<T, const shmem_ctx_t&>(                                                           \
      {shmem_ctx_##N##_atomic_compare_swap, shmem_ctx_##N##_atomic_fetch_inc,                     \
       shmem_ctx_##N##_atomic_inc, shmem_ctx_##N##_atomic_fetch_add, shmem_ctx_##N##_atomic_add,  \
       shmem_ctx_##N##_atomic_compare_swap_nbi, shmem_ctx_##N##_atomic_fetch_inc_nbi,             \
       shmem_ctx_##N##_atomic_fetch_add_nbi},                                                     \
      ctx);
  RAILSHMEM_ATOMIC_TYPES(CHECK_ATOMICS)
#define CHECK_BITWISE(N, T)                                                                      \
  check_bitwise<T>({shmem_##N##_atomic_fetch_and, shmem_##N##_atomic_fetch_or,                   \
                    shmem_##N##_atomic_fetch_xor, shmem_##N##_atomic_and, shmem_##N##_atomic_or, \
                    shmem_##N##_atomic_xor, shmem_##N##_atomic_fetch_and_nbi,                    \
                    shmem_##N##_atomic_fetch_or_nbi, shmem_##N##_atomic_fetch_xor_nbi});         \
  check_bitwise<T, const shmem_ctx_t&>(                                                          \
      {shmem_ctx_##N##_atomic_fetch_and, shmem_ctx_##N##_atomic_fetch_or,                        \
       shmem_ctx_##N##_atomic_fetch_xor, shmem_ctx_##N##_atomic_and, shmem_ctx_##N##_atomic_or,  \
       shmem_ctx_##N##_atomic_xor, shmem_ctx_##N##_atomic_fetch_and_nbi,                         \
       shmem_ctx_##N##_atomic_fetch_or_nbi, shmem_ctx_##N##_atomic_fetch_xor_nbi},               \
      ctx);
  RAILSHMEM_BITWISE_ATOMIC_TYPES(CHECK_BITWISE)
  shmem_ctx_destroy(ctx);
}

void names_of_collectives() {
#define CHECK_COLLECTIVES(N, T)                                                           \
  check_collectives<T>({shmem_##N##_broadcast, shmem_##N##_collect, shmem_##N##_fcollect, \
                        shmem_##N##_alltoall, shmem_##N##_alltoalls});
  RAILSHMEM_RMA_TYPES(CHECK_COLLECTIVES)
#define CHECK_BITS(N, T)                                 \
  check_reduction<T>(shmem_##N##_and_reduce, {3, 3, 3}); \
  check_reduction<T>(shmem_##N##_or_reduce, {3, 3, 3});  \
  check_reduction<T>(shmem_##N##_xor_reduce, {3, 0, 3});
  RAILSHMEM_BITWISE_REDUCTION_TYPES(CHECK_BITS)
#define CHECK_ORDER(N, T)                                \
  check_reduction<T>(shmem_##N##_max_reduce, {3, 3, 3}); \
  check_reduction<T>(shmem_##N##_min_reduce, {3, 3, 3});
  RAILSHMEM_ORDER_REDUCTION_TYPES(CHECK_ORDER)
#define CHECK_ARITHMETIC(N, T)                           \
  check_reduction<T>(shmem_##N##_sum_reduce, {3, 6, 9}); \
  check_reduction<T>(shmem_##N##_prod_reduce, {3, 9, 27});
  RAILSHMEM_ARITHMETIC_REDUCTION_TYPES(CHECK_ARITHMETIC)
}

void names_of_waits() {
#define CHECK_WAITS(N, T)                                                                          \
  check_waits<T>({shmem_##N##_wait_until, shmem_##N##_wait_until_all, shmem_##N##_wait_until_any,  \
                  shmem_##N##_wait_until_some, shmem_##N##_wait_until_all_vector,                  \
                  shmem_##N##_wait_until_any_vector, shmem_##N##_wait_until_some_vector,           \
                  shmem_##N##_test, shmem_##N##_test_all, shmem_##N##_test_any,                    \
                  shmem_##N##_test_some, shmem_##N##_test_all_vector, shmem_##N##_test_any_vector, \
                  shmem_##N##_test_some_vector});
  RAILSHMEM_ATOMIC_TYPES(CHECK_WAITS)
}

using Element128 = std::array<uint64_t, 2>;

// The sized names as calls on elements of that size.
#define SIZED_CALLS(BITS, T)                                                               \
  void check_size_##BITS(const shmem_ctx_t& ctx) {                                         \
    T* to = elements<T>(9);                                                                \
    auto* signal = elements<uint64_t>(1);                                                  \
    std::vector<T> from(4);                                                                \
    std::memset(from.data(), 0x5a, sizeof(T) * 4);                                         \
    std::memset(&from[3], 0x21, sizeof(T));                                                \
    shmem_put##BITS(to, from.data(), 1, next_pe());                                        \
    shmem_ctx_put##BITS##_nbi(ctx, to + 1, from.data() + 3, 1, next_pe());                 \
    shmem_iput##BITS(to + 2, from.data(), 2, 3, 2, next_pe());                             \
    shmem_ctx_put##BITS##_signal(ctx, to + 6, from.data(), 1, signal, 1, SHMEM_SIGNAL_ADD, \
                                 next_pe());                                               \
    shmem_put##BITS##_signal_nbi(to + 7, from.data() + 3, 1, signal, 1, SHMEM_SIGNAL_ADD,  \
                                 next_pe());                                               \
    shmem_ctx_quiet(ctx);                                                                  \
    shmem_barrier_all();                                                                   \
    const std::vector<T> expected = {from[0], from[3], from[0], T{}, from[3],              \
                                     T{},     from[0], from[3], T{}};                      \
    EXPECT(std::equal(to, to + 9, expected.begin()));                                      \
    EXPECT(*signal == 2);                                                                  \
    std::vector<T> back(4);                                                                \
    shmem_ctx_get##BITS(ctx, back.data(), to, 1, next_pe());                               \
    shmem_get##BITS##_nbi(back.data() + 1, to + 1, 1, next_pe());                          \
    shmem_quiet();                                                                         \
    shmem_ctx_iget##BITS(ctx, back.data() + 2, to + 2, 1, 2, 2, next_pe());                \
    EXPECT(back == std::vector<T>{from[0], from[3], from[0], from[3]});                    \
  }
SIZED_CALLS(8, uint8_t)
SIZED_CALLS(16, uint16_t)
SIZED_CALLS(32, uint32_t)
SIZED_CALLS(64, uint64_t)
SIZED_CALLS(128, Element128)

void names_by_size() {
  shmem_ctx_t ctx;
  shmem_ctx_create(0, &ctx);
  check_size_8(ctx);
  check_size_16(ctx);
  check_size_32(ctx);
  check_size_64(ctx);
  check_size_128(ctx);
  shmem_ctx_destroy(ctx);
}

}  // namespace

TEST_CASE("names by type and by size, between processes") {
  on_jobs(names_of_rma);
  on_jobs(names_of_atomics);
  on_jobs(names_of_collectives);
  on_jobs(names_of_waits);
  on_jobs(names_by_size);
}
