// Where rows go, and each row's number among those that go there. Rows are looked at once, by as
// many warps as there are, and keep the order that they have.
#pragma once

#include "kernels/ep/args.hpp"

namespace railshmem::device::ep {

// The caller's expert ids, as they are.
struct Ids {
  const void* at;  // [rows, topk]
  bool wide;       // of 8 bytes, else 4
};
RSH_DEVICE int64_t id_at(const Ids& ids, uint64_t i) {
  return ids.wide ? static_cast<const int64_t*>(ids.at)[i] : static_cast<const int32_t*>(ids.at)[i];
}

RSH_DEVICE Marks& marks_at(const Exchange& x, const Stream& stream, uint64_t column, uint64_t row) {
  return stream.marks[column * x.units + row / kMarked];
}

// A row's number among the stream's rows that go to the column, or -1.
RSH_DEVICE int64_t ordinal(const Exchange& x, const Stream& stream, uint64_t column, uint64_t row) {
  const Marks marks = marks_at(x, stream, column, row);
  const auto bit = static_cast<uint32_t>(row % kMarked);
  if ((marks.rows >> bit & 1) == 0) return -1;
  return static_cast<int64_t>(marks.before +
                              arch::count_ones(marks.rows & ((uint32_t{1} << bit) - 1)));
}

RSH_DEVICE void mark(const Exchange& x, const Stream& stream, uint64_t column, uint64_t row) {
  arch::set_bits(&marks_at(x, stream, column, row).rows, uint32_t{1} << row % kMarked);
}

// Marks the columns of one of a row's experts.
RSH_DEVICE void mark_expert(const Exchange& x, const Stream& stream, uint64_t row, int32_t id) {
  const Home home = x.homes[id];
  if (home.member < 0) {
    mark(x, stream, node_column(x, home.node), row);
    return;
  }
  mark(x, stream, static_cast<uint64_t>(home.member), row);
  if (by_expert(x.shape)) mark(x, stream, expert_column(x, home.member, home.local), row);
}

// Marks all columns of the stream's rows; take(i) is the expert id at [row, k]. A share of the
// warps' work.
template <class Take>
RSH_DEVICE void mark_rows(const Exchange& x, const Stream& stream, arch::Place warp,
                          const Take& take) {
  const uint64_t topk = x.shape.topk, n_columns = columns(x);
  const uint64_t units = (stream.rows + kMarked - 1) / kMarked;
  for (uint64_t unit = warp.index; unit < units; unit += warp.count) {
    for (uint64_t column = arch::rank<kWarp>(); column < n_columns; column += arch::size<kWarp>())
      stream.marks[column * x.units + unit] = {0, 0};
    arch::sync<kWarp>();
    const uint64_t first = unit * kMarked;
    const uint64_t left = stream.rows - first;
    const uint64_t rows = left < kMarked ? left : kMarked;
    for (uint64_t row = first + arch::rank<kWarp>(); row < first + rows; row += arch::size<kWarp>())
      for (uint64_t k = 0; k < topk; ++k) {
        const int32_t id = take(row, k);
        if (id >= 0) mark_expert(x, stream, row, id);
      }
  }
}

// Says what is wrong with an id, and stops this PE.
RSH_DEVICE void refuse_id(const DeviceContext* ctx, uint64_t row, uint64_t k, int64_t id) {
  stop_with(ctx, Stop::bad_expert,
            {Waiting::nothing, -1, -1, 0, 0, row, k, static_cast<uint64_t>(id), 0, 0});
}

// Marks this PE's own rows and keeps their ids. False: an id does not exist.
RSH_DEVICE bool mark_own_rows(const DeviceContext* ctx, const Exchange& x, const Stream& own,
                              const Ids& ids) {
  bool ok = true;
  mark_rows(x, own, arch::warp_of_grid(), [&](uint64_t row, uint64_t k) {
    const uint64_t i = row * x.shape.topk + k;
    const int64_t id = id_at(ids, i);
    if (id < -1 || id >= x.shape.experts) {
      ok = false;
      refuse_id(ctx, row, k, id);
      return -1;
    }
    x.ids[i] = static_cast<int32_t>(id);
    return static_cast<int32_t>(id);
  });
  return ok;
}

// Counts the marks of every column. A block calls it, after the blocks that marked.
RSH_DEVICE void number_rows(const Exchange& x, const Stream& stream) {
  const uint64_t units = (stream.rows + kMarked - 1) / kMarked;
  // Each lane has consecutive units.
  const uint64_t share = (units + arch::size<kWarp>() - 1) / arch::size<kWarp>();
  const uint64_t first = arch::rank<kWarp>() * share;
  const uint64_t last = first + share < units ? first + share : units;
  const arch::Place warp = arch::warp_of_block();
  for (uint64_t column = warp.index; column < columns(x); column += warp.count) {
    Marks* const marks = stream.marks + column * x.units;
    uint32_t mine = 0;
    for (uint64_t unit = first; unit < last; ++unit) mine += arch::count_ones(marks[unit].rows);
    uint32_t all;
    uint32_t before = arch::sum_before(mine, &all);
    for (uint64_t unit = first; unit < last; ++unit) {
      marks[unit].before = before;
      before += arch::count_ones(marks[unit].rows);
    }
    if (arch::leader<kWarp>()) stream.totals[column] = all;
  }
  arch::sync<kBlock>();
}

// Tells every member how many rows come from the stream to each member, and to each expert. A block
// calls it.
RSH_DEVICE void announce(const DeviceContext* ctx, const Exchange& x, uint64_t round,
                         const Stream& stream) {
  const Node& node = x.node;
  const uint64_t counted = counted_columns(x);
  const auto members = static_cast<uint64_t>(node.n_members);
  const uint64_t all = counted * members;
  for (uint64_t i = arch::rank<kBlock>(); i < all; i += arch::size<kBlock>()) {
    const uint64_t column = i % counted;
    const uint64_t total =
        stream.totals[column < members ? column : column - members + expert_column(x, 0, 0)];
    Count* const count = in_peer(ctx, count_of(x, stream.pe, column), node.members[i / counted]);
    arch::store_tagged(&count->sequence, round, total);
  }
}

// Tells every member the round, in the word that is this PE's in theirs. A block calls it.
RSH_DEVICE void signal_members(const DeviceContext* ctx, const Node& node, uint64_t* word,
                               uint64_t round) {
  for (auto member = static_cast<int32_t>(arch::rank<kBlock>()); member < node.n_members;
       member += static_cast<int32_t>(arch::size<kBlock>()))
    ring_signal<Transport::p2p>(ctx, set_signal(word, round), node.members[member]);
}

// wait_for_sequence, which is large.
RSH_DEVICE_CALL bool wait_for(const DeviceContext* ctx, const uint64_t* word, uint64_t at_least,
                              Waiting what, int32_t peer) {
  return wait_for_sequence(ctx, word, at_least, what, peer);
}

// Threads of the scope wait for word(i) of peer(i), i < n, and all learn whether all have come.
template <arch::Scope S, class Word, class Peer>
RSH_DEVICE bool wait_for_all(const DeviceContext* ctx, uint64_t n, uint64_t at_least, Waiting what,
                             const Word& word, const Peer& peer) {
  bool ok = true;
  for (uint64_t i = arch::rank<S>(); i < n && ok; i += arch::size<S>())
    ok = wait_for(ctx, word(i), at_least, what, peer(i));
  return arch::all<S>(ok);
}
// The same for what every member tells.
template <class Word>
RSH_DEVICE bool wait_for_members(const DeviceContext* ctx, const Exchange& x, uint64_t at_least,
                                 Waiting what, Word FromPeer::* word) {
  const Node& node = x.node;
  return wait_for_all<kBlock>(
      ctx, static_cast<uint64_t>(node.n_members), at_least, what,
      [&](uint64_t i) { return &(x.buffers.from[node.members[i]].*word); },
      [&](uint64_t i) { return node.members[i]; });
}

// Which arrival of the member a row of the stream is, or -1.
RSH_DEVICE int64_t arrival_of(const Exchange& x, const Stream& stream, uint64_t row,
                              int32_t member) {
  const int64_t number = ordinal(x, stream, static_cast<uint64_t>(member), row);
  const uint64_t base = stream.bases[member];
  return number < 0 || base == kRefused ? -1 : static_cast<int64_t>(base) + number;
}

RSH_DEVICE int64_t node_ordinal(const Exchange& x, uint64_t row, int32_t node) {
  return ordinal(x, x.streams[0], node_column(x, node), row);
}
RSH_DEVICE uint64_t node_rows(const Exchange& x, int32_t node) {
  return x.streams[0].totals[node_column(x, node)];
}
RSH_DEVICE bool leaves_node(const Exchange& x, uint64_t row) {
  for (int32_t node = 0; node < x.node.n_nodes; ++node)
    if (node_ordinal(x, row, node) >= 0) return true;
  return false;
}

}  // namespace railshmem::device::ep
