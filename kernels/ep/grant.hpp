// The agreement between writers and receivers: how many rows come, and where they may be written.
#pragma once

#include "kernels/ep/route.hpp"

namespace railshmem::device::ep {

// Learns how many rows every source sends to this PE.
RSH_DEVICE bool read_counts(const DeviceContext* ctx, const Exchange& x, uint64_t round) {
  for (int32_t source = 0; source < ctx->n_pes; ++source) {
    const Count& count = x.buffers.counts[source];
    if (!wait_for_sequence(ctx, &count.sequence, round, Waiting::ep_counts, x.node.writers[source]))
      return false;
    x.received[source] = static_cast<int64_t>(arch::load_relaxed(&count.rows));
  }
  return true;
}

RSH_DEVICE const uint64_t* expert_counts_of(const Exchange& x, int32_t source) {
  return x.buffers.expert_counts +
         static_cast<uint64_t>(source) * static_cast<uint64_t>(x.shape.most_experts);
}

// Expert-major: gives every expert of this PE its block, with no rows granted yet. Returns the rows
// of all blocks.
RSH_DEVICE uint64_t lay_out_blocks(const DeviceContext* ctx, const Exchange& x) {
  const uint64_t alignment = x.shape.alignment;
  const int32_t experts = experts_of(x.shape, ctx->pe);
  uint64_t next = 0;
  for (int32_t expert = 0; expert < experts; ++expert) {
    uint64_t rows = 0;
    for (int32_t source = 0; source < ctx->n_pes; ++source)
      rows += expert_counts_of(x, source)[expert];
    x.experts[expert] = {next, 0, (rows + alignment - 1) / alignment * alignment};
    next += x.experts[expert].padded;
  }
  return next;
}

// Expert-major: the part of a grant that says where the source's rows begin in every block.
RSH_DEVICE void grant_blocks(const DeviceContext* ctx, const Exchange& x, int32_t source) {
  const int32_t experts = experts_of(x.shape, ctx->pe);
  uint64_t* const bases =
      in_peer(ctx, expert_bases_of(x, source, x.node.me), x.node.writers[source]);
  for (int32_t expert = 0; expert < experts; ++expert) {
    bases[expert] = x.experts[expert].first + x.experts[expert].rows;
    x.experts[expert].rows += expert_counts_of(x, source)[expert];
  }
}

// Learns what every source sends, and gives each writer the place of its rows. From here peers may
// overwrite what this PE received.
RSH_DEVICE bool consent(const DeviceContext* ctx, const Exchange& x, uint64_t round,
                        uint64_t room) {
  const Node& node = x.node;
  if (!read_counts(ctx, x, round)) return false;
  uint64_t total = 0;
  if (by_expert(x.shape))
    total = lay_out_blocks(ctx, x);
  else
    for (int32_t source = 0; source < ctx->n_pes; ++source)
      total += static_cast<uint64_t>(x.received[source]);
  uint64_t base = 0;
  for (int32_t source = 0; source < ctx->n_pes; ++source) {
    Grant* const mine = x.buffers.grants + source * node.n_members + node.me;
    Grant* const grant = in_peer(ctx, mine, node.writers[source]);
    if (by_expert(x.shape)) grant_blocks(ctx, x, source);
    arch::store_relaxed(&grant->base, total <= room ? base : kRefused);
    arch::store_relaxed(&grant->total, total);
    arch::store_relaxed(&grant->room, room);
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
  *x.refusal = {-1, 0, 0};
  for (int32_t i = 0; i <= node.n_sources; ++i) {
    const Stream& stream = x.streams[i];
    for (int32_t member = 0; member < node.n_members; ++member) {
      const Grant& grant = x.buffers.grants[stream.pe * node.n_members + member];
      if (!wait_for_sequence(ctx, &grant.sequence, round, Waiting::ep_base, node.members[member]))
        return false;
      stream.bases[member] = arch::load_relaxed(&grant.base);
      if (stream.bases[member] == kRefused && x.refusal->pe < 0)
        *x.refusal = {node.members[member], arch::load_relaxed(&grant.total),
                      arch::load_relaxed(&grant.room)};
    }
  }
  return true;
}

// With the routing of the round before, consent is all that members wait for.
RSH_DEVICE bool wait_until_ready(const DeviceContext* ctx, const Exchange& x, uint64_t round) {
  for (int32_t member = 0; member < x.node.n_members; ++member) {
    const int32_t peer = x.node.members[member];
    if (!wait_for_sequence(ctx, &x.buffers.from[peer].ready, round, Waiting::ep_base, peer))
      return false;
  }
  return true;
}

}  // namespace railshmem::device::ep
