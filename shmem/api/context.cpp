// Puts, gets, signals and order of a context.
#include "shmem/api/context.hpp"

#include <algorithm>
#include <cstring>

#include "shmem/api/runtime_parts.hpp"

namespace railshmem {

using device::AtomicOp;
using device::Moment;
using device::TraceSpan;
using device::Transport;
using trace::Operation;

namespace {

constexpr arch::Scope kThread = arch::Scope::thread;

// Larger sources in registered memory leave from where they are; smaller ones are copied aside,
// which is quicker than waiting for them.
constexpr std::size_t kDirect = 64 * 1024;

// A word travels inside the command.
template <class T>
bool put_word(const device::DeviceContext* ctx, void* dest, const void* source,
              const device::Signal& signal, int pe, uint32_t lane) {
  T value;
  std::memcpy(&value, source, sizeof value);
  return device::put_immediate<Transport::proxy>(ctx, static_cast<T*>(dest), value, pe, signal,
                                                 lane);
}

}  // namespace

// ---- checks ----------------------------------------------------------------------------------

Context::Context(Runtime::Parts& parts, device::Lanes lanes, std::shared_ptr<Team> team)
    : parts_(parts),
      lanes_(lanes),
      team_(std::move(team)),
      ctx_(&parts.context),
      finalized_(&parts.finalized),
      in_host_memory_(!parts.memory.on_gpu()),
      heap_begin_(reinterpret_cast<uint64_t>(parts.heap.base()) + parts.heap.own_bytes()),
      heap_bytes_(parts.heap.bytes() - parts.heap.own_bytes()),
      pes_(team_->device().pes),
      n_pes_(team_->n_pes()) {}

int Context::refuse(const char* call, const char* what, const void* address, std::size_t bytes,
                    int pe) const {
  parts_.require_usable();
  if (!parts_.heap.contains(address, bytes)) parts_.refuse_address(call, what, address, bytes);
  if (team_->slot() != Teams::kWorld) return team_->world_pe(call, pe);
  fail(ErrorKind::argument, call, ": PE ", pe, " does not exist: the job has PEs 0 to ",
       n_pes_ - 1);
}

void Context::check_word(const char* call, const char* what, const void* word,
                         unsigned width) const {
  parts_.check_word(call, what, word, width);
}

void Context::check_signal(const char* call, const uint64_t* signal, AtomicOp op) const {
  check_word(call, "signal", signal, 8);
  if (op != AtomicOp::set && op != AtomicOp::add)
    fail(ErrorKind::argument, call, ": signal operation ", static_cast<int>(op),
         ": expected SHMEM_SIGNAL_SET or SHMEM_SIGNAL_ADD");
}

bool Context::maps(int pe) const {
  return pe >= 0 && pe < n_pes_ && reaches(pes_[pe]) && !parts_.memory.on_gpu();
}

bool Context::atomics_wait() const {
  return parts_.context.atomics_posted || parts_.memory.on_gpu();
}

bool Context::reaches(int pe) const {
  return ctx_->transport[pe] == Transport::p2p;
}

// ---- puts ------------------------------------------------------------------------------------

void Context::put(void* dest, const void* source, std::size_t bytes, int pe) {
  const int world = check("shmem_put", "dest", dest, bytes, pe);
  if (reaches(world) && in_host_memory_ && ctx_->trace == nullptr) {
    parts_.count(Operation::put, world, bytes);
    device::put<Transport::p2p, kThread>(ctx_, dest, source, bytes, world, lanes_.first);
    return;
  }
  if (bytes > 0) put_checked(dest, source, bytes, device::no_signal(), world, Reuse::at_once);
}

void Context::put_nbi(void* dest, const void* source, std::size_t bytes, int pe) {
  const int world = check("shmem_put_nbi", "dest", dest, bytes, pe);
  if (bytes > 0) put_checked(dest, source, bytes, device::no_signal(), world, Reuse::after_quiet);
}

void Context::put_signal(void* dest, const void* source, std::size_t bytes, uint64_t* signal,
                         uint64_t value, AtomicOp op, int pe) {
  const int world = check("shmem_put_signal", "dest", dest, bytes, pe);
  check_signal("shmem_put_signal", signal, op);
  put_checked(dest, source, bytes, {signal, value, op}, world, Reuse::at_once);
}

void Context::put_signal_nbi(void* dest, const void* source, std::size_t bytes, uint64_t* signal,
                             uint64_t value, AtomicOp op, int pe) {
  const int world = check("shmem_put_signal_nbi", "dest", dest, bytes, pe);
  check_signal("shmem_put_signal_nbi", signal, op);
  put_checked(dest, source, bytes, {signal, value, op}, world, Reuse::after_quiet);
}

void Context::put_checked(void* dest, const void* source, std::size_t bytes,
                          const device::Signal& signal, int pe, Reuse reuse) {
  const device::DeviceContext* ctx = &parts_.context;
  const bool signals = signal.op != AtomicOp::none;
  const TraceSpan span(ctx->trace, signals ? Moment::put_signal : Moment::put, bytes, pe, -1,
                       lanes_.first);
  parts_.count(Operation::put, pe, bytes);
  if (signals) parts_.count(Operation::signal, pe, sizeof signal.value);
  const bool done = reaches(pe)
                        ? put_mapped(dest, source, bytes, signal, pe)
                        : put_by_nic(static_cast<char*>(dest), static_cast<const char*>(source),
                                     bytes, signal, pe, reuse);
  if (!done) parts_.raise_stopped();
}

bool Context::put_mapped(void* dest, const void* source, std::size_t bytes,
                         const device::Signal& signal, int pe) {
  if (!parts_.memory.on_gpu())
    return device::put_signal<Transport::p2p, kThread>(ctx_, dest, source, bytes, signal, pe,
                                                       lanes_.first);
  void* to = device::in_peer(ctx_, static_cast<char*>(dest), pe);
  if (signal.op == AtomicOp::set) {
    parts_.gpu->copy_and_set(to, source, bytes, device::in_peer(ctx_, signal.word, pe),
                             signal.value);
    return true;
  }
  parts_.gpu->copy(to, source, bytes);
  if (signal.op == AtomicOp::none) return true;
  update_checked(signal.op, signal.word, 8, signal.value, pe);
  return true;
}

// Over a NIC the source must be registered and stay as it is until it has left. Large registered
// sources go as they are; everything else is copied to the bounce ring first.
bool Context::put_by_nic(char* dest, const char* source, std::size_t bytes,
                         const device::Signal& signal, int pe, Reuse reuse) {
  const device::DeviceContext* ctx = &parts_.context;
  const uint32_t lane = lanes_.first;
  if (bytes == 0) return device::ring_signal<Transport::proxy>(ctx, signal, pe, lane);
  uint64_t word;
  if (bytes <= sizeof word && parts_.memory.on_gpu()) {
    parts_.memory.copy(&word, source, bytes);
    source = reinterpret_cast<const char*>(&word);
  }
  if (bytes == 8 && reinterpret_cast<uint64_t>(dest) % 8 == 0)
    return put_word<uint64_t>(ctx, dest, source, signal, pe, lane);
  if (bytes == 4 && reinterpret_cast<uint64_t>(dest) % 4 == 0)
    return put_word<uint32_t>(ctx, dest, source, signal, pe, lane);
  if (parts_.registered(source, bytes) && (reuse == Reuse::after_quiet || bytes >= kDirect))
    return device::put_signal<Transport::proxy, kThread>(ctx, dest, source, bytes, signal, pe,
                                                         lane) &&
           (reuse == Reuse::after_quiet || device::quiet_lane(ctx, pe, lane));
  Bounce& bounce = parts_.bounce;
  std::lock_guard<std::mutex> owner(bounce.mutex());
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t piece = std::min<std::size_t>(bytes - done, bounce.largest_piece());
    char* at = bounce.take(ctx, piece);
    if (at == nullptr) return false;
    parts_.memory.copy(at, source + done, piece);
    const bool last = done + piece == bytes;
    if (!device::put_signal<Transport::proxy, kThread>(
            ctx, dest + done, at, piece, last ? signal : device::no_signal(), pe, lane))
      return false;
    bounce.posted(ctx, pe, lane);
    done += piece;
  }
  return true;
}

// ---- gets ------------------------------------------------------------------------------------

void Context::get(void* dest, const void* source, std::size_t bytes, int pe) {
  const int world = check("shmem_get", "source", source, bytes, pe);
  if (bytes == 0) return;
  const TraceSpan span(parts_.context.trace, Moment::get, bytes, world, -1, lanes_.first);
  parts_.count(Operation::get, world, bytes);
  if (reaches(world) && parts_.memory.on_gpu()) return copy_from(dest, source, bytes, world);
  const bool done =
      reaches(world) || parts_.registered(dest, bytes)
          ? device::get<kThread>(&parts_.context, dest, source, bytes, world, lanes_.first)
          : get_by_nic(static_cast<char*>(dest), static_cast<const char*>(source), bytes, world);
  if (!done) parts_.raise_stopped();
}

void Context::get_nbi(void* dest, const void* source, std::size_t bytes, int pe) {
  const int world = check("shmem_get_nbi", "source", source, bytes, pe);
  if (bytes == 0) return;
  const TraceSpan span(parts_.context.trace, Moment::get, bytes, world, -1, lanes_.first);
  parts_.count(Operation::get, world, bytes);
  if (reaches(world) && parts_.memory.on_gpu()) return copy_from(dest, source, bytes, world);
  const bool done =
      reaches(world) || parts_.registered(dest, bytes)
          ? device::get_nbi<kThread>(&parts_.context, dest, source, bytes, world, lanes_.first)
          : get_by_nic(static_cast<char*>(dest), static_cast<const char*>(source), bytes, world);
  if (!done) parts_.raise_stopped();
}

void Context::copy_from(void* dest, const void* source, std::size_t bytes, int pe) {
  parts_.gpu->copy(dest, device::in_peer(ctx_, static_cast<const char*>(source), pe), bytes);
}

bool Context::get_by_nic(char* dest, const char* source, std::size_t bytes, int pe) {
  const device::DeviceContext* ctx = &parts_.context;
  Bounce& bounce = parts_.bounce;
  std::lock_guard<std::mutex> owner(bounce.mutex());
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t piece = std::min<std::size_t>(bytes - done, bounce.largest_piece());
    char* at = bounce.take(ctx, piece);
    if (at == nullptr) return false;
    const bool came =
        device::get<Transport::proxy, kThread>(ctx, at, source + done, piece, pe, lanes_.first);
    bounce.posted(ctx, pe, lanes_.first);  // also after a timeout: late bytes must not land in
                                           // another's piece
    if (!came) return false;
    parts_.memory.copy(dest + done, at, piece);
    done += piece;
  }
  return true;
}

// ---- order -----------------------------------------------------------------------------------

void Context::fence() {
  parts_.require_usable();
  const TraceSpan span(parts_.context.trace, Moment::fence, 0, -1, -1, lanes_.first);
  if (!device::fence(&parts_.context, lanes_)) parts_.raise_stopped();
}

void Context::quiet() {
  parts_.require_usable();
  const TraceSpan span(parts_.context.trace, Moment::quiet, 0, -1, -1, lanes_.first);
  if (n_fetches_.load(std::memory_order_relaxed) > 0) collect(0);
  if (!device::quiet(&parts_.context, lanes_)) parts_.raise_stopped();
  // Kernels post in the name of the default context.
  if (lanes_.first == 0 && !parts_.quiet_kernels()) parts_.raise_stopped();
  parts_.raise_if_kernel_stopped();
}

}  // namespace railshmem
