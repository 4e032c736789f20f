// Posting commands from kernels.
#pragma once

#include "kernels/shmem/wait.hpp"

namespace railshmem::device {

// The rail that carries the lane now, for reports.
RSH_DEVICE int rail_of(const DeviceContext* ctx, int pe, uint32_t lane) {
  return arch::load_relaxed(&progress_of(ctx, pe, lane).rail);
}

// Called by exactly one thread of the scope; a put's source is visible to the NIC (fence_payload).
// False: stopped, and the command will not be executed.
RSH_DEVICE bool post(const DeviceContext* ctx, const Command& command) {
  Lane& lane = lane_of(ctx, command.pe, command.lane);
  const Ring& ring = arch::fixed(ctx->rings)[arch::fixed(lane.ring)];
  if (stopped_lately(ctx)) return false;
  const int rail = recording(ctx->trace) ? rail_of(ctx, command.pe, command.lane) : -1;
  TraceSpan span(ctx->trace, Moment::ring_posted, command.bytes, command.pe, rail, command.lane);
  // Counted before the slot is claimed. On the host, whoever claims a later slot and then asks how
  // much was posted counts this command too (the claim's acquire-release carries the count along).
  arch::count_one(&lane.posted);
  // Looked at before the claim, so that a GPU does both at once.
  const uint64_t head_seen = arch::load_relaxed(arch::fixed(ring.head_seen));
  const uint64_t index = arch::claim_together(arch::fixed(ring.tail));
  span.set_id(index);
  const uint32_t shift = arch::fixed(ring.shift);
  const uint64_t slots = uint64_t{1} << shift;
  // Relaxed: no store below is done before the branch is decided, and what the consumer read from
  // the slot it read before it counted that.
  if (index - head_seen >= slots) {
    arch::claim_add(ring.full_waits, uint64_t{1});
    Waiter waiter(ctx, Waiting::ring_room, command.pe, kNoWord, index - slots + 1,
                  rail_of(ctx, command.pe, command.lane));
    for (;;) {
      const uint64_t head = arch::load_acquire(ring.head);
      // Several producers refresh the cache; an older value only costs one more look.
      arch::store_relaxed(ring.head_seen, head);
      if (index - head < slots) break;
      if (!waiter.again(head)) {
        // The claimed slot cannot be filled any more, so nothing behind it can ever be read.
        arch::store_release(ring.dead, 1u);
        return false;
      }
    }
  }
  write_command(arch::fixed(ring.slots) + (index & (slots - 1)), lap_of(index, shift), command);
  arch::wake(arch::fixed(ring.sleep_word));
  return true;
}

namespace detail {

// Looks at how many commands of the lane are complete, if the last look did not see `target`.
RSH_DEVICE uint64_t completed(const DeviceContext* ctx, int pe, uint32_t index, uint64_t target) {
  Lane& lane = lane_of(ctx, pe, index);
  // Acquire: as good as a look of our own; pairs with the release below.
  const uint64_t seen = arch::load_acquire(&lane.completed_seen);
  if (seen >= target) return seen;
  const uint64_t now = arch::load_acquire(&progress_of(ctx, pe, index).completed);
  // Several producers refresh it; an older value only costs one more look.
  if (now != seen) arch::store_release(&lane.completed_seen, now);
  return now;
}

// Waits until the first `target` commands posted to this lane have ended, well or not.
RSH_DEVICE bool wait_ended(const DeviceContext* ctx, int pe, uint32_t index, uint64_t target) {
  uint64_t seen = completed(ctx, pe, index, target);
  if (seen >= target) return true;
  Waiter waiter(ctx, Waiting::quiet, pe, kNoWord, target, rail_of(ctx, pe, index));
  do {
    if (!waiter.again(seen)) return false;
    seen = completed(ctx, pe, index, target);
  } while (seen < target);
  return true;
}

RSH_DEVICE uint64_t posted(const DeviceContext* ctx, int pe, uint32_t index) {
  return arch::load_acquire(&lane_of(ctx, pe, index).posted);
}

}  // namespace detail

// Nothing of the lane is in flight.
RSH_DEVICE bool is_idle(const DeviceContext* ctx, int pe, uint32_t index) {
  const uint64_t posted = detail::posted(ctx, pe, index);
  return detail::completed(ctx, pe, index, posted) >= posted;
}

// Waits until the first `target` commands posted to this lane are complete. False: stopped, or some
// of what is counted as complete has failed.
RSH_DEVICE bool wait_completed(const DeviceContext* ctx, int pe, uint32_t index, uint64_t target) {
  return detail::wait_ended(ctx, pe, index, target) && !network_failed(ctx);
}

// Waits until everything posted to this lane before the call is complete. A snapshot: what others
// post meanwhile is not waited for.
RSH_DEVICE bool quiet_lane(const DeviceContext* ctx, int pe, uint32_t index) {
  return wait_completed(ctx, pe, index, detail::posted(ctx, pe, index));
}

// ---- results of gets and fetching atomics ------------------------------------------------------

namespace detail {

RSH_DEVICE uint64_t claim_of(uint64_t uses, SlotState state) {
  return uses << 2 | static_cast<uint64_t>(state);
}

// Whether nothing can come any more for a slot that was claimed so.
RSH_DEVICE bool is_takeable(uint64_t claim, const ResultSlot* slot) {
  const auto state = static_cast<SlotState>(claim & 3);
  if (state == SlotState::free) return true;
  // Acquire: the late result is written before our operation begins.
  return state == SlotState::abandoned && arch::load_acquire(&slot->ended) >> 1 == claim >> 2;
}

}  // namespace detail

// Claims a free slot; waits, bounded, while all are taken. Returns false when stopped.
RSH_DEVICE bool take_slot(const DeviceContext* ctx, uint32_t* taken) {
  Waiter waiter(ctx, Waiting::result_slot, -1);
  for (;;) {
    for (uint32_t tries = 0; tries < ctx->n_result_slots; ++tries) {
      const auto index =
          static_cast<uint32_t>(arch::claim_together(ctx->result_hint) % ctx->n_result_slots);
      uint64_t* word = ctx->result_claims + index;
      const uint64_t claim = arch::load_relaxed(word);
      if (!detail::is_takeable(claim, ctx->result_slots + index)) continue;
      if (arch::claim_swap(word, claim, detail::claim_of(claim >> 2, SlotState::taken)) == claim) {
        *taken = index;
        return true;
      }
    }
    if (!waiter.again(0)) return false;
  }
}

// Of a slot whose operation was not posted.
RSH_DEVICE void return_slot(const DeviceContext* ctx, uint32_t index) {
  uint64_t* word = ctx->result_claims + index;
  arch::store_release(word, detail::claim_of(arch::load_relaxed(word) >> 2, SlotState::free));
}

// Waits for the slot's operation, reads its value and frees it. A slot whose wait is given up stays
// out of use until its operation ends, because that may still write it.
RSH_DEVICE bool collect_slot(const DeviceContext* ctx, uint32_t index, int pe, uint64_t* value) {
  const ResultSlot* slot = ctx->result_slots + index;
  uint64_t* word = ctx->result_claims + index;
  const uint64_t uses = (arch::load_relaxed(word) >> 2) + 1;
  Waiter waiter(ctx, Waiting::completion, pe);
  uint64_t ended = arch::load_acquire(&slot->ended);  // pairs with end_slot
  while (ended >> 1 != uses) {
    const bool stop = !waiter.again(ended >> 1);
    ended = arch::load_acquire(&slot->ended);  // also after a stop: it may have come just before
    if (stop && ended >> 1 != uses) {
      arch::store_release(word, detail::claim_of(uses, SlotState::abandoned));
      return false;
    }
  }
  const bool came = (ended & 1) == 0;
  if (came && value != nullptr) *value = arch::load_relaxed(&slot->value);
  // Release: the value is read before the slot's next operation may write it.
  arch::store_release(word, detail::claim_of(uses, SlotState::free));
  return came;
}

// The consumer's side: an operation has ended, with a value or without.
RSH_DEVICE void end_slot(ResultSlot* slot, uint64_t value, bool came) {
  arch::store_relaxed(&slot->value, value);
  const uint64_t before = arch::load_relaxed(&slot->ended) >> 1;
  // Release: the value, and the bytes a get brought, are visible to the thread that waits.
  arch::store_release(&slot->ended, (before + 1) << 1 | (came ? 0 : 1));
}

}  // namespace railshmem::device
