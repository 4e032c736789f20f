#include "shmem/nic/emulated/engine.hpp"

#include <algorithm>

namespace railshmem::nic::emulated {

using mlx5::CqeOpcode;
using mlx5::Opcode;
using mlx5::Syndrome;

namespace {

// A visit that never ends would keep the peer from taking memory back.
constexpr uint32_t kLongestStay = 4096;

}  // namespace

Engine::Engine(QueuePair& pair, const SharedNic& own, const EmulatedSettings& settings,
               Faults* faults, MoveQueue* moves)
    : pair_(pair),
      own_(own),
      atomics_(settings.atomics),
      faults_(faults),
      outstanding_(pair.entries.size()),
      moves_(moves) {
  if (!settings.ordered) reordering_.emplace(settings.seed, pair.qpn);
}

Engine::~Engine() {
  if (moves_ != nullptr) moves_->settle(*this);
}

bool Engine::advance() {
  // Pairs with mlx5::ring: the entries are there before the record counts them.
  const auto record =
      static_cast<uint16_t>(mlx5::be32(arch::load_acquire(&pair_.slot.doorbell.send)));
  const auto ahead = static_cast<uint16_t>(record - static_cast<uint16_t>(taken_));
  // More than the queue holds is a broken record; the entries' own indices will not fit either.
  announced_ = taken_ + std::min<uint64_t>(ahead, pair_.entries.size());
  bool moved = false;
  while (taken_ != announced_ && may_take() && take()) moved = true;
  if (reordering_ && !reordering_->empty()) {
    for (uint32_t left = reordering_->burst(); left > 0 && !reordering_->empty(); --left)
      if (!place_one()) break;
    moved = true;
  }
  return retire() || moved;
}

// Draws the next entry's fate, once, and says whether its time has come.
bool Engine::may_take() {
  if (stayed_ > kLongestStay) return false;
  if (faults_ == nullptr || failed_) return true;
  if (!fate_)
    fate_ = faults_->draw(static_cast<Opcode>(pair_.entries[taken_ & pair_.mask()].bytes[3]));
  return fate_->placed_at == 0 || arch::clock_ns() >= fate_->placed_at;
}

// False: not now.
bool Engine::take() {
  const Fate fate = fate_.value_or(Fate());
  Outstanding& next = outstanding(taken_);
  const mlx5::Entry& entry = pair_.entries[taken_ & pair_.mask()];
  next.fragments = 0;
  next.moving = 0;
  next.executed = false;
  next.lost = fate.lost;
  next.answered_at = fate.answered_at;
  next.syndrome = decode(entry, pair_.qpn, static_cast<uint16_t>(taken_), &next.request);
  if (next.syndrome == Syndrome::ok && !failed_) {
    if (fate.executed) {
      const Outcome outcome = perform(next);
      if (!outcome) return false;
      next.syndrome = *outcome;
    }
    if (next.syndrome == Syndrome::ok) next.syndrome = fate.answer;
  }
  fate_.reset();
  ++taken_;
  retire();
  return true;
}

// Answers what is complete, oldest first; true when something was.
bool Engine::retire() {
  const uint64_t before = retired_;
  for (; retired_ != taken_; ++retired_) {
    Outstanding& oldest = outstanding(retired_);
    if (oldest.moving != 0) break;  // also after a failure: its memory is in use
    if (failed_) {
      oldest.syndrome = Syndrome::flushed;
    } else if (oldest.fragments != 0 ||
               (oldest.answered_at != 0 && arch::clock_ns() < oldest.answered_at)) {
      break;
    } else if (oldest.syndrome != Syndrome::ok) {
      fail();
    }
    const bool ok = oldest.syndrome == Syndrome::ok;
    if (ok && (!oldest.request.signalled || oldest.lost)) continue;
    Answer answer;
    answer.kind = ok ? CqeOpcode::request : CqeOpcode::request_error;
    answer.syndrome = oldest.syndrome;
    answer.op = oldest.request.op;
    answer.qpn = pair_.qpn;
    answer.counter = static_cast<uint16_t>(retired_);
    answer.bytes = oldest.request.length;
    answer.peer_ended =
        oldest.syndrome == Syndrome::transport_retry && connection_ && connection_->peer().ended();
    pair_.completions.write(answer);
  }
  return retired_ != before;
}

// The queue pair is in error: nothing more goes out of it or comes in.
void Engine::fail() {
  failed_ = true;
  if (reordering_) reordering_->clear();
  // Ordered before a look at the peer's visits; pairs with Visit.
  arch::store_ordered(&pair_.slot.link, uint64_t{0});
}

void Engine::cut() {
  arch::store_ordered(&pair_.slot.link, uint64_t{0});
  fate_.reset();
  if (reordering_) reordering_->clear();
  if (failed_ || retired_ == taken_) return;  // what comes next finds the NIC down
  Outstanding& oldest = outstanding(retired_);
  oldest.syndrome = Syndrome::transport_retry;
  oldest.fragments = 0;
  oldest.answered_at = 0;
  retire();
}

bool Engine::shut() {
  if (!failed_) fail();
  retire();
  return !connection_ || !connection_->visited();
}

Engine::Outcome Engine::perform(Outstanding& next) {
  const Request& request = next.request;
  if (request.op == Opcode::nop) return Syndrome::ok;
  if (!connection_) return Syndrome::local_operation;
  if (reordering_ && request.op == Opcode::write && request.length != 0) {
    scatter(next);
    return Syndrome::ok;
  }
  if (!stay_) stay_.emplace(*connection_);
  Outcome found = Syndrome::transport_retry;
  if (stay_->admitted()) {
    found = execute(request, taken_);
    if (found) ++stayed_;
    next.executed = found == Syndrome::ok;
    count_executed(taken_ + 1);
  }
  leave();
  return found;
}

// Ends the visit, unless moves are under way in it.
void Engine::leave() {
  if (moving_ != 0) return;
  stay_.reset();
  stayed_ = 0;
}

// A move that was added has ended.
void Engine::moved(uint64_t index, bool well) {
  Outstanding& of = outstanding(index);
  --of.moving;
  --moving_;
  if (!well) {
    of.executed = false;
    if (of.syndrome == Syndrome::ok) of.syndrome = Syndrome::local_operation;
  }
  count_executed(taken_);
  leave();
}

// Tells the peer, inside a visit, how much of what this queue pair asked for was done.
void Engine::count_executed(uint64_t end) {
  while (executed_ != end && outstanding(executed_).executed &&
         outstanding(executed_).fragments == 0 && outstanding(executed_).moving == 0)
    ++executed_;
  connection_->tell_executed(executed_);
}

// The payload stays where it is, inline bytes too: an entry is not reused before its completion.
void Engine::scatter(Outstanding& next) {
  const Request& request = next.request;
  const bool is_word = request.length <= 8 && (request.length & (request.length - 1)) == 0 &&
                       request.remote % request.length == 0;
  for (uint32_t offset = 0; offset < request.length;) {
    while (reordering_->full() && place_one()) continue;
    const uint32_t left = request.length - offset;
    const uint32_t bytes = is_word ? left : reordering_->piece(left);
    reordering_->add({taken_, offset, bytes});
    ++next.fragments;
    offset += bytes;
  }
  next.executed = next.syndrome == Syndrome::ok;
}

// False: not now.
bool Engine::place_one() {
  const Fragment fragment = reordering_->draw();
  Outstanding& of = outstanding(fragment.request);
  if (!stay_) stay_.emplace(*connection_);
  Outcome found = Syndrome::transport_retry;
  if (stay_->admitted())
    found = write(of.request, fragment.request, fragment.offset, fragment.bytes);
  if (!found) {
    reordering_->add(fragment);
    leave();
    return false;
  }
  ++stayed_;
  --of.fragments;
  if (*found != Syndrome::ok) {
    of.syndrome = *found;
    of.executed = false;
  } else if (of.fragments == 0) {
    count_executed(taken_);
  }
  leave();
  return true;
}

}  // namespace railshmem::nic::emulated
