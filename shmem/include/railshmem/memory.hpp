// Symmetric memory (9.3). All but shmem_ptr are collective: same arguments on every PE.
#pragma once

#include <cstddef>
#include <cstring>

#include "shmem/api/default_runtime.hpp"

namespace railshmem {

// Hints of shmem_malloc_with_hints: what the memory is for. Every heap serves all uses alike.
constexpr long SHMEM_MALLOC_ATOMICS_REMOTE = 1;
constexpr long SHMEM_MALLOC_SIGNAL_REMOTE = 2;

// Null for 0 bytes.
inline void* shmem_malloc(std::size_t bytes) {
  return default_runtime().malloc(bytes);
}
inline void* shmem_malloc_with_hints(std::size_t bytes, long hints) {
  if ((hints & ~(SHMEM_MALLOC_ATOMICS_REMOTE | SHMEM_MALLOC_SIGNAL_REMOTE)) != 0)
    fail(ErrorKind::argument, "shmem_malloc_with_hints: unknown hints ", hints);
  return default_runtime().malloc(bytes);
}
// `alignment`: a power of two up to 4096.
inline void* shmem_align(std::size_t alignment, std::size_t bytes) {
  return default_runtime().malloc(bytes, alignment);
}
// `count` elements of `size` bytes, all 0 on every PE when it returns.
inline void* shmem_calloc(std::size_t count, std::size_t size) {
  return default_runtime().calloc(count, size);
}
// The contents move along as far as the new size goes.
inline void* shmem_realloc(void* symmetric, std::size_t bytes) {
  return default_runtime().realloc(symmetric, bytes);
}
// Null is allowed.
inline void shmem_free(void* symmetric) {
  default_runtime().free(symmetric);
}
// The peer's copy of a symmetric object where it is mapped here, else null (9.1.8).
inline void* shmem_ptr(const void* symmetric, int pe) {
  return default_runtime().ptr(symmetric, pe);
}

}  // namespace railshmem
