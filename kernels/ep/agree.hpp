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
  RSH_ROLLED
  for (auto member = static_cast<int32_t>(arch::rank<kBlock>()); member < x.node.n_members;
       member += static_cast<int32_t>(arch::size<kBlock>()))
    arch::store_tagged(&in_peer(ctx, mine, x.node.members[member])->ready, round, room);
}

RSH_DEVICE bool wait_until_ready(const DeviceContext* ctx, const Exchange& x, uint64_t round) {
  return wait_for_members(ctx, x, round, Waiting::ep_base, &FromPeer::ready);
}

// A value that comes with the round: the second of a pair whose first is the round.
struct Told {
  uint64_t round;
  uint64_t value;
};
RSH_DEVICE Told look(const uint64_t* pair) {
  Told told;
  told.round = arch::load_tagged(pair, &told.value);
  return told;
}
// Waits for it where the look was too early.
RSH_DEVICE bool hear(const DeviceContext* ctx, const uint64_t* pair, uint64_t round, Waiting what,
                     int32_t peer, Told* told) {
  if (told->round >= round) return true;
  const bool came = wait_for(ctx, pair, round, what, peer);
  *told = look(pair);
  return came;
}

// Hears how many rows each source has for a column, in the order of the sources; use(source, rows).
// Looks come in batches, which do not wait for each other.
template <class Use>
RSH_DEVICE bool hear_counts(const DeviceContext* ctx, const Exchange& x, uint64_t round,
                            uint32_t column, const Use& use) {
  constexpr int32_t kBatch = 4;
  bool ok = true;
  RSH_ROLLED
  for (int32_t first = 0; first < x.shape.n_pes && ok; first += kBatch) {
    Told told[kBatch];
    RSH_UNROLL
    for (int32_t i = 0; i < kBatch; ++i)
      if (first + i < x.shape.n_pes) told[i] = look(&count_of(x, first + i, column)->sequence);
    RSH_UNROLL
    for (int32_t i = 0; i < kBatch; ++i) {
      const int32_t source = first + i;
      if (source >= x.shape.n_pes || !ok) continue;
      ok = hear(ctx, &count_of(x, source, column)->sequence, round, Waiting::ep_counts,
                x.node.writers[source], &told[i]);
      use(source, told[i].value);
    }
  }
  return ok;
}

// Rows that the sources before this one have for a column.
RSH_DEVICE uint64_t rows_before(const Exchange& x, int32_t source, uint32_t column) {
  uint64_t rows = 0;
  RSH_ROLLED
  for (int32_t before = 0; before < source; ++before)
    rows += arch::load_relaxed(&count_of(x, before, column)->rows);
  return rows;
}
RSH_DEVICE uint64_t rows_of_expert(const Exchange& x, int32_t source, uint32_t block) {
  return rows_before(x, source, static_cast<uint32_t>(x.node.n_members) + block);
}
RSH_DEVICE uint64_t padded(const Shape& shape, uint64_t rows) {
  return (rows + shape.alignment - 1) / shape.alignment * shape.alignment;
}

// Expert-major: the first row of every expert's block, the rows of each member, and this PE's
// counts. A block calls it.
RSH_DEVICE bool lay_out_blocks(const DeviceContext* ctx, const Exchange& x, uint64_t round) {
  const auto most = static_cast<uint32_t>(x.shape.most_experts);
  const auto members = static_cast<uint32_t>(x.node.n_members);
  const auto mine = static_cast<uint32_t>(x.node.me) * most;
  bool ok = true;
  RSH_ROLLED
  for (uint32_t i = arch::rank<kBlock>(); i < members * most; i += arch::size<kBlock>()) {
    uint64_t rows = 0;
    ok = ok &&
         hear_counts(ctx, x, round, members + i, [&](int32_t, uint64_t more) { rows += more; });
    x.block_starts[i] = padded(x.shape, rows);
    if (i < mine || i >= mine + most) continue;
    x.outcome.expert_counts[i - mine] = static_cast<int64_t>(rows);
    x.outcome.padded_counts[i - mine] = static_cast<int64_t>(padded(x.shape, rows));
  }
  if (!arch::all<kBlock>(ok)) return false;
  const uint32_t share = (most + arch::size<kWarp>() - 1) / arch::size<kWarp>();
  const uint32_t first = arch::rank<kWarp>() * share;
  const uint32_t last = first + share < most ? first + share : most;
  const arch::Place warp = arch::warp_of_block();
  RSH_ROLLED
  for (uint32_t member = warp.index; member < members; member += warp.count) {
    uint64_t* const starts = x.block_starts + member * most;
    uint64_t in_lane = 0;
    RSH_ROLLED
    for (uint32_t expert = first; expert < last; ++expert) in_lane += starts[expert];
    uint64_t total;
    uint64_t next = arch::sum_before(in_lane, &total);
    RSH_ROLLED
    for (uint32_t expert = first; expert < last; ++expert) {
      const uint64_t rows = starts[expert];
      starts[expert] = next;
      next += rows;
    }
    if (arch::leader<kWarp>()) x.member_rows[member] = total;
  }
  arch::sync<kBlock>();
  return true;
}

// Expert-major: where the rows of every stream begin in every block. A block calls it.
RSH_DEVICE void find_block_bases(const Exchange& x) {
  const auto blocks = static_cast<uint32_t>(x.node.n_members * x.shape.most_experts);
  const auto n_streams = static_cast<uint32_t>(x.node.n_sources) + 1;
  RSH_ROLLED
  for (uint32_t i = arch::rank<kBlock>(); i < n_streams * blocks; i += arch::size<kBlock>()) {
    const Stream& stream = x.streams[i / blocks];
    const uint32_t block = i % blocks;
    stream.expert_bases[block] = x.block_starts[block] + rows_of_expert(x, stream.pe, block);
  }
}

// Where the arrivals of every stream begin in a member, or that they have no room there. Other
// streams than the own one are those of a job of several nodes.
RSH_DEVICE void find_bases(const Exchange& x, uint32_t member, uint64_t own, bool refused) {
  x.streams[0].bases[member] = refused ? kRefused : own;
  RSH_ROLLED
  for (int32_t i = 1; i <= x.node.n_sources; ++i)
    x.streams[i].bases[member] = refused ? kRefused : rows_before(x, x.streams[i].pe, member);
}

// Finds where rows go, how many come, and who has no room, a lane for each member. A warp calls it.
RSH_DEVICE bool settle(const DeviceContext* ctx, const Exchange& x, uint64_t round,
                       uint64_t ticket) {
  const Node& node = x.node;
  const auto members = static_cast<uint32_t>(node.n_members);
  const auto me = static_cast<uint32_t>(node.me);
  Refusal refusal{-1, 0, 0};
  bool ok = true;
  RSH_ROLLED
  for (uint32_t first = 0; first < members && ok; first += arch::kListed) {
    const auto visit = [&](uint32_t i) {
      const uint32_t member = first + i;
      const int32_t pe = node.members[member];
      const FromPeer& from = x.buffers.from[pe];
      Told room = look(&from.ready);
      uint64_t arrivals = 0, own = 0;
      ok = hear_counts(ctx, x, round, member, [&](int32_t source, uint64_t rows) {
        if (source < ctx->pe) own += rows;
        arrivals += rows;
        if (member == me) x.outcome.received[source] = static_cast<int64_t>(rows);
      });
      ok = ok && hear(ctx, &from.ready, round, Waiting::ep_base, pe, &room);
      const uint64_t rows = by_expert(x.shape) ? x.member_rows[member] : arrivals;
      const bool refused = rows > room.value;
      find_bases(x, member, own, refused);
      x.member_rows[member] = rows;
      if (member == me) {
        x.summary->arrivals = arrivals;
        x.summary->rows = rows;
      }
      return refused ? room.value : arch::kNotListed;
    };
    const uint32_t left = members - first;
    const arch::WarpList refusing(left < arch::kListed ? left : arch::kListed, visit);
    ok = arch::all<kWarp>(ok);
    if (refusing.mask() == 0 || refusal.pe >= 0) continue;
    const uint32_t i = arch::lowest_one(refusing.mask());
    refusal = {node.members[first + i], x.member_rows[first + i], refusing[i]};
  }
  if (arch::leader<kWarp>()) {
    x.summary->refusal = refusal;
    x.summary->ticket = ticket;
  }
  return ok;
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
  RSH_ROLLED
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
  bool ok = true;
  if (by_expert(x.shape)) {
    ok = lay_out_blocks(ctx, x, round);
    if (ok) find_block_bases(x);
  }
  if (arch::warp_of_block().index == 0 && ok) ok = settle(ctx, x, round, ticket);
  if (!arch::all<kBlock>(ok)) return false;
  if (ticket == 0) return stop_if_refused(ctx, x);
  publish(x, ticket);
  return true;
}

}  // namespace railshmem::device::ep
