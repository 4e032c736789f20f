#include "shmem/transport/proxy/atomics.hpp"

#include <cstring>

namespace railshmem::proxy {
namespace {

using device::AtomicOp;
using nic::Status;

constexpr uint32_t kRefused = 0x80000000u;  // in the answer's immediate

template <class T, class Request>
uint64_t apply(const Request& request, char* at) {
  return device::apply_atomic(static_cast<AtomicOp>(request.op), reinterpret_cast<T*>(at),
                              static_cast<T>(request.operand), static_cast<T>(request.compare));
}

}  // namespace

Atomics::Atomics(Connections& connections, const KeyTable& keys, char* heap, uint64_t heap_bytes,
                 uint64_t scratch_offset, bool native, nic::MoveQueue* moves, Client& client)
    : connections_(connections),
      keys_(keys),
      heap_(heap),
      heap_bytes_(heap_bytes),
      scratch_(reinterpret_cast<uint64_t*>(heap + scratch_offset)),
      native_(native),
      moves_(moves),
      client_(client),
      records_(kTasks),
      answers_(kAnswers) {
  static_assert(sizeof(Request) <= 44, "a request fits inside one entry");
  static_assert(sizeof(Request) <= Connections::kReceiveBytes, "a request fits a receive buffer");
  for (uint32_t index = kTasks; index > 0; --index) free_.push_back(index - 1);
  for (uint32_t index = kAnswers; index > 0; --index) free_answers_.push_back(index - 1);
}

Atomics::~Atomics() {
  if (moves_ != nullptr) moves_->settle(*this);
}

bool Atomics::start(const AtomicTask& task) {
  if (free_.empty()) return false;
  const uint32_t index = free_.back();
  free_.pop_back();
  records_[index] = {task};
  if (!is_native(task)) {
    send_request(index);
  } else if (task.op == AtomicOp::compare_swap) {
    records_[index].expected = task.compare;
    records_[index].swapping = true;
    post_step(index, nic::Opcode::compare_swap, task.operand, task.compare);
  } else {
    // Everything else begins by reading (adding 0), except the add, which is done by that.
    post_step(index, nic::Opcode::fetch_add, task.op == AtomicOp::add ? task.operand : 0, 0);
  }
  return true;
}

void Atomics::post_step(uint32_t index, nic::Opcode op, uint64_t operand, uint64_t compare) {
  const AtomicTask& task = records_[index].task;
  Channel& channel = *connections_.atomics_to(task.pe);
  nic::WorkRequest request;
  request.op = op;
  request.local = reinterpret_cast<uint64_t>(scratch_ + index);
  request.lkey = keys_.local(channel.rail(), request.local - reinterpret_cast<uint64_t>(heap_));
  request.length = 8;
  request.remote = keys_.address(task.pe, task.target);
  request.rkey = keys_.remote(task.pe, channel.rail(), task.target);
  request.operand = operand;
  request.compare = compare;
  channel.submit(
      request, {After::atomic_step, op, false, task.lane, index, 8, task.sequence, task.target, 0});
}

void Atomics::step_completed(uint32_t index, Status status) {
  Record& record = records_[index];
  const AtomicTask& task = record.task;
  const uint64_t seen = __atomic_load_n(scratch_ + index, __ATOMIC_ACQUIRE);
  const bool one_step =
      task.op == AtomicOp::add || task.op == AtomicOp::fetch || task.op == AtomicOp::compare_swap;
  if (status != Status::ok || one_step || (record.swapping && seen == record.expected))
    return end(index, seen, status);
  // The word was read, or changed under our compare-and-swap: try to replace what is there now.
  if (record.swapping) retries_.add();
  record.expected = seen;
  record.swapping = true;
  post_step(index, nic::Opcode::compare_swap,
            device::atomic_result(task.op, seen, task.operand, task.compare), seen);
}

void Atomics::send_request(uint32_t index) {
  const AtomicTask& task = records_[index].task;
  Channel& channel = *connections_.atomics_to(task.pe);
  if (channel.credits == 0) {
    channel.requests.push_back(index);
    credit_waits_.add();
    return;
  }
  --channel.credits;
  records_[index].asked = true;
  Request body{task.target, task.operand, task.compare, static_cast<uint8_t>(task.op),
               static_cast<uint8_t>(task.width)};
  nic::WorkRequest request;
  request.op = nic::Opcode::send_imm;
  request.inlined = true;
  request.local = reinterpret_cast<uint64_t>(&body);
  request.length = sizeof body;
  request.imm = index;
  channel.submit(request, {After::request, request.op, false, task.lane, index, sizeof body,
                           task.sequence, task.target, 0});
}

void Atomics::channel_failed(Channel& channel) {
  while (!channel.requests.empty()) {
    const uint32_t index = channel.requests.front();
    channel.requests.pop_front();
    client_.atomic_not_sent(free(index));
  }
  if (&channel != connections_.atomics_to(channel.peer())) return;
  for (uint32_t index = 0; index < kTasks; ++index)
    if (records_[index].asked && records_[index].task.pe == channel.peer())
      end(index, 0, channel.status);
}

void Atomics::message_received(Channel& channel, const nic::Completion& completion) {
  const char* buffer = connections_.received(channel, completion.index);
  if (&channel != connections_.atomics_to(channel.peer()))
    return answer(channel, completion, buffer);
  uint64_t value;
  std::memcpy(&value, buffer, sizeof value);
  connections_.give_back(channel, completion.index);
  ++channel.credits;
  const bool refused = (completion.imm & kRefused) != 0;
  end(completion.imm & ~kRefused, value, refused ? Status::remote_operation : Status::ok);
  if (!channel.requests.empty()) {
    const uint32_t next = channel.requests.front();
    channel.requests.pop_front();
    send_request(next);
  }
}

void Atomics::answer(Channel& channel, const nic::Completion& completion, const char* buffer) {
  Asked asked{&channel, completion.imm, {}};
  Request& body = asked.body;
  std::memcpy(&body, buffer, sizeof body);
  connections_.give_back(channel, completion.index);  // before the answer lets the peer send again
  const bool valid = (body.width == 4 || body.width == 8) && body.target % body.width == 0 &&
                     body.target <= heap_bytes_ - body.width;
  if (!valid) return reply(asked, 0, true);
  char* at = heap_ + body.target;
  if (moves_ != nullptr && moves_->on_device(at)) {
    asked_.push_back(asked);
    pump_answers();
    return;
  }
  reply(asked, body.width == 8 ? apply<uint64_t>(body, at) : apply<uint32_t>(body, at), false);
}

void Atomics::reply(const Asked& asked, uint64_t value, bool refused) {
  nic::WorkRequest request;
  request.op = nic::Opcode::send_imm;
  request.imm = asked.imm | (refused ? kRefused : 0);
  request.inlined = true;
  request.local = reinterpret_cast<uint64_t>(&value);
  request.length = sizeof value;
  asked.channel->submit(request, {});
}

bool Atomics::pump_answers() {
  bool went = false;
  while (!asked_.empty() && !free_answers_.empty()) {
    const Request& body = asked_.front().body;
    const uint32_t index = free_answers_.back();
    if (!moves_->add_atomic(*this, index, static_cast<AtomicOp>(body.op), heap_ + body.target,
                            body.width, body.operand, body.compare, scratch_ + kTasks + index))
      break;
    answers_[index] = asked_.front();
    asked_.pop_front();
    free_answers_.pop_back();
    went = true;
  }
  return went;
}

void Atomics::moved(uint64_t index, bool well) {
  const Asked asked = answers_[index];
  const uint64_t value = arch::load_acquire(scratch_ + kTasks + index);
  free_answers_.push_back(static_cast<uint32_t>(index));
  reply(asked, value, !well);
}

void Atomics::end(uint32_t index, uint64_t old_value, Status status) {
  client_.atomic_done(free(index), old_value, status);
}

AtomicTask Atomics::free(uint32_t index) {
  records_[index].asked = false;
  free_.push_back(index);
  return records_[index].task;
}

}  // namespace railshmem::proxy
