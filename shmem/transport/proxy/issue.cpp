// From commands to work requests: how puts, signals, gets, atomics and fences travel.
#include <algorithm>

#include "shmem/transport/proxy/proxy.hpp"

namespace railshmem::proxy {

using device::AtomicOp;
using device::Command;
using device::CommandOp;

bool Proxy::issue() {
  if (current().command.op == CommandOp::nop) return true;
  if (current().lane == nullptr && !begin()) return false;
  if (current().lane == nullptr) return true;  // refused
  switch (current().command.op) {
    case CommandOp::nop:
      return true;
    case CommandOp::put:
    case CommandOp::put_immediate:
    case CommandOp::get:
      return issue_data();
    case CommandOp::atomic:
      return issue_atomic();
    case CommandOp::fence:
      return issue_fence();
  }
  refuse(nic::Status::local_operation);
  return true;
}

bool Proxy::issue_data() {
  const Channel::State state = current().lane->data->state;
  if (state == Channel::State::failing) return false;  // until it is known what the peer has
  if (state == Channel::State::dead) {
    refuse_dead();
    return true;
  }
  switch (current().command.op) {
    case CommandOp::put:
      return issue_put();
    case CommandOp::put_immediate:
      return issue_immediate();
    default:
      return issue_get();
  }
}

// Gives the command its place on its lane.
bool Proxy::begin() {
  const Command& c = current().command;
  const RingShape& shape = source_->ring.shape;
  if (c.pe < 0 || c.pe >= shape.n_pes || c.lane >= shape.lanes) {
    refuse(nic::Status::local_operation);
    return true;
  }
  current().lane_index = static_cast<uint32_t>(source_->first_lane) +
                         static_cast<uint32_t>(c.pe) * shape.lanes + c.lane;
  LaneState& lane = *lanes_[current().lane_index];
  if (lane.window.full()) return false;
  current().lane = &lane;
  current().sequence = lane.window.issue();
  const bool is_put = c.op == CommandOp::put || c.op == CommandOp::put_immediate;
  current().signals = is_put && c.atomic_op != AtomicOp::none;
  current().follows = current().signals && signal_follows_data(c, lane);
  lane.commands.add();
  lane.bytes.add(c.op == CommandOp::fence ? 0 : c.bytes);
  return true;
}

void Proxy::complete_now() {
  current().lane->finish(current().sequence);
}

// The stop word says why.
void Proxy::fail_now() {
  const CommandOp op = current().command.op;
  if (op == CommandOp::get || op == CommandOp::atomic)
    end_slot(source_->ring, static_cast<uint32_t>(current().command.signal), 0,
             nic::Status::flushed);
  if (current().lane != nullptr) complete_now();
}

// The lane's queue pair is in error and no other took its place.
void Proxy::refuse_dead() {
  const Command& c = current().command;
  Posted entry;
  if (c.op == CommandOp::get) entry.op = nic::Opcode::read;
  entry.target = c.target;
  entry.length = static_cast<uint32_t>(c.bytes);
  stop_for(*current().lane->data, entry);
  fail_now();
}

// A command that no kernel of ours writes: the ring or a kernel is broken.
void Proxy::refuse(nic::Status status) {
  device::stop_with(
      &parts_.context, device::Stop::network,
      {device::Waiting::nothing, current().command.pe, -1, static_cast<uint32_t>(status), 0,
       current().command.target, 0, 0, 0, current().command.bytes});
  fail_now();
}

// Of the heap, which most things are in, or of a buffer that the user registered.
uint32_t Proxy::local_key(uint64_t address, int rail) const {
  const auto heap = reinterpret_cast<uint64_t>(parts_.context.heap);
  if (address - heap < parts_.context.heap_bytes) return parts_.keys.local(rail, address - heap);
  return parts_.buffers.lkey(address, rail);
}

// Bytes from a local address to the end of what its key covers.
uint64_t Proxy::local_run(uint64_t address) const {
  const uint64_t offset = address - reinterpret_cast<uint64_t>(parts_.context.heap);
  return offset < parts_.context.heap_bytes ? parts_.keys.run(offset) : ~uint64_t{0};
}

// `entry` stays alive until it is submitted: what is inlined is taken from it.
nic::WorkRequest Proxy::request_of(const LaneState& lane, const Posted& entry) const {
  nic::WorkRequest request;
  request.op = entry.op;
  request.order = entry.order;
  request.inlined = entry.inlined;
  request.local = entry.inlined ? reinterpret_cast<uint64_t>(&entry.local) : entry.local;
  request.lkey = entry.inlined ? 0 : local_key(entry.local, lane.data->rail());
  request.length = entry.length;
  request.remote = parts_.keys.address(lane.pe, entry.target);
  request.rkey = parts_.keys.remote(lane.pe, lane.data->rail(), entry.target);
  return request;
}

void Proxy::post(Posted entry) {
  LaneState& lane = *lanes_[entry.lane];
  if (lane.fence_next && entry.op == nic::Opcode::write) {
    entry.order = nic::Order::fence;
    lane.fence_next = false;
  }
  lane.inflight_bytes += entry.length;
  lane.data->submit(request_of(lane, entry), entry);
}

// Where the home rail of the target is down, no atomic reaches its heap: another way in would be
// another atomic domain.
bool Proxy::start_atomic(const AtomicTask& task) {
  if (parts_.connections.atomics_to(task.pe)->state == Channel::State::up)
    return atomics_.start(task);
  atomic_not_sent(task);
  return true;
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
  const Command& c = current().command;
  LaneState& lane = *current().lane;
  while (current().bytes_done < c.bytes) {
    if (!lane.data->has_room()) return false;
    const uint64_t target = c.target + current().bytes_done;
    const uint64_t local = c.source + current().bytes_done;
    const uint64_t piece = std::min({c.bytes - current().bytes_done, parts_.settings.chunk_bytes,
                                     lane.data->nic().capabilities().max_message,
                                     parts_.keys.run(target), local_run(local)});
    if (lane.inflight_bytes > 0 && lane.inflight_bytes + piece > parts_.settings.inflight_bytes)
      return false;
    current().bytes_done += piece;
    const bool is_last = current().bytes_done == c.bytes;
    post({is_last ? last : After::nothing, op, false, current().lane_index,
          op == nic::Opcode::read ? static_cast<uint32_t>(c.signal) : 0,
          static_cast<uint32_t>(piece), current().sequence, target, local});
  }
  return true;
}

// Of a put's last piece.
After Proxy::after_data() const {
  if (!current().signals) return After::finish;
  return current().follows ? After::nothing : After::signal_ready;
}

bool Proxy::issue_put() {
  if (current().command.bytes == 0 && !current().signals) {
    complete_now();
    return true;
  }
  if (!transfer(nic::Opcode::write, after_data())) return false;
  return !current().signals || issue_signal();
}

bool Proxy::issue_immediate() {
  const Command& c = current().command;
  if (c.bytes > 0 && !current().data_done) {
    if (!current().lane->data->has_room()) return false;
    // Only what is not aligned, and so need not be whole, can lie across the end of a key.
    const uint64_t first = std::min(c.bytes, parts_.keys.run(c.target));
    if (first < c.bytes)
      post({After::nothing, nic::Opcode::write, true, current().lane_index, 0,
            static_cast<uint32_t>(first), current().sequence, c.target, c.source});
    const uint64_t at = first < c.bytes ? first : 0;
    post({after_data(), nic::Opcode::write, true, current().lane_index, 0,
          static_cast<uint32_t>(c.bytes - at), current().sequence, c.target + at,
          c.source >> (8 * at)});
    current().data_done = true;
  } else if (c.bytes == 0 && !current().signals) {
    complete_now();
    return true;
  }
  return !current().signals || issue_signal();
}

// The data, if any, is posted.
bool Proxy::issue_signal() {
  const Command& c = current().command;
  LaneState& lane = *current().lane;
  if (!current().follows) {
    // Without data of its own to wait for, it must wait for what a fence put before it.
    if (c.bytes == 0 && lane.fenced && lane.window.outstanding() > 1) return false;
    lane.signals.push_back({current().sequence, c.signal, c.value, c.atomic_op, c.bytes == 0});
    ++lane.elsewhere;
    pump_signals(lane, current().lane_index);
    return true;
  }
  if (!lane.data->has_room()) return false;
  if (c.atomic_op == AtomicOp::set) {
    post({After::finish, nic::Opcode::write, true, current().lane_index, 0, sizeof c.value,
          current().sequence, c.signal, c.value, nic::Order::after});
    return true;
  }
  AtomicTask task{
      current().lane_index, c.pe, current().sequence, AtomicOp::add, 8, c.signal, c.value, 0, 0};
  ++lane.elsewhere;
  if (start_atomic(task)) return true;
  --lane.elsewhere;
  return false;
}

bool Proxy::issue_get() {
  return transfer(nic::Opcode::read, After::slot_done);
}

bool Proxy::issue_atomic() {
  const Command& c = current().command;
  LaneState& lane = *current().lane;
  // An atomic travels on a queue pair of its own, or by message: a fence before it means waiting.
  if (lane.fenced && lane.window.outstanding() > 1) return false;
  const AtomicTask task{current().lane_index,           c.pe,     current().sequence, c.atomic_op,
                        static_cast<uint32_t>(c.bytes), c.target, c.source,           c.value,
                        static_cast<uint32_t>(c.signal)};
  ++lane.elsewhere;
  if (start_atomic(task)) return true;
  --lane.elsewhere;
  return false;
}

bool Proxy::issue_fence() {
  LaneState& lane = *current().lane;
  const bool nothing_else = lane.window.outstanding() == 1;  // the fence itself
  if (!nothing_else) {
    if (!parts_.ordered || lane.elsewhere > 0) return false;  // drain
    // Only WRITEs are in flight, and the queue pair orders WRITE after WRITE.
    lane.fenced = lane.fence_next = true;
  }
  complete_now();
  return true;
}

}  // namespace railshmem::proxy
