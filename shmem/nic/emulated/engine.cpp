#include "shmem/nic/emulated/engine.hpp"

#include <algorithm>

namespace railshmem::nic::emulated {

using mlx5::CqeOpcode;
using mlx5::Opcode;
using mlx5::Syndrome;

Engine::Engine(QueuePair& pair, const SharedNic& own, const EmulatedSettings& settings)
    : pair_(pair), own_(own), atomics_(settings.atomics), outstanding_(pair.entries.size()) {
  if (!settings.ordered) reordering_.emplace(settings.seed, pair.qpn);
}

bool Engine::run() {
  // Pairs with mlx5::ring: the entries are there before the record counts them.
  const auto announced =
      static_cast<uint16_t>(mlx5::be32(arch::load_acquire(&pair_.slot.doorbell.send)));
  const auto ahead = static_cast<uint16_t>(announced - static_cast<uint16_t>(taken_));
  // More than the queue holds is a broken record; the entries' own indices will not fit either.
  const uint64_t end = taken_ + std::min<uint64_t>(ahead, pair_.entries.size());
  while (taken_ != end) take();
  return ahead != 0;
}

bool Engine::drain() {
  if (!reordering_ || reordering_->empty()) return false;
  for (uint32_t left = reordering_->burst(); left > 0 && !reordering_->empty(); --left) place_one();
  retire();
  return true;
}

void Engine::take() {
  Outstanding& next = outstanding(taken_);
  const mlx5::Entry& entry = pair_.entries[taken_ & pair_.mask()];
  next.fragments = 0;
  next.syndrome = decode(entry, pair_.qpn, static_cast<uint16_t>(taken_), &next.request);
  if (next.syndrome == Syndrome::ok && !failed_) next.syndrome = perform(next);
  ++taken_;
  retire();
}

// Answers what is complete, oldest first.
void Engine::retire() {
  for (; retired_ != taken_; ++retired_) {
    Outstanding& oldest = outstanding(retired_);
    if (failed_) {
      oldest.syndrome = Syndrome::flushed;
    } else if (oldest.fragments != 0) {
      return;
    } else if (oldest.syndrome != Syndrome::ok) {
      fail();
    }
    const bool ok = oldest.syndrome == Syndrome::ok;
    if (ok && !oldest.request.signalled) continue;
    Answer answer;
    answer.kind = ok ? CqeOpcode::request : CqeOpcode::request_error;
    answer.syndrome = oldest.syndrome;
    answer.op = oldest.request.op;
    answer.qpn = pair_.qpn;
    answer.counter = static_cast<uint16_t>(retired_);
    answer.bytes = oldest.request.length;
    pair_.completions.write(answer);
  }
}

// The queue pair is in error: nothing more goes out of it or comes in.
void Engine::fail() {
  failed_ = true;
  if (reordering_) reordering_->clear();
  arch::store_release(&pair_.slot.link, uint64_t{0});  // pairs with Visit
}

Syndrome Engine::perform(Outstanding& next) {
  const Request& request = next.request;
  if (request.op == Opcode::nop) return Syndrome::ok;
  if (!connection_) return Syndrome::local_operation;
  if (reordering_ && request.op == Opcode::write && request.length != 0) {
    scatter(next);
    return Syndrome::ok;
  }
  const Connection::Visit visit(*connection_);
  return visit.admitted() ? execute(request) : Syndrome::transport_retry;
}

// The payload stays where it is, inline bytes too: an entry is not reused before its completion.
void Engine::scatter(Outstanding& next) {
  const Request& request = next.request;
  const bool is_word = request.length <= 8 && (request.length & (request.length - 1)) == 0 &&
                       request.remote % request.length == 0;
  for (uint32_t offset = 0; offset < request.length;) {
    while (reordering_->full()) place_one();
    const uint32_t left = request.length - offset;
    const uint32_t bytes = is_word ? left : reordering_->piece(left);
    reordering_->add({taken_, offset, bytes});
    ++next.fragments;
    offset += bytes;
  }
}

void Engine::place_one() {
  const Fragment fragment = reordering_->draw();
  Outstanding& of = outstanding(fragment.request);
  const Connection::Visit visit(*connection_);
  const Syndrome found = visit.admitted() ? write(of.request, fragment.offset, fragment.bytes)
                                          : Syndrome::transport_retry;
  if (found != Syndrome::ok) of.syndrome = found;
  --of.fragments;
}

}  // namespace railshmem::nic::emulated
