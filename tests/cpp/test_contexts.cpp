// Contexts, strided and non-blocking operations, waits for many words, and locks.
#include <doctest/doctest.h>

#include <complex>
#include <cstring>
#include <thread>

#include "shmem/api/locks.hpp"
#include "shmem/api/teams.hpp"
#include "tests/cpp/thread_pes.hpp"

using namespace railshmem;
using namespace railshmem::testing;
using device::AtomicOp;
using device::Compare;

namespace {

template <class T>
T* symmetric(Runtime& runtime, std::size_t count) {
  return static_cast<T*>(runtime.calloc(count, sizeof(T)));
}

void expect(const char* what, std::size_t index, uint64_t found, uint64_t wanted) {
  if (found != wanted)
    fail(ErrorKind::argument, what, ": element ", index, " is ", found, ", not ", wanted);
}

}  // namespace

TEST_CASE("every context completes its own operations, on every shape") {
  for (const Shape& shape : all_shapes()) {
    CAPTURE(shape.name);
    CHECK_NOTHROW(run_pes(4, environment_of(shape), [](Runtime& runtime) {
      constexpr std::size_t kContexts = 5;
      constexpr std::size_t kWords = 3000;
      const auto me = static_cast<std::size_t>(runtime.my_pe());
      auto* inbox = symmetric<uint64_t>(runtime, 4 * kContexts * kWords);
      auto* source = symmetric<uint64_t>(runtime, kContexts * kWords);
      auto* flags = symmetric<uint64_t>(runtime, 4 * kContexts);
      for (std::size_t i = 0; i < kContexts * kWords; ++i) source[i] = me << 40 | i;
      std::vector<std::shared_ptr<Context>> contexts;
      for (std::size_t c = 0; c < kContexts; ++c)
        contexts.push_back(runtime.create_context(runtime.world()));
      runtime.barrier_all();
      for (int pe = 0; pe < 4; ++pe)
        for (std::size_t c = 0; c < kContexts; ++c) {
          const std::size_t at = (me * kContexts + c) * kWords;
          contexts[c]->put_nbi(inbox + at, source + c * kWords, kWords * 8, pe);
          contexts[c]->put_signal(inbox + at, source + c * kWords, 8, flags + me * kContexts + c, 1,
                                  AtomicOp::set, pe);
          contexts[c]->fence();
        }
      for (auto& context : contexts) context->quiet();
      runtime.sync_all();
      for (std::size_t i = 0; i < 4 * kContexts * kWords; ++i)
        expect("inbox", i, inbox[i], (i / kWords / kContexts) << 40 | i % (kContexts * kWords));
      for (std::size_t i = 0; i < 4 * kContexts; ++i) expect("flag", i, flags[i], 1);
      for (auto& context : contexts) runtime.destroy_context(*context);
      runtime.sync_all();
    }));
  }
}

TEST_CASE("contexts run out with a clear error, and come back when they are destroyed") {
  Environment environment = environment_of(all_shapes()[1]);
  environment["RAILSHMEM_CONTEXTS"] = "2";
  run_pes(2, environment, [](Runtime& runtime) {
    for (int round = 0; round < 3; ++round) {
      const auto a = runtime.create_context(runtime.world());
      const auto b = runtime.create_context(runtime.world());
      CHECK_THROWS_WITH_AS(runtime.create_context(runtime.world()),
                           doctest::Contains("all 2 contexts are in use"), Error);
      runtime.destroy_context(*a);
      // The lane of a destroyed context may be another's: it is given back once only.
      const auto c = runtime.create_context(runtime.world());
      CHECK_THROWS_WITH_AS(runtime.destroy_context(*a), doctest::Contains("destroyed already"),
                           Error);
      CHECK_THROWS_WITH_AS(runtime.create_context(runtime.world()),
                           doctest::Contains("all 2 contexts are in use"), Error);
      runtime.destroy_context(*b);
      runtime.destroy_context(*c);
    }
    CHECK_THROWS_WITH_AS(runtime.destroy_context(runtime.default_context()),
                         doctest::Contains("the default one"), Error);
  });
}

TEST_CASE("a context of a team numbers PEs as the team does") {
  for (const Shape& shape : {all_shapes()[0], all_shapes()[5]}) {
    CAPTURE(shape.name);
    CHECK_NOTHROW(run_pes(4, environment_of(shape), [](Runtime& runtime) {
      auto* words = symmetric<uint64_t>(runtime, 4);
      const auto reversed =
          runtime.teams().split_strided(runtime.meetings(), *runtime.world(), 3, -1, 4, {});
      const auto context = runtime.create_context(reversed);
      const uint64_t mine = 100 + static_cast<uint64_t>(runtime.my_pe());
      context->put(words + runtime.my_pe(), &mine, 8, 0);  // PE 3 of the job
      context->quiet();
      runtime.barrier_all();
      if (runtime.my_pe() == 3)
        for (std::size_t i = 0; i < 4; ++i) expect("word", i, words[i], 100 + i);
      std::string told;
      try {
        context->put(words, &mine, 8, 4);
      } catch (const Error& error) {
        told = error.what();
      }
      if (told.find("the team has PEs 0 to 3") == std::string::npos)
        fail(ErrorKind::argument, told);
      runtime.destroy_context(*context);
    }));
  }
}

TEST_CASE("strided puts and gets place every element and touch nothing between") {
  for (const Shape& shape : {all_shapes()[0], all_shapes()[1], all_shapes()[4]}) {
    CAPTURE(shape.name);
    CHECK_NOTHROW(run_pes(2, environment_of(shape), [](Runtime& runtime) {
      constexpr std::size_t kBytes = 1 << 17;
      auto* remote = symmetric<unsigned char>(runtime, kBytes);
      std::vector<unsigned char> local(kBytes);
      const int peer = 1 - runtime.my_pe();
      Context& context = runtime.default_context();
      for (const std::size_t element : {1u, 2u, 4u, 8u, 16u})
        for (const auto& [dst, sst] : {std::pair{1, 1}, {1, 3}, {5, 1}, {2, 7}, {1, 2000}})
          for (const std::size_t nelems : {0u, 1u, 4u}) {
            for (std::size_t i = 0; i < kBytes; ++i)
              local[i] = static_cast<unsigned char>(i * 7 + static_cast<std::size_t>(peer));
            std::memset(remote, 0xee, kBytes);
            runtime.barrier_all();
            context.iput(remote, local.data(), dst, sst, nelems, element, peer);
            runtime.barrier_all();
            std::vector<unsigned char> wanted(kBytes, 0xee);
            for (std::size_t i = 0; i < nelems * element; ++i)
              wanted[i / element * static_cast<std::size_t>(dst) * element + i % element] =
                  static_cast<unsigned char>(
                      (i / element * static_cast<std::size_t>(sst) * element + i % element) * 7 +
                      static_cast<std::size_t>(runtime.my_pe()));
            if (std::memcmp(wanted.data(), remote, kBytes) != 0)
              fail(ErrorKind::argument, "iput: ", element, " ", dst, " ", sst, " ", nelems);
            for (std::size_t i = 0; i < kBytes; ++i) remote[i] = static_cast<unsigned char>(i * 11);
            runtime.barrier_all();
            std::vector<unsigned char> got(kBytes, 0xdd);
            context.iget(got.data(), remote, dst, sst, nelems, element, peer);
            std::vector<unsigned char> expected(kBytes, 0xdd);
            for (std::size_t i = 0; i < nelems * element; ++i)
              expected[i / element * static_cast<std::size_t>(dst) * element + i % element] =
                  static_cast<unsigned char>(
                      (i / element * static_cast<std::size_t>(sst) * element + i % element) * 11);
            if (got != expected)
              fail(ErrorKind::argument, "iget: ", element, " ", dst, " ", sst, " ", nelems);
            runtime.barrier_all();
          }
      std::string told;
      try {
        context.iput(remote, local.data(), 0, 1, 1, 8, peer);
      } catch (const Error& error) {
        told = error.what();
      }
      if (told.find("strides dst 0") == std::string::npos) fail(ErrorKind::argument, told);
    }));
  }
}

TEST_CASE("non-blocking gets and fetches have their results after quiet") {
  for (const Shape& shape : all_shapes()) {
    CAPTURE(shape.name);
    CHECK_NOTHROW(run_pes(4, environment_of(shape), [](Runtime& runtime) {
      constexpr std::size_t kWords = 5000;
      auto* data = symmetric<uint64_t>(runtime, kWords);
      auto* landing = symmetric<uint64_t>(runtime, 4 * kWords);
      auto* counter = symmetric<uint64_t>(runtime, 1);
      auto* narrow = symmetric<uint32_t>(runtime, 1);
      const auto me = static_cast<uint64_t>(runtime.my_pe());
      for (std::size_t i = 0; i < kWords; ++i) data[i] = me << 32 | i;
      runtime.barrier_all();
      Context& context = runtime.default_context();
      std::vector<uint64_t> outside(kWords);
      for (int pe = 0; pe < 4; ++pe)
        context.get_nbi(landing + static_cast<std::size_t>(pe) * kWords, data, kWords * 8, pe);
      context.get_nbi(outside.data(), data, kWords * 8, static_cast<int>((me + 1) % 4));
      // More than may be in flight at once; every old value is another.
      std::vector<uint64_t> fetched(300);
      for (uint64_t& word : fetched)
        context.atomic_fetch_nbi(AtomicOp::add, &word, counter, 8, 1, 0, 2, nullptr);
      uint32_t old = 77;
      context.atomic_fetch_nbi(AtomicOp::compare_swap, &old, narrow, 4, me + 1, 0,
                               static_cast<int>(me), nullptr);
      context.quiet();
      for (std::size_t i = 0; i < 4 * kWords; ++i)
        expect("get_nbi", i, landing[i], (i / kWords) << 32 | i % kWords);
      for (std::size_t i = 0; i < kWords; ++i)
        expect("get_nbi outside", i, outside[i], (me + 1) % 4 << 32 | i);
      for (std::size_t i = 1; i < fetched.size(); ++i)
        if (fetched[i] <= fetched[i - 1]) fail(ErrorKind::argument, "a fetched value came twice");
      expect("compare_swap old", 0, old, 0);
      expect("compare_swap", 0,
             context.atomic_fetch(AtomicOp::fetch, narrow, 4, 0, 0, static_cast<int>(me)), me + 1);
      runtime.barrier_all();
      expect("counter", 0, context.atomic_fetch(AtomicOp::fetch, counter, 8, 0, 0, 2), 1200);
      runtime.barrier_all();
    }));
  }
}

TEST_CASE("waits and tests for many words obey masks, values and all six comparisons") {
  run_pes(2, environment_of(all_shapes()[1]), [](Runtime& runtime) {
    auto* words = symmetric<int64_t>(runtime, 6);
    const int64_t start[] = {-3, -2, -1, 0, 1, 2};
    std::copy(start, start + 6, words);
    runtime.barrier_all();
    const int mask[] = {1, 0, 0, 0, 0, 1};
    const int64_t zero = 0;
    const Words<int64_t> all{words, 6, nullptr, &zero, false};
    const Words<int64_t> masked{words, 6, mask, &zero, false};
    const Words<int64_t> own{words, 6, nullptr, start, true};
    CHECK(test_some(runtime, all, Compare::less).size() == 3);
    CHECK(test_some(runtime, all, Compare::less_equal).size() == 4);
    CHECK(test_some(runtime, all, Compare::greater).size() == 2);
    CHECK(test_some(runtime, all, Compare::greater_equal).size() == 3);
    CHECK(test_some(runtime, all, Compare::equal) == std::vector<std::size_t>{3});
    CHECK(test_some(runtime, all, Compare::not_equal).size() == 5);
    CHECK(test_some(runtime, masked, Compare::less) == std::vector<std::size_t>{1, 2});
    CHECK(test_all(runtime, own, Compare::equal));
    CHECK_FALSE(test_all(runtime, all, Compare::equal));
    CHECK(test_any(runtime, masked, Compare::greater) == 4);
    const int everything[] = {1, 1, 1, 1, 1, 1};
    const Words<int64_t> none{words, 6, everything, &zero, false};
    CHECK(test_all(runtime, none, Compare::greater));
    CHECK(test_any(runtime, none, Compare::equal) == kNoIndex);
    CHECK(wait_until_any(runtime, none, Compare::equal) == kNoIndex);
    CHECK(wait_until_some(runtime, none, Compare::equal).empty());
    wait_until_all(runtime, none, Compare::equal);
    wait_until_all(runtime, own, Compare::equal);
    runtime.barrier_all();
    // The peer's puts satisfy the waits, one after another.
    const int peer = 1 - runtime.my_pe();
    const int64_t nine = 9;
    const Words<int64_t> nines{words, 6, nullptr, &nine, false};
    for (int i = 0; i < 6; ++i) runtime.default_context().put(words + i, &nine, 8, peer);
    CHECK(wait_until_any(runtime, nines, Compare::equal) < 6);
    CHECK(!wait_until_some(runtime, nines, Compare::equal).empty());
    wait_until_all(runtime, nines, Compare::equal);
    CHECK(test_all(runtime, nines, Compare::equal));
    runtime.barrier_all();
  });
}

TEST_CASE("wait_until_any passes no ready word over for ever") {
  run_pes(1, {}, [](Runtime& runtime) {
    auto* words = symmetric<int>(runtime, 3);
    const int zero = 0;
    const Words<int> all{words, 3, nullptr, &zero, false};
    std::vector<int> hits(3);
    for (int i = 0; i < 30; ++i) ++hits[wait_until_any(runtime, all, Compare::equal)];
    for (const int count : hits) CHECK(count == 10);
  });
}

TEST_CASE("a wait for many that ends at its deadline names a word, what was expected and seen") {
  Environment environment;
  environment["RAILSHMEM_TIMEOUT_S"] = "0.05";
  run_pes(1, environment, [](Runtime& runtime) {
    auto* words = symmetric<int>(runtime, 3);
    words[1] = 5;
    const int mask[] = {1, 0, 0};
    const int seven = 7;
    const Words<int> all{words, 3, mask, &seven, false};
    CHECK_THROWS_WITH_AS(wait_until_any(runtime, all, Compare::equal),
                         doctest::Contains("expected 7, seen 5"), Error);
    CHECK_THROWS_WITH_AS(wait_until_all(runtime, all, Compare::equal),
                         doctest::Contains("expected 7, seen 5"), Error);
  });
}

TEST_CASE("a lock lets one PE in at a time, in turn, and publishes what it guards") {
  for (const Shape& shape : all_shapes()) {
    CAPTURE(shape.name);
    CHECK_NOTHROW(run_pes(4, environment_of(shape), [](Runtime& runtime) {
      auto* locks = symmetric<uint64_t>(runtime, 3);
      auto* guarded = symmetric<uint64_t>(runtime, 1);
      Context& context = runtime.default_context();
      for (int round = 0; round < 40; ++round) {
        uint64_t* lock = locks + round % 3;
        if (round % 5 == 4) {
          while (!test_lock(runtime, lock)) std::this_thread::yield();
        } else {
          set_lock(runtime, lock);
        }
        // Not atomic: the lock must do. All rounds use one word, so only one lock may be out.
        if (round % 3 == 0) {
          uint64_t value = 0;
          context.get(&value, guarded, 8, 1);
          ++value;
          context.put(guarded, &value, 8, 1);
        }
        clear_lock(runtime, lock);
      }
      runtime.barrier_all();
      if (runtime.my_pe() == 1) expect("guarded", 0, *guarded, 4 * 14);
      runtime.barrier_all();
      for (std::size_t i = 0; i < 3; ++i) expect("lock", i, locks[i], 0);
      std::string told;
      try {
        clear_lock(runtime, locks);
      } catch (const Error& error) {
        told = error.what();
      }
      if (told.find("does not hold") == std::string::npos) fail(ErrorKind::argument, told);
      runtime.barrier_all();
    }));
  }
}

TEST_CASE("realloc keeps the contents, and the old block where the heap has no room") {
  run_pes(2, environment_of(all_shapes()[0]), [](Runtime& runtime) {
    auto* words = static_cast<uint64_t*>(runtime.malloc(800));
    for (std::size_t i = 0; i < 100; ++i) words[i] = i;
    runtime.barrier_all();
    auto* more = static_cast<uint64_t*>(runtime.realloc(words, 80000));
    for (std::size_t i = 0; i < 100; ++i) CHECK(more[i] == i);
    auto* fewer = static_cast<uint64_t*>(runtime.realloc(more, 80));
    for (std::size_t i = 0; i < 10; ++i) CHECK(fewer[i] == i);
    CHECK_THROWS_WITH_AS(runtime.realloc(fewer, 1 << 30), doctest::Contains("heap exhausted"),
                         Error);
    CHECK(fewer[9] == 9);
    const std::size_t before = runtime.heap_free();
    CHECK(runtime.realloc(fewer, 0) == nullptr);
    CHECK(runtime.heap_free() > before);
    void* fresh = runtime.realloc(nullptr, 64);
    CHECK(fresh != nullptr);
    CHECK_THROWS_WITH_AS(runtime.realloc(static_cast<char*>(fresh) + 8, 128),
                         doctest::Contains("nothing allocated starts there"), Error);
    runtime.free(fresh);
    CHECK_THROWS_WITH_AS(runtime.calloc(SIZE_MAX / 2, 4), doctest::Contains("beyond memory"),
                         Error);
  });
}

TEST_CASE("users' own memory is put from and got into without a copy, once it is registered") {
  for (const Shape& shape : {all_shapes()[0], all_shapes()[1], all_shapes()[4]}) {
    CAPTURE(shape.name);
    CHECK_NOTHROW(run_pes(2, environment_of(shape), [](Runtime& runtime) {
      constexpr std::size_t kWords = 100000;
      auto* inbox = symmetric<uint64_t>(runtime, kWords);
      std::vector<uint64_t> mine(kWords + 2);
      std::vector<uint64_t> back(kWords);
      for (std::size_t i = 0; i < mine.size(); ++i)
        mine[i] = i + static_cast<std::size_t>(runtime.my_pe()) * 1000000;
      // A tensor inside a larger allocation: its first and last byte are what counts.
      runtime.register_buffer(mine.data() + 1, kWords * 8);
      runtime.register_buffer(mine.data() + 1, kWords * 8);
      runtime.register_buffer(back.data(), kWords * 8);
      runtime.barrier_all();
      const int peer = 1 - runtime.my_pe();
      Context& context = runtime.default_context();
      context.put_nbi(inbox, mine.data() + 1, kWords * 8, peer);
      runtime.barrier_all();
      for (std::size_t i = 0; i < kWords; ++i)
        expect("inbox", i, inbox[i], i + 1 + static_cast<std::size_t>(peer) * 1000000);
      context.get_nbi(back.data() + 3, inbox + 3, (kWords - 3) * 8, peer);
      context.quiet();
      for (std::size_t i = 3; i < kWords; ++i)
        expect("back", i, back[i], i + 1 + static_cast<std::size_t>(runtime.my_pe()) * 1000000);
      runtime.barrier_all();
      const auto told = [&](const auto& call) {
        try {
          call();
        } catch (const Error& error) {
          return std::string(error.what());
        }
        return std::string("nothing");
      };
      const auto need = [](const std::string& text, const char* part) {
        if (text.find(part) == std::string::npos) fail(ErrorKind::argument, "told: ", text);
      };
      need(told([&] { runtime.register_buffer(mine.data(), 16); }), "overlaps");
      need(told([&] { runtime.register_buffer(inbox, 16); }), "registered already");
      runtime.unregister_buffer(mine.data() + 1);
      context.put_nbi(inbox, mine.data() + 1, kWords * 8, peer);  // counted: still registered
      context.quiet();
      runtime.unregister_buffer(mine.data() + 1);
      need(told([&] { runtime.unregister_buffer(mine.data() + 1); }), "nothing registered");
      context.put(inbox, mine.data() + 1, kWords * 8, peer);  // and without, by a copy
      runtime.barrier_all();
    }));
  }
}

TEST_CASE("users' pages become symmetric where they are, and their own again with their contents") {
  for (const Shape& shape : {all_shapes()[0], all_shapes()[1]}) {
    CAPTURE(shape.name);
    CHECK_NOTHROW(run_pes(2, environment_of(shape), [](Runtime& runtime) {
      constexpr std::size_t kBytes = 3 * 4096;
      std::vector<char> room(kBytes + 2 * 4096, 7);
      auto* own =
          reinterpret_cast<char*>((reinterpret_cast<uint64_t>(room.data()) + 4096) / 4096 * 4096);
      for (std::size_t i = 0; i < kBytes; ++i)
        own[i] = static_cast<char>(i % 100 + static_cast<std::size_t>(runtime.my_pe()));
      auto* shared = static_cast<char*>(runtime.register_symmetric(own, kBytes));
      runtime.barrier_all();
      const int peer = 1 - runtime.my_pe();
      char got[kBytes];
      runtime.default_context().get(got, shared, kBytes, peer);
      for (std::size_t i = 0; i < kBytes; ++i)
        expect("got", i, static_cast<uint64_t>(got[i]), i % 100 + static_cast<std::size_t>(peer));
      runtime.barrier_all();
      const uint64_t word = 0x1122334455667788;
      runtime.default_context().put(shared + 4096, &word, 8, peer);
      runtime.barrier_all();
      if (std::memcmp(own + 4096, &word, 8) != 0)
        fail(ErrorKind::argument, "a put does not show in the user's memory");
      const std::size_t free_before = runtime.heap_free();
      runtime.unregister_symmetric(shared);
      if (runtime.heap_free() != free_before + kBytes) fail(ErrorKind::argument, "heap leaks");
      if (std::memcmp(own + 4096, &word, 8) != 0 || own[1] != 1 + runtime.my_pe() ||
          room.front() != 7 || room.back() != 7)
        fail(ErrorKind::argument, "the contents did not stay");
      own[0] = 42;  // writable, and nobody else's
      runtime.barrier_all();
      std::string told;
      try {
        runtime.register_symmetric(own + 8, 4096);
      } catch (const Error& error) {
        told = error.what();
      }
      if (told.find("multiples of the page size") == std::string::npos)
        fail(ErrorKind::argument, "told: ", told);
    }));
  }
}
