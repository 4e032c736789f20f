// Rows of data on the host. A warp has one lane: it copies whole rows by memcpy, and sums tiles
// that stay in the first-level cache, in loops that the compiler turns into vector code.
#pragma once

#include "kernels/arch/host.hpp"
#include "kernels/arch/numbers.hpp"

namespace railshmem::arch {

// ---- who works
// -----------------------------------------------------------------------------------

// One of `count` workers.
struct Place {
  uint32_t index;
  uint32_t count;
};
RSH_DEVICE Place warp_of_grid() {
  return {block(), blocks()};
}
RSH_DEVICE Place warp_of_block() {
  return {0, 1};
}

// ---- a warp's lanes together
// ---------------------------------------------------------------------

// The sum over the lanes before this one; `*all`: over all lanes.
template <class T>
RSH_DEVICE T sum_before(T mine, T* all) {
  *all = mine;
  return 0;
}
// The largest of a group of lanes, each with `elements` consecutive elements of a row, that have
// `group` elements together.
RSH_DEVICE float group_max(float mine, uint32_t, uint32_t) {
  return mine;
}
// Sets bits in a word that only this warp's lanes change meanwhile.
RSH_DEVICE void set_bits(uint32_t* word, uint32_t bits) {
  *word |= bits;
}
RSH_DEVICE uint32_t count_ones(uint32_t bits) {
  return static_cast<uint32_t>(__builtin_popcount(bits));
}
RSH_DEVICE uint32_t lowest_one(uint32_t bits) {
  return static_cast<uint32_t>(__builtin_ctz(bits));
}

// Up to kListed values that a warp has found, each by one lane, for all lanes to read.
constexpr uint32_t kListed = 32;
constexpr uint64_t kNotListed = ~0ull;
class WarpList {
 public:
  // value(i) for i < n; kNotListed: there is none.
  template <class Value>
  WarpList(uint32_t n, const Value& value) {
    for (uint32_t i = 0; i < n; ++i) {
      values_[i] = value(i);
      mask_ |= static_cast<uint32_t>(values_[i] != kNotListed) << i;
    }
  }
  // The values that there are.
  uint32_t mask() const { return mask_; }
  uint64_t operator[](uint32_t i) const { return values_[i]; }
  // What change(i, value) makes of each.
  template <class Change>
  WarpList changed(const Change& change) const {
    return {mask_ == 0 ? 0 : 32 - static_cast<uint32_t>(__builtin_clz(mask_)),
            [&](uint32_t i) { return (mask_ >> i & 1) != 0 ? change(i, values_[i]) : kNotListed; }};
  }

 private:
  uint64_t values_[kListed];
  uint32_t mask_ = 0;
};

// ---- copies
// --------------------------------------------------------------------------------------

// Copies bytes [first, last) of a row to the same place of every row in the list, a list of
// addresses.
RSH_DEVICE void copy_to_each(const WarpList& rows, const void* from, uint64_t first,
                             uint64_t last) {
  for (uint32_t left = rows.mask(); left != 0; left &= left - 1)
    copy_bytes(reinterpret_cast<char*>(rows[lowest_one(left)]) + first,
               static_cast<const char*>(from) + first, last - first);
}

RSH_DEVICE void zero(void* to, uint64_t bytes) {
  memset(to, 0, bytes);
}

// ---- elements of a row
// ---------------------------------------------------------------------------

// Elements of a row with elements of type T that a lane takes at once, and how many times it does
// before it looks at the first.
template <class T>
constexpr uint32_t kRun = 1024;
constexpr uint32_t kRuns = 1;

// A lane's elements, as they lie in memory.
template <class T, uint32_t N>
class Pack {
 public:
  Pack() = default;
  explicit Pack(const T* at) : at_(at) {}
  T operator[](uint32_t i) const { return at_[i]; }

 private:
  const T* __restrict at_ = nullptr;
};
template <uint32_t N, class T>
RSH_DEVICE Pack<T, N> take(const T* at) {
  return Pack<T, N>(at);
}
// How many of N elements are there; a GPU's rows are whole numbers of them.
RSH_DEVICE constexpr uint32_t count_of(uint32_t run, uint64_t left) {
  return left < run ? static_cast<uint32_t>(left) : run;
}
// Stores narrow(value) for each value.
template <uint32_t N, class T, class Narrow>
RSH_DEVICE void give(T* __restrict to, const float* __restrict values, uint32_t n,
                     const Narrow& narrow) {
  for (uint32_t i = 0; i < n; ++i) to[i] = narrow(values[i]);
}

// Elements that a lane makes bytes of at a time, and those bytes, to be stored in several places.
constexpr uint32_t kByteRun = 128;
class ByteRun {
 public:
  template <class Narrow>
  ByteRun(const float* values, const Narrow& narrow) {
    for (uint32_t i = 0; i < kByteRun; ++i) bytes_[i] = narrow(values[i]);
  }
  void store(void* to) const { memcpy(to, bytes_, sizeof bytes_); }

 private:
  uint8_t bytes_[kByteRun];
};

RSH_DEVICE float from_fp16(uint16_t bits) {
  return soft::from_fp16(bits);
}
RSH_DEVICE uint16_t to_bf16(float value) {
  return soft::to_bf16(value);
}
RSH_DEVICE uint16_t to_fp16(float value) {
  return soft::to_fp16(value);
}
RSH_DEVICE uint8_t to_e4m3(float value) {
  return soft::to_e4m3(value);
}

}  // namespace railshmem::arch
