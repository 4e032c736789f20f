// From commands to work requests: how puts, signals, gets, atomics and fences travel.
#include <algorithm>

#include "shmem/transport/proxy/proxy.hpp"

namespace railshmem::proxy {

using device::AtomicOp;
using device::Command;
using device::CommandOp;

bool Proxy::issue() {
  if (current_.command.op == CommandOp::nop) return true;
  if (current_.lane == nullptr && !begin()) return false;
  if (current_.lane == nullptr) return true;  // refused
  if (current_.lane->dead) {
    complete_now();
    return true;
  }
  switch (current_.command.op) {
    case CommandOp::nop:
      return true;
    case CommandOp::put:
      return issue_put();
    case CommandOp::put_immediate:
      return issue_immediate();
    case CommandOp::get:
      return issue_get();
    case CommandOp::atomic:
      return issue_atomic();
    case CommandOp::fence:
      return issue_fence();
  }
  refuse(nic::Status::local_operation);
  return true;
}

// Gives the command its place on its lane.
bool Proxy::begin() {
  const Command& c = current_.command;
  if (c.pe < 0 || c.pe >= parts_.context.n_pes || c.lane >= parts_.context.lane_stride) {
    refuse(nic::Status::local_operation);
    return true;
  }
  current_.lane_index = static_cast<uint32_t>(c.pe) * parts_.context.lane_stride + c.lane;
  LaneState& lane = *lanes_[current_.lane_index];
  if (lane.window.full()) return false;
  current_.lane = &lane;
  current_.sequence = lane.window.issue();
  lane.commands.fetch_add(1, std::memory_order_relaxed);
  lane.bytes.fetch_add(c.op == CommandOp::fence ? 0 : c.bytes, std::memory_order_relaxed);
  return true;
}

void Proxy::complete_now() {
  current_.lane->finish(current_.sequence);
}

// A command that no kernel of ours writes: the ring or a kernel is broken.
void Proxy::refuse(nic::Status status) {
  device::stop_with(
      parts_.context.stop, device::Stop::network,
      {device::Waiting::nothing, current_.command.pe, -1, static_cast<uint32_t>(status), 0,
       current_.command.target, 0, 0, 0, current_.command.bytes});
  if (current_.lane != nullptr) complete_now();
}

void Proxy::post(Channel& channel, const nic::WorkRequest& request, const Posted& entry) {
  if (entry.lane != kNoLane) lanes_[entry.lane]->inflight_bytes += entry.bytes;
  channel.submit(request, entry);
}

// Of the heap, which most things are in, or of a buffer that the user registered.
uint32_t Proxy::local_key(uint64_t address, int rail) const {
  const auto heap = reinterpret_cast<uint64_t>(parts_.context.heap);
  if (address - heap < parts_.context.heap_bytes) return parts_.keys.local(rail);
  return parts_.buffers.lkey(address, rail);
}

nic::WorkRequest Proxy::write_of(const LaneState& lane, uint64_t target) const {
  nic::WorkRequest request;
  request.op = nic::Opcode::write;
  request.lkey = parts_.keys.local(lane.data->rail());
  request.remote = parts_.keys.address(lane.pe, target);
  request.rkey = parts_.keys.remote(lane.pe, lane.data->rail());
  return request;
}

// True when the signal may be posted right behind its data: the queue pair orders the two, and the
// word's atomic domain is reached by this same queue pair.
bool Proxy::signal_follows_data(const Command& c, const LaneState& lane) const {
  if (!parts_.ordered) return false;
  if (c.atomic_op == AtomicOp::set) return true;
  return c.atomic_op == AtomicOp::add && parts_.native_atomics &&
         lane.data == parts_.connections.atomics_to(lane.pe);
}

// Moves the command's bytes in pieces, as room and the limit of bytes in flight allow.
bool Proxy::transfer(nic::Opcode op, After last) {
  const Command& c = current_.command;
  LaneState& lane = *current_.lane;
  while (current_.bytes_done < c.bytes) {
    if (!lane.data->has_room()) return false;
    const uint64_t piece = std::min({c.bytes - current_.bytes_done, parts_.settings.chunk_bytes,
                                     lane.data->nic().capabilities().max_message});
    if (lane.inflight_bytes > 0 && lane.inflight_bytes + piece > parts_.settings.inflight_bytes)
      return false;
    const uint64_t target = c.target + current_.bytes_done;
    nic::WorkRequest request = write_of(lane, target);
    request.op = op;
    request.local = c.source + current_.bytes_done;
    request.lkey = local_key(request.local, lane.data->rail());
    request.length = static_cast<uint32_t>(piece);
    current_.bytes_done += piece;
    const bool is_last = current_.bytes_done == c.bytes;
    post(*lane.data, request,
         {is_last ? last : After::nothing, op, current_.lane_index,
          op == nic::Opcode::read ? static_cast<uint32_t>(c.signal) : 0, current_.sequence, piece,
          target});
  }
  return true;
}

bool Proxy::issue_put() {
  const Command& c = current_.command;
  const bool signals = c.atomic_op != AtomicOp::none;
  if (c.bytes == 0 && !signals) {
    complete_now();
    return true;
  }
  const bool follows = signals && signal_follows_data(c, *current_.lane);
  After last = After::finish;
  if (signals) last = follows ? After::nothing : After::signal_ready;
  if (!transfer(nic::Opcode::write, last)) return false;
  return !signals || issue_signal();
}

bool Proxy::issue_immediate() {
  const Command& c = current_.command;
  const bool signals = c.atomic_op != AtomicOp::none;
  if (c.bytes > 0 && !current_.data_done) {
    LaneState& lane = *current_.lane;
    if (!lane.data->has_room()) return false;
    const bool follows = signals && signal_follows_data(c, lane);
    After last = After::finish;
    if (signals) last = follows ? After::nothing : After::signal_ready;
    nic::WorkRequest request = write_of(lane, c.target);
    request.inlined = true;
    request.local = reinterpret_cast<uint64_t>(&c.source);
    request.length = static_cast<uint32_t>(c.bytes);
    post(*lane.data, request,
         {last, request.op, current_.lane_index, 0, current_.sequence, c.bytes, c.target});
    current_.data_done = true;
  } else if (c.bytes == 0 && !signals) {
    complete_now();
    return true;
  }
  return !signals || issue_signal();
}

// The data, if any, is posted.
bool Proxy::issue_signal() {
  const Command& c = current_.command;
  LaneState& lane = *current_.lane;
  if (!signal_follows_data(c, lane)) {
    // Without data of its own to wait for, it must wait for what a fence put before it.
    if (c.bytes == 0 && lane.fenced && lane.window.outstanding() > 1) return false;
    lane.signals.push_back({current_.sequence, c.signal, c.value, c.atomic_op, c.bytes == 0});
    ++lane.elsewhere;
    pump_signals(lane, current_.lane_index);
    return true;
  }
  if (!lane.data->has_room()) return false;
  if (c.atomic_op == AtomicOp::set) {
    nic::WorkRequest request = write_of(lane, c.signal);
    request.inlined = true;
    request.local = reinterpret_cast<uint64_t>(&c.value);
    request.length = sizeof c.value;
    post(*lane.data, request,
         {After::finish, request.op, current_.lane_index, 0, current_.sequence, 0, c.signal});
    return true;
  }
  AtomicTask task{
      current_.lane_index, c.pe, current_.sequence, AtomicOp::add, 8, c.signal, c.value, 0, 0};
  if (!atomics_.start(task)) return false;
  ++lane.elsewhere;
  return true;
}

bool Proxy::issue_get() {
  return transfer(nic::Opcode::read, After::slot_done);
}

bool Proxy::issue_atomic() {
  const Command& c = current_.command;
  LaneState& lane = *current_.lane;
  // An atomic travels on a queue pair of its own, or by message: a fence before it means waiting.
  if (lane.fenced && lane.window.outstanding() > 1) return false;
  const AtomicTask task{current_.lane_index,
                        c.pe,
                        current_.sequence,
                        c.atomic_op,
                        static_cast<uint32_t>(c.bytes),
                        c.target,
                        c.source,
                        c.value,
                        static_cast<uint32_t>(c.signal)};
  if (!atomics_.start(task)) return false;
  ++lane.elsewhere;
  return true;
}

bool Proxy::issue_fence() {
  LaneState& lane = *current_.lane;
  const bool nothing_else = lane.window.outstanding() == 1;  // the fence itself
  if (!nothing_else) {
    if (!parts_.ordered || lane.elsewhere > 0) return false;  // drain
    lane.fenced = true;  // only WRITEs are in flight, and the queue pair orders WRITE after WRITE
  }
  complete_now();
  return true;
}

}  // namespace railshmem::proxy
