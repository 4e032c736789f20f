// The expert-major layout: every expert has a block of rows, ordered by (source PE, source token)
// and filled up to the alignment. A token travels once to a PE, into the block of its first expert
// there; that PE copies it to its other experts' blocks, and reduces their results to one row per
// token before anybody reads them.
#pragma once

#include "kernels/ep/route.hpp"
#include "kernels/ep/rows.hpp"

namespace railshmem::device::ep {

// Writes an arrival's weights and rows into a member's buffers. Returns the first of the rows.
RSH_DEVICE uint64_t place_pairs(const DeviceContext* ctx, const Exchange& x, const Stream& stream,
                                uint64_t row, int32_t member, uint64_t arrival, bool again) {
  const uint64_t topk = x.shape.topk;
  const int32_t pe = x.node.members[member];
  const int32_t first = first_expert(x.shape, pe), last = first_expert(x.shape, pe + 1);
  const uint64_t* const bases = expert_bases_of(x, stream.pe, member);
  int64_t* const places = in_peer(ctx, x.buffers.places + arrival * topk, pe);
  int64_t first_place = -1;
  for (uint64_t k = 0; k < topk; ++k) {
    const int32_t id = stream.ids[row * topk + k];
    int64_t place = -1;
    if (id >= first && id < last)
      place = static_cast<int64_t>(bases[id - first]) + stream.pair_ordinals[row * topk + k];
    if (first_place < 0) first_place = place;
    if (!again && k % arch::size<kBlock>() == arch::rank<kBlock>()) places[k] = place;
  }
  if (!again)
    arch::copy<kBlock>(in_peer(ctx, x.buffers.pair_weights + arrival * topk, pe),
                       stream.weights + row * topk, topk * sizeof(float));
  return static_cast<uint64_t>(first_place);
}

// Copies an arrival from its first row to its others and gives each its weight; an expert that is
// named twice has both weights.
RSH_DEVICE void spread(const Exchange& x, uint64_t arrival) {
  const Shape& shape = x.shape;
  const Buffers& at = x.buffers;
  const int64_t* const places = at.places + arrival * shape.topk;
  const float* const weights = at.pair_weights + arrival * shape.topk;
  int64_t first = -1;
  for (uint64_t k = 0; k < shape.topk; ++k) {
    const int64_t place = places[k];
    if (place < 0) continue;
    uint64_t before = 0;
    while (places[before] != place) ++before;
    if (before < k) {
      if (arch::leader<kBlock>()) at.weights[place] += weights[k];
      continue;
    }
    if (arch::leader<kBlock>()) at.weights[place] = weights[k];
    if (first < 0) {
      first = place;
      continue;
    }
    const auto from = static_cast<uint64_t>(first), to = static_cast<uint64_t>(place);
    arch::copy<kBlock>(at.tokens + to * shape.token_bytes, at.tokens + from * shape.token_bytes,
                       shape.token_bytes);
    arch::copy<kBlock>(at.scales + to * shape.scales, at.scales + from * shape.scales,
                       shape.scales * sizeof(float));
  }
}

RSH_DEVICE void zero(void* to, uint64_t bytes) {
  for (uint64_t i = arch::rank<kBlock>(); i < bytes; i += arch::size<kBlock>())
    static_cast<char*>(to)[i] = 0;
}

// Completes the blocks once all arrivals are there: rows of further experts, ids, and zeros behind
// the last row of a block.
RSH_DEVICE void fill_blocks(const DeviceContext* ctx, const Exchange& x, uint64_t arrivals) {
  for (uint64_t arrival = arch::block(); arrival < arrivals; arrival += arch::blocks())
    spread(x, arrival);
  const Shape& shape = x.shape;
  const Buffers& at = x.buffers;
  const int32_t experts = experts_of(shape, ctx->pe);
  for (int32_t expert = 0; expert < experts; ++expert) {
    const ExpertRows& block = x.experts[expert];
    for (uint64_t i = arch::block(); i < block.padded; i += arch::blocks()) {
      const uint64_t row = block.first + i;
      if (i >= block.rows) {
        zero(at.tokens + row * shape.token_bytes, shape.token_bytes);
        zero(at.scales + row * shape.scales, shape.scales * sizeof(float));
      }
      if (!arch::leader<kBlock>()) continue;
      at.indices[row] = i < block.rows ? expert : -1;
      if (i >= block.rows) at.weights[row] = 0;
    }
  }
}

// Writes the weighted sums of the experts' results to the rows that members read.
template <class T>
RSH_DEVICE void reduce_pairs(const Exchange& x, const char* expert_rows, uint64_t arrivals) {
  const Shape& shape = x.shape;
  const T* const from = reinterpret_cast<const T*>(expert_rows);
  T* const to = reinterpret_cast<T*>(x.buffers.results);
  for (uint64_t arrival = arch::block(); arrival < arrivals; arrival += arch::blocks()) {
    const int64_t* const places = x.buffers.places + arrival * shape.topk;
    const float* const weights = x.buffers.pair_weights + arrival * shape.topk;
    for (uint64_t at = 0; at < shape.hidden; at += kTile) {
      const Tile tile = tile_at(shape, at);
      float sum[kTile] = {};
      for (uint64_t k = 0; k < shape.topk; ++k)
        if (places[k] >= 0)
          add_weighted_row(sum, from + static_cast<uint64_t>(places[k]) * shape.hidden + at,
                           weights[k], tile.size);
      store_row(to + arrival * shape.hidden + at, sum, tile.size);
    }
  }
}

}  // namespace railshmem::device::ep
