// put, put with signal, immediate put and get. Each is a template over the transport and the scope
// whose threads call it together, with a run-time form that takes the transport of the peer.
//
// Puts do not block: the source of a PROXY put must stay as it is until quiet. In warp and block
// scope exactly one thread posts. All return false when the PE was stopped; the stop record says
// why.
#pragma once

#include "kernels/shmem/atomic.hpp"
#include "kernels/shmem/ring.hpp"

namespace railshmem::device {

// What announces that data has arrived: SET stores `value`, ADD adds it. A word that is SET belongs
// to one (PE, lane, posting thread); its SETs arrive in the order they were posted.
struct Signal {
  uint64_t* word;  // symmetric; null: none
  uint64_t value;
  AtomicOp op;
};
RSH_DEVICE Signal no_signal() {
  return {nullptr, 0, AtomicOp::none};
}
RSH_DEVICE Signal set_signal(uint64_t* word, uint64_t value) {
  return {word, value, AtomicOp::set};
}
RSH_DEVICE Signal add_signal(uint64_t* word, uint64_t value) {
  return {word, value, AtomicOp::add};
}

namespace detail {

template <Transport T>
struct Reserved {
  static_assert(T != Transport::ibgda, "IBGDA is reserved: use P2P or PROXY");
};

// Rings a signal in a mapped peer. SET is a store; ADD belongs to the heap's atomic domain.
RSH_DEVICE bool ring_mapped(const DeviceContext* ctx, const Signal& signal, int pe, uint32_t lane) {
  if (signal.word == nullptr) return true;
  if (signal.op == AtomicOp::set) {
    // Release: the data copied before is visible to whoever acquires this value.
    arch::store_release(in_peer(ctx, signal.word, pe), signal.value);
    return true;
  }
  // Where atomics are posted, another engine adds: the data copied before must be visible first.
  if (arch::fixed(ctx->atomics_posted)) arch::fence_payload();
  return atomic_update<uint64_t>(ctx, signal.op, signal.word, signal.value, pe, lane);
}

RSH_DEVICE Command put_command(const DeviceContext* ctx, CommandOp op, const void* dest,
                               uint64_t source, uint64_t bytes, const Signal& signal, int pe,
                               uint32_t lane) {
  Command c;
  c.op = op;
  c.atomic_op = signal.word == nullptr ? AtomicOp::none : signal.op;
  c.lane = static_cast<uint16_t>(lane);
  c.pe = pe;
  c.target = bytes == 0 ? 0 : offset_of(ctx, dest);
  c.source = source;
  c.bytes = bytes;
  c.signal = signal.word == nullptr ? 0 : offset_of(ctx, signal.word);
  c.value = signal.value;
  return c;
}

}  // namespace detail

// Copies `bytes` from local memory (for PROXY: registered memory, such as the heap) to the
// symmetric address `dest` in `pe`, then rings the signal.
template <Transport T, arch::Scope S>
RSH_DEVICE bool put_signal(const DeviceContext* ctx, void* dest, const void* source, uint64_t bytes,
                           const Signal& signal, int pe, uint32_t lane = 0) {
  static_cast<void>(detail::Reserved<T>{});
  if constexpr (T == Transport::p2p) {
    char* to = in_peer(ctx, static_cast<char*>(dest), pe);
    if (!arch::store_whole_relaxed(to, source, bytes)) arch::copy<S>(to, source, bytes);
    arch::sync<S>();
    return arch::leader<S>() ? detail::ring_mapped(ctx, signal, pe, lane) : true;
  } else {
    arch::sync<S>();  // the scope's threads may have written the source
    if (!arch::leader<S>()) return true;
    arch::fence_payload();  // the NIC must see the source before it sees the command
    return post(ctx,
                detail::put_command(ctx, CommandOp::put, dest, reinterpret_cast<uint64_t>(source),
                                    bytes, signal, pe, lane));
  }
}

template <arch::Scope S>
RSH_DEVICE bool put_signal(const DeviceContext* ctx, void* dest, const void* source, uint64_t bytes,
                           const Signal& signal, int pe, uint32_t lane = 0) {
  return transport_of(ctx, pe) == Transport::p2p
             ? put_signal<Transport::p2p, S>(ctx, dest, source, bytes, signal, pe, lane)
             : put_signal<Transport::proxy, S>(ctx, dest, source, bytes, signal, pe, lane);
}

template <Transport T, arch::Scope S>
RSH_DEVICE bool put(const DeviceContext* ctx, void* dest, const void* source, uint64_t bytes,
                    int pe, uint32_t lane = 0) {
  return put_signal<T, S>(ctx, dest, source, bytes, no_signal(), pe, lane);
}

template <arch::Scope S>
RSH_DEVICE bool put(const DeviceContext* ctx, void* dest, const void* source, uint64_t bytes,
                    int pe, uint32_t lane = 0) {
  return put_signal<S>(ctx, dest, source, bytes, no_signal(), pe, lane);
}

// Stores a value of 1, 2, 4 or 8 bytes, passed by value: it travels inside the command, so nothing
// must stay alive and no fence is needed. Then rings the signal. One thread calls it.
template <Transport T, class V>
RSH_DEVICE bool put_immediate(const DeviceContext* ctx, V* dest, V value, int pe,
                              const Signal& signal = no_signal(), uint32_t lane = 0) {
  static_cast<void>(detail::Reserved<T>{});
  static_assert(sizeof(V) <= 8, "immediates have up to 8 bytes");
  if constexpr (T == Transport::p2p) {
    arch::store_whole_relaxed(in_peer(ctx, dest, pe), &value, sizeof(V));
    return detail::ring_mapped(ctx, signal, pe, lane);
  } else {
    uint64_t word = 0;
    memcpy(&word, &value, sizeof(V));
    return post(ctx, detail::put_command(ctx, CommandOp::put_immediate, dest, word, sizeof(V),
                                         signal, pe, lane));
  }
}

template <class V>
RSH_DEVICE bool put_immediate(const DeviceContext* ctx, V* dest, V value, int pe,
                              const Signal& signal = no_signal(), uint32_t lane = 0) {
  return transport_of(ctx, pe) == Transport::p2p
             ? put_immediate<Transport::p2p>(ctx, dest, value, pe, signal, lane)
             : put_immediate<Transport::proxy>(ctx, dest, value, pe, signal, lane);
}

// Rings a signal without data. One thread calls it.
template <Transport T>
RSH_DEVICE bool ring_signal(const DeviceContext* ctx, const Signal& signal, int pe,
                            uint32_t lane = 0) {
  static_cast<void>(detail::Reserved<T>{});
  if constexpr (T == Transport::p2p)
    return detail::ring_mapped(ctx, signal, pe, lane);
  else
    return post(
        ctx, detail::put_command(ctx, CommandOp::put_immediate, nullptr, 0, 0, signal, pe, lane));
}

RSH_DEVICE bool ring_signal(const DeviceContext* ctx, const Signal& signal, int pe,
                            uint32_t lane = 0) {
  return transport_of(ctx, pe) == Transport::p2p
             ? ring_signal<Transport::p2p>(ctx, signal, pe, lane)
             : ring_signal<Transport::proxy>(ctx, signal, pe, lane);
}

namespace detail {

RSH_DEVICE Command get_command(const DeviceContext* ctx, void* dest, const void* source,
                               uint64_t bytes, int pe, uint32_t lane) {
  Command c;
  c.op = CommandOp::get;
  c.lane = static_cast<uint16_t>(lane);
  c.pe = pe;
  c.target = offset_of(ctx, source);
  c.source = reinterpret_cast<uint64_t>(dest);
  c.bytes = bytes;
  return c;
}

RSH_DEVICE bool get_by_command(const DeviceContext* ctx, Command c) {
  uint32_t slot;
  if (!take_slot(ctx, &slot)) return false;
  c.signal = uint64_t{slot} + 1;
  arch::fence_payload();  // what kernels wrote to the destination must not come after the data
  if (post(ctx, c)) return collect_slot(ctx, slot, c.pe, nullptr);
  return_slot(ctx, slot);
  return false;
}

}  // namespace detail

// Copies `bytes` from the symmetric address `source` in `pe` to local memory (for PROXY: registered
// memory) and returns when they have arrived.
template <Transport T, arch::Scope S>
RSH_DEVICE bool get(const DeviceContext* ctx, void* dest, const void* source, uint64_t bytes,
                    int pe, uint32_t lane = 0) {
  static_cast<void>(detail::Reserved<T>{});
  bool ok = true;
  if constexpr (T == Transport::p2p) {
    arch::copy<S>(dest, in_peer(ctx, static_cast<const char*>(source), pe), bytes);
  } else {
    arch::sync<S>();  // the scope's threads may have written the destination
    if (arch::leader<S>() && bytes > 0)
      ok = detail::get_by_command(ctx, detail::get_command(ctx, dest, source, bytes, pe, lane));
  }
  arch::sync<S>();
  return ok;
}

template <arch::Scope S>
RSH_DEVICE bool get(const DeviceContext* ctx, void* dest, const void* source, uint64_t bytes,
                    int pe, uint32_t lane = 0) {
  return transport_of(ctx, pe) == Transport::p2p
             ? get<Transport::p2p, S>(ctx, dest, source, bytes, pe, lane)
             : get<Transport::proxy, S>(ctx, dest, source, bytes, pe, lane);
}

// get whose data has arrived after quiet: one scope, any transport.
template <arch::Scope S>
RSH_DEVICE bool get_nbi(const DeviceContext* ctx, void* dest, const void* source, uint64_t bytes,
                        int pe, uint32_t lane = 0) {
  if (transport_of(ctx, pe) == Transport::p2p || bytes == 0)
    return get<Transport::p2p, S>(ctx, dest, source, bytes, pe, lane);
  arch::sync<S>();
  if (!arch::leader<S>()) return true;
  arch::fence_payload();  // as for a get that waits
  return post(ctx, detail::get_command(ctx, dest, source, bytes, pe, lane));
}

}  // namespace railshmem::device
