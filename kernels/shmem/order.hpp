// fence, quiet and barrier: called by one thread, or with <Scope> by all threads of a warp or block
// together, for what any of them did before.
#pragma once

#include "kernels/shmem/put.hpp"

namespace railshmem::device {

// Lanes of one context: `count` from `first` on.
struct Lanes {
  uint32_t first;
  uint32_t count;
};
RSH_DEVICE Lanes default_lanes(const DeviceContext* ctx) {
  return {0, ctx->n_lanes};
}
RSH_DEVICE Lanes all_lanes(const DeviceContext* ctx) {
  return {0, ctx->lane_stride};
}

// Puts, signals and atomics to each PE before the fence take effect there before those after it.
// Each lane is ordered for itself. One thread calls it.
RSH_DEVICE bool fence(const DeviceContext* ctx, Lanes lanes) {
  arch::fence_system();
  if (arch::fixed(ctx->lanes) == nullptr) return true;
  for (int pe = 0; pe < ctx->n_pes; ++pe)
    for (uint32_t index = lanes.first; index < lanes.first + lanes.count; ++index) {
      // A lane with nothing in flight has nothing to order.
      if (lane_of(ctx, pe, index).connected == 0 || is_idle(ctx, pe, index)) continue;
      // What follows to a mapped peer is a store, which no command can hold back: only atomics are
      // in flight to it, and they are waited for.
      if (transport_of(ctx, pe) == Transport::p2p) {
        if (!quiet_lane(ctx, pe, index)) return false;
        continue;
      }
      Command c;
      c.op = CommandOp::fence;
      c.lane = static_cast<uint16_t>(index);
      c.pe = pe;
      if (!post(ctx, c)) return false;
    }
  return true;
}
RSH_DEVICE bool fence(const DeviceContext* ctx) {
  return fence(ctx, default_lanes(ctx));
}

namespace detail {

// Waits for what was posted to PEs from `first` on, below `end`.
RSH_DEVICE bool quiet_range(const DeviceContext* ctx, int first, int end, Lanes lanes) {
  arch::fence_system();
  if (arch::fixed(ctx->lanes) == nullptr) return true;
  for (int pe = first; pe < end; ++pe)
    for (uint32_t index = lanes.first; index < lanes.first + lanes.count; ++index)
      if (lane_of(ctx, pe, index).connected != 0 &&
          !wait_ended(ctx, pe, index, posted(ctx, pe, index)))
        return false;
  return !network_failed(ctx);
}

}  // namespace detail

// Everything this PE posted to `pe` before the call is complete: visible there, sources free.
RSH_DEVICE bool quiet(const DeviceContext* ctx, int pe, Lanes lanes) {
  return detail::quiet_range(ctx, pe, pe + 1, lanes);
}
RSH_DEVICE bool quiet(const DeviceContext* ctx, int pe) {
  return quiet(ctx, pe, default_lanes(ctx));
}

RSH_DEVICE bool quiet(const DeviceContext* ctx, Lanes lanes) {
  return detail::quiet_range(ctx, 0, ctx->n_pes, lanes);
}
RSH_DEVICE bool quiet(const DeviceContext* ctx) {
  return quiet(ctx, default_lanes(ctx));
}

constexpr uint64_t kDisagreed = 0;
constexpr uint64_t kPlainBarrier = 1;

namespace detail {

// Tells `to`, which finds it at the same place of its heap. What is to be seen before it was
// fenced.
RSH_DEVICE bool tell(const DeviceContext* ctx, SyncRound* round, uint64_t sequence, uint64_t agreed,
                     int to) {
  SyncWord* const word = round->told + (sequence & 1);
  if (transport_of(ctx, to) == Transport::p2p) {
    arch::store_tagged(&in_peer(ctx, word, to)->sequence, sequence, agreed);
    return true;
  }
  return put_immediate<Transport::proxy>(ctx, &word->agreed, agreed, to,
                                         set_signal(&word->sequence, sequence));
}

// Waits for what `from` tells here.
RSH_DEVICE bool hear(const DeviceContext* ctx, const SyncRound* round, uint64_t sequence,
                     uint64_t* agreed, int from) {
  const SyncWord& word = round->told[sequence & 1];
  if (!wait_for_sequence(ctx, &word.sequence, sequence, Waiting::barrier, from)) return false;
  if (arch::load_relaxed(&word.agreed) != *agreed) *agreed = kDisagreed;
  return true;
}

// Dissemination over `n` PEs, log2(n) rounds; `me` is my place among them.
RSH_DEVICE bool disseminate(const DeviceContext* ctx, const int32_t* pes, int32_t n, int32_t me,
                            SyncRound* rounds, uint64_t sequence, uint64_t* agreed) {
  for (int64_t distance = 1; distance < n; distance *= 2, ++rounds) {
    if (distance > 1) arch::fence_payload();  // what was heard is passed on
    const int64_t behind = me + distance, before = me - distance;
    if (!tell(ctx, rounds, sequence, *agreed, arch::fixed(pes[behind < n ? behind : behind - n])) ||
        !hear(ctx, rounds, sequence, agreed, arch::fixed(pes[before < 0 ? before + n : before])))
      return false;
  }
  return true;
}

// Members tell the leader of their node, leaders disseminate, leaders tell their members: one trip
// over the network instead of one per round.
RSH_DEVICE bool sync_by_node(const DeviceContext* ctx, const Team& team, SyncArea* area,
                             uint64_t sequence, uint64_t* agreed) {
  const int32_t* const locals = arch::fixed(team.locals);
  const int32_t local = arch::fixed(team.local), n_local = arch::fixed(team.n_local);
  if (local > 0) {
    return tell(ctx, area->gather + local, sequence, *agreed, arch::fixed(locals[0])) &&
           hear(ctx, &area->release, sequence, agreed, arch::fixed(locals[0]));
  }
  for (int32_t i = 1; i < n_local; ++i)
    if (!hear(ctx, area->gather + i, sequence, agreed, arch::fixed(locals[i]))) return false;
  if (n_local > 1) arch::fence_payload();
  if (!disseminate(ctx, arch::fixed(team.leaders), arch::fixed(team.n_nodes),
                   arch::fixed(team.node), area->rounds, sequence, agreed))
    return false;
  if (n_local > 1) arch::fence_payload();
  for (int32_t i = 1; i < n_local; ++i)
    if (!tell(ctx, &area->release, sequence, *agreed, arch::fixed(locals[i]))) return false;
  return true;
}

// sync_team for who has fenced.
RSH_DEVICE bool meet(const DeviceContext* ctx, const Team& team, uint64_t* agreed) {
  uint64_t* const met_before = arch::fixed(team.sequence);
  const uint64_t sequence = *met_before + 1;
  auto* area = at_offset<SyncArea>(ctx, arch::fixed(team.area));
  const int32_t n_pes = arch::fixed(team.n_pes), n_nodes = arch::fixed(team.n_nodes);
  const bool met = n_nodes == 1 || n_nodes == n_pes
                       ? disseminate(ctx, arch::fixed(team.pes), n_pes, arch::fixed(team.me),
                                     area->rounds, sequence, agreed)
                       : sync_by_node(ctx, team, area, sequence, agreed);
  if (met) *met_before = sequence;
  return met;
}

}  // namespace detail

// Collective: returns when every member has called it, and has seen what the others stored before
// in their own memory. Each passes a non-zero value in `*agreed`; afterwards it holds that value
// where all passed the same one, else kDisagreed on every member. A call that was stopped can be
// repeated: it continues the same meeting.
RSH_DEVICE bool sync_team(const DeviceContext* ctx, const Team& team, uint64_t* agreed) {
  arch::fence_payload();  // the words of a meeting have no order of their own
  return detail::meet(ctx, team, agreed);
}

// Collective: quiet, then all PEs meet.
RSH_DEVICE bool barrier_all(const DeviceContext* ctx) {
  uint64_t agreed = kPlainBarrier;
  return quiet(ctx) && detail::meet(ctx, *arch::fixed(ctx->world), &agreed);
}

// ---- the same for scopes
// -------------------------------------------------------------------------

namespace detail {

// One thread acts for all, after all have come; all learn how it went.
template <arch::Scope S, class Call>
RSH_DEVICE bool by_leader(const Call& call) {
  arch::sync<S>();
  return arch::all<S>(!arch::leader<S>() || call());
}

}  // namespace detail

template <arch::Scope S>
RSH_DEVICE bool fence(const DeviceContext* ctx) {
  return detail::by_leader<S>([&] { return fence(ctx); });
}
template <arch::Scope S>
RSH_DEVICE bool quiet(const DeviceContext* ctx) {
  return detail::by_leader<S>([&] { return quiet(ctx); });
}
template <arch::Scope S>
RSH_DEVICE bool barrier_all(const DeviceContext* ctx) {
  return detail::by_leader<S>([&] { return barrier_all(ctx); });
}
// Waits for a local symmetric word; `seen` by the leader is not passed on.
template <arch::Scope S, class T>
RSH_DEVICE bool wait_until(const DeviceContext* ctx, const T* word, Compare compare, T expected) {
  return detail::by_leader<S>([&] {
    T last;
    return wait_until(ctx, word, compare, expected, &last);
  });
}

}  // namespace railshmem::device
