// Where rows go.
#pragma once

#include "kernels/ep/args.hpp"

namespace railshmem::device::ep {

// Numbers the rows that go to each column (a PE of the node, or a node): ordinals[row, column]
// counts up in row order, -1 where the row does not go; counts[column] says how many go. A row goes
// once, however many of its experts are there. One thread calls it.
RSH_DEVICE void number_rows(const Shape& shape, const int32_t* ids, uint64_t rows,
                            const int32_t* column_of, int32_t n_columns, int64_t* ordinals,
                            uint64_t* counts) {
  const auto columns = static_cast<uint64_t>(n_columns);
  for (uint64_t column = 0; column < columns; ++column) counts[column] = 0;
  for (uint64_t i = 0; i < rows * columns; ++i) ordinals[i] = -1;
  for (uint64_t row = 0; row < rows; ++row) {
    int64_t* const line = ordinals + row * columns;
    for (uint64_t k = 0; k < shape.topk; ++k) {
      const int32_t id = ids[row * shape.topk + k];
      if (id < 0) continue;
      const int32_t column = column_of[owner_of(shape, id)];
      if (column >= 0 && line[column] < 0) line[column] = static_cast<int64_t>(counts[column]++);
    }
  }
}

// Expert-major: numbers the rows that go to each expert of the node, in row order. An expert that a
// row names twice gets it once. One thread calls it.
RSH_DEVICE void number_pairs(const Exchange& x, const Stream& stream) {
  const Shape& shape = x.shape;
  const auto most = static_cast<uint64_t>(shape.most_experts);
  const uint64_t all = static_cast<uint64_t>(x.node.n_members) * most;
  for (uint64_t expert = 0; expert < all; ++expert) stream.expert_counts[expert] = 0;
  for (uint64_t row = 0; row < stream.rows; ++row) {
    const int32_t* const ids = stream.ids + row * shape.topk;
    int64_t* const ordinals = stream.pair_ordinals + row * shape.topk;
    for (uint64_t k = 0; k < shape.topk; ++k) {
      if (ids[k] < 0) continue;
      const int32_t owner = owner_of(shape, ids[k]);
      const int32_t member = x.node.member_of[owner];
      if (member < 0) continue;
      uint64_t before = 0;
      while (ids[before] != ids[k]) ++before;
      if (before < k) {
        ordinals[k] = ordinals[before];
        continue;
      }
      const auto local = static_cast<uint64_t>(ids[k] - first_expert(shape, owner));
      uint64_t& count = stream.expert_counts[static_cast<uint64_t>(member) * most + local];
      ordinals[k] = static_cast<int64_t>(count++);
    }
  }
}

// Routes a stream inside the node and tells each member how many rows come.
RSH_DEVICE void announce(const DeviceContext* ctx, const Exchange& x, uint64_t round,
                         const Stream& stream) {
  const Node& node = x.node;
  number_rows(x.shape, stream.ids, stream.rows, node.member_of, node.n_members, stream.ordinals,
              stream.counts);
  if (by_expert(x.shape)) number_pairs(x, stream);
  const auto most = static_cast<uint64_t>(x.shape.most_experts);
  for (int32_t member = 0; member < node.n_members; ++member) {
    const int32_t pe = node.members[member];
    Count* const count = in_peer(ctx, x.buffers.counts + stream.pe, pe);
    arch::store_relaxed(&count->rows, stream.counts[member]);
    if (by_expert(x.shape))
      arch::copy<arch::Scope::thread>(
          in_peer(ctx, x.buffers.expert_counts + static_cast<uint64_t>(stream.pe) * most, pe),
          stream.expert_counts + static_cast<uint64_t>(member) * most, most * sizeof(uint64_t));
    arch::store_release(&count->sequence, round);  // pairs with the acquire in read_counts()
  }
}

// Tells every member the round, in the word that is this PE's in theirs.
RSH_DEVICE void signal_members(const DeviceContext* ctx, const Node& node, uint64_t* word,
                               uint64_t round) {
  for (int32_t member = 0; member < node.n_members; ++member)
    ring_signal<Transport::p2p>(ctx, set_signal(word, round), node.members[member]);
}

RSH_DEVICE int64_t node_ordinal(const Exchange& x, uint64_t row, int32_t node) {
  return x.node_ordinals[row * static_cast<uint64_t>(x.node.n_nodes) + static_cast<uint64_t>(node)];
}

RSH_DEVICE bool leaves_node(const Exchange& x, uint64_t row) {
  for (int32_t node = 0; node < x.node.n_nodes; ++node)
    if (node_ordinal(x, row, node) >= 0) return true;
  return false;
}

// Which arrival of the member a row of the stream is, or -1.
RSH_DEVICE int64_t arrival_of(const Exchange& x, const Stream& stream, uint64_t row,
                              int32_t member) {
  const auto members = static_cast<uint64_t>(x.node.n_members);
  const int64_t ordinal = stream.ordinals[row * members + static_cast<uint64_t>(member)];
  if (ordinal < 0 || stream.bases[member] == kRefused) return -1;
  return static_cast<int64_t>(stream.bases[member]) + ordinal;
}

// Expert-major: where a source's rows for the experts of a member begin, as that member granted it.
RSH_DEVICE uint64_t* expert_bases_of(const Exchange& x, int32_t source, int32_t member) {
  const auto grant = static_cast<uint64_t>(source) * static_cast<uint64_t>(x.node.n_members) +
                     static_cast<uint64_t>(member);
  return x.buffers.expert_bases + grant * static_cast<uint64_t>(x.shape.most_experts);
}

}  // namespace railshmem::device::ep
