// Combine: the experts' results are read where they lie and summed in fp32, in an order that
// depends on nothing but the routing. The part of another node crosses the wire as one row per
// token. Combine has two halves; between them NICs carry those parts.
#pragma once

#include "kernels/ep/expert_major.hpp"
#include "kernels/ep/remote.hpp"

namespace railshmem::device::ep {

struct CombineCall {
  uint64_t round;           // of the dispatch whose rows come back
  uint64_t arrivals;        // that this PE received
  const char* expert_rows;  // contiguous layout: null where they lie in the buffers already
};

// Adds what the members of this node have for a row of the stream, in order of their local index.
template <class T>
RSH_DEVICE void add_members(const DeviceContext* ctx, const Exchange& x, const Stream& stream,
                            uint64_t row, Tile tile, float* sum) {
  const T* const results = reinterpret_cast<const T*>(x.buffers.results);
  for (int32_t member = 0; member < x.node.n_members; ++member) {
    const int64_t arrival = arrival_of(x, stream, row, member);
    if (arrival < 0) continue;
    const T* const mine = results + static_cast<uint64_t>(arrival) * x.shape.hidden + tile.first;
    add_row(sum, in_peer(ctx, mine, x.node.members[member]), tile.size);
  }
}

// Waits until every forwarder has passed on the dispatch; a remote PE that had no room for its rows
// is known then, in x.refusal. One thread calls it.
RSH_DEVICE bool learn_refusals(const DeviceContext* ctx, const Exchange& x, uint64_t round) {
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
  for (uint64_t row = arch::block(); row < call.arrivals; row += arch::blocks())
    arch::copy<kBlock>(x.buffers.results + row * bytes, call.expert_rows + row * bytes, bytes);
}

RSH_DEVICE bool wait_for_results(const DeviceContext* ctx, const Exchange& x, uint64_t round) {
  for (int32_t member = 0; member < x.node.n_members; ++member) {
    const int32_t peer = x.node.members[member];
    if (!wait_for_sequence(ctx, &x.buffers.from[peer].results, round, Waiting::ep_results, peer))
      return false;
  }
  return true;
}

// What a node owes a remote source for its rows: fp32 sums, or, where the node has one PE, that
// PE's results as they are.
template <class T>
RSH_DEVICE uint64_t partial_bytes(const Shape& shape, int32_t n_members) {
  return shape.hidden * (n_members > 1 ? sizeof(float) : sizeof(T));
}
// Partials of the rows from `first` of a remote node, where they arrive.
template <class T>
RSH_DEVICE char* partials_of(const Exchange& x, int32_t node, int32_t n_members, uint64_t first) {
  float* const area =
      x.buffers.partials_in + static_cast<uint64_t>(node) * x.shape.max_tokens * x.shape.hidden;
  return reinterpret_cast<char*>(area) + first * partial_bytes<T>(x.shape, n_members);
}

// This node's part of rows of a remote source, somewhere in the heap.
template <class T>
RSH_DEVICE char* make_partials(const DeviceContext* ctx, const Exchange& x, int32_t slot,
                               uint64_t first, uint64_t last) {
  const Shape& shape = x.shape;
  const Stream& stream = x.streams[slot + 1];
  if (x.node.n_members == 1)  // all of the source's rows came here, in this order
    return x.buffers.results + (stream.bases[0] + first) * shape.result_bytes;
  float* const out =
      x.buffers.partials_out + static_cast<uint64_t>(slot) * shape.max_tokens * shape.hidden;
  for (uint64_t row = first; row < last; ++row)
    for (uint64_t at = 0; at < shape.hidden; at += kTile) {
      const Tile tile = tile_at(shape, at);
      float* const sum = out + row * shape.hidden + at;
      memset(sum, 0, tile.size * sizeof(float));
      add_members<T>(ctx, x, stream, row, tile, sum);
    }
  return reinterpret_cast<char*>(out + first * shape.hidden);
}

// Sends this node's part of the rows of a remote source there, chunk by chunk.
template <class T>
RSH_DEVICE bool send_partials(const DeviceContext* ctx, const Exchange& x, uint64_t round,
                              int32_t slot) {
  const Stream& stream = x.streams[slot + 1];
  const Shape& shape = x.shape;
  const int32_t n_members = x.node.n_members;
  for (uint64_t first = 0; first < stream.rows; first += shape.chunk_rows) {
    const uint64_t left = stream.rows - first;
    const uint64_t last = first + (left < shape.chunk_rows ? left : shape.chunk_rows);
    const char* const out = make_partials<T>(ctx, x, slot, first, last);
    const Signal signal =
        set_signal(&x.buffers.from[ctx->pe].partials, progress(shape, round, last));
    if (!put_signal<Transport::proxy, kBlock>(
            ctx, partials_of<T>(x, x.node.index, n_members, first), out,
            (last - first) * partial_bytes<T>(shape, n_members), signal, stream.pe))
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
    const int32_t n_members = x.node.gateways[node].n_members;
    const char* const part = partials_of<T>(x, node, n_members, static_cast<uint64_t>(ordinal));
    if (n_members > 1)
      add_row(sum, reinterpret_cast<const float*>(part) + tile.first, tile.size);
    else
      add_row(sum, reinterpret_cast<const T*>(part) + tile.first, tile.size);
  }
}

// Sums this PE's own tokens and rounds each result once.
template <bool kRemote, class T>
RSH_DEVICE bool sum_own(const DeviceContext* ctx, const Exchange& x, uint64_t round, T* out) {
  const TraceSpan span(ctx->trace, Moment::ep_sums, 0, -1, -1, 0, round);
  const Stream& own = x.streams[0];
  for (uint64_t row = arch::block(); row < own.rows; row += arch::blocks()) {
    if constexpr (kRemote)
      if (!wait_for_partials(ctx, x, round, row)) return false;
    for (uint64_t at = 0; at < x.shape.hidden; at += kTile) {
      const Tile tile = tile_at(x.shape, at);
      float sum[kTile] = {};
      if constexpr (kRemote)
        add_nodes<T>(ctx, x, row, tile, sum);
      else
        add_members<T>(ctx, x, own, row, tile, sum);
      store_row(out + row * x.shape.hidden + at, sum, tile.size);
    }
  }
  return true;
}

// Collective, the first half, after a dispatch that no PE refused: when it returns true, this PE's
// results may be read, the parts of other nodes are on their way, and call.expert_rows may change.
// T: type of the results.
template <bool kRemote, class T>
RSH_DEVICE bool combine_send(const DeviceContext* ctx, const Exchange& x, const CombineCall& call) {
  const TraceSpan span(ctx->trace, Moment::ep_combine, 0, -1, -1, 0, call.round);
  if (by_expert(x.shape))
    reduce_pairs<T>(x, call.expert_rows, call.arrivals);
  else if (call.expert_rows != nullptr)
    copy_results(x, call);
  bool ok = next_phase(ctx, true);
  if (arch::block() == 0 && ok)
    signal_members(ctx, x.node, &x.buffers.from[ctx->pe].results, call.round);
  if constexpr (kRemote) {
    ok = ok && wait_for_results(ctx, x, call.round);
    for (int32_t slot = 0; slot < x.node.n_sources && ok; ++slot)
      if (is_mine(slot)) ok = send_partials<T>(ctx, x, call.round, slot);
  }
  return next_phase(ctx, ok);
}

// Collective, the second half: when it returns true, `out` [tokens] holds the sums.
template <bool kRemote, class T>
RSH_DEVICE bool combine_recv(const DeviceContext* ctx, const Exchange& x, uint64_t round,
                             char* out) {
  const TraceSpan span(ctx->trace, Moment::ep_combine, 0, -1, -1, 0, round);
  bool ok =
      wait_for_results(ctx, x, round) && sum_own<kRemote>(ctx, x, round, reinterpret_cast<T*>(out));
  ok = next_phase(ctx, ok);
  if constexpr (kRemote)
    if (arch::block() == 0 && ok) ok = quiet_remote(ctx, x.node);
  return next_phase(ctx, ok);
}

}  // namespace railshmem::device::ep
