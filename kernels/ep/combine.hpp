// Combine: the experts' results are read where they lie and summed in fp32, in an order that
// depends on nothing but the routing. The part of another node crosses the wire as one row per
// token. Combine has two halves; between them NICs carry those parts.
#pragma once

#include "kernels/ep/agree.hpp"
#include "kernels/ep/expert_major.hpp"
#include "kernels/ep/remote.hpp"

namespace railshmem::device::ep {

// The results that the members of this node have for a row of the stream, in order of their local
// index, for up to kListed members from the `from`-th on.
template <class T>
RSH_DEVICE WarpList member_results(const DeviceContext* ctx, const Exchange& x,
                                   const Stream& stream, uint64_t row, int32_t from) {
  const T* const results = reinterpret_cast<const T*>(x.buffers.results);
  const auto left = static_cast<uint32_t>(x.node.n_members - from);
  return {left < arch::kListed ? left : arch::kListed, [&](uint32_t i) {
            const int32_t member = from + static_cast<int32_t>(i);
            const int64_t arrival = arrival_of(x, stream, row, member);
            if (arrival < 0) return arch::kNotListed;
            const T* const mine = results + static_cast<uint64_t>(arrival) * x.shape.hidden;
            return listed(in_peer(ctx, mine, x.node.members[member]));
          }};
}

// Adds what the members of this node have for a row. `first` are the first of them, so that they
// are found once for a row.
template <class T>
RSH_DEVICE void add_members(const DeviceContext* ctx, const Exchange& x, const Stream& stream,
                            uint64_t row, const WarpList& first, Sums<T>& sums) {
  WarpList results = first;
  for (int32_t from = arch::kListed;; from += arch::kListed) {
    add_rows<T>(sums, results);
    if (from >= x.node.n_members) return;
    results = member_results<T>(ctx, x, stream, row, from);
  }
}

// Waits until every forwarder has passed on the dispatch; a remote PE that had no room for its rows
// is known then, in the summary, and stops this PE where nobody asks (`unasked`). One thread calls
// it.
RSH_DEVICE bool learn_refusals(const DeviceContext* ctx, const Exchange& x, bool unasked) {
  Summary& summary = *x.summary;
  for (int32_t node = 0; node < x.node.n_nodes; ++node) {
    const int32_t peer = x.node.gateways[node].pe;
    if (peer < 0) continue;
    const FromPeer& from = x.buffers.from[peer];
    if (!wait_for_sequence(ctx, &from.freed, summary.round, Waiting::ep_staging, peer))
      return false;
    if (from.refusal.pe >= 0 && summary.refusal.pe < 0) summary.refusal = from.refusal;
  }
  return !unasked || stop_if_refused(ctx, x);
}

RSH_DEVICE bool wait_for_results(const DeviceContext* ctx, const Exchange& x, uint64_t round) {
  return wait_for_members(ctx, x, round, Waiting::ep_results, &FromPeer::results);
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

// Of a stream, in a node of one PE.
RSH_DEVICE uint64_t first_arrival(const Exchange& x, const Stream& stream) {
  return by_slot(x.shape) ? static_cast<uint64_t>(stream.pe) * x.shape.max_tokens : stream.bases[0];
}

// This node's part of rows of a remote source, somewhere in the heap. A block calls it.
template <class T>
RSH_DEVICE char* make_partials(const DeviceContext* ctx, const Exchange& x, int32_t slot,
                               uint64_t first, uint64_t last) {
  const Shape& shape = x.shape;
  const Stream& stream = x.streams[slot + 1];
  if (x.node.n_members == 1)  // all of the source's rows came here, in this order
    return x.buffers.results + first_arrival(x, stream) * shape.result_bytes +
           first * shape.result_bytes;
  float* const out =
      x.buffers.partials_out + static_cast<uint64_t>(slot) * shape.max_tokens * shape.hidden;
  parts_of_sums<T>(last - first, shape.hidden, arch::warp_of_block()).each([&](const Part& part) {
    const uint64_t row = first + part.row;
    const WarpList members = member_results<T>(ctx, x, stream, row, 0);
    sum_part<T>(out + row * shape.hidden, part,
                [&](Sums<T>& sums) { add_members<T>(ctx, x, stream, row, members, sums); });
    return true;
  });
  return reinterpret_cast<char*>(out + first * shape.hidden);
}

// Sends this node's part of the rows of a remote source there, chunk by chunk. A block calls it.
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
    if (!send(ctx, partials_of<T>(x, x.node.index, n_members, first), out,
              (last - first) * partial_bytes<T>(shape, n_members), signal, stream.pe))
      return false;
  }
  return true;
}

// A warp calls it.
RSH_DEVICE bool wait_for_partials(const DeviceContext* ctx, const Exchange& x, uint64_t round,
                                  uint64_t row) {
  for (int32_t node = 0; node < x.node.n_nodes; ++node) {
    const int64_t number = node_ordinal(x, x.streams[0], row, node);
    if (number < 0) continue;
    const int32_t peer = x.node.gateways[node].pe;
    if (!arch::all<kWarp>(wait_for(ctx, &x.buffers.from[peer].partials,
                                   progress(x.shape, round, static_cast<uint64_t>(number) + 1),
                                   Waiting::ep_partials, peer)))
      return false;
  }
  return true;
}

// Adds the parts of all nodes in ascending order.
template <class T>
RSH_DEVICE void add_nodes(const DeviceContext* ctx, const Exchange& x, uint64_t row,
                          const WarpList& members, Sums<T>& sums) {
  for (int32_t node = 0; node < x.node.n_nodes; ++node) {
    if (node == x.node.index) {
      add_members<T>(ctx, x, x.streams[0], row, members, sums);
      continue;
    }
    const int64_t number = node_ordinal(x, x.streams[0], row, node);
    if (number < 0) continue;
    const int32_t n_members = x.node.gateways[node].n_members;
    const char* const part = partials_of<T>(x, node, n_members, static_cast<uint64_t>(number));
    if (n_members > 1)
      sums.add(sums.take(reinterpret_cast<const float*>(part)));
    else
      sums.add(sums.take(reinterpret_cast<const T*>(part)));
  }
}

// Sums this PE's own tokens and rounds each result once.
template <bool kRemote, class T>
RSH_DEVICE bool sum_own(const DeviceContext* ctx, const Exchange& x, uint64_t round, T* out) {
  const TraceSpan span(ctx->trace, Moment::ep_sums, 0, -1, -1, 0, round);
  const Stream own = x.streams[0];
  const Parts parts = parts_of_sums<T>(own.rows, x.shape.hidden, arch::warp_of_grid());
  return parts.each([&](const Part& part) {
    if constexpr (kRemote)
      if (!wait_for_partials(ctx, x, round, part.row)) return false;
    const WarpList members = member_results<T>(ctx, x, own, part.row, 0);
    sum_part<T>(out + part.row * x.shape.hidden, part, [&](Sums<T>& sums) {
      if constexpr (kRemote)
        add_nodes<T>(ctx, x, part.row, members, sums);
      else
        add_members<T>(ctx, x, own, part.row, members, sums);
    });
    return true;
  });
}

// This PE's results may be read, the parts of other nodes are on their way, and expert_rows may
// change. Null expert_rows, in the contiguous layout: they lie in the buffers already.
template <bool kRemote, class T>
RSH_DEVICE bool offer_results(const DeviceContext* ctx, const Exchange& x,
                              const char* expert_rows) {
  const uint64_t round = last_round(x);
  const TraceSpan span(ctx->trace, Moment::ep_combine, 0, -1, -1, 0, round);
  arch::Arrival chosen{arch::block() == 0, true};
  if (expert_rows != nullptr) {
    if (by_expert(x.shape))
      reduce_pairs<T>(x, expert_rows);
    else
      copy_all(x.buffers.results, expert_rows, x.summary->arrivals * x.shape.result_bytes);
    chosen = arch::arrive_at_grid(x.grid, true);
  }
  bool ok = chosen.ok;
  if (chosen.last && ok) signal_members(ctx, x.node, &x.buffers.from[ctx->pe].results, round);
  if constexpr (kRemote) {
    ok = ok && wait_for_results(ctx, x, round);
    for (int32_t slot = 0; slot < x.node.n_sources && ok; ++slot)
      if (is_mine(slot)) ok = send_partials<T>(ctx, x, round, slot);
    ok = arch::sync_grid(x.grid, ok);
  }
  return ok;
}

template <bool kRemote, class T>
RSH_DEVICE bool sum_results(const DeviceContext* ctx, const Exchange& x, char* out) {
  const uint64_t round = last_round(x);
  const TraceSpan span(ctx->trace, Moment::ep_combine, 0, -1, -1, 0, round);
  bool ok = wait_for_results(ctx, x, round);
  if (ok && arch::block() == 0 && arch::leader<kBlock>())
    arch::store_relaxed(&x.summary->combined, round);
  ok = ok && sum_own<kRemote>(ctx, x, round, reinterpret_cast<T*>(out));
  if constexpr (kRemote)
    if (arch::block() == 0) ok = ok && quiet_remote(ctx, x.node);
  return ok;
}

// ---- what is launched, after a dispatch that no PE refused. T: type of the results.
// --------------

// Collective: when it has ended well, this PE's results may be read, and expert_rows may change.
template <bool kRemote, class T>
RSH_DEVICE void combine_send(const DeviceContext* ctx, const Exchange& x, const char* expert_rows) {
  offer_results<kRemote, T>(ctx, x, expert_rows);
}

// Collective: when it has ended well, `out` [tokens] holds the sums.
template <bool kRemote, class T>
RSH_DEVICE void combine_recv(const DeviceContext* ctx, const Exchange& x, char* out) {
  sum_results<kRemote, T>(ctx, x, out);
}

template <bool kRemote, class T>
RSH_DEVICE void combine(const DeviceContext* ctx, const Exchange& x, const char* expert_rows,
                        char* out) {
  if (offer_results<kRemote, T>(ctx, x, expert_rows)) sum_results<kRemote, T>(ctx, x, out);
}

}  // namespace railshmem::device::ep
