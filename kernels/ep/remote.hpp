// Rows between nodes: from a source to its forwarder in each remote node.
#pragma once

#include "kernels/ep/route.hpp"
#include "kernels/ep/rows.hpp"

namespace railshmem::device::ep {

// put_signal, which is large. A block calls it; all of it learns how it went.
RSH_DEVICE_CALL bool send(const DeviceContext* ctx, void* dest, const void* source, uint64_t bytes,
                          Signal signal, int32_t pe) {
  return arch::all<kBlock>(
      put_signal<Transport::proxy, kBlock>(ctx, dest, source, bytes, signal, pe));
}

// Metadata of a slot, in the order in which it lies after the header.
struct Metadata {
  Header* header;
  int32_t* ids;
  float* weights;
  float* scales;
  uint64_t bytes;  // all of it, for this many rows
};
RSH_DEVICE Metadata metadata_at(const Shape& shape, char* at, uint64_t rows) {
  Metadata m;
  m.header = reinterpret_cast<Header*>(at);
  m.ids = reinterpret_cast<int32_t*>(at + sizeof(Header));
  m.weights = reinterpret_cast<float*>(m.ids + rows * shape.topk);
  m.scales = m.weights + rows * shape.topk;
  m.bytes = static_cast<uint64_t>(reinterpret_cast<char*>(m.scales + rows * shape.scales) - at);
  return m;
}

// Gathers what belongs to the rows that go to the node, but the rows, in its send buffer. A block
// calls it.
RSH_DEVICE Metadata pack_metadata(const Exchange& x, const Stream& own, int32_t node, bool again) {
  const Shape& shape = x.shape;
  char* const out = x.buffers.send_meta + static_cast<uint64_t>(node) * x.buffers.meta_bytes;
  const Metadata meta = metadata_at(shape, out, node_rows(x, own, node));
  if (arch::leader<kBlock>()) *meta.header = {node_rows(x, own, node), 0};
  const arch::Place warp = arch::warp_of_block();
  RSH_ROLLED
  for (uint64_t row = warp.index; row < own.rows; row += warp.count) {
    const int64_t found =
        by_slot(shape) ? static_cast<int64_t>(row) : node_ordinal(x, own, row, node);
    if (found < 0) continue;
    const auto to = static_cast<uint64_t>(found);
    if (!again) {
      RSH_ROLLED
      for (uint64_t k = arch::rank<kWarp>(); k < shape.topk; k += arch::size<kWarp>())
        meta.ids[to * shape.topk + k] = static_cast<int32_t>(id_at(own.ids, row * shape.topk + k));
      arch::copy<kWarp>(meta.weights + to * shape.topk, own.weights + row * shape.topk,
                        shape.topk * 4);
    }
    arch::copy<kWarp>(meta.scales + to * shape.scales, own.scales + row * shape.scales,
                      shape.scales * 4);
  }
  return meta;
}

// Waits until the forwarder's slot is free, then sends everything about the rows but the rows; of
// known routing (`again`) only the scales are new. One put with its own signal: on an unordered NIC
// a signal follows its own data only.
RSH_DEVICE bool send_header(const DeviceContext* ctx, const Exchange& x, const Stream& own,
                            uint64_t round, int32_t node, bool again) {
  const Gateway gateway = x.node.gateways[node];
  if (!wait_for_all<kBlock>(
          ctx, 1, round - 1, Waiting::ep_staging,
          [&](uint32_t) { return &x.buffers.from[gateway.pe].freed; },
          [&](uint32_t) { return gateway.pe; }))
    return false;
  const Metadata meta = pack_metadata(x, own, node, again);
  char* const begin = reinterpret_cast<char*>(meta.header);
  const uint64_t skipped =
      again ? static_cast<uint64_t>(reinterpret_cast<char*>(meta.scales) - begin) : 0;
  char* const slot =
      x.buffers.staged_meta + static_cast<uint64_t>(gateway.slot) * x.buffers.meta_bytes;
  return send(ctx, slot + skipped, begin + skipped, meta.bytes - skipped,
              set_signal(&x.buffers.from[ctx->pe].header, round), gateway.pe);
}

// Sends the rows among [first, last) that go to the node: one put per run of consecutive tokens.
// Every put rings the same word. Signals of a lane arrive in order and each after its own data, so
// a value announces all rows before it, on any NIC.
RSH_DEVICE bool send_runs(const DeviceContext* ctx, const Exchange& x, const Stream& own,
                          uint64_t round, const char* tokens, uint64_t first, uint64_t last,
                          int32_t node) {
  const Gateway gateway = x.node.gateways[node];
  const uint64_t row_bytes = x.shape.token_bytes;
  char* const slot =
      x.buffers.staged_rows + static_cast<uint64_t>(gateway.slot) * x.shape.max_tokens * row_bytes;
  RSH_ROLLED
  for (uint64_t row = first; row < last;) {
    const int64_t found = node_ordinal(x, own, row, node);
    uint64_t end = row + 1;
    if (found >= 0) {
      RSH_ROLLED
      while (end < last && node_ordinal(x, own, end, node) >= 0) ++end;
      const auto ordinal = static_cast<uint64_t>(found);
      const uint64_t rows = end - row;
      const Signal signal =
          set_signal(&x.buffers.from[ctx->pe].rows, progress(x.shape, round, ordinal + rows));
      if (!send(ctx, slot + ordinal * row_bytes, tokens + row * row_bytes, rows * row_bytes, signal,
                gateway.pe))
        return false;
    }
    row = end;
  }
  return true;
}

// Sends all rows that leave the node, a chunk of tokens after the other, so that the NIC works
// while the next chunk is copied into the heap. `in_heap`: a NIC can read the tokens where they
// are. `ok` is false where the block has failed already: it still has to meet the others.
RSH_DEVICE bool send_rows(const DeviceContext* ctx, const Exchange& x, const Stream& own,
                          uint64_t round, bool in_heap, bool ok) {
  const uint64_t row_bytes = x.shape.token_bytes;
  const char* const tokens = in_heap ? own.tokens : x.buffers.send_rows;
  RSH_ROLLED
  for (uint64_t first = 0; first < own.rows; first += x.shape.chunk_rows) {
    const uint64_t left = own.rows - first;
    const uint64_t last = first + (left < x.shape.chunk_rows ? left : x.shape.chunk_rows);
    if (!in_heap) {
      parts_of_rows(last - first, row_bytes, arch::warp_of_grid()).each([&](const Part& part) {
        const uint64_t at = (first + part.row) * row_bytes;
        if (leaves_node(x, own, first + part.row))
          copy_row(x.buffers.send_rows + at, own.tokens + at, part.first, part.last);
        return true;
      });
      ok = arch::sync_grid(x.grid, ok);
    }
    RSH_ROLLED
    for (int32_t node = 0; node < x.node.n_nodes && ok; ++node)
      if (x.node.gateways[node].pe >= 0 && is_mine(node))
        ok = send_runs(ctx, x, own, round, tokens, first, last, node);
  }
  return ok;
}

// Waits for a source's header and routes its rows in this node, unless their routing is known. A
// block calls it.
RSH_DEVICE bool receive_header(const DeviceContext* ctx, const Exchange& x, uint64_t round,
                               int32_t slot, bool again) {
  const int32_t source = x.node.sources[slot];
  if (!wait_for_all<kBlock>(
          ctx, 1, round, Waiting::ep_header,
          [&](uint32_t) { return &x.buffers.from[source].header; },
          [&](uint32_t) { return source; }))
    return false;
  if (again) return true;
  char* const at = x.buffers.staged_meta + static_cast<uint64_t>(slot) * x.buffers.meta_bytes;
  Stream stream = x.streams[slot + 1];
  stream.rows = reinterpret_cast<const Header*>(at)->rows;
  const Metadata meta = metadata_at(x.shape, at, stream.rows);
  if (!by_slot(x.shape)) stream.ids = {meta.ids, false};
  stream.weights = meta.weights;
  stream.scales = meta.scales;
  if (arch::leader<kBlock>()) x.streams[slot + 1] = stream;
  if (by_slot(x.shape)) {
    // They are needed after this staging has been freed, too.
    int32_t* const ids =
        x.ids + static_cast<uint64_t>(slot + 1) * x.shape.max_tokens * x.shape.topk;
    RSH_ROLLED
    for (uint64_t i = arch::rank<kBlock>(); i < stream.rows * x.shape.topk;
         i += arch::size<kBlock>())
      ids[i] = meta.ids[i];
  } else {
    mark_rows(x, stream, arch::warp_of_block(), stream.ids, nullptr);
  }
  arch::sync<kBlock>();
  announce(ctx, x, round, stream);
  return true;
}

// Everything this PE posted between nodes is complete: sources may change. A block calls it.
RSH_DEVICE bool quiet_remote(const DeviceContext* ctx, const Node& node) {
  bool ok = true;
  RSH_ROLLED
  for (auto i = static_cast<int32_t>(arch::rank<kBlock>()); i < node.n_nodes && ok;
       i += static_cast<int32_t>(arch::size<kBlock>()))
    if (node.gateways[i].pe >= 0) ok = quiet_lane(ctx, node.gateways[i].pe, 0);
  RSH_ROLLED
  for (auto slot = static_cast<int32_t>(arch::rank<kBlock>()); slot < node.n_sources && ok;
       slot += static_cast<int32_t>(arch::size<kBlock>()))
    ok = quiet_lane(ctx, node.sources[slot], 0);
  return arch::all<kBlock>(ok);
}

}  // namespace railshmem::device::ep
