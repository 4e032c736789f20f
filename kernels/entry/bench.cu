// What `railshmem bench --device cuda` times: each kernel repeats one primitive `count` times. The
// limits beside them, without the library, are in bench_limits.cu.
#include "kernels/shmem/order.hpp"

namespace railshmem::device {
namespace {

using arch::Scope;

// This block's share of `bytes`, in whole lines.
RSH_DEVICE uint64_t share_of(uint64_t bytes) {
  return (bytes / arch::blocks() + 127) / 128 * 128;
}

// Of the grid.
RSH_DEVICE uint32_t threads() {
  return arch::blocks() * arch::size<Scope::block>();
}

}  // namespace

// The blocks put their shares again and again; `quiet_each`: after each put its block waits until
// it is complete.
RSH_KERNEL rsh_bench_put(const DeviceContext* ctx, void* dest, const void* source, uint64_t bytes,
                         int32_t pe, uint32_t count, uint32_t quiet_each) {
  const uint64_t share = share_of(bytes);
  const uint64_t first = share * arch::block();
  if (first >= bytes) return;
  const uint64_t mine = bytes - first < share ? bytes - first : share;
  for (uint32_t i = 0; i < count; ++i) {
    put<Transport::p2p, Scope::block>(ctx, static_cast<char*>(dest) + first,
                                      static_cast<const char*>(source) + first, mine, pe);
    if (quiet_each != 0) quiet<Scope::block>(ctx);
  }
}

RSH_KERNEL rsh_bench_get(const DeviceContext* ctx, void* dest, const void* source, uint64_t bytes,
                         int32_t pe, uint32_t count) {
  const uint64_t share = share_of(bytes);
  const uint64_t first = share * arch::block();
  if (first >= bytes) return;
  const uint64_t mine = bytes - first < share ? bytes - first : share;
  for (uint32_t i = 0; i < count; ++i)
    get<Transport::p2p, Scope::block>(ctx, static_cast<char*>(dest) + first,
                                      static_cast<const char*>(source) + first, mine, pe);
}

// One thread stores words of 8 bytes; each is complete before the next.
RSH_WARP_KERNEL rsh_bench_p(const DeviceContext* ctx, uint64_t* dest, int32_t pe, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    put_immediate(ctx, dest, uint64_t{i}, pe);
    quiet(ctx);
  }
}

RSH_WARP_KERNEL rsh_bench_atomic(const DeviceContext* ctx, uint64_t* word, int32_t pe,
                                 uint32_t count, uint64_t* result) {
  uint64_t seen = 0;
  for (uint32_t i = 0; i < count; ++i)
    atomic_fetch(ctx, AtomicOp::add, word, uint64_t{1}, uint64_t{0}, pe, &seen);
  *result = seen;
}

// There and back between two PEs: whoever is `first` begins. `bytes` of data go with each signal;
// the signal counts up from `start`.
RSH_WARP_KERNEL rsh_bench_ping(const DeviceContext* ctx, void* dest, const void* source,
                               uint64_t bytes, uint64_t* signal, uint64_t start, int32_t pe,
                               uint32_t count, uint32_t first) {
  for (uint32_t i = 1; i <= count; ++i) {
    if (first != 0)
      put_signal<Scope::warp>(ctx, dest, source, bytes, set_signal(signal, start + i), pe);
    if (!wait_until<Scope::warp>(ctx, signal, Compare::greater_equal, start + i)) return;
    if (first == 0)
      put_signal<Scope::warp>(ctx, dest, source, bytes, set_signal(signal, start + i), pe);
  }
}

// Collective.
RSH_WARP_KERNEL rsh_bench_barrier(const DeviceContext* ctx, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i)
    if (!barrier_all(ctx)) return;
}

// The threads post `count` signals together to a peer behind a NIC: commands that carry all they
// say.
RSH_KERNEL rsh_bench_post(const DeviceContext* ctx, uint64_t* signal, int32_t pe, uint32_t count) {
  const uint32_t each = count / threads();
  for (uint32_t i = 1; i <= each; ++i)
    if (!ring_signal<Transport::proxy>(ctx, set_signal(signal, i), pe)) return;
}

// The threads put `bytes` from memory that they have written, `count` times together; those of a
// warp share one fence.
RSH_KERNEL rsh_bench_post_fenced(const DeviceContext* ctx, char* dest, char* source, uint64_t bytes,
                                 int32_t pe, uint32_t count) {
  const uint64_t mine =
      bytes * (uint64_t{arch::block()} * arch::size<Scope::block>() + arch::rank<Scope::block>());
  const uint32_t each = count / threads();
  for (uint32_t i = 1; i <= each; ++i) {
    source[mine] = static_cast<char>(i);
    arch::sync<Scope::warp>();
    // For what the whole warp wrote: the threads met before it and meet behind it.
    if (arch::leader<Scope::warp>()) arch::fence_payload();
    arch::sync<Scope::warp>();
    const bool posted = post(ctx, detail::put_command(ctx, CommandOp::put, dest + mine,
                                                      reinterpret_cast<uint64_t>(source + mine),
                                                      bytes, no_signal(), pe, 0));
    if (!arch::all<Scope::warp>(posted)) return;
  }
}

// One thread: a word to a peer behind a NIC and until it is complete, `count` times.
RSH_WARP_KERNEL rsh_bench_post_quiet(const DeviceContext* ctx, uint64_t* dest, int32_t pe,
                                     uint32_t count) {
  for (uint32_t i = 0; i < count; ++i)
    if (!put_immediate<Transport::proxy>(ctx, dest, uint64_t{i}, pe) || !quiet(ctx)) return;
}

// Collective: `bytes` to every PE, and until those of all have come; the blocks share every row and
// must run at once. `arrived` is symmetric and counts on from call to call; it was `before`.
RSH_KERNEL rsh_bench_alltoall(const DeviceContext* ctx, char* dest, const char* source,
                              uint64_t bytes, uint64_t* arrived, uint64_t before, uint32_t count) {
  const uint64_t share = share_of(bytes);
  const uint64_t first = share * arch::block() < bytes ? share * arch::block() : bytes;
  const uint64_t mine = bytes - first < share ? bytes - first : share;
  const uint64_t each = uint64_t{arch::blocks()} * static_cast<uint64_t>(ctx->n_pes);
  for (uint32_t i = 1; i <= count; ++i) {
    for (int32_t step = 1; step <= ctx->n_pes; ++step) {  // its own row last
      const int32_t to = (ctx->pe + step) % ctx->n_pes;
      put_signal<Scope::block>(ctx, dest + static_cast<uint64_t>(ctx->pe) * bytes + first,
                               source + static_cast<uint64_t>(to) * bytes + first, mine,
                               add_signal(arrived, 1), to);
    }
    if (!wait_until<Scope::block>(ctx, arrived, Compare::greater_equal, before + i * each)) return;
  }
}

// Fills a stream for so long: what follows has been launched when it starts.
RSH_WARP_KERNEL rsh_bench_delay(uint64_t ns) {
  const uint64_t start = arch::clock_ns();
  while (arch::clock_ns() - start < ns) {
  }
}

}  // namespace railshmem::device
