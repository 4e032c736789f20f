// Dispatch: every token goes to the PEs that own its experts, straight into its final place. It has
// two halves; between them NICs carry what goes to other nodes.
#pragma once

#include "kernels/ep/expert_major.hpp"
#include "kernels/ep/grant.hpp"
#include "kernels/ep/remote.hpp"

namespace railshmem::device::ep {

struct DispatchCall {
  uint64_t round;     // of the ExpertParallel object; grows
  uint64_t previous;  // the last round in these buffers
  uint64_t room;      // rows that this PE takes
  bool in_heap;       // the tokens lie in the symmetric heap
  bool again;         // the routing of the previous round
};

// The caller's arrays for what was received; null: it is left in the buffers.
struct Delivery {
  char* tokens;
  float* weights;
  int64_t* indices;
  float* scales;
};

struct ReceiveCall {
  uint64_t round;
  uint64_t rows;
  uint64_t arrivals;
  Delivery to;
  bool again;
};

// Writes the weights and the member's own ids of an arrival.
RSH_DEVICE void place_routing(const DeviceContext* ctx, const Exchange& x, const Stream& stream,
                              uint64_t row, int32_t pe, uint64_t arrival) {
  const Shape& shape = x.shape;
  arch::copy<kBlock>(in_peer(ctx, x.buffers.weights + arrival * shape.topk, pe),
                     stream.weights + row * shape.topk, shape.topk * sizeof(float));
  const int32_t* const ids = stream.ids + row * shape.topk;
  int64_t* const indices = in_peer(ctx, x.buffers.indices + arrival * shape.topk, pe);
  const int32_t first = first_expert(shape, pe), last = first_expert(shape, pe + 1);
  for (uint64_t k = arch::rank<kBlock>(); k < shape.topk; k += arch::size<kBlock>())
    indices[k] = ids[k] >= first && ids[k] < last ? ids[k] - first : -1;
}

// Writes one row and what belongs to it into a member's buffers. Where the routing is not new, it
// is there already.
RSH_DEVICE void place_row(const DeviceContext* ctx, const Exchange& x, const Stream& stream,
                          uint64_t row, int32_t member, uint64_t arrival, bool again) {
  const Shape& shape = x.shape;
  const int32_t pe = x.node.members[member];
  uint64_t place = arrival;
  if (by_expert(shape))
    place = place_pairs(ctx, x, stream, row, member, arrival, again);
  else if (!again)
    place_routing(ctx, x, stream, row, pe, arrival);
  arch::copy<kBlock>(in_peer(ctx, x.buffers.tokens + place * shape.token_bytes, pe),
                     stream.tokens + row * shape.token_bytes, shape.token_bytes);
  if (shape.scales > 0)
    arch::copy<kBlock>(in_peer(ctx, x.buffers.scales + place * shape.scales, pe),
                       stream.scales + row * shape.scales, shape.scales * sizeof(float));
}

// Places the rows of a stream as they come; a forwarded one comes from another node.
RSH_DEVICE bool place_stream(const DeviceContext* ctx, const Exchange& x, uint64_t round,
                             const Stream& stream, bool forwarded, bool again) {
  const TraceSpan span(ctx->trace, Moment::ep_place, 0, -1, -1, 0, round);
  for (uint64_t row = arch::block(); row < stream.rows; row += arch::blocks()) {
    if (forwarded &&
        !wait_for_sequence(ctx, &x.buffers.from[stream.pe].rows, progress(x.shape, round, row + 1),
                           Waiting::ep_rows, stream.pe))
      return false;
    for (int32_t member = 0; member < x.node.n_members; ++member) {
      const int64_t arrival = arrival_of(x, stream, row, member);
      if (arrival >= 0)
        place_row(ctx, x, stream, row, member, static_cast<uint64_t>(arrival), again);
    }
  }
  return true;
}

// Tells the sources of other nodes that their staging is free.
RSH_DEVICE bool free_staging(const DeviceContext* ctx, const Exchange& x, uint64_t round) {
  FromPeer* const mine = x.buffers.from + ctx->pe;
  *x.buffers.refusal_out = *x.refusal;
  for (int32_t slot = 0; slot < x.node.n_sources; ++slot)
    if (!put_signal<Transport::proxy, kBlock>(ctx, &mine->refusal, x.buffers.refusal_out,
                                              sizeof(Refusal), set_signal(&mine->freed, round),
                                              x.node.sources[slot]))
      return false;
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
    if (x.node.gateways[node].pe >= 0 && is_mine(node))
      ok = send_header(ctx, x, call.round, call.previous, node, call.again);
  ok = send_rows(ctx, x, call.round, call.in_heap, ok);
  for (int32_t slot = 0; slot < x.node.n_sources && ok; ++slot)
    if (is_mine(slot)) ok = receive_header(ctx, x, call.round, slot, call.again);
  return ok;
}

// Learns where this PE's rows and those it forwards go. One thread calls each step; all blocks meet
// between them.
template <bool kRemote>
RSH_DEVICE bool agree_on_places(const DeviceContext* ctx, const Exchange& x,
                                const DispatchCall& call) {
  const bool first_block = arch::block() == 0;
  bool ok = true;
  if (first_block && call.again)
    signal_members(ctx, x.node, &x.buffers.from[ctx->pe].ready, call.round);
  if (first_block && !call.again) {
    const Stream& own = x.streams[0];
    announce(ctx, x, call.round, own);
    if constexpr (kRemote)
      number_rows(x.shape, own.ids, own.rows, x.node.node_of, x.node.n_nodes, x.node_ordinals,
                  x.node_rows);
  }
  ok = next_phase(ctx, ok);
  if constexpr (kRemote) ok = exchange_headers(ctx, x, call) && ok;
  if (first_block && call.again) ok = ok && wait_until_ready(ctx, x, call.round);
  if (first_block && !call.again) ok = ok && consent(ctx, x, call.round, call.room);
  ok = next_phase(ctx, ok);  // every stream is announced
  if (first_block && !call.again) ok = ok && collect_grants(ctx, x, call.round);
  return next_phase(ctx, ok);
}

// Collective, the first half: when it returns true, this PE's own rows are in the members' buffers
// and on their way to other nodes, and x.received and x.experts say what this PE gets, unless
// x.refusal names a PE of this node. kRemote: the job has several nodes.
template <bool kRemote>
RSH_DEVICE bool dispatch_send(const DeviceContext* ctx, const Exchange& x,
                              const DispatchCall& call) {
  const TraceSpan span(ctx->trace, Moment::ep_dispatch, 0, -1, -1, 0, call.round);
  bool ok = agree_on_places<kRemote>(ctx, x, call);
  ok = ok && place_stream(ctx, x, call.round, x.streams[0], false, call.again);
  ok = next_phase(ctx, ok);  // every row is placed
  if constexpr (!kRemote)
    if (ok && arch::block() == 0)
      signal_members(ctx, x.node, &x.buffers.from[ctx->pe].arrived, call.round);
  return ok;
}

template <class T>
RSH_DEVICE void deliver(T* to, const T* from, uint64_t count, uint64_t rows) {
  if (to == nullptr) return;
  for (uint64_t row = arch::block(); row < rows; row += arch::blocks())
    arch::copy<kBlock>(to + row * count, from + row * count, count * sizeof(T));
}

// Collective, the second half: forwards what other nodes sent; when it returns true, the buffers
// and the caller's arrays hold what this PE got, and what it sent may change.
template <bool kRemote>
RSH_DEVICE bool dispatch_recv(const DeviceContext* ctx, const Exchange& x,
                              const ReceiveCall& call) {
  const TraceSpan span(ctx->trace, Moment::ep_dispatch, 0, -1, -1, 0, call.round);
  const bool first_block = arch::block() == 0;
  bool ok = true;
  if constexpr (kRemote) {
    for (int32_t i = 1; i <= x.node.n_sources; ++i)
      ok = ok && place_stream(ctx, x, call.round, x.streams[i], true, call.again);
    ok = next_phase(ctx, ok);  // every forwarded row is placed
    if (first_block && ok) {
      signal_members(ctx, x.node, &x.buffers.from[ctx->pe].arrived, call.round);
      ok = free_staging(ctx, x, call.round);
    }
  }
  if (first_block) ok = ok && wait_for_arrivals(ctx, x, call.round);
  ok = next_phase(ctx, ok);
  const bool complete = x.refusal->pe < 0;
  if (by_expert(x.shape)) {
    if (ok && complete) fill_blocks(ctx, x, call.arrivals);
    ok = next_phase(ctx, ok);
  }
  if (ok && complete) {
    const uint64_t columns = by_expert(x.shape) ? 1 : x.shape.topk;
    deliver(call.to.tokens, x.buffers.tokens, x.shape.token_bytes, call.rows);
    deliver(call.to.weights, x.buffers.weights, columns, call.rows);
    deliver(call.to.indices, x.buffers.indices, columns, call.rows);
    deliver(call.to.scales, x.buffers.scales, x.shape.scales, call.rows);
  }
  if constexpr (kRemote)
    if (first_block) ok = ok && quiet_remote(ctx, x.node);
  return next_phase(ctx, ok);
}

}  // namespace railshmem::device::ep
