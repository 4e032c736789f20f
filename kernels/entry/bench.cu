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
RSH_KERNEL rsh_bench_p(const DeviceContext* ctx, uint64_t* dest, int32_t pe, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    put_immediate(ctx, dest, uint64_t{i}, pe);
    quiet(ctx);
  }
}

RSH_KERNEL rsh_bench_atomic(const DeviceContext* ctx, uint64_t* word, int32_t pe, uint32_t count,
                            uint64_t* result) {
  uint64_t seen = 0;
  for (uint32_t i = 0; i < count; ++i)
    atomic_fetch(ctx, AtomicOp::add, word, uint64_t{1}, uint64_t{0}, pe, &seen);
  *result = seen;
}

// There and back between two PEs: whoever is `first` begins. `bytes` of data go with each signal;
// the signal counts up from `start`.
RSH_KERNEL rsh_bench_ping(const DeviceContext* ctx, void* dest, const void* source, uint64_t bytes,
                          uint64_t* signal, uint64_t start, int32_t pe, uint32_t count,
                          uint32_t first) {
  for (uint32_t i = 1; i <= count; ++i) {
    if (first != 0)
      put_signal<Scope::warp>(ctx, dest, source, bytes, set_signal(signal, start + i), pe);
    if (!wait_until<Scope::warp>(ctx, signal, Compare::greater_equal, start + i)) return;
    if (first == 0)
      put_signal<Scope::warp>(ctx, dest, source, bytes, set_signal(signal, start + i), pe);
  }
}

// Collective.
RSH_KERNEL rsh_bench_barrier(const DeviceContext* ctx, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i)
    if (!barrier_all(ctx)) return;
}

// Every thread posts `count` signals to a peer behind a NIC: commands that carry all they say.
RSH_KERNEL rsh_bench_post(const DeviceContext* ctx, uint64_t* signal, int32_t pe, uint32_t count) {
  for (uint32_t i = 1; i <= count; ++i)
    if (!ring_signal<Transport::proxy>(ctx, set_signal(signal, i), pe)) return;
}

// Every warp puts `bytes` from memory it has written, `count` times; every lane one command, behind
// one fence per warp.
RSH_KERNEL rsh_bench_post_fenced(const DeviceContext* ctx, char* dest, char* source, uint64_t bytes,
                                 int32_t pe, uint32_t count) {
  const uint64_t thread =
      uint64_t{arch::block()} * arch::size<Scope::block>() + arch::rank<Scope::block>();
  for (uint32_t i = 1; i <= count; ++i) {
    source[thread * bytes] = static_cast<char>(i);
    if (!put<Transport::proxy, Scope::thread>(ctx, dest + thread * bytes, source + thread * bytes,
                                              bytes, pe))
      return;
  }
}

// One thread: a word to a peer behind a NIC and until it is complete, `count` times.
RSH_KERNEL rsh_bench_post_quiet(const DeviceContext* ctx, uint64_t* dest, int32_t pe,
                                uint32_t count) {
  for (uint32_t i = 0; i < count; ++i)
    if (!put_immediate<Transport::proxy>(ctx, dest, uint64_t{i}, pe) || !quiet(ctx)) return;
}

// Collective: the blocks share the destinations; `bytes` go to every PE.
RSH_KERNEL rsh_bench_alltoall(const DeviceContext* ctx, char* dest, const char* source,
                              uint64_t bytes, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t share = share_of(bytes);
    const uint64_t first = share * arch::block();
    const uint64_t mine = first >= bytes ? 0 : bytes - first < share ? bytes - first : share;
    for (int32_t step = 0; step < ctx->n_pes && mine > 0; ++step) {
      const int32_t to = (ctx->pe + step) % ctx->n_pes;
      put<Scope::block>(ctx, dest + static_cast<uint64_t>(ctx->pe) * bytes + first,
                        source + static_cast<uint64_t>(to) * bytes + first, mine, to);
    }
    quiet<Scope::block>(ctx);
  }
}

}  // namespace railshmem::device
