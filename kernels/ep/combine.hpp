// Combine: the experts' results are read where they lie and summed in fp32, in an order that
// depends on nothing but the routing. Partial sums of another node cross the wire as one fp32 row
// per token.
#pragma once

#include "kernels/ep/convert.hpp"
#include "kernels/ep/remote.hpp"

namespace railshmem::device::ep {

struct CombineCall {
  uint64_t round;       // of the dispatch whose rows come back
  uint64_t rows;        // that this PE received
  const char* results;  // [rows] of result_bytes; null: they lie in the buffers already
  char* out;            // [tokens] of result_bytes
};

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
RSH_DEVICE void store_row(T* __restrict to, const float* __restrict sum, uint64_t size) {
  for (uint64_t i = arch::rank<kBlock>(); i < size; i += arch::size<kBlock>())
    to[i] = narrow<T>(sum[i]);
}

// Adds what the members of this node have for a row of the stream, in order of their local index.
template <class T>
RSH_DEVICE void add_members(const DeviceContext* ctx, const Exchange& x, const Stream& stream,
                            uint64_t row, Tile tile, float* sum) {
  const T* const results = reinterpret_cast<const T*>(x.buffers.results);
  for (int32_t member = 0; member < x.node.n_members; ++member) {
    const int64_t place = place_of(x, stream, row, member);
    if (place < 0) continue;
    const T* const mine = results + static_cast<uint64_t>(place) * x.shape.hidden + tile.first;
    add_row(sum, in_peer(ctx, mine, x.node.members[member]), tile.size);
  }
}

// Waits until every forwarder has passed on the last dispatch; a remote PE that had no room for its
// rows is known now.
RSH_DEVICE bool wait_for_forwarders(const DeviceContext* ctx, const Exchange& x, uint64_t round) {
  for (int32_t node = 0; node < x.node.n_nodes; ++node) {
    const int32_t peer = x.node.gateways[node].pe;
    if (peer < 0) continue;
    const FromPeer& from = x.buffers.from[peer];
    if (!wait_for_sequence(ctx, &from.freed, round, Waiting::ep_staging, peer)) return false;
    if (from.refusal.pe >= 0 && x.refusal->pe < 0) *x.refusal = from.refusal;
  }
  return true;
}

RSH_DEVICE void copy_results(const Exchange& x, const CombineCall& call) {
  const uint64_t bytes = x.shape.result_bytes;
  for (uint64_t row = arch::block(); row < call.rows; row += arch::blocks())
    arch::copy<kBlock>(x.buffers.results + row * bytes, call.results + row * bytes, bytes);
}

RSH_DEVICE bool wait_for_results(const DeviceContext* ctx, const Exchange& x, uint64_t round) {
  for (int32_t member = 0; member < x.node.n_members; ++member) {
    const int32_t peer = x.node.members[member];
    if (!wait_for_sequence(ctx, &x.buffers.from[peer].results, round, Waiting::ep_results, peer))
      return false;
  }
  return true;
}

// Sums this node's part of the rows of a remote source and sends it there, chunk by chunk.
template <class T>
RSH_DEVICE bool send_partials(const DeviceContext* ctx, const Exchange& x, uint64_t round,
                              int32_t slot) {
  const Stream& stream = x.streams[slot + 1];
  const Shape& shape = x.shape;
  const uint64_t area = shape.max_tokens * shape.hidden;
  float* const out = x.buffers.partials_out + static_cast<uint64_t>(slot) * area;
  float* const in = x.buffers.partials_in + static_cast<uint64_t>(x.node.index) * area;
  for (uint64_t first = 0; first < stream.rows; first += shape.chunk_rows) {
    const uint64_t left = stream.rows - first;
    const uint64_t last = first + (left < shape.chunk_rows ? left : shape.chunk_rows);
    for (uint64_t row = first; row < last; ++row)
      for (uint64_t at = 0; at < shape.hidden; at += kTile) {
        const Tile tile = tile_at(shape, at);
        float* const sum = out + row * shape.hidden + at;
        memset(sum, 0, tile.size * sizeof(float));
        add_members<T>(ctx, x, stream, row, tile, sum);
      }
    const Signal signal =
        set_signal(&x.buffers.from[ctx->pe].partials, progress(shape, round, last));
    if (!put_signal<Transport::proxy, kBlock>(
            ctx, in + first * shape.hidden, out + first * shape.hidden,
            (last - first) * shape.hidden * sizeof(float), signal, stream.pe))
      return false;
  }
  return true;
}

RSH_DEVICE bool wait_for_partials(const DeviceContext* ctx, const Exchange& x, uint64_t round,
                                  uint64_t row) {
  for (int32_t node = 0; node < x.node.n_nodes; ++node) {
    const int64_t ordinal = node_ordinal(x, row, node);
    if (ordinal < 0) continue;
    const int32_t peer = x.node.gateways[node].pe;
    if (!wait_for_sequence(ctx, &x.buffers.from[peer].partials,
                           progress(x.shape, round, static_cast<uint64_t>(ordinal) + 1),
                           Waiting::ep_partials, peer))
      return false;
  }
  return true;
}

// Adds the parts of all nodes in ascending order.
template <class T>
RSH_DEVICE void add_nodes(const DeviceContext* ctx, const Exchange& x, uint64_t row, Tile tile,
                          float* sum) {
  for (int32_t node = 0; node < x.node.n_nodes; ++node) {
    if (node == x.node.index) {
      add_members<T>(ctx, x, x.streams[0], row, tile, sum);
      continue;
    }
    const int64_t ordinal = node_ordinal(x, row, node);
    if (ordinal < 0) continue;
    const uint64_t at =
        static_cast<uint64_t>(node) * x.shape.max_tokens + static_cast<uint64_t>(ordinal);
    add_row(sum, x.buffers.partials_in + at * x.shape.hidden + tile.first, tile.size);
  }
}

// Sums this PE's own tokens and rounds each result once.
template <bool kRemote, class T>
RSH_DEVICE bool sum_own(const DeviceContext* ctx, const Exchange& x, const CombineCall& call) {
  const Stream& own = x.streams[0];
  for (uint64_t row = arch::block(); row < own.rows; row += arch::blocks()) {
    if constexpr (kRemote)
      if (!wait_for_partials(ctx, x, call.round, row)) return false;
    T* const out = reinterpret_cast<T*>(call.out) + row * x.shape.hidden;
    for (uint64_t at = 0; at < x.shape.hidden; at += kTile) {
      const Tile tile = tile_at(x.shape, at);
      float sum[kTile] = {};
      if constexpr (kRemote)
        add_nodes<T>(ctx, x, row, tile, sum);
      else
        add_members<T>(ctx, x, own, row, tile, sum);
      store_row(out + at, sum, tile.size);
    }
  }
  return true;
}

template <bool kRemote, class T>
RSH_DEVICE bool exchange_sums(const DeviceContext* ctx, const Exchange& x,
                              const CombineCall& call) {
  const TraceSpan span(ctx->trace, Moment::ep_sums, 0, -1, -1, 0, call.round);
  if (!wait_for_results(ctx, x, call.round)) return false;
  if constexpr (kRemote)
    for (int32_t slot = 0; slot < x.node.n_sources; ++slot)
      if (is_mine(slot) && !send_partials<T>(ctx, x, call.round, slot)) return false;
  return sum_own<kRemote, T>(ctx, x, call);
}

// Collective, after a dispatch that everybody took part in. When it returns true, call.out holds
// the sums, unless x.refusal names a remote PE: then nothing was done, on any PE. T: type of the
// results.
template <bool kRemote, class T>
RSH_DEVICE bool combine(const DeviceContext* ctx, const Exchange& x, const CombineCall& call) {
  const bool first_block = arch::block() == 0;
  bool ok = true;
  if constexpr (kRemote) {
    if (first_block) ok = wait_for_forwarders(ctx, x, call.round);
    ok = next_phase(ctx, ok);
    // The same answer for all blocks, whatever `ok` is: those that go on meet in later phases.
    if (x.refusal->pe >= 0) return ok;
  }
  if (call.results != nullptr && ok) copy_results(x, call);
  ok = next_phase(ctx, ok);
  if (first_block && ok) signal_members(ctx, x.node, &x.buffers.from[ctx->pe].results, call.round);
  ok = ok && exchange_sums<kRemote, T>(ctx, x, call);
  ok = next_phase(ctx, ok);
  if constexpr (kRemote)
    if (first_block && ok) ok = quiet_remote(ctx, x.node);
  return next_phase(ctx, ok);
}

}  // namespace railshmem::device::ep
