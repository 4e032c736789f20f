// Posting commands from kernels.
#pragma once

#include "kernels/shmem/wait.hpp"

namespace railshmem::device {

// Called by exactly one lane of the scope. False: stopped.
RSH_DEVICE bool post(const DeviceContext* ctx, const Command& command) {
  Lane& lane = lane_of(ctx, command.pe, command.lane);
  Ring& ring = ctx->rings[lane.ring];
  if (stopped(ctx)) return false;
  TraceSpan span(ctx->trace, Moment::ring_posted, command.bytes, command.pe,
                 arch::load_relaxed(&lane.rail), command.lane);
  // Counted before the slot is claimed: whoever claims a later slot and then asks how much was
  // posted counts this command too (the claim's acquire-release carries the count along).
  arch::fetch_add(&lane.posted, uint64_t{1});
  const uint64_t index = arch::fetch_add(ring.tail, uint64_t{1});
  span.set_id(index);
  const uint64_t slots = uint64_t{1} << ring.shift;
  if (index - arch::load_acquire(ring.head_seen) >= slots) {
    arch::fetch_add(ring.full_waits, uint64_t{1});
    Waiter waiter(ctx, Waiting::ring_room, command.pe, kNoWord, index - slots + 1,
                  arch::load_relaxed(&lane.rail));
    for (;;) {
      const uint64_t head = arch::load_acquire(ring.head);
      // Several producers refresh the cache; an older value only costs one more look.
      arch::store_release(ring.head_seen, head);
      if (index - head < slots) break;
      if (!waiter.again(head)) {
        // The claimed slot cannot be filled any more, so nothing behind it can ever be read.
        arch::store_release(ring.dead, 1u);
        return false;
      }
    }
  }
  write_command(ring.slots + (index & (slots - 1)), lap_of(index, ring.shift), command);
  arch::wake(ring.sleep_word);
  return true;
}

// Waits until the first `target` commands posted to this lane are complete. False: stopped, or some
// of what is counted as complete has failed.
RSH_DEVICE bool wait_completed(const DeviceContext* ctx, int pe, uint32_t index, uint64_t target) {
  Lane& lane = lane_of(ctx, pe, index);
  uint64_t completed = arch::load_acquire(&lane.completed);
  if (completed >= target) return !network_failed(ctx);
  Waiter waiter(ctx, Waiting::quiet, pe, kNoWord, target, arch::load_relaxed(&lane.rail));
  do {
    if (!waiter.again(completed)) return false;
    completed = arch::load_acquire(&lane.completed);
  } while (completed < target);
  return !network_failed(ctx);
}

// Waits until everything posted to this lane before the call is complete. A snapshot: what others
// post meanwhile is not waited for.
RSH_DEVICE bool quiet_lane(const DeviceContext* ctx, int pe, uint32_t index) {
  return wait_completed(ctx, pe, index, arch::load_acquire(&lane_of(ctx, pe, index).posted));
}

// ---- results of gets and fetching atomics
// --------------------------------------------------------

// Claims a free slot; waits, bounded, while all are taken. Returns false when stopped.
RSH_DEVICE bool take_slot(const DeviceContext* ctx, uint32_t* taken) {
  ResultSlot* slots = ctx->result_slots;
  const auto free = static_cast<uint64_t>(SlotState::free);
  Waiter waiter(ctx, Waiting::result_slot, -1);
  for (;;) {
    for (uint32_t tries = 0; tries < ctx->n_result_slots; ++tries) {
      const auto index = static_cast<uint32_t>(arch::fetch_add(ctx->result_hint, uint64_t{1}) %
                                               ctx->n_result_slots);
      if (arch::load_relaxed(&slots[index].state) == free &&
          arch::compare_swap(&slots[index].state, free, static_cast<uint64_t>(SlotState::taken)) ==
              free) {
        *taken = index;
        return true;
      }
    }
    if (!waiter.again(0)) return false;
  }
}

// Waits for the slot's operation, reads its value and frees it. A slot whose wait is given up stays
// in use until its operation ends, because that may still write it.
RSH_DEVICE bool collect_slot(const DeviceContext* ctx, uint32_t index, int pe, uint64_t* value) {
  ResultSlot* slot = ctx->result_slots + index;
  const auto taken = static_cast<uint64_t>(SlotState::taken);
  Waiter waiter(ctx, Waiting::completion, pe);
  while (arch::load_acquire(&slot->state) == taken) {  // pairs with end_slot
    if (waiter.again(taken)) continue;
    if (arch::compare_swap(&slot->state, taken, static_cast<uint64_t>(SlotState::abandoned)) ==
        taken)
      return false;
  }
  const bool came = arch::load_relaxed(&slot->state) != static_cast<uint64_t>(SlotState::failed);
  if (came && value != nullptr) *value = arch::load_relaxed(&slot->value);
  arch::store_release(&slot->state, static_cast<uint64_t>(SlotState::free));
  return came;
}

// The operation's side: hands the value over, or frees the slot that nobody waits for any more.
RSH_DEVICE void end_slot(ResultSlot* slot, uint64_t value, bool came) {
  arch::store_relaxed(&slot->value, value);
  // Release: the value, and the bytes a get brought, are visible to the thread that waits.
  const SlotState after = came ? SlotState::done : SlotState::failed;
  const auto before = arch::exchange(&slot->state, static_cast<uint64_t>(after));
  if (before == static_cast<uint64_t>(SlotState::abandoned))
    arch::store_release(&slot->state, static_cast<uint64_t>(SlotState::free));
}

}  // namespace railshmem::device
