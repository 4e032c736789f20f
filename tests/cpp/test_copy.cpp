// Copies of the host architecture: every alignment and tail, below and above the size from which
// they bypass the caches.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "kernels/arch/arch.hpp"

namespace {

using railshmem::arch::copy_bytes;
using railshmem::arch::kStreamFrom;

constexpr std::size_t kGuard = 128;  // bytes around the target that must stay as they are
constexpr unsigned char kUntouched = 0xEE;

unsigned char pattern(std::size_t at) {
  return static_cast<unsigned char>((at * 131 + (at >> 8) * 17) % 251);
}

// A source and a target with room for `largest` bytes at any of 64 alignments.
struct Buffers {
  explicit Buffers(std::size_t largest) : source(largest + 64), target(largest + 64 + 2 * kGuard) {
    for (std::size_t at = 0; at < source.size(); ++at) source[at] = pattern(at);
  }
  std::vector<unsigned char> source;
  std::vector<unsigned char> target;
};

using Copy = void (*)(char* to, const char* from, uint64_t bytes);

// True when exactly the bytes that were asked for arrived.
bool copies_exactly(Buffers& buffers, const Copy& copy, std::size_t to, std::size_t from,
                    std::size_t bytes) {
  unsigned char* begin = buffers.target.data() + kGuard + to;
  std::fill(begin - kGuard, begin + bytes + kGuard - to, kUntouched);
  copy(reinterpret_cast<char*>(begin), reinterpret_cast<const char*>(buffers.source.data() + from),
       bytes);
  if (!std::equal(begin, begin + bytes, buffers.source.data() + from)) return false;
  const auto untouched = [](unsigned char byte) { return byte == kUntouched; };
  return std::all_of(begin - kGuard, begin, untouched) &&
         std::all_of(begin + bytes, begin + bytes + kGuard - to, untouched);
}

void plain(char* to, const char* from, uint64_t bytes) {
  copy_bytes(to, from, bytes);
}

// The loops of this machine, at sizes far below the threshold, where every shape can be tried.
std::vector<Copy> streaming_copies() {
  std::vector<Copy> out;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx")) out.push_back(railshmem::arch::detail::stream_256);
  if (__builtin_cpu_supports("avx512f")) out.push_back(railshmem::arch::detail::stream_512);
#endif
  return out;
}

}  // namespace

TEST_CASE("copy: streaming loops move every alignment and tail exactly") {
  Buffers buffers(2048);
  for (const Copy copy : streaming_copies())
    for (std::size_t to = 0; to < 64; ++to)
      for (std::size_t from = 0; from < 64; from += 7)
        for (std::size_t bytes :
             {64u, 127u, 128u, 255u, 256u, 257u, 319u, 320u, 511u, 1000u, 2048u})
          REQUIRE_MESSAGE(copies_exactly(buffers, copy, to, from, bytes), "to +", to, ", from +",
                          from, ", ", bytes, " bytes");
}

TEST_CASE("copy: small sizes") {
  Buffers buffers(512);
  for (std::size_t bytes = 0; bytes <= 300; ++bytes)
    for (std::size_t to : {0u, 1u, 8u, 63u})
      REQUIRE_MESSAGE(copies_exactly(buffers, plain, to, 3, bytes), "to +", to, ", ", bytes,
                      " bytes");
  copy_bytes(nullptr, nullptr, 0);
}

TEST_CASE("copy: sizes around the threshold") {
  Buffers buffers(kStreamFrom + 4096);
  for (std::size_t bytes : {kStreamFrom - 1, kStreamFrom, kStreamFrom + 1, kStreamFrom + 4095})
    for (std::size_t to : {0u, 1u, 32u, 63u})
      REQUIRE_MESSAGE(copies_exactly(buffers, plain, to, to / 2, bytes), "to +", to, ", ", bytes,
                      " bytes");
}

// Streaming stores may be overtaken by ordinary ones: without a fence at its end, the copy's last
// bytes were missing when the word that announces them was seen.
TEST_CASE("copy: whoever sees the word after a large copy sees all of its bytes") {
  constexpr uint64_t kRounds = 6;
  const std::size_t bytes = kStreamFrom + 192;
  std::vector<uint64_t> target(bytes / 8), source(bytes / 8);
  uint64_t announced = 0, seen = 0;
  uint64_t wrong = 0;
  std::thread reader([&] {
    for (uint64_t round = 1; round <= kRounds; ++round) {
      while (railshmem::arch::load_acquire(&announced) < round) std::this_thread::yield();
      for (auto word = target.rbegin(); word != target.rend(); ++word) wrong += *word != round;
      railshmem::arch::store_release(&seen, round);
    }
  });
  for (uint64_t round = 1; round <= kRounds; ++round) {
    std::fill(source.begin(), source.end(), round);
    copy_bytes(target.data(), source.data(), bytes);
    railshmem::arch::store_release(&announced, round);
    while (railshmem::arch::load_acquire(&seen) < round) std::this_thread::yield();
  }
  reader.join();
  CHECK(wrong == 0);
}
