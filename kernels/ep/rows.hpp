// Sums of rows in fp32.
#pragma once

#include "kernels/ep/args.hpp"
#include "kernels/ep/convert.hpp"

namespace railshmem::device::ep {

// A row is summed tile by tile, so that the sums stay in the first-level cache.
constexpr uint64_t kTile = 1024;
struct Tile {
  uint64_t first;
  uint64_t size;
};
RSH_DEVICE Tile tile_at(const Shape& shape, uint64_t first) {
  const uint64_t left = shape.hidden - first;
  return {first, left < kTile ? left : kTile};
}

template <class T>
RSH_DEVICE void add_row(float* __restrict sum, const T* __restrict row, uint64_t size) {
  for (uint64_t i = arch::rank<kBlock>(); i < size; i += arch::size<kBlock>())
    sum[i] += widen(row[i]);
}

template <class T>
RSH_DEVICE void add_weighted_row(float* __restrict sum, const T* __restrict row, float weight,
                                 uint64_t size) {
  for (uint64_t i = arch::rank<kBlock>(); i < size; i += arch::size<kBlock>())
    sum[i] += weight * widen(row[i]);
}

template <class T>
RSH_DEVICE void store_row(T* __restrict to, const float* __restrict sum, uint64_t size) {
  for (uint64_t i = arch::rank<kBlock>(); i < size; i += arch::size<kBlock>())
    to[i] = narrow<T>(sum[i]);
}

}  // namespace railshmem::device::ep
