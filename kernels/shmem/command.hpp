// The 64-byte command that kernels hand to a progress thread. Four quarters of 16 bytes; each
// starts with the lap number of its slot, so that a reader can tell a whole command from one being
// written without any fence, whether quarters are stored as 16-byte units (a GPU) or words (the
// host).
#pragma once

#include "kernels/arch/arch.hpp"

namespace railshmem::device {

enum class CommandOp : uint8_t {
  nop,
  put,            // `bytes` from local address `source` to offset `target`; then the signal, if any
  put_immediate,  // the low `bytes` (0, 1, 2, 4 or 8) of `source` itself; then the signal, if any
  get,            // `bytes` from offset `target` to local address `source`; then `slot` is done
  atomic,         // `atomic_op` on `bytes` (4 or 8) at offset `target`; then `slot` is done
  fence,          // what follows on this lane is ordered after what precedes
};

// Also the operations of signals: SET stores, ADD adds.
enum class AtomicOp : uint8_t {
  none,
  fetch,
  set,
  add,
  swap,
  compare_swap,
  bit_and,
  bit_or,
  bit_xor
};

struct Command {
  CommandOp op = CommandOp::nop;
  AtomicOp atomic_op = AtomicOp::none;  // of the atomic, or of the signal that follows a put
  uint16_t lane = 0;
  int32_t pe = 0;
  uint64_t target = 0;  // offset in the peer's heap
  uint64_t source = 0;  // local address; immediate value; atomic operand
  uint64_t bytes = 0;
  uint64_t signal = 0;  // put: offset of the signal word in the peer's heap; get, atomic: slot + 1
  uint64_t value = 0;   // put: the signal's operand; atomic: what compare_swap expects
};

// As it lies in the ring: word 2q = lap | field << 32, word 2q + 1 = a 64-bit field.
struct alignas(64) CommandSlot {
  uint64_t words[8];
};
static_assert(sizeof(CommandSlot) == 64, "a command is one cache line");

RSH_DEVICE uint32_t lap_of(uint64_t index, uint32_t ring_shift) {
  return static_cast<uint32_t>(index >> ring_shift) + 1;  // the first lap is 1: memory starts as 0
}

RSH_DEVICE uint64_t tagged(uint32_t lap, uint32_t field) {
  return static_cast<uint64_t>(field) << 32 | lap;
}

RSH_DEVICE void write_command(CommandSlot* slot, uint32_t lap, const Command& c) {
  const uint32_t head = static_cast<uint32_t>(c.op) | static_cast<uint32_t>(c.atomic_op) << 8 |
                        static_cast<uint32_t>(c.lane) << 16;
  uint64_t* w = slot->words;
  arch::store_pair(w + 2, tagged(lap, static_cast<uint32_t>(c.pe)), c.source);
  arch::store_pair(w + 4, tagged(lap, static_cast<uint32_t>(c.bytes)), c.signal);
  arch::store_pair(w + 6, tagged(lap, static_cast<uint32_t>(c.bytes >> 32)), c.value);
  arch::store_last_pair(w, tagged(lap, head), c.target);
}

// False while the slot does not yet hold the whole command of this lap.
RSH_DEVICE bool read_command(const CommandSlot* slot, uint32_t lap, Command* c) {
  const uint64_t* w = slot->words;
  // A GPU's quarters come in any order, each as a whole: so each is acquired for itself.
  const uint64_t first = arch::load_acquire(w);
  if (static_cast<uint32_t>(first) != lap) return false;
  const uint64_t second = arch::load_acquire(w + 2);
  const uint64_t third = arch::load_acquire(w + 4);
  const uint64_t fourth = arch::load_acquire(w + 6);
  if (static_cast<uint32_t>(second) != lap || static_cast<uint32_t>(third) != lap ||
      static_cast<uint32_t>(fourth) != lap)
    return false;
  const uint32_t head = static_cast<uint32_t>(first >> 32);
  c->op = static_cast<CommandOp>(head & 0xff);
  c->atomic_op = static_cast<AtomicOp>(head >> 8 & 0xff);
  c->lane = static_cast<uint16_t>(head >> 16);
  c->pe = static_cast<int32_t>(second >> 32);
  c->target = arch::load_relaxed(w + 1);
  c->source = arch::load_relaxed(w + 3);
  c->bytes = (third >> 32) | (fourth >> 32 << 32);
  c->signal = arch::load_relaxed(w + 5);
  c->value = arch::load_relaxed(w + 7);
  return true;
}

}  // namespace railshmem::device
