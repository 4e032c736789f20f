#include "shmem/api/runtime.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "shmem/api/report.hpp"
#include "shmem/api/runtime_parts.hpp"

namespace railshmem {

using device::Moment;
using device::Stop;
using device::TraceSpan;

namespace {

enum CallNumber : uint64_t { kMalloc, kFree, kRealloc, kFinalize };

}  // namespace

// ---- life
// ----------------------------------------------------------------------------------------

Runtime::Runtime(std::shared_ptr<Bootstrap> bootstrap, const Settings& settings,
                 KernelSource kernels)
    : parts_(std::make_unique<Parts>(std::move(bootstrap), settings, std::move(kernels))) {}

Runtime::~Runtime() = default;

void Runtime::finalize() {
  Parts& parts = *parts_;
  if (parts.finalized) return;
  // A collective of its own: a PE that is at its end while others are in a barrier is an error that
  // everybody hears of, not a barrier passed and a hang in the next.
  parts.meetings.agree(*world(), hash_of_numbers(kFinalize),
                       [] { return std::string("shmem_finalize"); });
  // All contexts; and the meeting's own signals to slower peers have left too.
  if (!device::quiet(&parts.context, device::all_lanes(&parts.context)) || !parts.quiet_kernels())
    parts.raise_stopped();
  // From here a peer may rightly end while we still wait for another.
  parts.watch.stop();
  parts.bootstrap->leave();
  parts.finalized = true;
  if (parts.proxy) parts.proxy->stop();
}

bool Runtime::finalized() const {
  return parts_->finalized;
}

void Runtime::Parts::require_usable() const {
  if (finalized) fail(ErrorKind::argument, "railshmem was finalized: no operation is possible");
}

void Runtime::require_usable() const {
  parts_->require_usable();
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
const device::DeviceContext* Runtime::device_context() const {
  require_usable();
  if (!parts_->gpu)
    fail(ErrorKind::argument, "device_context: the job runs on CPUs (", parts_->gpu_choice.reason,
         "), and no kernel of a GPU can take part");
  return parts_->gpu->context();
}
GpuSide* Runtime::gpu() const {
  return parts_->gpu.get();
}
const std::string& Runtime::device_reason() const {
  return parts_->gpu_choice.reason;
}
const NicChoice& Runtime::nic_choice() const {
  return parts_->nic_choice;
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

namespace {

// A timeout, Ctrl-C or bad input ends one call; everything else ends the job's usefulness and
// stays.
bool ends_one_call(Stop reason) {
  return reason == Stop::timeout || reason == Stop::interrupted || reason == Stop::bad_expert ||
         reason == Stop::no_room;
}

}  // namespace

void Runtime::Parts::raise_stopped() {
  // One thread at a time: a report is read whole before the record is cleared for the next one.
  const std::lock_guard<std::mutex> held(stop_mutex);
  uint32_t reason = arch::load_acquire(&stop.stop);
  while (reason == static_cast<uint32_t>(Stop::writing)) {  // a few stores away
    sched_yield();
    reason = arch::load_acquire(&stop.stop);
  }
  device::Report report = stop.report;
  // Who watches a word knows whose it is; by which rail it should have come, the topology knows.
  if (reason == static_cast<uint32_t>(Stop::timeout) && report.rail < 0 && report.peer >= 0 &&
      topology->pair(context.pe, report.peer).path == Path::proxy)
    report.rail = topology->rail(context.pe, report.peer, 0);
  const Error error = error_of(static_cast<Stop>(reason), report, context.pe);
  if (ends_one_call(static_cast<Stop>(reason))) {
    auto next = Stop::none;
    if (proxy && arch::load_acquire(context.rings->dead) != 0) next = Stop::ring_dead;
    stops_cleared.fetch_add(1,
                            std::memory_order_release);  // launch() must notice that it was stopped
    arch::store_release(&stop.stop, static_cast<uint32_t>(next));
  }
  if (error.kind() == ErrorKind::peer_lost) loss_reported = true;
  throw error;
}

void Runtime::check_kernels() {
  require_usable();
  parts_->raise_if_kernel_stopped();
}

bool Runtime::Parts::quiet_kernels() {
  return !gpu_ring || gpu_ring->quiet(context);
}

void Runtime::Parts::raise_if_kernel_stopped() {
  if (!gpu) return;
  const std::lock_guard<std::mutex> held(stop_mutex);
  const device::StopRecord& record = gpu->stop();
  // Acquire: the report was written before its reason.
  const auto reason = static_cast<Stop>(arch::load_acquire(&record.stop));
  if (reason == Stop::none) return;
  const Error error = error_of(reason, record.report, context.pe);
  if (ends_one_call(reason))
    gpu->clear_stop();
  else  // the job's end: waits of the CPU hear of it too
    device::stop_with(&context, reason, record.report);
  throw Error(error.kind(), text("in a kernel: ", error.what()));
}

JobNews Runtime::wait_for_news(double timeout_s) {
  return parts_->watch.wait_for_news(timeout_s);
}

bool Runtime::loss_reported() const {
  return parts_->loss_reported;
}

void Runtime::abort_waits() {
  device::stop_with(&parts_->context, Stop::aborted,
                    {device::Waiting::nothing, -1, -1, 0, 0, device::kNoWord, 0, 0, 0, 0});
}

// ---- contexts and teams ------------------------------------------------------------------------

Context& Runtime::default_context() const {
  return *parts_->default_context;
}

std::shared_ptr<Context> Runtime::create_context(std::shared_ptr<Team> team) {
  require_usable();
  Parts& parts = *parts_;
  if (team->destroyed) fail(ErrorKind::argument, "shmem_team_create_ctx: the team was destroyed");
  if (parts.context.lanes == nullptr)  // loads and stores have no streams to keep apart
    return std::make_shared<Context>(parts, device::default_lanes(&parts.context), std::move(team));
  const std::lock_guard<std::mutex> held(parts.contexts_mutex);
  const auto free = std::find(parts.lanes_taken.begin(), parts.lanes_taken.end(), false);
  if (free == parts.lanes_taken.end())
    fail(ErrorKind::argument, "shmem_ctx_create: all ", parts.lanes_taken.size(),
         " contexts are in use; destroy one or raise RAILSHMEM_CONTEXTS");
  *free = true;
  const auto index = static_cast<uint32_t>(free - parts.lanes_taken.begin());
  return std::make_shared<Context>(parts, device::Lanes{parts.context.n_lanes + index, 1},
                                   std::move(team));
}

void Runtime::destroy_context(Context& context) {
  Parts& parts = *parts_;
  if (context.destroyed_ || &context == parts.default_context.get())
    fail(ErrorKind::argument, "shmem_ctx_destroy: this context ",
         context.destroyed_ ? "was destroyed already" : "is the default one");
  context.quiet();
  context.destroyed_ = true;
  if (parts.context.lanes == nullptr) return;
  const std::lock_guard<std::mutex> held(parts.contexts_mutex);
  parts.lanes_taken[context.lanes().first - parts.context.n_lanes] = false;
}

Teams& Runtime::teams() const {
  return *parts_->teams;
}
Meetings& Runtime::meetings() const {
  return parts_->meetings;
}
const std::shared_ptr<Team>& Runtime::world() const {
  return parts_->teams->world();
}

void Runtime::barrier_all() {
  require_usable();
  default_context().quiet();
  sync_all();
}

void Runtime::sync_all() {
  require_usable();
  parts_->raise_if_kernel_stopped();
  parts_->count_in_one_domain(trace::Operation::collective, 0);
  parts_->meetings.sync(*world());
}

void Runtime::require_same(const std::string& what, const std::string& value) {
  require_usable();
  const std::string both = what + " = " + value;
  parts_->meetings.agree(*world(), hash_of(both.data(), both.size()), [&] { return both; });
}

// ---- memory
// --------------------------------------------------------------------------------------

void* Runtime::malloc(std::size_t bytes, std::size_t alignment) {
  require_usable();
  const TraceSpan span(parts_->context.trace, Moment::malloc, bytes);
  if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > 4096)
    fail(ErrorKind::argument, "alignment ", alignment, ": expected a power of two up to 4096");
  // Agreed before anything is taken: a difference leaves all heaps as they were. Nothing else is
  // needed, because the memory exists and is registered since init.
  parts_->meetings.agree(*world(), hash_of_numbers(kMalloc, bytes, alignment), [&] {
    return text("shmem_malloc of ", bytes, " bytes, alignment ", alignment);
  });
  return parts_->heap.allocate(bytes, alignment, my_pe());
}

void Runtime::free(void* symmetric) {
  require_usable();
  const TraceSpan span(parts_->context.trace, Moment::free);
  Parts& parts = *parts_;
  const uint64_t offset = symmetric == nullptr ? 0 : device::offset_of(&parts.context, symmetric);
  default_context().quiet();
  parts.meetings.agree(*world(), hash_of_numbers(kFree, offset),
                       [&] { return text("shmem_free of heap offset ", offset); });
  if (symmetric != nullptr && !parts.heap.release(symmetric))
    fail(ErrorKind::argument, "shmem_free of ", symmetric, ": nothing allocated starts there");
}

void* Runtime::calloc(std::size_t count, std::size_t size) {
  if (size != 0 && count > SIZE_MAX / size)
    fail(ErrorKind::argument, "shmem_calloc: ", count, " times ", size, " bytes are beyond memory");
  void* block = malloc(count * size);
  if (block != nullptr) parts_->memory.fill(block, 0, count * size);
  parts_->meetings.sync(*world());  // nobody puts into what is still to be cleared
  return block;
}

void* Runtime::realloc(void* symmetric, std::size_t bytes) {
  require_usable();
  const TraceSpan span(parts_->context.trace, Moment::malloc, bytes);
  Parts& parts = *parts_;
  const uint64_t offset = symmetric == nullptr ? 0 : device::offset_of(&parts.context, symmetric);
  default_context().quiet();
  parts.meetings.agree(*world(), hash_of_numbers(kRealloc, offset, bytes), [&] {
    return text("shmem_realloc of heap offset ", offset, " to ", bytes, " bytes");
  });
  if (symmetric == nullptr) return parts.heap.allocate(bytes, kDefaultAlignment, my_pe());
  const auto size = parts.heap.size_of(symmetric);
  if (!size)
    fail(ErrorKind::argument, "shmem_realloc of ", symmetric, ": nothing allocated starts there");
  if (bytes == 0) {
    parts.heap.release(symmetric);
    return nullptr;
  }
  if (bytes == *size) return symmetric;
  void* moved = parts.heap.allocate(bytes, kDefaultAlignment, my_pe());
  parts.memory.copy(moved, symmetric, std::min<std::size_t>(bytes, *size));
  // Nobody writes to the new block before all have moved.
  parts.meetings.sync(*world());
  parts.heap.release(symmetric);
  return moved;
}

std::size_t Runtime::heap_free() const {
  return parts_->heap.allocator().free_bytes();
}
std::size_t Runtime::heap_largest_free() const {
  return parts_->heap.allocator().largest_free();
}

std::size_t Runtime::heap_behind(const void* symmetric) const {
  return parts_->heap.behind(symmetric);
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

// ---- checks
// --------------------------------------------------------------------------------------

void Runtime::Parts::refuse_address(const char* call, const char* what, const void* address,
                                    std::size_t bytes) const {
  const void* start = heap.base() + heap.own_bytes();
  const void* end = heap.base() + heap.bytes();
  fail(ErrorKind::argument, call, ": ", what, " ", address, " with ", bytes,
       " bytes is not inside the symmetric heap [", start, ", ", end, ") of PE ", context.pe);
}

void Runtime::Parts::check_word(const char* call, const char* what, const void* word,
                                unsigned width) const {
  if (width != 4 && width != 8)
    fail(ErrorKind::argument, call, ": ", what, " of ", width, " bytes: expected 4 or 8");
  if (!heap.contains(word, width)) refuse_address(call, what, word, width);
  if (reinterpret_cast<uint64_t>(word) % width != 0)
    fail(ErrorKind::argument, call, ": ", what, " ", word, " is not aligned to its ", width,
         " bytes");
}

// ---- what was seen
// -------------------------------------------------------------------------------

proxy::Statistics Runtime::statistics() const {
  return parts_->proxy ? parts_->proxy->statistics() : proxy::Statistics();
}

trace::Counters::Sums Runtime::operation_counts() const {
  return parts_->counters.sum();
}

std::vector<Traffic> Runtime::proxy_traffic() const {
  std::vector<Traffic> out;
  for (const proxy::LaneStatistics& lane : statistics().lanes)
    out.push_back({lane.pe, lane.rail, lane.bytes, lane.commands});
  return out;
}

std::size_t Runtime::n_queue_pairs() const {
  if (!parts_->connections) return 0;
  std::size_t count = 0;
  for (const auto& channel : parts_->connections->all()) count += channel != nullptr;
  return count;
}

uint64_t Runtime::connection_bytes() const {
  return parts_->connections ? parts_->connections->memory_bytes() : 0;
}

}  // namespace railshmem
