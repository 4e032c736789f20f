// Dispatch: every token goes to the PEs that own its experts, straight into its final place.
#pragma once

#include "kernels/ep/remote.hpp"

namespace railshmem::device::ep {

struct DispatchCall {
  uint64_t round;  // dispatches so far, this one included
  bool in_heap;    // the tokens lie in the symmetric heap
};

// Learns what every source sends, and gives each writer the place of its rows. From here peers may
// overwrite what this PE received.
RSH_DEVICE bool consent(const DeviceContext* ctx, const Exchange& x, uint64_t round) {
  const Node& node = x.node;
  uint64_t total = 0;
  for (int32_t source = 0; source < ctx->n_pes; ++source) {
    const Count& count = x.buffers.counts[source];
    if (!wait_for_sequence(ctx, &count.sequence, round, Waiting::ep_counts, node.writers[source]))
      return false;
    const uint64_t rows = arch::load_relaxed(&count.rows);
    x.received[source] = static_cast<int64_t>(rows);
    total += rows;
  }
  uint64_t base = 0;
  for (int32_t source = 0; source < ctx->n_pes; ++source) {
    Grant* const mine = x.buffers.grants + source * node.n_members + node.me;
    Grant* const grant = in_peer(ctx, mine, node.writers[source]);
    arch::store_relaxed(&grant->base, total <= x.shape.max_received ? base : kRefused);
    arch::store_relaxed(&grant->total, total);
    arch::store_release(&grant->sequence, round);  // pairs with the acquire in collect_grants()
    base += static_cast<uint64_t>(x.received[source]);
  }
  return true;
}

// Learns where every member wants the rows of every stream, also where there are none: a member
// that has answered has read the counts, which the next round overwrites.
RSH_DEVICE bool collect_grants(const DeviceContext* ctx, const Exchange& x, uint64_t round) {
  const TraceSpan span(ctx->trace, Moment::ep_grants, 0, -1, -1, 0, round);
  const Node& node = x.node;
  *x.refusal = {-1, 0};
  for (int32_t i = 0; i <= node.n_sources; ++i) {
    const Stream& stream = x.streams[i];
    for (int32_t member = 0; member < node.n_members; ++member) {
      const Grant& grant = x.buffers.grants[stream.pe * node.n_members + member];
      if (!wait_for_sequence(ctx, &grant.sequence, round, Waiting::ep_base, node.members[member]))
        return false;
      stream.bases[member] = arch::load_relaxed(&grant.base);
      if (stream.bases[member] == kRefused && x.refusal->pe < 0)
        *x.refusal = {node.members[member], arch::load_relaxed(&grant.total)};
    }
  }
  return true;
}

// Writes one row and what belongs to it into a member's buffers. Experts become the member's own
// ids.
RSH_DEVICE void place_row(const DeviceContext* ctx, const Exchange& x, const Stream& stream,
                          uint64_t row, int32_t pe, uint64_t place) {
  const Shape& shape = x.shape;
  const Buffers& to = x.buffers;
  arch::copy<kBlock>(in_peer(ctx, to.tokens + place * shape.token_bytes, pe),
                     stream.tokens + row * shape.token_bytes, shape.token_bytes);
  arch::copy<kBlock>(in_peer(ctx, to.weights + place * shape.topk, pe),
                     stream.weights + row * shape.topk, shape.topk * sizeof(float));
  if (shape.scales > 0)
    arch::copy<kBlock>(in_peer(ctx, to.scales + place * shape.scales, pe),
                       stream.scales + row * shape.scales, shape.scales * sizeof(float));
  const int32_t* const ids = stream.ids + row * shape.topk;
  int64_t* const indices = in_peer(ctx, to.indices + place * shape.topk, pe);
  const int32_t first = pe * shape.experts_per_pe;
  for (uint64_t k = arch::rank<kBlock>(); k < shape.topk; k += arch::size<kBlock>()) {
    const int32_t local = ids[k] - first;
    indices[k] = local >= 0 && local < shape.experts_per_pe ? local : -1;
  }
}

// Places the rows of a stream as they come; a forwarded one comes from another node.
RSH_DEVICE bool place_stream(const DeviceContext* ctx, const Exchange& x, uint64_t round,
                             const Stream& stream, bool forwarded) {
  const TraceSpan span(ctx->trace, Moment::ep_place, 0, -1, -1, 0, round);
  for (uint64_t row = arch::block(); row < stream.rows; row += arch::blocks()) {
    if (forwarded &&
        !wait_for_sequence(ctx, &x.buffers.from[stream.pe].rows, progress(x.shape, round, row + 1),
                           Waiting::ep_rows, stream.pe))
      return false;
    for (int32_t member = 0; member < x.node.n_members; ++member) {
      const int64_t place = place_of(x, stream, row, member);
      if (place >= 0)
        place_row(ctx, x, stream, row, x.node.members[member], static_cast<uint64_t>(place));
    }
  }
  return true;
}

// Tells the members that their rows are there, and the sources that their staging is free.
template <bool kRemote>
RSH_DEVICE bool announce_placed(const DeviceContext* ctx, const Exchange& x, uint64_t round) {
  const Node& node = x.node;
  FromPeer* const mine = x.buffers.from + ctx->pe;
  signal_members(ctx, node, &mine->arrived, round);
  if constexpr (kRemote) {
    *x.buffers.refusal_out = *x.refusal;
    for (int32_t slot = 0; slot < node.n_sources; ++slot)
      if (!put_signal<Transport::proxy, kBlock>(ctx, &mine->refusal, x.buffers.refusal_out,
                                                sizeof(Refusal), set_signal(&mine->freed, round),
                                                node.sources[slot]))
        return false;
  }
  return true;
}

RSH_DEVICE bool wait_for_arrivals(const DeviceContext* ctx, const Exchange& x, uint64_t round) {
  const TraceSpan span(ctx->trace, Moment::ep_arrivals, 0, -1, -1, 0, round);
  for (int32_t member = 0; member < x.node.n_members; ++member) {
    const int32_t peer = x.node.members[member];
    if (!wait_for_sequence(ctx, &x.buffers.from[peer].arrived, round, Waiting::ep_rows, peer))
      return false;
  }
  return true;
}

// Headers and rows leave for the other nodes; those of other nodes are announced in this one.
RSH_DEVICE bool exchange_headers(const DeviceContext* ctx, const Exchange& x,
                                 const DispatchCall& call) {
  const TraceSpan span(ctx->trace, Moment::ep_headers, 0, -1, -1, 0, call.round);
  bool ok = true;
  for (int32_t node = 0; node < x.node.n_nodes && ok; ++node)
    if (x.node.gateways[node].pe >= 0 && is_mine(node)) ok = send_header(ctx, x, call.round, node);
  ok = send_rows(ctx, x, call.round, call.in_heap, ok);
  for (int32_t slot = 0; slot < x.node.n_sources && ok; ++slot)
    if (is_mine(slot)) ok = receive_header(ctx, x, call.round, slot);
  return ok;
}

// Collective. When it returns true, x.received and the buffers hold what this PE got, unless
// x.refusal names a PE of this node; the caller's arrays may change. kRemote: the job has several
// nodes.
template <bool kRemote>
RSH_DEVICE bool dispatch(const DeviceContext* ctx, const Exchange& x, const DispatchCall& call) {
  const bool first_block = arch::block() == 0;
  bool ok = true;
  if (first_block) {
    const Stream& own = x.streams[0];
    announce(ctx, x, call.round, own);
    if constexpr (kRemote)
      number_rows(x.shape, own.ids, own.rows, x.node.node_of, x.node.n_nodes, x.node_ordinals,
                  x.node_rows);
  }
  ok = next_phase(ctx, ok);
  if constexpr (kRemote) ok = exchange_headers(ctx, x, call) && ok;
  if (first_block) ok = ok && consent(ctx, x, call.round);
  ok = next_phase(ctx, ok);  // every stream is announced
  if (first_block) ok = ok && collect_grants(ctx, x, call.round);
  ok = next_phase(ctx, ok);
  for (int32_t i = 0; i <= x.node.n_sources; ++i)
    ok = ok && place_stream(ctx, x, call.round, x.streams[i], i > 0);
  ok = next_phase(ctx, ok);  // every row is placed
  if (first_block) {
    ok =
        ok && announce_placed<kRemote>(ctx, x, call.round) && wait_for_arrivals(ctx, x, call.round);
    if constexpr (kRemote) ok = ok && quiet_remote(ctx, x.node);
  }
  return next_phase(ctx, ok);
}

}  // namespace railshmem::device::ep
