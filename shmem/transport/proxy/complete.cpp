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
    moved |= count > 0;
    for (std::size_t i = 0; i < count; ++i) {
      Channel* channel = parts_.connections.find(index, batch[i].endpoint);
      if (channel != nullptr) completed(*channel, batch[i]);
    }
  }
  return moved;
}

void Proxy::completed(Channel& channel, const nic::Completion& completion) {
  if (completion.received) {
    // A receive that failed belongs to a channel whose requests fail too, and say so.
    if (completion.status == Status::ok) atomics_.message_received(channel, completion);
    return;
  }
  const Posted entry = channel.entry(completion.index);
  device::record_instant(channel.trace, device::Moment::nic_completed,
                         static_cast<uint64_t>(completion.status), channel.peer(), channel.rail(),
                         completion.endpoint, completion.index);
  if (completion.status != Status::ok) failed(channel, entry, completion.status);
  if (entry.after == After::atomic_step)
    return atomics_.step_completed(entry.record, completion.status);
  if (entry.lane == kNoLane) return;
  LaneState& lane = *lanes_[entry.lane];
  lane.inflight_bytes -= entry.bytes;
  switch (entry.after) {
    case After::nothing:
    case After::atomic_step:
      return;
    case After::request:
      if (completion.status != Status::ok) atomics_.request_failed(entry.record, completion.status);
      return;
    case After::finish:
      return lane.finish(entry.sequence);
    case After::slot_done:
      if (completion.status == Status::ok) finish_slot(entry.record, 0);
      return lane.finish(entry.sequence);
    case After::signal_ready: {
      if (completion.status != Status::ok) return drop_signal(lane, entry.sequence);
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

// The first error is the cause; what is flushed behind it is a consequence, which stop_with drops.
void Proxy::failed(Channel& channel, const Posted& entry, Status status) {
  device::stop_with(
      parts_.context.stop, device::Stop::network,
      {device::Waiting::nothing, channel.peer(), channel.rail(), static_cast<uint32_t>(status),
       static_cast<uint32_t>(entry.op), entry.target, 0, 0, 0, entry.bytes});
  if (entry.lane != kNoLane) lanes_[entry.lane]->dead = true;
  atomics_.channel_failed(channel);
}

// `slot` counts from 1; 0: nobody waits.
void Proxy::finish_slot(uint32_t slot, uint64_t value) {
  if (slot != 0) device::finish_slot(&results_[slot - 1], value);
}

// Sends the lane's signals whose data is placed, in command order.
void Proxy::pump_signals(LaneState& lane, uint32_t lane_index) {
  while (!lane.signals.empty() && lane.signals.front().ready && !lane.signal_in_flight) {
    const DeferredSignal signal = lane.signals.front();
    if (signal.op == AtomicOp::set) {
      nic::WorkRequest request = write_of(lane, signal.offset);
      request.inlined = true;
      request.local = reinterpret_cast<uint64_t>(&signal.value);
      request.length = sizeof signal.value;
      lane.signal_in_flight = true;
      post(*lane.data, request,
           {After::signal_done, request.op, lane_index, 0, signal.sequence, 0, signal.offset});
    } else {
      const AtomicTask task{
          lane_index, lane.pe, signal.sequence, signal.op, 8, signal.offset, signal.value, 0, 0};
      if (!atomics_.start(task)) {
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

void Proxy::atomic_done(const AtomicTask& task, uint64_t old_value, Status status) {
  LaneState& lane = *lanes_[task.lane];
  if (status == Status::ok)
    finish_slot(task.slot, old_value);
  else if (status != Status::flushed) {
    Channel& channel = *parts_.connections.atomics_to(task.pe);
    failed(channel,
           {After::nothing, nic::Opcode::fetch_add, task.lane, 0, task.sequence, task.width,
            task.target},
           status);
  }
  --lane.elsewhere;
  lane.finish(task.sequence);
}

}  // namespace railshmem::proxy
