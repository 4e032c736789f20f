// fence, quiet and barrier: called by one thread, or with <Scope> by all threads of a warp or block
// together, for what any of them did before.
#pragma once

#include "kernels/shmem/put.hpp"

namespace railshmem::device {

// Puts, signals and atomics to each PE before the fence take effect there before those after it.
// Each lane is ordered for itself. One thread calls it.
RSH_DEVICE bool fence(const DeviceContext* ctx) {
  arch::fence_system();
  if (ctx->lanes == nullptr) return true;
  for (int pe = 0; pe < ctx->n_pes; ++pe)
    for (uint32_t index = 0; index < ctx->n_lanes; ++index) {
      const Lane& lane = lane_of(ctx, pe, index);
      // A lane with nothing in flight has nothing to order.
      if (lane.connected == 0 ||
          arch::load_acquire(&lane.completed) >= arch::load_acquire(&lane.posted))
        continue;
      Command c;
      c.op = CommandOp::fence;
      c.lane = static_cast<uint16_t>(index);
      c.pe = pe;
      if (!post(ctx, c)) return false;
    }
  return true;
}

// Everything this PE posted to `pe` before the call is complete: visible there, sources free.
RSH_DEVICE bool quiet(const DeviceContext* ctx, int pe) {
  arch::fence_system();
  if (ctx->lanes == nullptr) return true;
  for (uint32_t index = 0; index < ctx->n_lanes; ++index)
    if (lane_of(ctx, pe, index).connected != 0 && !quiet_lane(ctx, pe, index)) return false;
  return true;
}

RSH_DEVICE bool quiet(const DeviceContext* ctx) {
  arch::fence_system();
  if (ctx->lanes == nullptr) return true;
  for (int pe = 0; pe < ctx->n_pes; ++pe)
    if (!quiet(ctx, pe)) return false;
  return true;
}

constexpr uint64_t kDisagreed = 0;
constexpr uint64_t kPlainBarrier = 1;

// Collective: returns when every PE has called it (dissemination, log2(n) rounds). Each passes a
// non-zero value in `*agreed`; afterwards it holds that value where all PEs passed the same one,
// else kDisagreed on every PE. A call that was stopped can be repeated: it continues the same
// barrier.
RSH_DEVICE bool sync_all(const DeviceContext* ctx, uint64_t* agreed) {
  const uint64_t sequence = *ctx->sync_sequence + 1;
  SyncRound* rounds = at_offset<SyncRound>(ctx, ctx->sync_rounds);
  uint32_t round = 0;
  for (int64_t distance = 1; distance < ctx->n_pes; distance *= 2, ++round) {
    const int to = static_cast<int>((ctx->pe + distance) % ctx->n_pes);
    const int from = static_cast<int>((ctx->pe - distance % ctx->n_pes + ctx->n_pes) % ctx->n_pes);
    SyncRound* mine = rounds + round;
    if (!put_immediate(ctx, &mine->agreed[sequence & 1], *agreed, to,
                       set_signal(&mine->sequence, sequence)))
      return false;
    if (!wait_for_sequence(ctx, &mine->sequence, sequence, Waiting::barrier, from)) return false;
    if (arch::load_relaxed(&mine->agreed[sequence & 1]) != *agreed) *agreed = kDisagreed;
  }
  *ctx->sync_sequence = sequence;
  return true;
}

// Collective: quiet, then sync_all.
RSH_DEVICE bool barrier_all(const DeviceContext* ctx) {
  uint64_t agreed = kPlainBarrier;
  return quiet(ctx) && sync_all(ctx, &agreed);
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
