// What a queue pair in error leaves unfinished, to another rail. Each end shuts itself, so that it
// takes in nothing more, and then tells the other, over another rail: a message without bytes,
// whose immediate says which queue pair and how many of the other's requests were executed. When
// both have done so, no late WRITE of the old rail can come any more: WRITEs that the peer executed
// are complete, those behind them are posted again, in order, and so are all READs. Atomics never
// are. NICs that do not count what they executed leave that open: there nothing is repeated, and
// whoever waits is told. See docs/decisions/008-dead-rails.md.
#include <utility>

#include "shmem/transport/proxy/proxy.hpp"

namespace railshmem::proxy {

using device::Stop;
using nic::Status;
using State = Channel::State;

// The first error of a queue pair, or the peer's word that its end is in error.
void Proxy::channel_in_error(Channel& channel, Status status) {
  if (channel.state != State::up) return;
  channel.status = status;
  channel.state = State::dead;
  if (status == Status::peer_unreachable) {
    channel.state = State::failing;
    failing_.push_back(&channel);
  }
  atomics_.channel_failed(channel);
}

bool Proxy::pump_failovers() {
  bool moved = false;
  const std::vector<Channel*> all = std::exchange(failing_, {});
  for (Channel* channel : all) {
    moved |= fail_over(*channel);
    if (channel->state == State::failing) failing_.push_back(channel);
  }
  return moved;
}

// Goes as far as it can now; true when it did something or will without being woken.
bool Proxy::fail_over(Channel& channel) {
  if (!channel.endpoint().shut()) return true;  // the peer is inside our memory
  Channel* other = parts_.connections.on_other_rail(channel);
  if (other == nullptr || channel.is_refused() || !channel.nic().capabilities().counts) {
    give_up(channel);
    return true;
  }
  if (!channel.told) {
    channel.told = true;
    send_notice(channel, *other);
    return true;
  }
  if (!channel.heard || !channel.is_drained()) return false;
  move_work(channel, *other);
  return true;
}

void Proxy::send_notice(Channel& about, Channel& over) {
  nic::WorkRequest message;
  message.op = nic::Opcode::send_imm;
  message.imm = Notice{parts_.connections.slot_at_peer(about.slot()), about.endpoint().executed(),
                       about.state == State::dead}
                    .imm();
  Posted entry;
  entry.after = After::notice;
  entry.op = message.op;
  entry.record = about.slot();
  over.submit(message, entry);
}

void Proxy::notice_received(Channel& over, const nic::Completion& completion) {
  parts_.connections.give_back(over, completion.index);
  const Notice notice = Notice::from(completion.imm);
  Channel* about = parts_.connections.at(over.peer(), notice.slot);
  if (about == nullptr) return;  // no such end here: not from our code
  about->heard = notice;
  channel_in_error(*about, Status::peer_unreachable);
  // The peer asks for another rail; ours ended for a reason that would meet it there again.
  if (about->state == State::dead && !notice.refused)
    if (Channel* way = parts_.connections.beside(*about)) send_notice(*about, *way);
}

// The channel that carried it is in error too. A duplicate does no harm.
void Proxy::notice_failed(Channel& about) {
  Channel* way = parts_.connections.beside(about);
  if (way != nullptr) send_notice(about, *way);
}

void Proxy::move_work(Channel& from, Channel& to) {
  from.state = State::moved;
  failovers_.add();
  for (const auto& lane : lanes_)
    if (lane->data == &from) lane->carry_on(&to);
  const std::vector<Channel::Unfinished> all = std::exchange(from.unfinished, {});
  const uint64_t executed = all.empty() ? 0 : from.heard->executed_from(all.front().index);
  for (const Channel::Unfinished& one : all) {
    if (one.index < executed && one.entry.op == nic::Opcode::write)
      conclude(one.entry, Status::ok);
    else
      repeat(one.entry);
  }
}

// On the queue pair that the lane has now. The source is as it was: it may change only after
// completion, and what was inlined is in the entry.
void Proxy::repeat(const Posted& entry) {
  LaneState& lane = *lanes_[entry.lane];
  lane.replayed.add();
  lane.data->submit(request_of(lane, entry), entry);
}

// No other rail helps: whoever waits for this queue pair's work is told.
void Proxy::give_up(Channel& channel) {
  channel.state = State::dead;
  for (const Channel::Unfinished& one : std::exchange(channel.unfinished, {}))
    lose(channel, one.entry);
}

void Proxy::lose(Channel& channel, const Posted& entry) {
  stop_for(channel, entry);
  conclude(entry, channel.status);
}

// The first error is the cause; what is flushed behind it is a consequence, which stop_with drops.
void Proxy::stop_for(Channel& channel, const Posted& entry) {
  auto reason = Stop::network;
  if (channel.status == Status::peer_ended) reason = Stop::peer_lost;
  if (channel.status == Status::peer_unreachable && !channel.is_refused())
    reason = channel.nic().capabilities().counts ? Stop::no_rail : Stop::rail_lost;
  stop_with(reason, channel, entry, channel.status);
}

void Proxy::stop_with(Stop reason, const Channel& channel, const Posted& entry, Status status) {
  device::stop_with(
      &parts_.context, reason,
      {device::Waiting::nothing, channel.peer(), channel.rail(), static_cast<uint32_t>(status),
       static_cast<uint32_t>(entry.op), entry.target, 0, 0, 0, entry.length});
}

}  // namespace railshmem::proxy
