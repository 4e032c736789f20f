// What the host launches on a stream: puts, gets, signals, waits, atomics, order and fills, each a
// thin form of the primitive with its name.
//
// Where a call was stopped the kernel ends; the stop record says why. Words come as their bits,
// enumerations as their numbers.
#include "kernels/shmem/order.hpp"

namespace railshmem::device {
namespace {

using arch::Scope;

struct Piece {
  uint64_t first;
  uint64_t bytes;
};
// This block's share of `bytes`. Shares begin at multiples of 128 bytes: lines stay whole, and a
// word that is stored whole is not cut.
RSH_DEVICE Piece my_piece(uint64_t bytes) {
  const uint64_t share = (bytes / 128 / arch::blocks() + 1) * 128;
  const uint64_t first = share * arch::block();
  if (first >= bytes) return {0, 0};
  return {first, bytes - first < share ? bytes - first : share};
}

// What follows on the stream may overwrite the source, which a NIC reads after the command is
// posted.
RSH_DEVICE void until_source_is_free(const DeviceContext* ctx, int32_t pe) {
  if (arch::leader<Scope::block>()) quiet(ctx, pe);
}

template <class T>
RSH_DEVICE void wait_for(const DeviceContext* ctx, const void* word, uint32_t compare,
                         uint64_t expected) {
  T last;
  wait_until(ctx, static_cast<const T*>(word), static_cast<Compare>(compare),
             static_cast<T>(expected), &last);
}

template <class T>
RSH_DEVICE void atomic(const DeviceContext* ctx, uint32_t op, void* word, uint64_t operand,
                       uint64_t compare, int32_t pe, void* result) {
  const auto operation = static_cast<AtomicOp>(op);
  auto* target = static_cast<T*>(word);
  const T with = static_cast<T>(operand);
  if (result == nullptr)
    atomic_update(ctx, operation, target, with, pe);
  else
    atomic_fetch(ctx, operation, target, with, static_cast<T>(compare), pe,
                 static_cast<T*>(result));
}

template <class T>
RSH_DEVICE void fill(void* at, uint64_t value, uint64_t count) {
  const uint64_t threads = uint64_t{arch::blocks()} * arch::size<Scope::block>();
  uint64_t i = uint64_t{arch::block()} * arch::size<Scope::block>() + arch::rank<Scope::block>();
  for (; i < count; i += threads) static_cast<T*>(at)[i] = static_cast<T>(value);
}

}  // namespace

// A grid of any size: the blocks share the bytes where the peer is mapped; else one command does.
RSH_KERNEL rsh_put(const DeviceContext* ctx, void* dest, const void* source, uint64_t bytes,
                   int32_t pe) {
  if (transport_of(ctx, pe) != Transport::p2p) {
    if (arch::block() == 0) {
      put<Transport::proxy, Scope::block>(ctx, dest, source, bytes, pe);
      until_source_is_free(ctx, pe);
    }
    return;
  }
  const Piece piece = my_piece(bytes);
  if (piece.bytes > 0)
    put<Transport::p2p, Scope::block>(ctx, static_cast<char*>(dest) + piece.first,
                                      static_cast<const char*>(source) + piece.first, piece.bytes,
                                      pe);
}

// One block. A larger put that rings is rsh_put and then rsh_signal on the same stream: no word has
// to tell which block is the last, which a graph that runs twice at once would share with itself.
RSH_KERNEL rsh_put_signal(const DeviceContext* ctx, void* dest, const void* source, uint64_t bytes,
                          uint64_t* signal, uint64_t value, uint32_t op, int32_t pe) {
  put_signal<Scope::block>(ctx, dest, source, bytes, {signal, value, static_cast<AtomicOp>(op)},
                           pe);
  if (transport_of(ctx, pe) != Transport::p2p) until_source_is_free(ctx, pe);
}

// A grid of any size. Ends when the data has arrived.
RSH_KERNEL rsh_get(const DeviceContext* ctx, void* dest, const void* source, uint64_t bytes,
                   int32_t pe) {
  if (transport_of(ctx, pe) != Transport::p2p) {
    if (arch::block() == 0) get<Transport::proxy, Scope::block>(ctx, dest, source, bytes, pe);
    return;
  }
  const Piece piece = my_piece(bytes);
  if (piece.bytes > 0)
    get<Transport::p2p, Scope::block>(ctx, static_cast<char*>(dest) + piece.first,
                                      static_cast<const char*>(source) + piece.first, piece.bytes,
                                      pe);
}

// A grid of any size. `width`: 1, 2, 4 or 8 bytes; local memory.
RSH_KERNEL rsh_fill(void* at, uint64_t value, uint32_t width, uint64_t count) {
  if (width == 1) fill<uint8_t>(at, value, count);
  if (width == 2) fill<uint16_t>(at, value, count);
  if (width == 4) fill<uint32_t>(at, value, count);
  if (width == 8) fill<uint64_t>(at, value, count);
}

// ---- one thread each ---------------------------------------------------------------------------

RSH_KERNEL rsh_signal(const DeviceContext* ctx, uint64_t* signal, uint64_t value, uint32_t op,
                      int32_t pe) {
  ring_signal(ctx, {signal, value, static_cast<AtomicOp>(op)}, pe);
}

// `width`: 4 or 8 bytes. `is_signed` matters to comparisons by size only.
RSH_KERNEL rsh_wait_until(const DeviceContext* ctx, const void* word, uint32_t width,
                          uint32_t is_signed, uint32_t compare, uint64_t expected) {
  if (width == 8 && is_signed != 0) wait_for<int64_t>(ctx, word, compare, expected);
  if (width == 8 && is_signed == 0) wait_for<uint64_t>(ctx, word, compare, expected);
  if (width == 4 && is_signed != 0) wait_for<int32_t>(ctx, word, compare, expected);
  if (width == 4 && is_signed == 0) wait_for<uint32_t>(ctx, word, compare, expected);
}

// `width`: 4 or 8 bytes. `result`: where the old value goes; null: nobody wants it.
RSH_KERNEL rsh_atomic(const DeviceContext* ctx, uint32_t op, void* word, uint32_t width,
                      uint64_t operand, uint64_t compare, int32_t pe, void* result) {
  if (width == 8) atomic<uint64_t>(ctx, op, word, operand, compare, pe, result);
  if (width == 4) atomic<uint32_t>(ctx, op, word, operand, compare, pe, result);
}

RSH_KERNEL rsh_quiet(const DeviceContext* ctx) {
  quiet(ctx);
}

RSH_KERNEL rsh_fence(const DeviceContext* ctx) {
  fence(ctx);
}

// Collective.
RSH_KERNEL rsh_barrier_all(const DeviceContext* ctx) {
  barrier_all(ctx);
}

// Collective.
RSH_KERNEL rsh_sync_all(const DeviceContext* ctx) {
  uint64_t agreed = kPlainBarrier;
  sync_team(ctx, *ctx->world, &agreed);
}

}  // namespace railshmem::device
