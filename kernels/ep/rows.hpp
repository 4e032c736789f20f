// Rows as warps move and sum them.
#pragma once

#include "kernels/ep/args.hpp"
#include "kernels/ep/convert.hpp"

namespace railshmem::device::ep {

using arch::WarpList;

// A part of a row, which a warp handles.
struct Part {
  uint64_t row;
  uint32_t number;  // of the parts of its row
  uint32_t first;   // bytes or elements: multiples of the unit
  uint32_t last;
};

// Rows cut so that warps share them out evenly: into several parts where rows are few, because one
// warp would take its time over a whole one. On the host into one.
class Parts {
 public:
  // Of rows with `size` bytes or elements; cuts are at multiples of `unit`, and a part has so many
  // units that all lanes have something to do.
  RSH_DEVICE Parts(uint64_t rows, uint64_t size, uint32_t unit, arch::Place warp)
      : rows_(rows), unit_(unit), units_(static_cast<uint32_t>(size) / unit), warp_(warp) {
    if constexpr (arch::kOnHost) return;
    const uint32_t most = units_ / (2 * arch::size<kWarp>());
    if (rows * 2 <= warp.count)
      parts_ = rows == 0 ? 1 : warp.count / static_cast<uint32_t>(rows);
    else
      parts_ = 2;  // the last turn of the warps is shorter
    if (parts_ > most) parts_ = most;
    if (parts_ == 0) parts_ = 1;
  }

  // Calls work(part) for this warp's parts until it returns false; then returns false.
  template <class Work>
  RSH_DEVICE bool each(const Work& work) const {
    uint64_t row = warp_.index / parts_;
    uint32_t number = warp_.index % parts_;
    while (row < rows_) {
      if (!work(Part{row, number, cut(number), cut(number + 1)})) return false;
      row += warp_.count / parts_;
      number += warp_.count % parts_;
      if (number >= parts_) {
        number -= parts_;
        ++row;
      }
    }
    return true;
  }

 private:
  RSH_DEVICE uint32_t cut(uint32_t number) const { return units_ * number / parts_ * unit_; }

  uint64_t rows_;
  uint32_t unit_;
  uint32_t units_;
  uint32_t parts_ = 1;
  arch::Place warp_;
};
RSH_DEVICE Parts parts_of_rows(uint64_t rows, uint64_t row_bytes, arch::Place warp) {
  return {rows, row_bytes, 16, warp};
}

RSH_DEVICE uint64_t listed(const void* address) {
  return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(address));
}

// Copies a row by a warp.
RSH_DEVICE void copy_row(void* to, const void* from, uint64_t first, uint64_t last) {
  arch::copy_to_each(WarpList(1, [&](uint32_t) { return listed(to); }), from, first, last);
}
// Copies what lies in one piece, a multiple of 4 bytes; all warps of the grid share the work.
RSH_DEVICE void copy_all(char* to, const char* from, uint64_t bytes) {
  const arch::Place warp = arch::warp_of_grid();
  const uint64_t piece = arch::kOnHost ? (bytes / warp.count / 64 + 1) * 64 : 8192;
  for (uint64_t at = warp.index * piece; at < bytes; at += warp.count * piece)
    copy_row(to + at, from + at, 0, bytes - at < piece ? bytes - at : piece);
}

// Sums of elements of a row that a lane forms at a time.
template <class T>
class Sums {
 public:
  static constexpr uint32_t kRun = arch::kRun<T>;
  // Elements that a warp sums at a time.
  RSH_DEVICE static uint32_t step() { return kRun * arch::kRuns * arch::size<kWarp>(); }

  // Zeros for the elements from `first` of a row's part that ends at `last`.
  RSH_DEVICE Sums(uint32_t first, uint32_t last)
      : first_(first + arch::rank<kWarp>() * kRun), last_(last) {
    RSH_UNROLL
    for (uint32_t run = 0; run < arch::kRuns; ++run) {
      RSH_UNROLL
      for (uint32_t i = 0; i < kRun; ++i) values_[run][i] = 0;
    }
  }

  // A lane's elements of a row.
  template <class From>
  struct Taken {
    arch::Pack<From, kRun> runs[arch::kRuns];
  };
  template <class From>
  RSH_DEVICE Taken<From> take(const From* row) const {
    Taken<From> taken;
    RSH_UNROLL
    for (uint32_t run = 0; run < arch::kRuns; ++run)
      if (at(run) < last_) taken.runs[run] = arch::take<kRun>(row + at(run));
    return taken;
  }
  template <class From>
  RSH_DEVICE void add(const Taken<From>& taken) {
    RSH_UNROLL
    for (uint32_t run = 0; run < arch::kRuns; ++run)
      if (at(run) < last_) add(values_[run], taken.runs[run], count(run));
  }
  template <class From>
  RSH_DEVICE void add_weighted(const Taken<From>& taken, float weight) {
    RSH_UNROLL
    for (uint32_t run = 0; run < arch::kRuns; ++run)
      if (at(run) < last_) add_weighted(values_[run], taken.runs[run], weight, count(run));
  }
  // Rounds each sum once.
  template <class To>
  RSH_DEVICE void store(To* row) const {
    RSH_UNROLL
    for (uint32_t run = 0; run < arch::kRuns; ++run)
      if (at(run) < last_)
        arch::give<kRun>(row + at(run), values_[run], count(run),
                         [](float value) { return narrow<To>(value); });
  }

 private:
  RSH_DEVICE uint32_t at(uint32_t run) const { return first_ + run * kRun * arch::size<kWarp>(); }
  RSH_DEVICE uint32_t count(uint32_t run) const { return arch::count_of(kRun, last_ - at(run)); }

  template <class Pack>
  RSH_DEVICE static void add(float* __restrict sums, const Pack& pack, uint32_t n) {
    RSH_UNROLL
    for (uint32_t i = 0; i < n; ++i) sums[i] += widen(pack[i]);
  }
  template <class Pack>
  RSH_DEVICE static void add_weighted(float* __restrict sums, const Pack& pack, float weight,
                                      uint32_t n) {
    RSH_UNROLL
    for (uint32_t i = 0; i < n; ++i) sums[i] += weight * widen(pack[i]);
  }

  float values_[arch::kRuns][kRun];
  uint32_t first_;
  uint32_t last_;
};

// Adds the rows of a list of addresses in its order. The next one is on its way while one is added;
// the two change places, because a copy would wait for what is on its way.
template <class From, class T>
RSH_DEVICE void add_rows(Sums<T>& sums, const WarpList& rows) {
  uint32_t left = rows.mask();
  const auto next = [&] {
    const auto* const row = reinterpret_cast<const From*>(rows[arch::lowest_one(left)]);
    left &= left - 1;
    return sums.take(row);
  };
  if (left == 0) return;
  auto one = next();
  for (;;) {
    if (left == 0) return sums.add(one);
    const auto other = next();
    sums.add(one);
    if (left == 0) return sums.add(other);
    one = next();
    sums.add(other);
  }
}

// Stores sums of rows of T, made by add(sums), as elements of To.
template <class T, class To, class Add>
RSH_DEVICE void sum_part(To* row, const Part& part, const Add& add) {
  for (uint32_t first = part.first; first < part.last; first += Sums<T>::step()) {
    Sums<T> sums(first, part.last);
    add(sums);
    sums.store(row);
  }
}
template <class T>
RSH_DEVICE Parts parts_of_sums(uint64_t rows, uint64_t hidden, arch::Place warp) {
  return {rows, hidden, 16 / sizeof(T), warp};
}

}  // namespace railshmem::device::ep
