// The expert-major layout: every expert has a block of rows, ordered by (source PE, source token)
// and filled up to the alignment. A token travels once to a PE, into the block of its first expert
// there; that PE copies it to its other experts' blocks, and reduces their results to one row per
// token before anybody reads them.
#pragma once

#include "kernels/ep/route.hpp"
#include "kernels/ep/rows.hpp"

namespace railshmem::device::ep {

// The row that a token of the stream has for its k-th expert, which is the member's, or -1.
RSH_DEVICE int64_t place_of(const Exchange& x, const Stream& stream, uint64_t row, uint64_t k,
                            int32_t member) {
  const int64_t id = id_at(stream.ids, row * x.shape.topk + k);
  if (id < 0) return -1;
  const Home home = x.homes[id];
  if (home.member != member) return -1;
  const uint64_t block =
      static_cast<uint64_t>(member) * static_cast<uint64_t>(x.shape.most_experts) +
      static_cast<uint64_t>(home.local);
  return static_cast<int64_t>(stream.expert_bases[block]) +
         marked(x, stream, expert_column(x, member, home.local), row);
}

// The first of a token's rows in a member that has some.
RSH_DEVICE uint64_t first_place(const Exchange& x, const Stream& stream, uint64_t row,
                                int32_t member) {
  int64_t place = -1;
  RSH_ROLLED
  for (uint64_t k = 0; k < x.shape.topk && place < 0; ++k)
    place = place_of(x, stream, row, k, member);
  return static_cast<uint64_t>(place);
}

// Writes where an arrival's rows are, and their weights, into a member's buffers, by a warp.
RSH_DEVICE void place_pairs(const DeviceContext* ctx, const Exchange& x, const Stream& stream,
                            uint64_t row, int32_t member, uint64_t arrival) {
  const uint64_t topk = x.shape.topk;
  const int32_t pe = x.node.members[member];
  int64_t* const places = in_peer(ctx, x.buffers.places + arrival * topk, pe);
  float* const weights = in_peer(ctx, x.buffers.pair_weights + arrival * topk, pe);
  RSH_ROLLED
  for (uint64_t k = arch::rank<kWarp>(); k < topk; k += arch::size<kWarp>()) {
    places[k] = place_of(x, stream, row, k, member);
    weights[k] = stream.weights[row * topk + k];
  }
}

// The first k with the same place.
RSH_DEVICE uint64_t first_with(const int64_t* places, uint64_t k) {
  uint64_t before = 0;
  RSH_ROLLED
  while (places[before] != places[k]) ++before;
  return before;
}

// Gives the rows of an arrival their weights, by a warp; an expert that is named twice has both.
RSH_DEVICE void spread_weights(const Exchange& x, uint64_t arrival) {
  const uint64_t topk = x.shape.topk;
  const int64_t* const places = x.buffers.places + arrival * topk;
  const float* const weights = x.buffers.pair_weights + arrival * topk;
  RSH_ROLLED
  for (uint64_t k = arch::rank<kWarp>(); k < topk; k += arch::size<kWarp>()) {
    if (places[k] < 0 || first_with(places, k) < k) continue;
    float sum = weights[k];
    RSH_ROLLED
    for (uint64_t after = k + 1; after < topk; ++after)
      if (places[after] == places[k]) sum += weights[after];
    x.buffers.weights[places[k]] = sum;
  }
}

// Copies a part of an arrival from its first row to its others, by a warp.
RSH_DEVICE void spread(const Exchange& x, const Part& part) {
  const Shape& shape = x.shape;
  const Buffers& at = x.buffers;
  const int64_t* const places = at.places + part.row * shape.topk;
  uint64_t first = 0;
  RSH_ROLLED
  while (places[first] < 0) ++first;
  const auto from = static_cast<uint64_t>(places[first]);
  RSH_ROLLED
  for (uint64_t k = first + 1; k < shape.topk; k += arch::kListed) {
    const uint64_t left = shape.topk - k;
    const WarpList others(static_cast<uint32_t>(left < arch::kListed ? left : arch::kListed),
                          [&](uint32_t i) {
                            if (places[k + i] < 0 || first_with(places, k + i) < k + i)
                              return arch::kNotListed;
                            return static_cast<uint64_t>(places[k + i]);
                          });
    arch::copy_to_each(others.changed([&](uint32_t, uint64_t to) {
      return listed(at.tokens + to * shape.token_bytes);
    }),
                       at.tokens + from * shape.token_bytes, part.first, part.last);
    if (part.number == 0 && shape.scales > 0)
      arch::copy_to_each(others.changed([&](uint32_t, uint64_t to) {
        return listed(at.scales + to * shape.scales);
      }),
                         at.scales + from * shape.scales, 0, shape.scales * sizeof(float));
  }
}

// Writes the id of each expert's rows, and -1 to what fills its block.
RSH_DEVICE void write_ids(const Exchange& x, int32_t experts) {
  const arch::Place warp = arch::warp_of_grid();
  RSH_ROLLED
  for (auto expert = static_cast<int32_t>(warp.index); expert < experts;
       expert += static_cast<int32_t>(warp.count)) {
    int64_t* const ids = x.buffers.indices + block_start(x, expert);
    float* const weights = x.buffers.weights + block_start(x, expert);
    const int64_t rows = x.outcome.expert_counts[expert];
    const int64_t padded = x.outcome.padded_counts[expert];
    RSH_ROLLED
    for (int64_t i = arch::rank<kWarp>(); i < padded; i += arch::size<kWarp>()) {
      ids[i] = i < rows ? expert : -1;
      if (i >= rows) weights[i] = 0;
    }
  }
}

// Writes zeros behind the last row of every block.
RSH_DEVICE void fill_rows(const Exchange& x, int32_t experts) {
  const Shape& shape = x.shape;
  const uint64_t most = shape.alignment - 1;  // that one block needs
  const arch::Place warp = arch::warp_of_grid();
  RSH_ROLLED
  for (uint64_t i = warp.index; i < static_cast<uint64_t>(experts) * most; i += warp.count) {
    const auto expert = static_cast<int32_t>(i / most);
    const uint64_t at = static_cast<uint64_t>(x.outcome.expert_counts[expert]) + i % most;
    if (at >= static_cast<uint64_t>(x.outcome.padded_counts[expert])) continue;
    const uint64_t row = block_start(x, expert) + at;
    arch::zero(x.buffers.tokens + row * shape.token_bytes, shape.token_bytes);
    arch::zero(x.buffers.scales + row * shape.scales, shape.scales * sizeof(float));
  }
}

// Completes the blocks once all arrivals are there.
RSH_DEVICE void fill_blocks(const DeviceContext* ctx, const Exchange& x) {
  const uint64_t arrivals = x.summary->arrivals;
  parts_of_rows(arrivals, x.shape.token_bytes, arch::warp_of_grid()).each([&](const Part& part) {
    if (part.number == 0) spread_weights(x, part.row);
    spread(x, part);
    return true;
  });
  const int32_t experts = experts_of(x.shape, ctx->pe);
  write_ids(x, experts);
  fill_rows(x, experts);
}

// Writes the weighted sums of the experts' results to the rows that members read.
template <class T>
RSH_DEVICE void reduce_pairs(const Exchange& x, const char* expert_rows) {
  const Shape& shape = x.shape;
  const T* const from = reinterpret_cast<const T*>(expert_rows);
  T* const to = reinterpret_cast<T*>(x.buffers.results);
  const auto work = [&](const Part& part) {
    const int64_t* const places = x.buffers.places + part.row * shape.topk;
    const float* const weights = x.buffers.pair_weights + part.row * shape.topk;
    sum_part<T>(to + part.row * shape.hidden, part, [&](Sums<T>& sums) {
      RSH_ROLLED
      for (uint64_t k = 0; k < shape.topk; ++k)
        if (places[k] >= 0)
          sums.add_weighted(sums.take(from + static_cast<uint64_t>(places[k]) * shape.hidden),
                            weights[k]);
    });
    return true;
  };
  parts_of_sums<T>(x.summary->arrivals, shape.hidden, arch::warp_of_grid()).each(work);
}

}  // namespace railshmem::device::ep
