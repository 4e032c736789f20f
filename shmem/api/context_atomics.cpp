// Atomics of a context.
#include <algorithm>
#include <cstring>

#include "shmem/api/context.hpp"
#include "shmem/api/runtime_parts.hpp"

namespace railshmem {

using device::AtomicOp;

namespace {

// Non-blocking fetches in flight per context; each holds a result slot.
constexpr std::size_t kPendingFetches = 128;

}  // namespace

uint64_t Context::atomic_fetch(AtomicOp op, void* word, unsigned width, uint64_t operand,
                               uint64_t compare, int pe) {
  const int world = check("shmem_atomic", "dest", word, width, pe);
  check_word("shmem_atomic", "dest", word, width);
  const device::TraceSpan span(ctx_->trace, device::Moment::atomic, width, world, -1, lanes_.first);
  parts_.count_in_one_domain(trace::Operation::atomic, width);
  return fetch_checked(op, word, width, operand, compare, world);
}

uint64_t Context::atomic_by_gpu(AtomicOp op, void* word, unsigned width, uint64_t operand,
                                uint64_t compare, int pe) {
  const uint64_t old = parts_.gpu->atomic(op, word, width, operand, compare, pe);
  parts_.raise_if_kernel_stopped();
  return old;
}

uint64_t Context::fetch_checked(AtomicOp op, void* word, unsigned width, uint64_t operand,
                                uint64_t compare, int pe) {
  const device::DeviceContext* ctx = &parts_.context;
  // Where all peers are mapped atomics are the GPU's own, because its kernels' are.
  if (parts_.memory.on_gpu() && !ctx->atomics_posted)
    return atomic_by_gpu(op, word, width, operand, compare, pe);
  uint64_t result = 0;
  bool done;
  if (width == 8) {
    done = device::atomic_fetch(ctx, op, static_cast<uint64_t*>(word), operand, compare, pe,
                                &result, lanes_.first);
  } else {
    uint32_t narrow = 0;
    done =
        device::atomic_fetch(ctx, op, static_cast<uint32_t*>(word), static_cast<uint32_t>(operand),
                             static_cast<uint32_t>(compare), pe, &narrow, lanes_.first);
    result = narrow;
  }
  if (!done) parts_.raise_stopped();
  return result;
}

void Context::atomic_fetch_nbi(AtomicOp op, void* fetch, void* word, unsigned width,
                               uint64_t operand, uint64_t compare, int pe,
                               std::shared_ptr<void> owner) {
  const int world = check("shmem_atomic_nbi", "dest", word, width, pe);
  check_word("shmem_atomic_nbi", "dest", word, width);
  const device::DeviceContext* ctx = &parts_.context;
  if (!ctx->atomics_posted) {
    const uint64_t old = atomic_fetch(op, word, width, operand, compare, pe);
    parts_.memory.copy(fetch, &old, width);  // little endian: the low bytes
    return;
  }
  const device::TraceSpan span(ctx->trace, device::Moment::atomic, width, world, -1, lanes_.first);
  parts_.count_in_one_domain(trace::Operation::atomic, width);
  collect(kPendingFetches - 1);
  uint32_t slot = 0;
  const bool posted =
      width == 8 ? device::post_fetch(ctx, op, static_cast<uint64_t*>(word), operand, compare,
                                      world, &slot, lanes_.first)
                 : device::post_fetch(ctx, op, static_cast<uint32_t*>(word),
                                      static_cast<uint32_t>(operand),
                                      static_cast<uint32_t>(compare), world, &slot, lanes_.first);
  if (!posted) parts_.raise_stopped();
  const std::lock_guard<std::mutex> held(fetch_mutex_);
  fetches_.push_back({slot, world, fetch, width, std::move(owner)});
  n_fetches_.store(fetches_.size(), std::memory_order_relaxed);
}

// Brings the results of all but the last `keep` fetches to their callers.
void Context::collect(std::size_t keep) {
  bool came = true;
  {
    const std::lock_guard<std::mutex> held(fetch_mutex_);
    std::size_t done = 0;
    for (; fetches_.size() - done > keep; ++done) {
      const PendingFetch& pending = fetches_[done];
      uint64_t value = 0;
      const bool here = device::collect_slot(&parts_.context, pending.slot, pending.pe, &value);
      came = came && here;
      if (here) parts_.memory.copy(pending.fetch, &value, pending.width);
    }
    fetches_.erase(fetches_.begin(), fetches_.begin() + static_cast<std::ptrdiff_t>(done));
    n_fetches_.store(fetches_.size(), std::memory_order_relaxed);
  }
  if (!came) parts_.raise_stopped();
}

void Context::atomic_update(AtomicOp op, void* word, unsigned width, uint64_t operand, int pe) {
  const int world = check("shmem_atomic", "dest", word, width, pe);
  check_word("shmem_atomic", "dest", word, width);
  const device::TraceSpan span(ctx_->trace, device::Moment::atomic, width, world, -1, lanes_.first);
  parts_.count_in_one_domain(trace::Operation::atomic, width);
  update_checked(op, word, width, operand, world);
}

void Context::update_checked(AtomicOp op, void* word, unsigned width, uint64_t operand, int pe) {
  const device::DeviceContext* ctx = &parts_.context;
  if (parts_.memory.on_gpu() && !ctx->atomics_posted) {
    atomic_by_gpu(op, word, width, operand, 0, pe);
    return;
  }
  const bool done =
      width == 8
          ? device::atomic_update(ctx, op, static_cast<uint64_t*>(word), operand, pe, lanes_.first)
          : device::atomic_update(ctx, op, static_cast<uint32_t*>(word),
                                  static_cast<uint32_t>(operand), pe, lanes_.first);
  if (!done) parts_.raise_stopped();
}

}  // namespace railshmem
