// What a progress thread cannot do by itself where memory is a GPU's: copies, and words that
// announce them or are changed in place. It collects them and asks a kernel for a batch at a time.
//
// A batch's moves come in any order and all before its words; the words of one chain come in their
// order, each after all that precede it is visible.
#pragma once

#include "kernels/shmem/atomic.hpp"

namespace railshmem::moves {

constexpr uint32_t kMoves = 128;
constexpr uint32_t kWords = 128;
constexpr uint32_t kPayload = 32;

struct alignas(64) Move {
  uint64_t to;
  uint64_t from;   // 0: `value`, an aligned word of 1, 2, 4 or 8 bytes
  uint64_t bytes;  // one warp copies them: a few KiB at the most
  uint64_t value;
  unsigned char payload[kPayload];  // for sources that the CPU alone has: `from` points here
};

struct Word {
  uint64_t to;       // aligned
  uint64_t operand;  // `set`: what is stored
  uint64_t compare;
  uint64_t result;  // where what was there before goes, 8 bytes; 0: nowhere
  uint32_t op;      // device::AtomicOp
  uint32_t width;   // of the word; `set`: 1, 2, 4 or 8 bytes, else 4 or 8
};

// In host memory that the GPU reads.
struct Batch {
  alignas(64) uint64_t done;  // written by the kernel: the number of the last run that is over
  alignas(64) uint32_t n_moves;
  uint32_t n_chains;
  uint32_t first[kWords + 1];  // chain c's words: from first[c] on, below first[c + 1]
  Word words[kWords];
  Move moves[kMoves];
};

// In the GPU's memory, zeros at first; used by one kernel at a time.
struct Scratch {
  uint32_t finished;  // blocks
  uint32_t first[kWords + 1];
  Word words[kWords];
};

namespace detail {

RSH_DEVICE void store_word(uint64_t to, uint32_t width, uint64_t value) {
  if (width == 8) arch::store_release(reinterpret_cast<uint64_t*>(to), value);
  if (width == 4)
    arch::store_release(reinterpret_cast<uint32_t*>(to), static_cast<uint32_t>(value));
  if (width == 2)
    arch::store_release(reinterpret_cast<uint16_t*>(to), static_cast<uint16_t>(value));
  if (width == 1) arch::store_release(reinterpret_cast<uint8_t*>(to), static_cast<uint8_t>(value));
}

// By the threads of one warp.
RSH_DEVICE void execute(const Move& move) {
  if (move.from == 0) {
    if (arch::leader<arch::Scope::warp>())
      store_word(move.to, static_cast<uint32_t>(move.bytes), move.value);
    return;
  }
  void* to = reinterpret_cast<void*>(move.to);
  const void* from = reinterpret_cast<const void*>(move.from);
  if (!arch::store_whole(to, from, move.bytes)) arch::copy<arch::Scope::warp>(to, from, move.bytes);
}

template <class T>
RSH_DEVICE uint64_t change(const Word& word) {
  return device::apply_atomic(static_cast<device::AtomicOp>(word.op), reinterpret_cast<T*>(word.to),
                              static_cast<T>(word.operand), static_cast<T>(word.compare));
}

// By one thread. Every way of changing the word releases what came before.
RSH_DEVICE void execute(const Word& word) {
  if (word.op == static_cast<uint32_t>(device::AtomicOp::set))
    return store_word(word.to, word.width, word.operand);
  const uint64_t before = word.width == 8 ? change<uint64_t>(word) : change<uint32_t>(word);
  if (word.result != 0) arch::store_release(reinterpret_cast<uint64_t*>(word.result), before);
}

}  // namespace detail

// By all threads of a grid of any size, whose blocks need not run at once.
RSH_DEVICE void run(Batch* batch, uint64_t number, Scratch* scratch) {
  using arch::Scope;
  const uint32_t thread = arch::block() * arch::size<Scope::block>() + arch::rank<Scope::block>();
  const uint32_t threads = arch::blocks() * arch::size<Scope::block>();
  // Words are looked at one after the other: near, where each look is short.
  const uint32_t n_chains = batch->n_chains;
  const uint32_t n_words = batch->first[n_chains];
  for (uint32_t i = thread; i <= n_chains; i += threads) scratch->first[i] = batch->first[i];
  for (uint32_t i = thread; i < n_words; i += threads) scratch->words[i] = batch->words[i];

  const uint32_t n_moves = batch->n_moves;
  const uint32_t warps = threads / arch::size<Scope::warp>();
  for (uint32_t i = thread / arch::size<Scope::warp>(); i < n_moves; i += warps)
    detail::execute(batch->moves[i]);

  // The last block to come here has seen what all have done.
  arch::fence_system();
  arch::sync<Scope::block>();
  const bool last =
      arch::all<Scope::block>(!arch::leader<Scope::block>() ||
                              arch::fetch_add(&scratch->finished, 1u) + 1 == arch::blocks());
  if (!last) return;
  for (uint32_t chain = arch::rank<Scope::block>(); chain < n_chains;
       chain += arch::size<Scope::block>())
    for (uint32_t i = scratch->first[chain]; i < scratch->first[chain + 1]; ++i)
      detail::execute(scratch->words[i]);
  arch::fence_system();
  arch::sync<Scope::block>();
  if (!arch::leader<Scope::block>()) return;
  arch::store_relaxed(&scratch->finished, 0u);
  arch::store_release(&batch->done, number);  // pairs with the CPU's look
}

}  // namespace railshmem::moves
