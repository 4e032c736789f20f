// Moves on a GPU's memory, collected by the thread that drives the NICs: while one batch is
// executed the next is collected, so batches grow with the load and a launch is paid once for many.
//
// Order is kept per owner, as a queue pair keeps it: see Order in nic.hpp. Owners are told when
// their moves have ended, in the order of the batches.
#pragma once

#include <array>
#include <vector>

#include "shmem/nic/moves/runner.hpp"
#include "shmem/nic/nic.hpp"

namespace railshmem::nic {

class MoveQueue {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // What was added with `tag` has taken effect, or never will.
    virtual void moved(uint64_t tag, bool well) = 0;

   private:
    friend class MoveQueue;
    uint64_t last_batch_ = ~uint64_t{0};
    uint32_t pending_ = 0;
  };

  explicit MoveQueue(MoveRunner& runner) : runner_(runner) {}

  MoveRunner& runner() { return runner_; }
  bool on_device(const void* address) const { return runner_.kind(address) == MoveBy::kernel; }

  // All three: false, and nothing done, while there is no room.

  // `inlined`: the source may change after the call; up to moves::kPayload bytes.
  bool add_copy(Owner& owner, uint64_t tag, Order order, void* to, const void* from, uint32_t bytes,
                bool inlined);
  // An atomic on the aligned word `to` of 4 or 8 bytes, after all that precedes it. `result`:
  // memory that kernels reach, or null.
  bool add_atomic(Owner& owner, uint64_t tag, device::AtomicOp op, void* to, uint32_t width,
                  uint64_t operand, uint64_t compare, uint64_t* result);

  // Starts what was collected and tells owners what ended; true while anything is under way.
  bool progress();

  // Returns when nothing of the owner is under way any more.
  void settle(Owner& owner);

 private:
  struct Item {
    Owner* owner;
    uint64_t tag;
  };
  struct Copy {
    uint64_t to, from, bytes;
  };
  struct Collected {
    std::vector<Item> items;
    std::vector<Copy> copies;
    uint32_t n_moves = 0;
    std::vector<moves::Word> words;
    std::vector<Owner*> chains;  // of the words
    bool empty() const { return items.empty(); }
  };

  Collected& of(uint64_t number) { return collected_[number % MoveRunner::kBatches]; }
  // The batch for a move of this owner; null while there is none.
  Collected* open_for(const Owner& owner, Order order);
  bool close();
  void enter(Collected& into, Owner& owner, uint64_t tag);
  void add_moves(Collected& into, uint64_t to, uint64_t from, uint32_t bytes);
  bool as_word(Collected& into, Owner& owner, Order order, uint64_t to, const void* from,
               uint32_t bytes);
  void start(uint64_t number);
  bool look();
  void end();

  MoveRunner& runner_;
  std::array<Collected, MoveRunner::kBatches> collected_;
  uint64_t open_ = 0;                    // the batch being collected
  uint64_t started_ = 0;                 // batches handed to the runner
  uint64_t ended_ = 0;                   // of those
  uint32_t looks_ = 0;                   // in vain
  uint64_t broken_from_ = ~uint64_t{0};  // the runner executes this batch and later ones no more
};

}  // namespace railshmem::nic
