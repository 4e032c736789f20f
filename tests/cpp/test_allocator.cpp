#include <doctest/doctest.h>

#include <map>
#include <random>

#include "shmem/memory/allocator.hpp"

using railshmem::Allocator;

TEST_CASE("allocator: freed neighbours grow together again, whatever the order") {
  Allocator allocator(1024);
  const auto a = allocator.allocate(256, 64);
  const auto b = allocator.allocate(256, 64);
  const auto c = allocator.allocate(256, 64);
  REQUIRE(a);
  REQUIRE(b);
  REQUIRE(c);
  CHECK(allocator.release(*a));
  CHECK(allocator.release(*c));
  CHECK(allocator.n_free_blocks() == 2);
  CHECK(allocator.largest_free() == 512);
  CHECK(allocator.release(*b));
  CHECK(allocator.n_free_blocks() == 1);
  CHECK(allocator.allocate(1024, 64) == 0);
}

TEST_CASE("allocator: what it never gave out is not taken back") {
  Allocator allocator(1024);
  const auto a = allocator.allocate(100, 64);
  CHECK_FALSE(allocator.release(*a + 64));
  CHECK_FALSE(allocator.release(999));
  CHECK(allocator.release(*a));
  CHECK_FALSE(allocator.release(*a));
  CHECK(allocator.free_bytes() == 1024);
}

TEST_CASE("allocator: nothing, too much and nearly 2^64 bytes have defined answers") {
  Allocator allocator(1024);
  CHECK_FALSE(allocator.allocate(0, 64));
  CHECK_FALSE(allocator.allocate(1025, 64));
  CHECK_FALSE(allocator.allocate(UINT64_MAX, 64));
  CHECK_FALSE(allocator.allocate(UINT64_MAX - 63, 64));
  CHECK(allocator.free_bytes() == 1024);
}

TEST_CASE("allocator: a thousand random calls never overlap, and equal calls give equal offsets") {
  constexpr uint64_t kBytes = 1 << 20;
  Allocator allocator(kBytes);
  Allocator twin(kBytes);
  std::map<uint64_t, uint64_t> live;
  std::mt19937 random(7);
  for (int i = 0; i < 1000; ++i) {
    if (random() % 3 != 0 || live.empty()) {
      const uint64_t bytes = random() % 20000 + 1;
      const uint64_t alignment = uint64_t{64} << random() % 4;
      const auto offset = allocator.allocate(bytes, alignment);
      CHECK(offset == twin.allocate(bytes, alignment));
      if (!offset) continue;
      CHECK(*offset % alignment == 0);
      CHECK(*offset + bytes <= kBytes);
      const auto next = live.lower_bound(*offset);
      if (next != live.end()) CHECK(*offset + bytes <= next->first);
      if (next != live.begin()) CHECK(std::prev(next)->first + std::prev(next)->second <= *offset);
      live[*offset] = bytes;
    } else {
      auto victim = std::next(live.begin(), static_cast<long>(random() % live.size()));
      CHECK(allocator.release(victim->first));
      CHECK(twin.release(victim->first));
      live.erase(victim);
    }
  }
  for (const auto& [offset, bytes] : live) CHECK(allocator.release(offset));
  CHECK(allocator.largest_free() == kBytes);
}
