// Where rows go, and each row's number among those that go there. Rows are looked at once, by as
// many warps as there are, and keep the order that they have.
#pragma once

#include "kernels/ep/args.hpp"

namespace railshmem::device::ep {

RSH_DEVICE Marks& marks_at(const Exchange& x, const Stream& stream, uint32_t column, uint64_t row) {
  return stream.marks[uint64_t{column} * x.units + row / kMarked];
}

// A row's number among the stream's rows that go to the column, or -1.
RSH_DEVICE int64_t marked(const Exchange& x, const Stream& stream, uint32_t column, uint64_t row) {
  const Marks marks = marks_at(x, stream, column, row);
  const auto bit = static_cast<uint32_t>(row % kMarked);
  if ((marks.rows >> bit & 1) == 0) return -1;
  return static_cast<int64_t>(marks.before +
                              arch::count_ones(marks.rows & ((uint32_t{1} << bit) - 1)));
}

// Whether one of a row's experts lives where lives(home) says.
template <class Lives>
RSH_DEVICE bool names(const Exchange& x, const Stream& stream, uint64_t row, const Lives& lives) {
  constexpr uint64_t kBatch = 8;  // loads that do not wait for each other
  const uint64_t topk = x.shape.topk;
  bool found = false;
  RSH_ROLLED
  for (uint64_t first = 0; first < topk && !found; first += kBatch) {
    int64_t ids[kBatch];
    Home homes[kBatch] = {};
    RSH_UNROLL
    for (uint64_t i = 0; i < kBatch; ++i)
      ids[i] = first + i < topk ? id_at(stream.ids, row * topk + first + i) : -1;
    RSH_UNROLL
    for (uint64_t i = 0; i < kBatch; ++i)
      if (ids[i] >= 0) homes[i] = x.homes[ids[i]];
    RSH_UNROLL
    for (uint64_t i = 0; i < kBatch; ++i) found = found || (ids[i] >= 0 && lives(homes[i]));
  }
  return found;
}

// A row's number among those that go to a member, or to a node, or -1. By slot all rows have one.
RSH_DEVICE int64_t member_ordinal(const Exchange& x, const Stream& stream, uint64_t row,
                                  int32_t member) {
  if (!by_slot(x.shape)) return marked(x, stream, static_cast<uint32_t>(member), row);
  const auto here = [&](const Home& home) { return home.member == member; };
  return names(x, stream, row, here) ? static_cast<int64_t>(row) : -1;
}
RSH_DEVICE int64_t node_ordinal(const Exchange& x, const Stream& own, uint64_t row, int32_t node) {
  if (!by_slot(x.shape)) return marked(x, own, node_column(x, node), row);
  const auto there = [&](const Home& home) { return home.node == node; };
  return names(x, own, row, there) ? static_cast<int64_t>(row) : -1;
}
RSH_DEVICE uint64_t node_rows(const Exchange& x, const Stream& own, int32_t node) {
  return by_slot(x.shape) ? own.rows : own.totals[node_column(x, node)];
}
RSH_DEVICE bool leaves_node(const Exchange& x, const Stream& own, uint64_t row) {
  RSH_ROLLED
  for (int32_t node = 0; node < x.node.n_nodes; ++node)
    if (node_ordinal(x, own, row, node) >= 0) return true;
  return false;
}

RSH_DEVICE void mark(const Exchange& x, const Stream& stream, uint32_t column, uint64_t row) {
  arch::set_bits(&marks_at(x, stream, column, row).rows, uint32_t{1} << row % kMarked);
}

// Marks the columns of one of a row's experts.
RSH_DEVICE void mark_home(const Exchange& x, const Stream& stream, uint64_t row, const Home& home) {
  if (home.member < 0) {
    mark(x, stream, node_column(x, home.node), row);
    return;
  }
  mark(x, stream, static_cast<uint32_t>(home.member), row);
  if (by_expert(x.shape)) mark(x, stream, expert_column(x, home.member, home.local), row);
}

RSH_DEVICE bool exists(const Shape& shape, int64_t id) {
  return id >= -1 && id < shape.experts;
}

// Marks the columns of a row, and keeps its ids where `keep` is not null. False: one does not
// exist. Ids and homes come in batches: loads that do not wait for each other.
RSH_DEVICE bool mark_row(const Exchange& x, const Stream& stream, uint64_t row, const Ids& ids,
                         int32_t* keep) {
  constexpr uint32_t kBatch = 8;
  const auto topk = static_cast<uint32_t>(x.shape.topk);
  const uint64_t at = row * topk;
  bool ok = true;
  RSH_ROLLED
  for (uint32_t first = 0; first < topk; first += kBatch) {
    int64_t id[kBatch];
    Home homes[kBatch] = {};
    RSH_UNROLL
    for (uint32_t i = 0; i < kBatch; ++i)
      id[i] = first + i < topk ? id_at(ids, at + first + i) : -1;
    RSH_UNROLL
    for (uint32_t i = 0; i < kBatch; ++i) {
      ok = ok && exists(x.shape, id[i]);
      if (!exists(x.shape, id[i])) id[i] = -1;
      if (id[i] >= 0) homes[i] = x.homes[id[i]];
    }
    RSH_UNROLL
    for (uint32_t i = 0; i < kBatch; ++i) {
      if (keep != nullptr && first + i < topk) keep[at + first + i] = static_cast<int32_t>(id[i]);
      if (id[i] >= 0) mark_home(x, stream, row, homes[i]);
    }
  }
  return ok;
}

// Marks all columns of the stream's rows. A share of the warps' work.
RSH_DEVICE bool mark_rows(const Exchange& x, const Stream& stream, arch::Place warp, const Ids& ids,
                          int32_t* keep) {
  const uint32_t n_columns = columns(x);
  const auto units = static_cast<uint32_t>((stream.rows + kMarked - 1) / kMarked);
  bool ok = true;
  RSH_ROLLED
  for (uint32_t unit = warp.index; unit < units; unit += warp.count) {
    RSH_ROLLED
    for (uint32_t column = arch::rank<kWarp>(); column < n_columns; column += arch::size<kWarp>())
      stream.marks[uint64_t{column} * x.units + unit] = {0, 0};
    arch::sync<kWarp>();
    const uint64_t first = uint64_t{unit} * kMarked;
    const uint64_t left = stream.rows - first;
    const uint64_t last = first + (left < kMarked ? left : kMarked);
    RSH_ROLLED
    for (uint64_t row = first + arch::rank<kWarp>(); row < last; row += arch::size<kWarp>())
      ok = mark_row(x, stream, row, ids, keep) && ok;
  }
  return ok;
}

// Stops this PE for an id that does not exist, the first that this thread finds among its own rows.
RSH_DEVICE_CALL void refuse_ids(const DeviceContext* ctx, const Shape& shape, Ids ids,
                                uint64_t rows) {
  RSH_ROLLED
  for (uint64_t i = 0; i < rows * shape.topk; ++i) {
    const int64_t id = id_at(ids, i);
    if (exists(shape, id)) continue;
    stop_with(ctx, Stop::bad_expert,
              {Waiting::nothing, -1, -1, 0, 0, i / shape.topk, i % shape.topk,
               static_cast<uint64_t>(id), 0, static_cast<uint64_t>(shape.experts)});
    return;
  }
}

// Marks this PE's own rows and keeps their ids. False: an id does not exist.
RSH_DEVICE bool mark_own_rows(const DeviceContext* ctx, const Exchange& x, const Stream& own,
                              const Ids& ids) {
  const bool ok = mark_rows(x, own, arch::warp_of_grid(), ids, x.ids);
  if (!ok) refuse_ids(ctx, x.shape, ids, own.rows);
  return ok;
}

// By slot: every block looks at all ids itself and so needs to ask no other; the first keeps them.
RSH_DEVICE bool check_own_ids(const DeviceContext* ctx, const Exchange& x, uint64_t rows,
                              const Ids& ids) {
  bool ok = true;
  const bool keep = arch::block() == 0;
  RSH_ROLLED
  for (uint64_t i = arch::rank<kBlock>(); i < rows * x.shape.topk; i += arch::size<kBlock>()) {
    const int64_t id = id_at(ids, i);
    ok = ok && exists(x.shape, id);
    if (keep) x.ids[i] = static_cast<int32_t>(id);
  }
  if (!ok) refuse_ids(ctx, x.shape, ids, rows);
  return arch::all<kBlock>(ok);
}

// Counts a column's marks. A warp calls it.
RSH_DEVICE uint32_t number_rows(const Exchange& x, const Stream& stream, uint32_t column) {
  const auto units = static_cast<uint32_t>((stream.rows + kMarked - 1) / kMarked);
  // Each lane has consecutive units.
  const uint32_t share = (units + arch::size<kWarp>() - 1) / arch::size<kWarp>();
  const uint32_t first = arch::rank<kWarp>() * share;
  const uint32_t last = first + share < units ? first + share : units;
  Marks* const marks = stream.marks + uint64_t{column} * x.units;
  uint32_t mine = 0;
  constexpr uint32_t kBatch = 4;  // loads that do not wait for each other
  RSH_ROLLED
  for (uint32_t unit = first; unit < last; unit += kBatch) {
    RSH_UNROLL
    for (uint32_t i = 0; i < kBatch; ++i)
      if (unit + i < last) mine += arch::count_ones(marks[unit + i].rows);
  }
  uint32_t all;
  uint32_t before = arch::sum_before(mine, &all);
  RSH_ROLLED
  for (uint32_t unit = first; unit < last; ++unit) {
    marks[unit].before = before;
    before += arch::count_ones(marks[unit].rows);
  }
  if (arch::leader<kWarp>()) stream.totals[column] = all;
  return all;
}

// Counts the marks of every column and tells every member how many rows come from the stream to
// each member, and to each expert. A block calls it, after the blocks that marked; the counts are
// there after its next sync.
RSH_DEVICE void announce(const DeviceContext* ctx, const Exchange& x, uint64_t round,
                         const Stream& stream) {
  const Node& node = x.node;
  const auto tell = [&](int32_t member, uint32_t column, uint64_t rows) {
    Count* const count = in_peer(ctx, count_of(x, stream.pe, column), node.members[member]);
    arch::store_tagged(&count->sequence, round, rows);
  };
  if (by_slot(x.shape)) {
    RSH_ROLLED
    for (auto member = static_cast<int32_t>(arch::rank<kBlock>()); member < node.n_members;
         member += static_cast<int32_t>(arch::size<kBlock>()))
      tell(member, 0, stream.rows);
    return;
  }
  const auto members = static_cast<uint32_t>(node.n_members);
  const uint32_t first_expert = expert_column(x, 0, 0), all = columns(x);
  const arch::Place warp = arch::warp_of_block();
  RSH_ROLLED
  for (uint32_t column = warp.index; column < all; column += warp.count) {
    const uint64_t total = number_rows(x, stream, column);
    if (column >= members && column < first_expert) continue;  // a node: nobody's business
    const uint32_t counted = column < members ? column : column - first_expert + members;
    RSH_ROLLED
    for (auto member = static_cast<int32_t>(arch::rank<kWarp>()); member < node.n_members;
         member += static_cast<int32_t>(arch::size<kWarp>()))
      tell(member, counted, total);
  }
}

// Tells every member the round, in the word that is this PE's in theirs. A block calls it.
RSH_DEVICE void signal_members(const DeviceContext* ctx, const Node& node, uint64_t* word,
                               uint64_t round) {
  RSH_ROLLED
  for (auto member = static_cast<int32_t>(arch::rank<kBlock>()); member < node.n_members;
       member += static_cast<int32_t>(arch::size<kBlock>()))
    // Release: what this PE did before is visible to whoever acquires the round.
    arch::store_release(in_peer(ctx, word, node.members[member]), round);
}

// wait_for_sequence, which is large.
RSH_DEVICE_CALL bool wait_for(const DeviceContext* ctx, const uint64_t* word, uint64_t at_least,
                              Waiting what, int32_t peer) {
  return wait_for_sequence(ctx, word, at_least, what, peer);
}

// Threads of the scope wait for word(i) of peer(i), i < n, and all learn whether all have come.
template <arch::Scope S, class Word, class Peer>
RSH_DEVICE bool wait_for_all(const DeviceContext* ctx, uint32_t n, uint64_t at_least, Waiting what,
                             const Word& word, const Peer& peer) {
  bool ok = true;
  RSH_ROLLED
  for (uint32_t i = arch::rank<S>(); i < n && ok; i += arch::size<S>())
    ok = wait_for(ctx, word(i), at_least, what, peer(i));
  return arch::all<S>(ok);
}
// The same for what every member tells.
template <class Word>
RSH_DEVICE bool wait_for_members(const DeviceContext* ctx, const Exchange& x, uint64_t at_least,
                                 Waiting what, Word FromPeer::* word) {
  const Node& node = x.node;
  return wait_for_all<kBlock>(
      ctx, static_cast<uint32_t>(node.n_members), at_least, what,
      [&](uint32_t i) { return &(x.buffers.from[node.members[i]].*word); },
      [&](uint32_t i) { return node.members[i]; });
}

// Which arrival of the member a row of the stream is, or -1.
RSH_DEVICE int64_t arrival_of(const Exchange& x, const Stream& stream, uint64_t row,
                              int32_t member) {
  const uint64_t base = by_slot(x.shape) ? static_cast<uint64_t>(stream.pe) * x.shape.max_tokens
                                         : stream.bases[member];
  const int64_t number = member_ordinal(x, stream, row, member);
  return number < 0 || base == kRefused ? -1 : static_cast<int64_t>(base) + number;
}

}  // namespace railshmem::device::ep
