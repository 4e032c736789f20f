// The engine's operations: what each does to memory, and what it refuses.
#include <cstring>

#include "shmem/nic/emulated/engine.hpp"
#include "shmem/nic/emulated/robust_lock.hpp"

namespace railshmem::nic::emulated {
namespace {

using mlx5::CqeOpcode;
using mlx5::Opcode;
using mlx5::Syndrome;

void place(void* to, const void* from, uint64_t bytes) {
  if (!arch::store_whole(to, from, bytes)) std::memcpy(to, from, bytes);
}

template <class Word>
void fetch_word(void* to, const void* from) {
  // Acquire: what was put before this word was written is seen by a later READ. Pairs with place()
  // and with the owner's own release stores.
  const Word word = arch::load_acquire(static_cast<const Word*>(from));
  place(to, &word, sizeof word);
}

// The counterpart of place(): aligned words are read whole. `bytes` is not 0.
void fetch(void* to, const void* from, uint64_t bytes) {
  const bool aligned = reinterpret_cast<uintptr_t>(from) % bytes == 0;
  if (aligned && bytes == 8) return fetch_word<uint64_t>(to, from);
  if (aligned && bytes == 4) return fetch_word<uint32_t>(to, from);
  if (aligned && bytes == 2) return fetch_word<uint16_t>(to, from);
  if (bytes == 1) return fetch_word<uint8_t>(to, from);
  std::memcpy(to, from, bytes);
}

}  // namespace

Engine::Outcome Engine::execute(const Request& request, uint64_t index) {
  switch (request.op) {
    case Opcode::write:
      return write(request, index, 0, request.length);
    case Opcode::write_imm:
      return write_imm(request, index);
    case Opcode::read:
      return read(request, index);
    case Opcode::send_imm:
      return send(request);
    case Opcode::fetch_add:
    case Opcode::compare_swap:
      return atomic(request, index);
    case Opcode::nop:
      break;
  }
  return Syndrome::ok;
}

// A payload of no bytes touches nothing, so that keys and addresses are not looked at; below too.
const void* Engine::source_of(const Request& request) const {
  return request.payload != nullptr
             ? request.payload
             : local_memory(own_, request.lkey, request.local, request.length);
}

// A move was added to the queue, or found no room there.
Engine::Outcome Engine::count_move(uint64_t index, bool added) {
  if (!added) return {};
  ++outstanding(index).moving;
  ++moving_;
  return Syndrome::ok;
}

Engine::Outcome Engine::write(const Request& request, uint64_t index, uint32_t offset,
                              uint32_t bytes) {
  if (request.length == 0) return Syndrome::ok;
  const void* source = source_of(request);
  if (source == nullptr) return Syndrome::local_protection;
  char* target = nullptr;
  const Syndrome found = connection_->peer().find(request.rkey, request.remote, request.length,
                                                  kAccessRemoteWrite, &target);
  if (found != Syndrome::ok) return found;
  const char* from = static_cast<const char*>(source) + offset;
  const bool inlined = request.payload != nullptr;
  if (on_device(target) || (!inlined && on_device(source)))
    return count_move(index, moves_->add_copy(*this, index, request.order, target + offset, from,
                                              bytes, inlined));
  if (must_wait()) return {};
  place(target + offset, from, bytes);
  return Syndrome::ok;
}

Engine::Outcome Engine::write_imm(const Request& request, uint64_t index) {
  if (must_wait()) return {};
  mlx5::DataSegment unused;  // an immediate uses a buffer up and leaves it as it is
  if (!connection_->next_receive(&unused)) return Syndrome::receiver_not_ready;
  const Outcome written = write(request, index, 0, request.length);
  if (written != Syndrome::ok) return written;
  // The arrival would be told before the data is there.
  if (outstanding(index).moving != 0) return Syndrome::local_operation;
  Answer arrival;
  arrival.kind = CqeOpcode::received_write_imm;
  arrival.bytes = request.length;
  arrival.imm = request.imm;
  connection_->complete_receive(arrival);
  return Syndrome::ok;
}

Engine::Outcome Engine::read(const Request& request, uint64_t index) {
  if (request.length == 0) return Syndrome::ok;
  void* to = local_memory(own_, request.lkey, request.local, request.length);
  if (to == nullptr) return Syndrome::local_protection;
  char* from = nullptr;
  const Syndrome found = connection_->peer().find(request.rkey, request.remote, request.length,
                                                  kAccessRemoteRead, &from);
  if (found != Syndrome::ok) return found;
  if (on_device(to) || on_device(from)) {
    // It sees what was written before it.
    const Order order = moving_ != 0 ? Order::fence : Order::free;
    return count_move(index,
                      moves_->add_copy(*this, index, order, to, from, request.length, false));
  }
  if (must_wait()) return {};
  fetch(to, from, request.length);
  return Syndrome::ok;
}

// Messages travel between host memories.
Engine::Outcome Engine::send(const Request& request) {
  if (must_wait()) return {};
  const void* source = request.length != 0 ? source_of(request) : nullptr;
  if (request.length != 0 && (source == nullptr || on_device(source)))
    return Syndrome::local_protection;
  mlx5::DataSegment buffer;
  if (!connection_->next_receive(&buffer)) return Syndrome::receiver_not_ready;

  Answer arrival;
  arrival.kind = CqeOpcode::received_send_imm;
  arrival.bytes = request.length;
  arrival.imm = request.imm;
  Syndrome answer = Syndrome::ok;
  char* to = nullptr;
  if (request.length > buffer.bytes) {
    arrival.syndrome = Syndrome::local_length;
    answer = Syndrome::remote_invalid_request;
  } else if (request.length != 0 &&
             (connection_->peer().find(buffer.lkey, buffer.address, request.length, kAccessLocal,
                                       &to) != Syndrome::ok ||
              on_device(to))) {
    arrival.syndrome = Syndrome::local_protection;
    answer = Syndrome::remote_operation;
    to = nullptr;
  }
  if (answer != Syndrome::ok) arrival.kind = CqeOpcode::receive_error;
  if (to != nullptr) std::memcpy(to, source, request.length);
  connection_->complete_receive(arrival);
  return answer;
}

Engine::Outcome Engine::atomic(const Request& request, uint64_t index) {
  if (!atomics_) return Syndrome::remote_operation;
  if (request.remote % 8 != 0) return Syndrome::remote_invalid_request;
  void* result = local_memory(own_, request.lkey, request.local, 8);
  if (result == nullptr) return Syndrome::local_protection;
  char* at = nullptr;
  const Syndrome found =
      connection_->peer().find(request.rkey, request.remote, 8, kAccessRemoteAtomic, &at);
  if (found != Syndrome::ok) return found;
  auto* word = reinterpret_cast<uint64_t*>(at);
  if (on_device(word)) {
    if (moves_->runner().kind(result) == MoveBy::cpu) return Syndrome::local_protection;
    const bool adds = request.op == Opcode::fetch_add;
    return count_move(
        index, moves_->add_atomic(
                   *this, index, adds ? device::AtomicOp::add : device::AtomicOp::compare_swap,
                   word, 8, request.swap_add, request.compare, static_cast<uint64_t*>(result)));
  }
  if (must_wait()) return {};
  if (on_device(result)) return Syndrome::local_protection;
  uint64_t before = 0;
  {
    // A load and a store, not one indivisible step: like hardware, atomic only among the atomics of
    // this NIC. Acquire and release, so that what was put before is seen by who reads the word.
    const RobustLock lock(connection_->peer().nic().mutex);
    before = arch::load_acquire(word);
    if (request.op == Opcode::fetch_add) {
      arch::store_release(word, before + request.swap_add);
    } else if (before == request.compare) {
      arch::store_release(word, request.swap_add);
    }
  }
  place(result, &before, sizeof before);
  return Syndrome::ok;
}

}  // namespace railshmem::nic::emulated
