// Dispatch: every token goes to the PEs that own its experts, straight into its final place. It has
// two halves; between them NICs carry what goes to other nodes.
#pragma once

#include "kernels/ep/agree.hpp"
#include "kernels/ep/place.hpp"
#include "kernels/ep/remote.hpp"

namespace railshmem::device::ep {

struct DispatchCall {
  const char* tokens;    // [rows] of token_bytes
  const float* weights;  // [rows, topk]
  const float* scales;   // [rows, scales]
  Ids ids;
  uint64_t rows;
  uint64_t room;    // rows that this PE takes
  uint64_t ticket;  // which the host waits for in the summary; 0: it waits for nothing
  bool in_heap;     // the tokens lie in the symmetric heap
  bool again;       // by the routing of the previous round: without ids and weights
};

// The caller's arrays for what was received; null: it is left in the buffers.
struct Delivery {
  char* tokens;
  float* weights;
  int64_t* indices;
  float* scales;
};

struct ReceiveCall {
  Delivery to;
  bool again;
};

// This PE's own rows as the call gives them.
RSH_DEVICE Stream own_rows(const Exchange& x, const DispatchCall& call) {
  Stream own = x.streams[0];
  own.given = x.shape.given;
  own.rows = call.rows;
  own.tokens = call.tokens;
  own.ids = by_slot(x.shape) && !call.again ? call.ids : Ids{x.ids, false};
  own.weights = call.weights;
  own.scales = call.scales;
  return own;
}

// Tells the sources of other nodes that their staging is free. A block calls it.
RSH_DEVICE bool free_staging(const DeviceContext* ctx, const Exchange& x, uint64_t round) {
  FromPeer* const mine = x.buffers.from + ctx->pe;
  if (arch::leader<kBlock>()) *x.buffers.refusal_out = x.summary->refusal;
  bool ok = true;
  RSH_ROLLED
  for (int32_t slot = 0; slot < x.node.n_sources && ok; ++slot)
    ok = send(ctx, &mine->refusal, x.buffers.refusal_out, sizeof(Refusal),
              set_signal(&mine->freed, round), x.node.sources[slot]);
  return ok;
}

RSH_DEVICE bool wait_for_arrivals(const DeviceContext* ctx, const Exchange& x, uint64_t round) {
  const TraceSpan span(ctx->trace, Moment::ep_arrivals, 0, -1, -1, 0, round);
  return wait_for_members(ctx, x, round, Waiting::ep_rows, &FromPeer::arrived);
}

// Headers and rows leave for the other nodes; those of other nodes are announced in this one.
RSH_DEVICE bool exchange_headers(const DeviceContext* ctx, const Exchange& x, const Stream& own,
                                 uint64_t round, bool again, bool in_heap) {
  const TraceSpan span(ctx->trace, Moment::ep_headers, 0, -1, -1, 0, round);
  bool ok = true;
  RSH_ROLLED
  for (int32_t node = 0; node < x.node.n_nodes && ok; ++node)
    if (x.node.gateways[node].pe >= 0 && is_mine(node))
      ok = send_header(ctx, x, own, round, node, again);
  ok = send_rows(ctx, x, own, round, in_heap, ok);
  RSH_ROLLED
  for (int32_t slot = 0; slot < x.node.n_sources && ok; ++slot)
    if (is_mine(slot)) ok = receive_header(ctx, x, round, slot, again);
  return ok;
}

// Learns where this PE's rows and those it forwards go. All blocks mark rows, the last of them to
// end tells the members and derives the places, and all meet.
template <bool kRemote>
RSH_DEVICE bool agree_on_places(const DeviceContext* ctx, const Exchange& x, const Stream& own,
                                uint64_t round, const DispatchCall& call, bool in_heap) {
  arch::Arrival chosen{arch::block() == 0, true};
  if (arch::block() == 0) announce_room(ctx, x, round, call.room);
  if (!call.again) chosen = arch::arrive_at_grid(x.grid, mark_own_rows(ctx, x, own, call.ids));
  bool ok = chosen.ok;
  if (chosen.last && ok && !call.again) announce(ctx, x, round, own);
  if constexpr (kRemote) {
    ok = arch::sync_grid(x.grid, ok);
    ok = ok && exchange_headers(ctx, x, own, round, call.again, in_heap);
  }
  if (chosen.last && ok)
    ok = call.again ? wait_until_ready(ctx, x, round) : agree(ctx, x, round, call.ticket);
  return arch::sync_grid(x.grid, ok);
}

// By slot places are known. Members agree to be written to: by their results of the round before,
// which this PE had in its combine, and where it had none, by saying so.
template <bool kRemote>
RSH_DEVICE bool enter_by_slot(const DeviceContext* ctx, const Exchange& x, const Stream& own,
                              uint64_t round, const DispatchCall& call, bool in_heap) {
  const bool agreed = arch::load_relaxed(&x.summary->combined) + 1 == round;
  if (!agreed && arch::block() == 0) announce_room(ctx, x, round, call.room);
  bool ok = call.again || check_own_ids(ctx, x, own.rows, call.ids);
  ok = ok && (agreed || wait_until_ready(ctx, x, round));
  // Not before: a member may still need the count of the round before.
  if (ok && arch::block() == 0 && !call.again) announce(ctx, x, round, own);
  if constexpr (kRemote) {
    ok = arch::sync_grid(x.grid, ok);
    ok = ok && exchange_headers(ctx, x, own, round, call.again, in_heap);
    ok = arch::sync_grid(x.grid, ok);
  }
  return ok;
}

// This PE's own rows go to the members' buffers and on their way to other nodes.
template <bool kRemote>
RSH_DEVICE bool send_half(const DeviceContext* ctx, const Exchange& x, uint64_t round,
                          const DispatchCall& call, arch::RowMover* mover) {
  const TraceSpan span(ctx->trace, Moment::ep_dispatch, 0, -1, -1, 0, round);
  Stream own = own_rows(x, call);
  const bool rounded = kRemote && own.given != Given::as_it_travels;
  if (rounded) quantise_own(x, &own);  // all blocks meet before it is sent
  const bool in_heap = call.in_heap || rounded;
  bool ok = by_slot(x.shape) ? enter_by_slot<kRemote>(ctx, x, own, round, call, in_heap)
                             : agree_on_places<kRemote>(ctx, x, own, round, call, in_heap);
  ok = ok && place_rows(ctx, x, {own, round, false, call.again}, mover);
  arch::Arrival all{arch::block() == 0, ok};
  if constexpr (!kRemote) all = arch::arrive_at_grid(x.grid, ok);  // every row is placed
  if (!all.last || !all.ok) return all.ok;
  // Here all blocks have read the number of the round before, and nobody the rows of this one.
  if (arch::leader<kBlock>()) {
    x.streams[0].rows = own.rows;
    arch::store_relaxed(&x.summary->round, round);
  }
  if constexpr (!kRemote) signal_members(ctx, x.node, &x.buffers.from[ctx->pe].arrived, round);
  return true;
}

RSH_DEVICE void deliver(void* to, const void* from, uint64_t bytes) {
  if (to != nullptr) copy_all(static_cast<char*>(to), static_cast<const char*>(from), bytes);
}
RSH_DEVICE bool delivers(const Delivery& to) {
  return to.tokens != nullptr || to.weights != nullptr || to.indices != nullptr ||
         to.scales != nullptr;
}

// By slot: learns how many rows each source has, and marks the places of those it has not.
RSH_DEVICE bool receive_by_slot(const DeviceContext* ctx, const Exchange& x, uint64_t round) {
  const Shape& shape = x.shape;
  const bool ok = wait_for_all<kBlock>(
      ctx, static_cast<uint32_t>(shape.n_pes), round, Waiting::ep_counts,
      [&](uint32_t i) { return &count_of(x, static_cast<int32_t>(i), 0)->sequence; },
      [&](uint32_t i) { return x.node.writers[i]; });
  if (!ok) return false;
  const arch::Place warp = arch::warp_of_grid();
  const uint64_t slots = static_cast<uint64_t>(shape.n_pes) * shape.max_tokens;
  RSH_ROLLED
  for (int32_t source = 0; source < shape.n_pes; ++source) {
    const uint64_t rows = arch::load_relaxed(&count_of(x, source, 0)->rows);
    int64_t* const indices =
        x.buffers.indices + static_cast<uint64_t>(source) * shape.max_tokens * shape.topk;
    RSH_ROLLED
    for (uint64_t row = rows + warp.index; row < shape.max_tokens; row += warp.count)
      leave_empty(x, indices + row * shape.topk);
    if (warp.index == 0 && arch::leader<kWarp>())
      x.outcome.received[source] = static_cast<int64_t>(rows);
  }
  if (warp.index == 0 && arch::leader<kWarp>()) x.summary->arrivals = x.summary->rows = slots;
  return true;
}

// Rows of other nodes are forwarded, and those of this PE arrive. All blocks come, also where `ok`
// says that they have failed.
template <bool kRemote>
RSH_DEVICE bool receive_half(const DeviceContext* ctx, const Exchange& x, uint64_t round,
                             const ReceiveCall& call, arch::RowMover* mover, bool ok) {
  const TraceSpan span(ctx->trace, Moment::ep_dispatch, 0, -1, -1, 0, round);
  arch::Arrival chosen{arch::block() == 0, ok};
  if (by_slot(x.shape) && !call.again) ok = ok && receive_by_slot(ctx, x, round);
  if constexpr (kRemote) {
    RSH_ROLLED
    for (int32_t i = 1; i <= x.node.n_sources; ++i)
      ok = ok && place_rows(ctx, x, {x.streams[i], round, true, call.again}, mover);
    chosen = arch::arrive_at_grid(x.grid, ok);  // every forwarded row is placed
    ok = chosen.ok;
    if (chosen.last && ok) {
      signal_members(ctx, x.node, &x.buffers.from[ctx->pe].arrived, round);
      ok = free_staging(ctx, x, round);
    }
  }
  if (chosen.last) ok = ok && wait_for_arrivals(ctx, x, round);
  if (by_expert(x.shape) || delivers(call.to)) {
    ok = arch::sync_grid(x.grid, ok);
    const bool complete = ok && x.summary->refusal.pe < 0;
    if (by_expert(x.shape)) {
      if (complete) fill_blocks(ctx, x);
      ok = arch::sync_grid(x.grid, ok);
    }
    if (complete && ok) {
      const uint64_t rows = x.summary->rows;
      const uint64_t per_row = by_expert(x.shape) ? 1 : x.shape.topk;
      deliver(call.to.tokens, x.buffers.tokens, rows * x.shape.token_bytes);
      deliver(call.to.weights, x.buffers.weights, rows * per_row * sizeof(float));
      deliver(call.to.indices, x.buffers.indices, rows * per_row * sizeof(int64_t));
      deliver(call.to.scales, x.buffers.scales, rows * x.shape.scales * sizeof(float));
    }
  }
  if constexpr (kRemote)
    if (chosen.last) ok = ok && quiet_remote(ctx, x.node);
  return ok;
}

// ---- what is launched: the whole call, or its halves. kRemote: the job has several nodes.
// -------- Rounds are counted in memory, and counts stay there: what is launched can be launched
// again.

// Collective: when it has ended well, this PE's own rows are in the members' buffers and on their
// way to other nodes, and x.summary, x.received and x.experts say what this PE gets, unless the
// summary names a PE of this node that has no room.
template <bool kRemote>
RSH_DEVICE void dispatch_send(const DeviceContext* ctx, const Exchange& x,
                              const DispatchCall& call) {
  arch::RowMover mover;
  send_half<kRemote>(ctx, x, last_round(x) + 1, call, &mover);
}

// Collective: when it has ended well, the buffers and the caller's arrays hold what this PE got,
// and what it sent may change.
template <bool kRemote>
RSH_DEVICE void dispatch_recv(const DeviceContext* ctx, const Exchange& x,
                              const ReceiveCall& call) {
  arch::RowMover mover;
  receive_half<kRemote>(ctx, x, last_round(x), call, &mover, true);
}

template <bool kRemote>
RSH_DEVICE void dispatch(const DeviceContext* ctx, const Exchange& x, const DispatchCall& call,
                         const ReceiveCall& receive) {
  const uint64_t round = last_round(x) + 1;
  arch::RowMover mover;
  const bool ok = send_half<kRemote>(ctx, x, round, call, &mover);
  receive_half<kRemote>(ctx, x, round, receive, &mover, ok);
}

}  // namespace railshmem::device::ep
