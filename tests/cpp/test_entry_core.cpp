// The kernels that the host launches on GPUs, here as host kernels: shares of blocks, words by
// their bits.
#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "kernels/entry/core.cu"
#include "tests/cpp/thread_pes.hpp"

using namespace railshmem;
using namespace railshmem::testing;
using device::AtomicOp;
using device::Compare;
using device::DeviceContext;

namespace {

template <class T>
T* zeros(Runtime& runtime, std::size_t count) {
  return static_cast<T*>(runtime.calloc(count, sizeof(T)));
}

unsigned char pattern(int pe, std::size_t i) {
  return static_cast<unsigned char>(static_cast<std::size_t>(pe) * 31 + i * 13 + (i >> 8));
}

template <class Number>
uint32_t number(Number value) {
  return static_cast<uint32_t>(value);
}

// Each PE puts to its right neighbour with a signal, then gets from its left one.
void to_the_neighbour(Runtime& runtime, uint32_t blocks, std::size_t bytes) {
  const DeviceContext* ctx = &runtime.context();
  const int n = runtime.n_pes(), me = runtime.my_pe();
  const int right = (me + 1) % n, left = (me + n - 1) % n;
  auto* inbox = zeros<unsigned char>(runtime, bytes + 64);
  auto* mine = zeros<unsigned char>(runtime, bytes);
  auto* copy = zeros<unsigned char>(runtime, bytes + 64);
  auto* signal = zeros<uint64_t>(runtime, 1);
  for (std::size_t i = 0; i < bytes; ++i) mine[i] = pattern(me, i);
  runtime.barrier_all();

  runtime.launch(1, [&] {
    device::rsh_put_signal(ctx, inbox, mine, bytes, signal, 5, number(AtomicOp::set), right);
  });
  runtime.launch(1, [&] { device::rsh_wait_until(ctx, signal, 8, 0, number(Compare::equal), 5); });
  runtime.launch(blocks, [&] { device::rsh_get(ctx, copy, mine, bytes, left); });
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < bytes; ++i)
    wrong += (inbox[i] != pattern(left, i)) + (copy[i] != pattern(left, i));
  for (std::size_t i = bytes; i < bytes + 64; ++i) wrong += (inbox[i] != 0) + (copy[i] != 0);
  CHECK(wrong == 0);

  runtime.launch(1, [&] { device::rsh_barrier_all(ctx); });
  runtime.launch(1, [&] { device::rsh_sync_all(ctx); });
  runtime.launch(blocks, [&] { device::rsh_fill(mine, uint64_t(me), 1, bytes); });
  runtime.launch(blocks, [&] { device::rsh_put(ctx, inbox, mine, bytes, right); });
  runtime.launch(1, [&] { device::rsh_fence(ctx); });
  runtime.launch(1, [&] {
    device::rsh_signal(ctx, signal, 6, number(AtomicOp::set), right);
    device::rsh_quiet(ctx);
    device::rsh_wait_until(ctx, signal, 8, 0, number(Compare::greater), 5);
  });
  wrong = 0;
  for (std::size_t i = 0; i < bytes; ++i) wrong += inbox[i] != left;
  CHECK(wrong == 0);
  runtime.barrier_all();
  for (void* memory : {static_cast<void*>(inbox), static_cast<void*>(mine),
                       static_cast<void*>(copy), static_cast<void*>(signal)})
    runtime.free(memory);
}

}  // namespace

TEST_CASE("launched puts and gets move every byte, whatever the grid") {
  for (const Shape& shape : all_shapes()) {
    CAPTURE(shape.name);
    CHECK_NOTHROW(run_pes(4, environment_of(shape), [](Runtime& runtime) {
      for (const uint32_t blocks : {1u, 3u})
        for (const std::size_t bytes : {1, 8, 127, 128, 129, 384, 5000})
          to_the_neighbour(runtime, blocks, bytes);
    }));
  }
}

TEST_CASE("launched atomics answer with the old value, where one is asked for") {
  for (const Shape& shape : all_shapes()) {
    CAPTURE(shape.name);
    CHECK_NOTHROW(run_pes(4, environment_of(shape), [](Runtime& runtime) {
      const DeviceContext* ctx = &runtime.context();
      auto* wide = zeros<uint64_t>(runtime, 2);
      auto* narrow = zeros<uint32_t>(runtime, 2);
      runtime.barrier_all();
      uint64_t old = 99;
      uint32_t old_narrow = 99;
      runtime.launch(1, [&] {
        device::rsh_atomic(ctx, number(AtomicOp::add), wide, 8, 1ull << 40, 0, 0, nullptr);
        device::rsh_atomic(ctx, number(AtomicOp::add), narrow, 4, ~0u, 0, 0, &old_narrow);
        device::rsh_quiet(ctx);
      });
      runtime.barrier_all();
      CHECK(0u - old_narrow < 4);  // some of the others had come before
      if (runtime.my_pe() == 0) {
        CHECK(*wide == 4ull << 40);
        CHECK(*narrow == 0u - 4);  // four times minus one
        runtime.launch(1, [&] {
          device::rsh_atomic(ctx, number(AtomicOp::compare_swap), wide + 1, 8, 7, 0, 3, &old);
        });
        CHECK(old == 0);
      }
      runtime.barrier_all();
      if (runtime.my_pe() == 3) CHECK(wide[1] == 7);
      runtime.barrier_all();
    }));
  }
}

TEST_CASE("launched waits compare signed and unsigned words of both widths") {
  CHECK_NOTHROW(run_pes(1, {}, [](Runtime& runtime) {
    const DeviceContext* ctx = &runtime.context();
    auto* words = zeros<int64_t>(runtime, 2);
    words[0] = -5;
    const auto narrow = static_cast<int32_t>(-5);
    std::memcpy(words + 1, &narrow, sizeof narrow);
    const auto minus_four = static_cast<uint64_t>(int64_t{-4});
    runtime.launch(1, [&] {
      device::rsh_wait_until(ctx, words, 8, 1, number(Compare::less), minus_four);
      device::rsh_wait_until(ctx, words, 8, 0, number(Compare::greater), 1);
      device::rsh_wait_until(ctx, words + 1, 4, 1, number(Compare::less), minus_four);
      device::rsh_wait_until(ctx, words + 1, 4, 0, number(Compare::greater), 1);
    });
  }));
}

TEST_CASE("a launched wait ends at its deadline, and the host raises it") {
  CHECK_THROWS_WITH(run_pes(1, {{"RAILSHMEM_TIMEOUT_S", "0.05"}},
                            [](Runtime& runtime) {
                              auto* word = zeros<uint64_t>(runtime, 1);
                              runtime.launch(1, [&] {
                                device::rsh_wait_until(&runtime.context(), word, 8, 0,
                                                       number(Compare::equal), 1);
                              });
                            }),
                    doctest::Contains("expected 1"));
}

TEST_CASE("fills write words of every width, by any grid") {
  std::vector<uint64_t> words(1000);
  for (const uint32_t width : {1u, 2u, 4u, 8u}) {
    std::fill(words.begin(), words.end(), 0);
    const uint64_t value = 0x0102030405060708ull;
    arch::launch(3, [&] { device::rsh_fill(words.data(), value, width, 4000 / width); });
    const auto* bytes = reinterpret_cast<const unsigned char*>(words.data());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < 8000; ++i)
      wrong += bytes[i] != (i < 4000 ? static_cast<unsigned char>(8 - i % width) : 0);
    CHECK(wrong == 0);
  }
}
