#include "shmem/api/meetings.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "shmem/base/error.hpp"

namespace railshmem {

using device::DeviceContext;

// FNV-1a; never 0 (disagreement) or 1 (a plain barrier).
uint64_t hash_of(const char* data, std::size_t bytes) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (std::size_t i = 0; i < bytes; ++i)
    hash = (hash ^ static_cast<unsigned char>(data[i])) * 0x100000001b3ull;
  return hash | 2;
}

namespace {

void fill(ExchangeSlot& slot, const void* data, std::size_t bytes) {
  slot.bytes = bytes;
  if (bytes > 0) std::memcpy(slot.payload, data, bytes);
}

}  // namespace

void Meetings::require_usable(const Team& team) const {
  if (team.destroyed) fail(ErrorKind::argument, "this team was destroyed");
  if (team.broken)
    fail(ErrorKind::argument,
         "an earlier collective of this team ended half way: its members no longer agree on what "
         "was moved; destroy the team or restart the job");
}

void Meetings::sync(Team& team) {
  agree(team, device::kPlainBarrier, [] { return std::string("barrier or sync"); });
}

void Meetings::agree(Team& team, uint64_t hash, const std::function<std::string()>& call) {
  require_usable(team);
  const device::TraceSpan span(context_.trace, device::Moment::meeting, 0, -1, -1,
                               static_cast<uint32_t>(team.slot()));
  uint64_t agreed = hash;
  raise_if(!device::sync_team(&context_, team.device(), &agreed));
  // Every member knows of a difference, so all come here and learn who called what.
  if (agreed != hash) refuse(team, call());
}

// Two sets of slots, used in turn. Whoever has finished an exchange knows that all have begun it,
// so all have finished the one before: its slots may be written again.
ExchangeSlot* Meetings::slots(const Team& team, uint64_t area) const {
  return device::at_offset<ExchangeSlot>(&context_, area) + (team.exchanges & 1) * kExchangePes;
}

void Meetings::send(const Team& team, const ExchangeSlot* from, ExchangeSlot* slot, int to) {
  constexpr std::size_t kHead = offsetof(ExchangeSlot, payload) - offsetof(ExchangeSlot, bytes);
  raise_if(!device::put_signal<arch::Scope::thread>(
      &context_, &slot->bytes, &from->bytes, kHead + from->bytes,
      device::set_signal(&slot->sequence, team.exchanges),
      team.pes()[static_cast<std::size_t>(to)]));
}

void Meetings::receive(const Team& team, const ExchangeSlot* slot, int from) {
  raise_if(!device::wait_for_sequence(&context_, &slot->sequence, team.exchanges,
                                      device::Waiting::collective,
                                      team.pes()[static_cast<std::size_t>(from)]));
}

void Meetings::exchange(Team& team, const void* data, std::size_t bytes, const Take& take) {
  require_usable(team);
  const int n = team.n_pes();
  const int me = team.my_pe();
  ++team.exchanges;
  ExchangeSlot* by_sender = slots(team, team.area().exchange);
  fill(by_sender[me], data, bytes);
  // My slot is both what travels and where it goes: the same place in every heap.
  for (int i = 1; i < n; ++i) send(team, by_sender + me, by_sender + me, (me + i) % n);
  for (int i = 1; i < n; ++i) {
    const int from = (me + n - i) % n;
    receive(team, by_sender + from, from);
  }
  for (int member = 0; member < n; ++member)
    take(member, by_sender[member].payload, by_sender[member].bytes);
}

void Meetings::merge(Team& team, void* record, std::size_t bytes, const Combine& combine) {
  require_usable(team);
  const int64_t n = team.n_pes();
  const int64_t me = team.my_pe();
  ++team.exchanges;
  ExchangeSlot* come = slots(team, team.area().exchange);  // by round
  ExchangeSlot* go = slots(team, team.area().work);
  for (int64_t distance = 1; distance < n; distance *= 2, ++come, ++go) {
    fill(*go, record, bytes);
    const auto from = static_cast<int>((me + n - distance) % n);
    send(team, go, come, static_cast<int>((me + distance) % n));
    receive(team, come, from);
    combine(come->payload);
  }
}

namespace {

// Of all calls that members made: the lowest member's, and the lowest that differs from it.
struct TwoCalls {
  struct Call {
    int32_t pe;  // -1: none
    char text[252];
  } first, other;

  void take(const Call& call) {
    if (call.pe < 0) return;
    Call moved = call;
    if (first.pe < 0 || call.pe < first.pe) std::swap(first, moved);
    if (moved.pe < 0 || std::strcmp(moved.text, first.text) == 0) return;
    if (other.pe < 0 || moved.pe < other.pe || std::strcmp(other.text, first.text) == 0)
      other = moved;
  }
};

}  // namespace

void Meetings::refuse(Team& team, const std::string& mine) {
  TwoCalls calls = {{-1, {}}, {-1, {}}};
  TwoCalls::Call call = {team.device().pes[team.my_pe()], {}};
  std::memcpy(call.text, mine.data(), std::min(mine.size(), sizeof call.text - 1));
  calls.take(call);
  merge(team, &calls, sizeof calls, [&](const char* data) {
    TwoCalls others;
    std::memcpy(&others, data, sizeof others);
    calls.take(others.first);
    calls.take(others.other);
  });
  fail(ErrorKind::argument, "the PEs do not agree in a collective call: PE ", calls.first.pe, ": ",
       calls.first.text, "; PE ", calls.other.pe, ": ", calls.other.text);
}

}  // namespace railshmem
