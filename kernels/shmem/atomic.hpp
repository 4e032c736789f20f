// Atomics. A heap has one atomic domain: where every peer is P2P they are the core's own; otherwise
// every atomic of the job, also on this PE's own heap, is posted and executed in one place per
// target.
#pragma once

#include "kernels/shmem/ring.hpp"

namespace railshmem::device {

// Applies `op` to a word of mapped memory and returns what was there.
template <class T>
RSH_DEVICE T apply_atomic(AtomicOp op, T* word, T operand, T compare) {
  switch (op) {
    case AtomicOp::none:
    case AtomicOp::fetch:
      return arch::load_acquire(word);
    case AtomicOp::set:
    case AtomicOp::swap:
      return arch::exchange(word, operand);
    case AtomicOp::add:
      return arch::fetch_add(word, operand);
    case AtomicOp::compare_swap:
      return arch::compare_swap(word, compare, operand);
    case AtomicOp::bit_and:
      return arch::fetch_and(word, operand);
    case AtomicOp::bit_or:
      return arch::fetch_or(word, operand);
    case AtomicOp::bit_xor:
      return arch::fetch_xor(word, operand);
  }
  return 0;
}

// What `op` leaves in a word that held `seen`: for whoever must build it from compare-and-swap.
RSH_DEVICE uint64_t atomic_result(AtomicOp op, uint64_t seen, uint64_t operand, uint64_t compare) {
  switch (op) {
    case AtomicOp::none:
    case AtomicOp::fetch:
      return seen;
    case AtomicOp::set:
    case AtomicOp::swap:
      return operand;
    case AtomicOp::add:
      return seen + operand;
    case AtomicOp::compare_swap:
      return seen == compare ? operand : seen;
    case AtomicOp::bit_and:
      return seen & operand;
    case AtomicOp::bit_or:
      return seen | operand;
    case AtomicOp::bit_xor:
      return seen ^ operand;
  }
  return seen;
}

namespace detail {

template <class T>
RSH_DEVICE Command atomic_command(const DeviceContext* ctx, AtomicOp op, const T* word, T operand,
                                  T compare, int pe, uint32_t lane) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "atomics work on 4 or 8 bytes");
  Command c;
  c.op = CommandOp::atomic;
  c.atomic_op = op;
  c.lane = static_cast<uint16_t>(lane);
  c.pe = pe;
  c.target = offset_of(ctx, word);
  c.source = static_cast<uint64_t>(operand);
  c.bytes = sizeof(T);
  c.value = static_cast<uint64_t>(compare);
  return c;
}

}  // namespace detail

// Without a result: complete at quiet. T is uint32_t or uint64_t. One thread calls it.
template <class T>
RSH_DEVICE bool atomic_update(const DeviceContext* ctx, AtomicOp op, T* word, T operand, int pe,
                              uint32_t lane = 0) {
  if (!arch::fixed(ctx->atomics_posted)) {
    apply_atomic(op, in_peer(ctx, word, pe), operand, T{0});
    return true;
  }
  return post(ctx, detail::atomic_command(ctx, op, word, operand, T{0}, pe, lane));
}

// Posts an operation whose old value collect_slot() brings from `*slot`. Only where atomics are
// posted.
template <class T>
RSH_DEVICE bool post_fetch(const DeviceContext* ctx, AtomicOp op, const T* word, T operand,
                           T compare, int pe, uint32_t* slot, uint32_t lane) {
  if (!take_slot(ctx, slot)) return false;
  Command c = detail::atomic_command(ctx, op, word, operand, compare, pe, lane);
  c.signal = uint64_t{*slot} + 1;
  if (post(ctx, c)) return true;
  return_slot(ctx, *slot);
  return false;
}

// With the old value in `*result`; returns when it is there.
template <class T>
RSH_DEVICE bool atomic_fetch(const DeviceContext* ctx, AtomicOp op, T* word, T operand, T compare,
                             int pe, T* result, uint32_t lane = 0) {
  if (!arch::fixed(ctx->atomics_posted)) {
    *result = apply_atomic(op, in_peer(ctx, word, pe), operand, compare);
    return true;
  }
  uint32_t slot = 0;
  uint64_t value = 0;
  if (!post_fetch(ctx, op, word, operand, compare, pe, &slot, lane) ||
      !collect_slot(ctx, slot, pe, &value))
    return false;
  *result = static_cast<T>(value);
  return true;
}

}  // namespace railshmem::device
