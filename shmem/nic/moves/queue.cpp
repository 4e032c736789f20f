#include "shmem/nic/moves/queue.hpp"

#include <algorithm>
#include <cstring>

#include "shmem/base/error.hpp"

namespace railshmem::nic {
namespace {

// A warp's share: enough to have all its loads in flight at once.
constexpr uint32_t kPiece = 4096;
// From here on a copy engine is faster than kernels, and leaves them their bandwidth.
constexpr uint32_t kCopyFrom = 64 << 10;
// Handed to the GPU before the first of them has ended: one runs while the next is on its way.
constexpr uint64_t kUnderWay = 2;
constexpr uint32_t kLooksBeforeCheck = 4096;
constexpr uint64_t kPatienceNs = 10'000'000'000;  // with a GPU that has work of an owner that goes

bool is_word(uint64_t address, uint32_t bytes) {
  return bytes <= 8 && bytes != 0 && (bytes & (bytes - 1)) == 0 && address % bytes == 0;
}

}  // namespace

bool MoveQueue::close() {
  if (open_ + 1 - ended_ == MoveRunner::kBatches) return false;
  ++open_;
  return true;
}

MoveQueue::Collected* MoveQueue::open_for(const Owner& owner, Order order) {
  if (order == Order::fence && owner.last_batch_ == open_ && !close()) return nullptr;
  const Collected& now = of(open_);
  // Any move fits into what is asked for here: the longest that kernels copy, or a word.
  if ((now.n_moves + kCopyFrom / kPiece > moves::kMoves || now.words.size() == moves::kWords) &&
      !close())
    return nullptr;
  return &of(open_);
}

void MoveQueue::enter(Collected& into, Owner& owner, uint64_t tag) {
  into.items.push_back({&owner, tag});
  owner.last_batch_ = open_;
  ++owner.pending_;
}

void MoveQueue::add_moves(Collected& into, uint64_t to, uint64_t from, uint32_t bytes) {
  moves::Move* out = runner_.batch(static_cast<uint32_t>(open_ % MoveRunner::kBatches))->moves;
  for (uint32_t done = 0; done < bytes; done += kPiece) {
    moves::Move& move = out[into.n_moves++];
    move.to = to + done;
    move.from = from + done;
    move.bytes = std::min(kPiece, bytes - done);
  }
}

// What the CPU gives by value: a word, in its place among the others where it has one.
bool MoveQueue::as_word(Collected& into, Owner& owner, Order order, uint64_t to, const void* from,
                        uint32_t bytes) {
  if (!is_word(to, bytes)) return false;
  uint64_t value = 0;
  std::memcpy(&value, from, bytes);
  if (order == Order::after) {
    into.words.push_back({to, value, 0, 0, static_cast<uint32_t>(device::AtomicOp::set), bytes});
    into.chains.push_back(&owner);
    return true;
  }
  moves::Move& move =
      runner_.batch(static_cast<uint32_t>(open_ % MoveRunner::kBatches))->moves[into.n_moves++];
  move.to = to;
  move.from = 0;
  move.bytes = bytes;
  move.value = value;
  return true;
}

bool MoveQueue::add_copy(Owner& owner, uint64_t tag, Order order, void* to, const void* from,
                         uint32_t bytes, bool inlined) {
  const auto target = reinterpret_cast<uint64_t>(to);
  auto source = reinterpret_cast<uint64_t>(from);
  const bool word = inlined && is_word(target, bytes);
  // Only words given by value can wait for the moves of their own batch.
  if (order == Order::after && !word) order = Order::fence;
  Collected* into = open_for(owner, order);
  if (into == nullptr) return false;
  if (inlined) {
    if (!as_word(*into, owner, order, target, from, bytes)) {
      moves::Move& move = runner_.batch(static_cast<uint32_t>(open_ % MoveRunner::kBatches))
                              ->moves[into->n_moves++];
      std::memcpy(move.payload, from, bytes);
      move.to = target;
      move.from = reinterpret_cast<uint64_t>(move.payload);
      move.bytes = bytes;
    }
  } else if (bytes > kCopyFrom || runner_.kind(to) == MoveBy::cpu ||
             runner_.kind(from) == MoveBy::cpu) {
    into->copies.push_back({target, source, bytes});
  } else {
    add_moves(*into, target, source, bytes);
  }
  enter(*into, owner, tag);
  return true;
}

bool MoveQueue::add_atomic(Owner& owner, uint64_t tag, device::AtomicOp op, void* to,
                           uint32_t width, uint64_t operand, uint64_t compare, uint64_t* result) {
  Collected* into = open_for(owner, Order::after);
  if (into == nullptr) return false;
  into->words.push_back({reinterpret_cast<uint64_t>(to), operand, compare,
                         reinterpret_cast<uint64_t>(result), static_cast<uint32_t>(op), width});
  into->chains.push_back(&owner);
  enter(*into, owner, tag);
  return true;
}

// Words of one owner side by side, in their order.
void MoveQueue::start(uint64_t number) {
  Collected& from = of(number);
  moves::Batch* batch = runner_.batch(static_cast<uint32_t>(number % MoveRunner::kBatches));
  batch->n_moves = from.n_moves;
  batch->n_chains = 0;
  uint32_t placed = 0;
  for (std::size_t i = 0; i < from.words.size(); ++i) {
    const Owner* owner = from.chains[i];
    if (owner == nullptr) continue;
    batch->first[batch->n_chains++] = placed;
    for (std::size_t k = i; k < from.words.size(); ++k) {
      if (from.chains[k] != owner) continue;
      batch->words[placed++] = from.words[k];
      from.chains[k] = nullptr;
    }
  }
  batch->first[batch->n_chains] = placed;
  if (broken_from_ <= number) return;
  try {
    for (const Copy& copy : from.copies) runner_.copy(copy.to, copy.from, copy.bytes);
    runner_.run(batch, number + 1);
  } catch (const Error&) {
    broken_from_ = number;
  }
}

// Whether the oldest batch that was started has ended, well or not.
bool MoveQueue::look() {
  if (broken_from_ <= ended_) return true;
  const moves::Batch* batch = runner_.batch(static_cast<uint32_t>(ended_ % MoveRunner::kBatches));
  // Pairs with the kernel's last store: what it wrote to the host's memory is there.
  if (arch::load_acquire(&batch->done) == ended_ + 1) return true;
  if (++looks_ < kLooksBeforeCheck) return false;
  looks_ = 0;
  try {
    runner_.check();
  } catch (const Error&) {
    broken_from_ = ended_;
  }
  return broken_from_ <= ended_;
}

void MoveQueue::end() {
  const bool well = ended_ < broken_from_;
  Collected& over = of(ended_++);
  // Emptied first: its owners may add more.
  std::vector<Item> items;
  items.swap(over.items);
  over.copies.clear();
  over.words.clear();
  over.chains.clear();
  over.n_moves = 0;
  for (const Item& item : items) {
    --item.owner->pending_;
    item.owner->moved(item.tag, well);
  }
}

bool MoveQueue::progress() {
  const uint64_t ended_before = ended_;
  while (ended_ != started_ && look()) {
    looks_ = 0;
    end();
  }
  if (!of(open_).empty() && open_ - ended_ < kUnderWay) close();
  while (started_ != open_) start(started_++);
  return ended_ != ended_before || ended_ != open_ || !of(open_).empty();
}

void MoveQueue::settle(Owner& owner) {
  const uint64_t deadline = arch::clock_ns() + kPatienceNs;
  arch::Backoff backoff(1000);
  while (owner.pending_ != 0 && arch::clock_ns() < deadline) {
    progress();
    backoff.step();
  }
  if (owner.pending_ == 0) return;
  // A GPU that stands still: nobody is told of what never ends.
  for (Collected& batch : collected_) {
    const auto is_its = [&](const Item& item) { return item.owner == &owner; };
    batch.items.erase(std::remove_if(batch.items.begin(), batch.items.end(), is_its),
                      batch.items.end());
  }
}

}  // namespace railshmem::nic
