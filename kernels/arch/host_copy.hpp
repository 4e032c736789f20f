// Copies between host memories. Small ones are memcpy. Large ones bypass the caches: what is larger
// than the caches cannot stay there, and a streaming store need not read the line that it replaces.
#pragma once

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace railshmem::arch {

// Measured between two PEs, copy and read: below this size memcpy wins, because the reader finds
// part of the data in a cache.
constexpr uint64_t kStreamFrom = uint64_t{16} << 20;

#if defined(__x86_64__)
namespace detail {

// Streaming stores want aligned targets. Copies up to the first aligned byte; returns how many
// bytes that took.
template <uint64_t Alignment>
inline uint64_t copy_to_alignment(char* to, const char* from) {
  const uint64_t head = -reinterpret_cast<uintptr_t>(to) & (Alignment - 1);
  memcpy(to, from, head);
  return head;
}

// The closing sfence of both: streaming stores are not ordered with later ones, and a signal is
// one.
__attribute__((target("avx512f"))) inline void stream_512(char* to, const char* from,
                                                          uint64_t bytes) {
  uint64_t at = copy_to_alignment<64>(to, from);
  for (; at + 256 <= bytes; at += 256) {
    const __m512i a = _mm512_loadu_si512(from + at);
    const __m512i b = _mm512_loadu_si512(from + at + 64);
    const __m512i c = _mm512_loadu_si512(from + at + 128);
    const __m512i d = _mm512_loadu_si512(from + at + 192);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at), a);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at + 64), b);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at + 128), c);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at + 192), d);
  }
  _mm_sfence();
  memcpy(to + at, from + at, bytes - at);
}

__attribute__((target("avx"))) inline void stream_256(char* to, const char* from, uint64_t bytes) {
  uint64_t at = copy_to_alignment<32>(to, from);
  for (; at + 128 <= bytes; at += 128) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at + 32));
    const __m256i c = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at + 64));
    const __m256i d = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at + 96));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at), a);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at + 32), b);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at + 64), c);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at + 96), d);
  }
  _mm_sfence();
  memcpy(to + at, from + at, bytes - at);
}

}  // namespace detail
#endif

// The two do not overlap. When it returns, a store that follows is seen after the data.
inline void copy_bytes(void* to, const void* from, uint64_t bytes) {
#if defined(__x86_64__)
  if (bytes >= kStreamFrom) {
    auto* target = static_cast<char*>(to);
    const auto* source = static_cast<const char*>(from);
    if (__builtin_cpu_supports("avx512f")) return detail::stream_512(target, source, bytes);
    if (__builtin_cpu_supports("avx")) return detail::stream_256(target, source, bytes);
  }
#endif
  if (bytes > 0) memcpy(to, from, bytes);  // a copy of nothing may come from nowhere
}

}  // namespace railshmem::arch
