// From completions to finished commands, signals that waited for their data, and errors.
#include <algorithm>

#include "shmem/transport/proxy/proxy.hpp"

namespace railshmem::proxy {

using device::AtomicOp;
using nic::Status;

bool Proxy::poll() {
  nic::Completion batch[64];
  bool moved = false;
  const auto& nics = parts_.provider.nics();
  for (std::size_t index = 0; index < nics.size(); ++index) {
    const std::size_t count = nics[index]->poll(batch, sizeof batch / sizeof batch[0]);
    if (count == 0) continue;
    moved = true;
    parts_.connections.rails()[index].completions.add(count);
    for (std::size_t i = 0; i < count; ++i) {
      Channel* channel = parts_.connections.find(index, batch[i].endpoint);
      if (channel != nullptr) completed(*channel, batch[i]);
    }
  }
  return moved;
}

void Proxy::completed(Channel& channel, const nic::Completion& completion) {
  if (completion.received) return received(channel, completion);
  const Posted entry = channel.entry(completion.index);
  device::record_instant(channel.trace, device::Moment::nic_completed,
                         static_cast<uint64_t>(completion.status), channel.peer(), channel.rail(),
                         completion.endpoint, completion.index);
  if (completion.status != Status::ok)
    return failed(channel, completion.index, entry, completion.status);
  if (entry.after == After::atomic_step)
    return atomics_.step_completed(entry.record, completion.status);
  conclude(entry, Status::ok);
}

void Proxy::received(Channel& channel, const nic::Completion& completion) {
  // A receive that failed belongs to a channel whose requests fail too, and say so.
  if (completion.status != Status::ok) return;
  if (completion.bytes == 0) return notice_received(channel, completion);
  // The atomics of a channel in error have ended: a late answer must not meet their successors.
  if (channel.state == Channel::State::up) atomics_.message_received(channel, completion);
}

void Proxy::failed(Channel& channel, uint64_t index, const Posted& entry, Status status) {
  channel.counters().errors.add();
  channel_in_error(channel, status);
  if (entry.after == After::atomic_step) return atomics_.step_completed(entry.record, status);
  if (entry.after == After::notice)
    return notice_failed(*parts_.connections.at(channel.peer(), entry.record));
  if (entry.after == After::request || entry.lane == kNoLane) return;  // ended with the channel
  if (channel.state == Channel::State::failing)
    channel.unfinished.push_back({index, entry});
  else
    lose(channel, entry);
}

// The fate of a lane's request is known.
void Proxy::conclude(const Posted& entry, Status status) {
  if (entry.lane == kNoLane) return;
  LaneState& lane = *lanes_[entry.lane];
  if (entry.after != After::request) lane.inflight_bytes -= entry.length;
  switch (entry.after) {
    case After::nothing:
    case After::atomic_step:
    case After::request:
    case After::notice:
      return;
    case After::finish:
      return lane.finish(entry.sequence);
    case After::slot_done:
      end_slot(lane.ring, entry.record, 0, status);
      return lane.finish(entry.sequence);
    case After::signal_ready: {
      if (status != Status::ok) return drop_signal(lane, entry.sequence);
      const auto waiting =
          std::find_if(lane.signals.begin(), lane.signals.end(),
                       [&](const auto& s) { return s.sequence == entry.sequence; });
      if (waiting != lane.signals.end()) waiting->ready = true;
      return pump_signals(lane, entry.lane);
    }
    case After::signal_done:
      lane.signal_in_flight = false;
      --lane.elsewhere;
      lane.finish(entry.sequence);
      return pump_signals(lane, entry.lane);
  }
}

// `slot` counts from 1; 0: nobody waits. No kernel of ours names one that is not there.
void Proxy::end_slot(const ConsumerSide& ring, uint32_t slot, uint64_t value, Status status) {
  if (slot != 0 && slot <= ring.shape.results)
    device::end_slot(ring.results + (slot - 1), value, status == Status::ok);
}

// Sends the lane's signals whose data is placed, in command order.
void Proxy::pump_signals(LaneState& lane, uint32_t lane_index) {
  while (!lane.signals.empty() && lane.signals.front().ready && !lane.signal_in_flight) {
    const DeferredSignal signal = lane.signals.front();
    if (signal.op == AtomicOp::set) {
      lane.signal_in_flight = true;
      post({After::signal_done, nic::Opcode::write, true, lane_index, 0, sizeof signal.value,
            signal.sequence, signal.offset, signal.value});
    } else {
      const AtomicTask task{
          lane_index, lane.pe, signal.sequence, signal.op, 8, signal.offset, signal.value, 0, 0};
      if (!start_atomic(task)) {
        stalled_.push_back(lane_index);
        return;
      }
    }
    lane.signals.pop_front();
  }
}

void Proxy::drop_signal(LaneState& lane, uint64_t sequence) {
  const auto waiting = std::find_if(lane.signals.begin(), lane.signals.end(),
                                    [&](const auto& s) { return s.sequence == sequence; });
  if (waiting == lane.signals.end()) return;
  lane.signals.erase(waiting);
  --lane.elsewhere;
  lane.finish(sequence);
}

namespace {

// What an atomic is called in an error.
Posted entry_of(const AtomicTask& task, bool native) {
  Posted entry;
  entry.op = nic::Opcode::fetch_add;
  if (task.op == AtomicOp::compare_swap) entry.op = nic::Opcode::compare_swap;
  if (!native || task.width != 8) entry.op = nic::Opcode::send_imm;
  entry.target = task.target;
  entry.length = task.width;
  return entry;
}

}  // namespace

void Proxy::atomic_done(const AtomicTask& task, uint64_t old_value, Status status) {
  if (status != Status::ok) {
    auto reason = device::Stop::network;
    if (status == Status::peer_ended) reason = device::Stop::peer_lost;
    if (status == Status::peer_unreachable || status == Status::flushed)
      reason = device::Stop::atomic_lost;
    stop_with(reason, *parts_.connections.atomics_to(task.pe),
              entry_of(task, parts_.native_atomics), status);
  }
  atomic_ended(task, old_value, status);
}

void Proxy::atomic_not_sent(const AtomicTask& task) {
  const Channel& channel = *parts_.connections.atomics_to(task.pe);
  const bool gone = channel.status == Status::peer_ended;
  stop_with(gone ? device::Stop::peer_lost : device::Stop::atomics_down, channel,
            entry_of(task, parts_.native_atomics), channel.status);
  atomic_ended(task, 0, channel.status);
}

void Proxy::atomic_ended(const AtomicTask& task, uint64_t old_value, Status status) {
  LaneState& lane = *lanes_[task.lane];
  end_slot(lane.ring, task.slot, old_value, status);
  --lane.elsewhere;
  lane.finish(task.sequence);
}

}  // namespace railshmem::proxy
