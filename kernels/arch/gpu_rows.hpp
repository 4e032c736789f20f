// Rows of data on a GPU: warps are the workers, lanes move 16 bytes at a time and keep several
// loads in flight, and nothing is indexed that lies in registers. Written with what the vendor's
// file offers: lanes, ballots, shuffles, vectors and number formats.
#pragma once

namespace railshmem::arch {

// ---- who works
// -----------------------------------------------------------------------------------

// One of `count` workers.
struct Place {
  uint32_t index;
  uint32_t count;
};
// Neighbours are in different blocks: the last, incomplete turn of a loop over rows is then shared
// by all processors.
RSH_DEVICE Place warp_of_grid() {
  const uint32_t in_block = rank<Scope::block>() / size<Scope::warp>();
  return {in_block * blocks() + block(), size<Scope::block>() / size<Scope::warp>() * blocks()};
}
RSH_DEVICE Place warp_of_block() {
  return {rank<Scope::block>() / size<Scope::warp>(), size<Scope::block>() / size<Scope::warp>()};
}

// ---- a warp's lanes together
// ---------------------------------------------------------------------

// The sum over the lanes before this one; `*all`: over all lanes.
template <class T>
RSH_DEVICE T sum_before(T mine, T* all) {
  const uint32_t lanes = size<Scope::warp>(), lane = rank<Scope::warp>();
  T sum = mine;
  for (uint32_t distance = 1; distance < lanes; distance *= 2) {
    const T other = from_lane(sum, lane >= distance ? lane - distance : lane);
    if (lane >= distance) sum += other;
  }
  *all = from_lane(sum, lanes - 1);
  return sum - mine;
}
// The largest of a group of lanes, each with `elements` consecutive elements of a row, that have
// `group` elements together.
RSH_DEVICE float group_max(float mine, uint32_t elements, uint32_t group) {
  for (uint32_t distance = group / elements / 2; distance > 0; distance /= 2) {
    const float other = from_lane(mine, rank<Scope::warp>() ^ distance);
    if (!(other <= mine)) mine = other;  // a NaN is the largest
  }
  return mine;
}

// Up to kListed values that a warp has found, each by one lane, for all lanes to read.
constexpr uint32_t kListed = 32;
constexpr uint64_t kNotListed = ~0ull;
class WarpList {
 public:
  // value(i) for i < n; kNotListed: there is none.
  template <class Value>
  RSH_DEVICE WarpList(uint32_t n, const Value& value)
      : mine_(rank<Scope::warp>() < n ? value(rank<Scope::warp>()) : kNotListed),
        mask_(ballot(mine_ != kNotListed)) {}
  // The values that there are.
  RSH_DEVICE uint32_t mask() const { return mask_; }
  // The whole warp asks for the same.
  RSH_DEVICE uint64_t operator[](uint32_t i) const { return from_lane(mine_, i); }
  // What change(i, value) makes of each.
  template <class Change>
  RSH_DEVICE WarpList changed(const Change& change) const {
    return {kListed,
            [&](uint32_t i) { return (mask_ >> i & 1) != 0 ? change(i, mine_) : kNotListed; }};
  }

 private:
  uint64_t mine_;
  uint32_t mask_;
};

// ---- copies
// --------------------------------------------------------------------------------------

namespace detail {

// Bytes [first, last), in words of type V: each read once, four of a lane in flight.
template <class V>
RSH_DEVICE_CALL void copy_to_each(WarpList rows, const char* from, uint32_t first, uint32_t last) {
  const uint32_t width = sizeof(V) * size<Scope::warp>();
  const uint32_t mine = rank<Scope::warp>() * sizeof(V);
  for (uint32_t base = first; base < last; base += 4 * width) {
    const uint32_t at = base + mine;
    V v[4];
    RSH_UNROLL
    for (uint32_t i = 0; i < 4; ++i)
      if (at + i * width < last)
        v[i] = load_once(reinterpret_cast<const V*>(from + at + i * width));
    for (uint32_t left = rows.mask(); left != 0; left &= left - 1) {
      char* const to = reinterpret_cast<char*>(rows[lowest_one(left)]) + at;
      RSH_UNROLL
      for (uint32_t i = 0; i < 4; ++i)
        if (at + i * width < last) store_once(reinterpret_cast<V*>(to + i * width), v[i]);
    }
  }
}

}  // namespace detail

// Copies bytes [first, last) of a row to the same place of every row in the list, a list of
// addresses. Rows begin at multiples of 16 bytes, or have no such pieces: then of 4.
RSH_DEVICE void copy_to_each(const WarpList& rows, const void* from, uint64_t first,
                             uint64_t last) {
  const auto* const source = static_cast<const char*>(from);
  const auto begin = static_cast<uint32_t>(first), end = static_cast<uint32_t>(last);
  if (((begin | end) & 15) == 0)
    detail::copy_to_each<Vec16>(rows, source, begin, end);
  else
    detail::copy_to_each<uint32_t>(rows, source, begin, end);
}

// A multiple of 4 bytes, by a warp.
RSH_DEVICE void zero(void* to, uint64_t bytes) {
  for (uint64_t i = rank<Scope::warp>(); i < bytes / 4; i += size<Scope::warp>())
    static_cast<uint32_t*>(to)[i] = 0;
}

// ---- elements of a row
// ---------------------------------------------------------------------------

// Elements of a row with elements of type T that a lane takes at once, and how many times it does
// before it looks at the first.
template <class T>
constexpr uint32_t kRun = 16 / sizeof(T);
constexpr uint32_t kRuns = 2;

// A lane's elements, in registers.
template <class T, uint32_t N>
class Pack {
 public:
  RSH_DEVICE Pack() {}
  RSH_DEVICE explicit Pack(const T* at) {
    RSH_UNROLL
    for (uint32_t i = 0; i < N * sizeof(T) / 16; ++i) {
      const Vec16 v = load_once(reinterpret_cast<const Vec16*>(at) + i);
      words_[4 * i] = v.x;
      words_[4 * i + 1] = v.y;
      words_[4 * i + 2] = v.z;
      words_[4 * i + 3] = v.w;
    }
  }
  RSH_DEVICE T operator[](uint32_t i) const {
    constexpr uint32_t per_word = 4 / sizeof(T);
    return detail::bits<T>(
        static_cast<detail::BitsOf<T>>(words_[i / per_word] >> (i % per_word * 8 * sizeof(T))));
  }

 private:
  uint32_t words_[N * sizeof(T) / 4];
};
template <uint32_t N, class T>
RSH_DEVICE Pack<T, N> take(const T* at) {
  return Pack<T, N>(at);
}
// How many of N elements are there; a GPU's rows are whole numbers of them.
RSH_DEVICE constexpr uint32_t count_of(uint32_t run, uint64_t) {
  return run;
}
// Stores narrow(value) for each value.
template <uint32_t N, class T, class Narrow>
RSH_DEVICE void give(T* to, const float* values, uint32_t, const Narrow& narrow) {
  constexpr uint32_t per_word = 4 / sizeof(T);
  RSH_UNROLL
  for (uint32_t i = 0; i < N * sizeof(T) / 16; ++i) {
    uint32_t words[4];
    RSH_UNROLL
    for (uint32_t w = 0; w < 4; ++w) {
      words[w] = 0;
      RSH_UNROLL
      for (uint32_t p = 0; p < per_word; ++p)
        words[w] |=
            uint32_t{detail::bits<detail::BitsOf<T>>(narrow(values[(4 * i + w) * per_word + p]))}
            << (p * 8 * sizeof(T));
    }
    store_once(reinterpret_cast<Vec16*>(to) + i, Vec16{words[0], words[1], words[2], words[3]});
  }
}

// Elements that a lane makes bytes of at a time, and those bytes, to be stored in several places.
constexpr uint32_t kByteRun = 16;
class ByteRun {
 public:
  template <class Narrow>
  RSH_DEVICE ByteRun(const float* values, const Narrow& narrow) {
    uint32_t words[4];
    RSH_UNROLL
    for (uint32_t w = 0; w < 4; ++w) {
      words[w] = 0;
      RSH_UNROLL
      for (uint32_t b = 0; b < 4; ++b) words[w] |= uint32_t{narrow(values[4 * w + b])} << (8 * b);
    }
    bytes_ = Vec16{words[0], words[1], words[2], words[3]};
  }
  RSH_DEVICE void store(void* to) const { store_once(static_cast<Vec16*>(to), bytes_); }

 private:
  Vec16 bytes_;
};

}  // namespace railshmem::arch
