#include "shmem/api/runtime.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "shmem/api/report.hpp"
#include "shmem/api/runtime_parts.hpp"

namespace railshmem {

using device::AtomicOp;
using device::Compare;
using device::Stop;
using device::Transport;

constexpr arch::Scope kThread = arch::Scope::thread;

namespace {

// FNV-1a; never 0 (disagreement) or 1 (a plain barrier).
uint64_t hash_of(const char* data, std::size_t bytes) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (std::size_t i = 0; i < bytes; ++i)
    hash = (hash ^ static_cast<unsigned char>(data[i])) * 0x100000001b3ull;
  return hash | 2;
}

template <class... Numbers>
uint64_t hash_of_numbers(Numbers... numbers) {
  const uint64_t all[] = {static_cast<uint64_t>(numbers)...};
  return hash_of(reinterpret_cast<const char*>(all), sizeof all);
}

enum CallNumber : uint64_t { kMalloc, kFree };

// A word travels inside the command.
template <class T>
bool put_word(const device::DeviceContext* ctx, void* dest, const void* source,
              const device::Signal& signal, int pe) {
  T value;
  std::memcpy(&value, source, sizeof value);
  return device::put_immediate<Transport::proxy>(ctx, static_cast<T*>(dest), value, pe, signal);
}

}  // namespace

// ---- life
// ----------------------------------------------------------------------------------------

Runtime::Runtime(std::shared_ptr<Bootstrap> bootstrap, const Settings& settings)
    : parts_(std::make_unique<Parts>(std::move(bootstrap), settings)) {}

Runtime::~Runtime() = default;

void Runtime::finalize() {
  Parts& parts = *parts_;
  if (parts.finalized) return;
  barrier_all();
  quiet();  // the barrier's own signals to slower peers have left too
  // From here a peer may rightly end while we still wait for another.
  parts.watch.stop();
  parts.bootstrap->barrier();
  parts.finalized = true;
  if (parts.proxy) parts.proxy->stop();
}

bool Runtime::finalized() const {
  return parts_->finalized;
}

void Runtime::require_usable() const {
  if (parts_->finalized)
    fail(ErrorKind::argument, "railshmem was finalized: no operation is possible");
}

const Topology& Runtime::topology() const {
  return *parts_->topology;
}
const Settings& Runtime::settings() const {
  return parts_->settings;
}
Bootstrap& Runtime::bootstrap() {
  return *parts_->bootstrap;
}
const device::DeviceContext& Runtime::context() const {
  return parts_->context;
}
const std::vector<PeCard>& Runtime::cards() const {
  return parts_->cards;
}

uint64_t Runtime::stops_cleared() const {
  return parts_->stops_cleared.load(std::memory_order_acquire);
}

void Runtime::raise_if_stopped(uint64_t cleared_before) {
  const bool running = arch::load_acquire(&parts_->stop.stop) == static_cast<uint32_t>(Stop::none);
  if (!running || stops_cleared() != cleared_before) parts_->raise_stopped();
}

void Runtime::Parts::raise_stopped() {
  // One thread at a time: a report is read whole before the record is cleared for the next one.
  const std::lock_guard<std::mutex> held(stop_mutex);
  uint32_t reason = arch::load_acquire(&stop.stop);
  while (reason == static_cast<uint32_t>(Stop::writing)) {  // a few stores away
    sched_yield();
    reason = arch::load_acquire(&stop.stop);
  }
  const Error error = error_of(static_cast<Stop>(reason), stop.report, context.pe);
  // A timeout or Ctrl-C ends one call; everything else ends the job's usefulness and stays.
  if (reason == static_cast<uint32_t>(Stop::timeout) ||
      reason == static_cast<uint32_t>(Stop::interrupted)) {
    auto next = Stop::none;
    if (proxy && arch::load_acquire(context.rings->dead) != 0) next = Stop::ring_dead;
    stops_cleared.fetch_add(1,
                            std::memory_order_release);  // launch() must notice that it was stopped
    arch::store_release(&stop.stop, static_cast<uint32_t>(next));
  }
  if (error.kind() == ErrorKind::peer_lost) loss_reported = true;
  throw error;
}

int Runtime::wait_for_loss() {
  return parts_->watch.wait_for_loss();
}

bool Runtime::loss_reported() const {
  return parts_->loss_reported;
}

void Runtime::abort_waits() {
  device::stop_with(&parts_->stop, Stop::aborted,
                    {device::Waiting::nothing, -1, -1, 0, 0, device::kNoWord, 0, 0, 0, 0});
}

// ---- collectives
// ---------------------------------------------------------------------------------

void Runtime::Parts::agree(uint64_t hash, const std::function<std::string()>& call) {
  uint64_t agreed = hash;
  if (!device::sync_all(&context, &agreed)) raise_stopped();
  if (agreed == hash) return;
  // Every PE knows of the difference, so all come here and learn who called what.
  FixedText<256> mine;
  mine = call();
  std::string all;
  const auto calls = allgather(*bootstrap, mine);
  for (std::size_t pe = 0; pe < calls.size(); ++pe)
    all += text(pe == 0 ? "" : "; ", "PE ", pe, ": ", calls[pe].str());
  fail(ErrorKind::argument, "the PEs do not agree in a collective call: ", all);
}

void Runtime::barrier_all() {
  require_usable();
  quiet();
  sync_all();
}

void Runtime::sync_all() {
  require_usable();
  parts_->agree(device::kPlainBarrier, [] { return std::string("barrier"); });
}

void Runtime::require_same(const std::string& what, const std::string& value) {
  require_usable();
  const std::string both = what + " = " + value;
  parts_->agree(hash_of(both.data(), both.size()), [&] { return both; });
}

// ---- memory
// --------------------------------------------------------------------------------------

void* Runtime::malloc(std::size_t bytes, std::size_t alignment) {
  require_usable();
  if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > 4096)
    fail(ErrorKind::argument, "alignment ", alignment, ": expected a power of two up to 4096");
  // Agreed before anything is taken: a difference leaves all heaps as they were. Nothing else is
  // needed, because the memory exists and is registered since init.
  parts_->agree(hash_of_numbers(kMalloc, bytes, alignment),
                [&] { return text("shmem_malloc of ", bytes, " bytes, alignment ", alignment); });
  return parts_->heap.allocate(bytes, alignment, my_pe());
}

void Runtime::free(void* symmetric) {
  require_usable();
  Parts& parts = *parts_;
  const uint64_t offset = symmetric == nullptr ? 0 : device::offset_of(&parts.context, symmetric);
  quiet();
  parts.agree(hash_of_numbers(kFree, offset),
              [&] { return text("shmem_free of heap offset ", offset); });
  if (symmetric != nullptr && !parts.heap.release(symmetric))
    fail(ErrorKind::argument, "shmem_free of ", symmetric, ": nothing allocated starts there");
}

std::size_t Runtime::heap_free() const {
  return parts_->heap.allocator().free_bytes();
}
std::size_t Runtime::heap_largest_free() const {
  return parts_->heap.allocator().largest_free();
}

void* Runtime::ptr(const void* symmetric, int pe) const {
  const device::DeviceContext& ctx = parts_->context;
  if (pe < 0 || pe >= ctx.n_pes || !in_heap(symmetric, 0) || ctx.peer_base[pe] == nullptr)
    return nullptr;
  return ctx.peer_base[pe] + device::offset_of(&ctx, symmetric);
}

bool Runtime::in_heap(const void* address, std::size_t bytes) const {
  return parts_->heap.contains(address, bytes);
}

// ---- one-sided operations
// --------------------------------------------------------------------------

void Runtime::check(const char* call, const char* what, const void* address, std::size_t bytes,
                    int pe) const {
  require_usable();
  const device::DeviceContext& ctx = parts_->context;
  if (pe < 0 || pe >= ctx.n_pes)
    fail(ErrorKind::argument, call, ": PE ", pe, " does not exist: the job has PEs 0 to ",
         ctx.n_pes - 1);
  if (!in_heap(address, bytes)) refuse_address(call, what, address, bytes);
}

void Runtime::refuse_address(const char* call, const char* what, const void* address,
                             std::size_t bytes) const {
  const SymmetricHeap& heap = parts_->heap;
  const void* start = heap.base() + heap.own_bytes();
  const void* end = heap.base() + heap.bytes();
  fail(ErrorKind::argument, call, ": ", what, " ", address, " with ", bytes,
       " bytes is not inside the symmetric heap [", start, ", ", end, ") of PE ", my_pe());
}

void Runtime::put(void* dest, const void* source, std::size_t bytes, int pe) {
  check("shmem_put", "dest", dest, bytes, pe);
  if (bytes > 0) put_checked(dest, source, bytes, device::no_signal(), pe);
}

void Runtime::put_signal(void* dest, const void* source, std::size_t bytes, uint64_t* signal,
                         uint64_t value, AtomicOp op, int pe) {
  check("shmem_put_signal", "dest", dest, bytes, pe);
  check_word("shmem_put_signal", "signal", signal, 8);
  if (op != AtomicOp::set && op != AtomicOp::add)
    fail(ErrorKind::argument, "shmem_put_signal: signal operation ", static_cast<int>(op),
         ": expected SHMEM_SIGNAL_SET or SHMEM_SIGNAL_ADD");
  put_checked(dest, source, bytes, {signal, value, op}, pe);
}

void Runtime::put_checked(void* dest, const void* source, std::size_t bytes,
                          const device::Signal& signal, int pe) {
  const device::DeviceContext* ctx = &parts_->context;
  const bool done =
      ctx->transport[pe] == Transport::p2p
          ? device::put_signal<Transport::p2p, kThread>(ctx, dest, source, bytes, signal, pe)
          : put_by_nic(static_cast<char*>(dest), static_cast<const char*>(source), bytes, signal,
                       pe);
  if (!done) parts_->raise_stopped();
}

// Over a NIC the source must be registered and stay as it is until it has left. Large sources in
// the heap go as they are, and the call waits; everything else is copied to the bounce ring first.
bool Runtime::put_by_nic(char* dest, const char* source, std::size_t bytes,
                         const device::Signal& signal, int pe) {
  constexpr std::size_t kDirect = 64 * 1024;
  const device::DeviceContext* ctx = &parts_->context;
  if (bytes == 0) return device::ring_signal<Transport::proxy>(ctx, signal, pe);
  if (bytes == 8 && reinterpret_cast<uint64_t>(dest) % 8 == 0)
    return put_word<uint64_t>(ctx, dest, source, signal, pe);
  if (bytes == 4 && reinterpret_cast<uint64_t>(dest) % 4 == 0)
    return put_word<uint32_t>(ctx, dest, source, signal, pe);
  if (bytes >= kDirect && in_heap(source, bytes))
    return device::put_signal<Transport::proxy, kThread>(ctx, dest, source, bytes, signal, pe) &&
           device::quiet_lane(ctx, pe, 0);
  Bounce& bounce = parts_->bounce;
  std::lock_guard<std::mutex> owner(bounce.mutex());
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t piece = std::min<std::size_t>(bytes - done, bounce.largest_piece());
    char* at = bounce.take(ctx, piece);
    if (at == nullptr) return false;
    std::memcpy(at, source + done, piece);
    const bool last = done + piece == bytes;
    if (!device::put_signal<Transport::proxy, kThread>(ctx, dest + done, at, piece,
                                                       last ? signal : device::no_signal(), pe))
      return false;
    bounce.posted(ctx, pe);
    done += piece;
  }
  return true;
}

void Runtime::get(void* dest, const void* source, std::size_t bytes, int pe) {
  check("shmem_get", "source", source, bytes, pe);
  if (bytes == 0) return;
  const device::DeviceContext* ctx = &parts_->context;
  const bool done =
      ctx->transport[pe] == Transport::p2p || in_heap(dest, bytes)
          ? device::get<kThread>(ctx, dest, source, bytes, pe)
          : get_by_nic(static_cast<char*>(dest), static_cast<const char*>(source), bytes, pe);
  if (!done) parts_->raise_stopped();
}

bool Runtime::get_by_nic(char* dest, const char* source, std::size_t bytes, int pe) {
  const device::DeviceContext* ctx = &parts_->context;
  Bounce& bounce = parts_->bounce;
  std::lock_guard<std::mutex> owner(bounce.mutex());
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t piece = std::min<std::size_t>(bytes - done, bounce.largest_piece());
    char* at = bounce.take(ctx, piece);
    if (at == nullptr) return false;
    const bool came = device::get<Transport::proxy, kThread>(ctx, at, source + done, piece, pe);
    bounce.posted(ctx, pe);  // also after a timeout: late bytes must not land in another's piece
    if (!came) return false;
    std::memcpy(dest + done, at, piece);
    done += piece;
  }
  return true;
}

void Runtime::check_word(const char* call, const char* what, const void* word,
                         unsigned width) const {
  if (width != 4 && width != 8)
    fail(ErrorKind::argument, call, ": ", what, " of ", width, " bytes: expected 4 or 8");
  if (!in_heap(word, width)) refuse_address(call, what, word, width);
  if (reinterpret_cast<uint64_t>(word) % width != 0)
    fail(ErrorKind::argument, call, ": ", what, " ", word, " is not aligned to its ", width,
         " bytes");
}

uint64_t Runtime::atomic_fetch(AtomicOp op, void* word, unsigned width, uint64_t operand,
                               uint64_t compare, int pe) {
  check("shmem_atomic", "dest", word, width, pe);
  check_word("shmem_atomic", "dest", word, width);
  const device::DeviceContext* ctx = &parts_->context;
  uint64_t result = 0;
  bool done;
  if (width == 8) {
    done =
        device::atomic_fetch(ctx, op, static_cast<uint64_t*>(word), operand, compare, pe, &result);
  } else {
    uint32_t narrow = 0;
    done =
        device::atomic_fetch(ctx, op, static_cast<uint32_t*>(word), static_cast<uint32_t>(operand),
                             static_cast<uint32_t>(compare), pe, &narrow);
    result = narrow;
  }
  if (!done) parts_->raise_stopped();
  return result;
}

void Runtime::atomic_update(AtomicOp op, void* word, unsigned width, uint64_t operand, int pe) {
  check("shmem_atomic", "dest", word, width, pe);
  check_word("shmem_atomic", "dest", word, width);
  const device::DeviceContext* ctx = &parts_->context;
  const bool done = width == 8
                        ? device::atomic_update(ctx, op, static_cast<uint64_t*>(word), operand, pe)
                        : device::atomic_update(ctx, op, static_cast<uint32_t*>(word),
                                                static_cast<uint32_t>(operand), pe);
  if (!done) parts_->raise_stopped();
}

void Runtime::fence() {
  require_usable();
  if (!device::fence(&parts_->context)) parts_->raise_stopped();
}

void Runtime::quiet() {
  require_usable();
  if (!device::quiet(&parts_->context)) parts_->raise_stopped();
}

namespace {

template <class T>
bool wait_word(const device::DeviceContext* ctx, const void* word, Compare compare,
               int64_t expected, device::Waiting what, int64_t* last) {
  T seen = 0;
  const bool came = device::wait_until(ctx, static_cast<const T*>(word), compare,
                                       static_cast<T>(expected), &seen, what);
  *last = static_cast<int64_t>(seen);
  return came;
}

}  // namespace

int64_t Runtime::wait_until(const void* word, unsigned width, bool is_signed, Compare compare,
                            int64_t expected) {
  require_usable();
  check_word("shmem_wait_until", "ivar", word, width);
  const device::DeviceContext* ctx = &parts_->context;
  const auto wait = width == 8 ? (is_signed ? wait_word<int64_t> : wait_word<uint64_t>)
                               : (is_signed ? wait_word<int32_t> : wait_word<uint32_t>);
  int64_t last = 0;
  if (!wait(ctx, word, compare, expected, device::Waiting::word, &last)) parts_->raise_stopped();
  return last;
}

uint64_t Runtime::signal_wait_until(const uint64_t* signal, Compare compare, uint64_t expected) {
  require_usable();
  check_word("shmem_signal_wait_until", "signal", signal, 8);
  int64_t last = 0;
  if (!wait_word<uint64_t>(&parts_->context, signal, compare, static_cast<int64_t>(expected),
                           device::Waiting::signal, &last))
    parts_->raise_stopped();
  return static_cast<uint64_t>(last);
}

// ---- what was seen
// -------------------------------------------------------------------------------

std::vector<Traffic> Runtime::proxy_traffic() const {
  std::vector<Traffic> out;
  if (!parts_->proxy) return out;
  for (const auto& lane : parts_->proxy->lanes())
    out.push_back({lane->pe, lane->data->rail(), lane->bytes.load(std::memory_order_relaxed),
                   lane->commands.load(std::memory_order_relaxed)});
  return out;
}

std::size_t Runtime::n_queue_pairs() const {
  if (!parts_->connections) return 0;
  std::size_t count = 0;
  for (const auto& channel : parts_->connections->all()) count += channel != nullptr;
  return count;
}

}  // namespace railshmem
