// The agreement between the members of a node: everybody learns how many rows each source has for
// each member, and derives from that alone where they go and who has no room. No answer is needed.
#pragma once

#include "kernels/ep/route.hpp"

namespace railshmem::device::ep {

// Tells every member that this PE is in the round, has room for so many rows, and that what it
// received before may be overwritten. A block calls it.
RSH_DEVICE void announce_room(const DeviceContext* ctx, const Exchange& x, uint64_t round,
                              uint64_t room) {
  FromPeer* const mine = x.buffers.from + ctx->pe;
  for (auto member = static_cast<int32_t>(arch::rank<kBlock>()); member < x.node.n_members;
       member += static_cast<int32_t>(arch::size<kBlock>()))
    arch::store_tagged(&in_peer(ctx, mine, x.node.members[member])->ready, round, room);
}

RSH_DEVICE bool wait_until_ready(const DeviceContext* ctx, const Exchange& x, uint64_t round) {
  return wait_for_members(ctx, x, round, Waiting::ep_base, &FromPeer::ready);
}

RSH_DEVICE bool wait_for_counts(const DeviceContext* ctx, const Exchange& x, uint64_t round) {
  const uint64_t counted = counted_columns(x);
  return wait_for_all<kBlock>(
      ctx, static_cast<uint64_t>(ctx->n_pes) * counted, round, Waiting::ep_counts,
      [&](uint64_t i) { return &x.buffers.counts[i].sequence; },
      [&](uint64_t i) { return x.node.writers[i / counted]; });
}

// Rows that the sources before this one have for a column.
RSH_DEVICE uint64_t rows_before(const Exchange& x, int32_t source, uint64_t column) {
  uint64_t rows = 0;
  for (int32_t before = 0; before < source; ++before)
    rows += arch::load_relaxed(&count_of(x, before, column)->rows);
  return rows;
}
RSH_DEVICE uint64_t rows_of_expert(const Exchange& x, int32_t source, uint64_t block) {
  return rows_before(x, source, static_cast<uint64_t>(x.node.n_members) + block);
}
RSH_DEVICE uint64_t padded(const Shape& shape, uint64_t rows) {
  return (rows + shape.alignment - 1) / shape.alignment * shape.alignment;
}

// Expert-major: the first row of every expert's block, and the rows of each member.
RSH_DEVICE void lay_out_blocks(const Exchange& x) {
  const auto most = static_cast<uint64_t>(x.shape.most_experts);
  const uint64_t all = static_cast<uint64_t>(x.node.n_members) * most;
  for (uint64_t i = arch::rank<kBlock>(); i < all; i += arch::size<kBlock>())
    x.block_starts[i] = padded(x.shape, rows_of_expert(x, x.shape.n_pes, i));
  arch::sync<kBlock>();
  const uint64_t share = (most + arch::size<kWarp>() - 1) / arch::size<kWarp>();
  const uint64_t first = arch::rank<kWarp>() * share;
  const uint64_t last = first + share < most ? first + share : most;
  const arch::Place warp = arch::warp_of_block();
  const auto members = static_cast<uint64_t>(x.node.n_members);
  for (uint64_t member = warp.index; member < members; member += warp.count) {
    uint64_t* const starts = x.block_starts + member * most;
    uint64_t mine = 0;
    for (uint64_t expert = first; expert < last; ++expert) mine += starts[expert];
    uint64_t total;
    uint64_t next = arch::sum_before(mine, &total);
    for (uint64_t expert = first; expert < last; ++expert) {
      const uint64_t rows = starts[expert];
      starts[expert] = next;
      next += rows;
    }
    if (arch::leader<kWarp>()) x.member_rows[member] = total;
  }
}

// Where the rows of every stream begin in every member, or that they have no room there.
RSH_DEVICE void find_bases(const Exchange& x) {
  const auto members = static_cast<uint64_t>(x.node.n_members);
  const auto n_streams = static_cast<uint64_t>(x.node.n_sources) + 1;
  for (uint64_t i = arch::rank<kBlock>(); i < n_streams * members; i += arch::size<kBlock>()) {
    const Stream& stream = x.streams[i / members];
    const uint64_t member = i % members;
    const uint64_t room = arch::load_relaxed(&x.buffers.from[x.node.members[member]].room);
    stream.bases[member] =
        x.member_rows[member] <= room ? rows_before(x, stream.pe, member) : kRefused;
  }
  if (!by_expert(x.shape)) return;
  const uint64_t blocks = members * static_cast<uint64_t>(x.shape.most_experts);
  for (uint64_t i = arch::rank<kBlock>(); i < n_streams * blocks; i += arch::size<kBlock>()) {
    const Stream& stream = x.streams[i / blocks];
    const uint64_t block = i % blocks;
    stream.expert_bases[block] = x.block_starts[block] + rows_of_expert(x, stream.pe, block);
  }
}

// The first member that has no room.
RSH_DEVICE Refusal first_refusal(const Exchange& x) {
  Refusal refusal{-1, 0, 0};
  for (int32_t member = 0; member < x.node.n_members; ++member) {
    const int32_t pe = x.node.members[member];
    const uint64_t room = arch::load_relaxed(&x.buffers.from[pe].room);
    if (x.member_rows[member] > room && refusal.pe < 0) refusal = {pe, x.member_rows[member], room};
  }
  return refusal;
}

// What this PE gets.
RSH_DEVICE void sum_up(const Exchange& x, uint64_t ticket) {
  const auto me = static_cast<uint64_t>(x.node.me);
  for (auto source = static_cast<int32_t>(arch::rank<kBlock>()); source < x.shape.n_pes;
       source += static_cast<int32_t>(arch::size<kBlock>()))
    x.outcome.received[source] =
        static_cast<int64_t>(arch::load_relaxed(&count_of(x, source, me)->rows));
  if (by_expert(x.shape)) {
    const int32_t experts = experts_of(x.shape, x.node.members[me]);
    const uint64_t mine = me * static_cast<uint64_t>(x.shape.most_experts);
    for (auto expert = static_cast<int32_t>(arch::rank<kBlock>()); expert < experts;
         expert += static_cast<int32_t>(arch::size<kBlock>())) {
      const uint64_t rows = rows_of_expert(x, x.shape.n_pes, mine + static_cast<uint64_t>(expert));
      x.outcome.expert_counts[expert] = static_cast<int64_t>(rows);
      x.outcome.padded_counts[expert] = static_cast<int64_t>(padded(x.shape, rows));
    }
  }
  if (!arch::leader<kBlock>()) return;
  x.summary->refusal = first_refusal(x);
  x.summary->rows = x.member_rows[me];
  x.summary->arrivals = rows_before(x, x.shape.n_pes, me);
  x.summary->ticket = ticket;
}

// Where nobody asks for the outcome before the rows are used, a refusal stops the PE: all members
// know of it, and all stop.
RSH_DEVICE bool stop_if_refused(const DeviceContext* ctx, const Exchange& x) {
  const Refusal refusal = x.summary->refusal;
  if (refusal.pe < 0) return true;
  stop_with(ctx, Stop::no_room,
            {Waiting::nothing, static_cast<int32_t>(refusal.pe), -1, 0, 0, kNoWord, refusal.room,
             refusal.rows, 0, 0});
  return false;
}

// Hands the outcome to the host that waits for it. A block calls it.
RSH_DEVICE void publish(const Exchange& x, uint64_t ticket) {
  if (x.copy == nullptr) return;
  const auto* const from = reinterpret_cast<const uint64_t*>(x.summary);
  auto* const to = reinterpret_cast<uint64_t*>(x.copy);
  const auto skipped = static_cast<uint64_t>(&x.copy->ticket - to);
  for (uint64_t i = arch::rank<kBlock>(); i < x.outcome.words; i += arch::size<kBlock>())
    if (i != skipped) arch::store_relaxed(to + i, from[i]);
  arch::sync<kBlock>();
  // Release: pairs with the host's acquire.
  if (arch::leader<kBlock>()) arch::store_release(&x.copy->ticket, ticket);
}

// Learns what every source sends and derives all places. `ticket` 0: nobody waits for the outcome.
// A block calls it.
RSH_DEVICE bool agree(const DeviceContext* ctx, const Exchange& x, uint64_t round,
                      uint64_t ticket) {
  const TraceSpan span(ctx->trace, Moment::ep_grants, 0, -1, -1, 0, round);
  if (!wait_for_counts(ctx, x, round) || !wait_until_ready(ctx, x, round)) return false;
  if (by_expert(x.shape)) {
    lay_out_blocks(x);
  } else {
    const auto members = static_cast<uint64_t>(x.node.n_members);
    for (uint64_t i = arch::rank<kBlock>(); i < members; i += arch::size<kBlock>())
      x.member_rows[i] = rows_before(x, x.shape.n_pes, i);
  }
  arch::sync<kBlock>();
  find_bases(x);
  sum_up(x, ticket);
  arch::sync<kBlock>();
  if (ticket == 0) return stop_if_refused(ctx, x);
  publish(x, ticket);
  return true;
}

}  // namespace railshmem::device::ep
