// What the dispatch and combine kernels receive. Rows travel once per PE of the own node, by stores
// into its memory, and once per remote node, through a NIC, to the PE there that forwards them: its
// forwarder for this source. docs/decisions/003-ep-protocol.md has the protocol and why it is safe.
#pragma once

#include "kernels/shmem/order.hpp"

namespace railshmem::device::ep {

constexpr arch::Scope kWarp = arch::Scope::warp;
constexpr arch::Scope kBlock = arch::Scope::block;

// How a PE finds what it receives.
enum class Rows : uint8_t {
  contiguous,  // by (source PE, source token), without holes
  by_expert,   // in a block per expert
  by_slot,     // every token of every source has its place, used or not
};

// The type of the tokens that a caller has, where it is not the one that travels.
enum class Given : uint8_t { as_it_travels, bf16, fp16 };

// The same on every PE.
struct Shape {
  Given given;
  Rows rows;
  uint64_t hidden;  // elements of a row
  uint64_t topk;
  uint64_t scales;  // of a row
  uint64_t max_tokens;
  uint64_t token_bytes;   // of a row of tokens
  uint64_t result_bytes;  // of a row of expert results
  uint64_t chunk_rows;    // rows that go to a NIC at once
  uint64_t alignment;     // by_expert: rows of a block
  int32_t n_pes;
  int32_t experts;       // of the job
  int32_t most_experts;  // of one PE
};

RSH_DEVICE bool by_expert(const Shape& shape) {
  return shape.rows == Rows::by_expert;
}
RSH_DEVICE bool by_slot(const Shape& shape) {
  return shape.rows == Rows::by_slot;
}
// PE p owns the experts [first_expert(p), first_expert(p + 1)).
RSH_DEVICE int32_t first_expert(const Shape& shape, int32_t pe) {
  return static_cast<int32_t>(int64_t{pe} * shape.experts / shape.n_pes);
}
RSH_DEVICE int32_t experts_of(const Shape& shape, int32_t pe) {
  return first_expert(shape, pe + 1) - first_expert(shape, pe);
}
RSH_DEVICE int32_t owner_of(const Shape& shape, int32_t expert) {
  return static_cast<int32_t>(((int64_t{expert} + 1) * shape.n_pes - 1) / shape.experts);
}

// Where an expert lives.
struct alignas(16) Home {
  int32_t pe;
  int32_t member;  // its PE's local index in my node, or -1
  int32_t node;    // index of a remote node, or -1 for mine
  int32_t local;   // among the experts of its PE
};

// Who forwards my rows in a remote node, which of its staging slots is mine, and how many PEs that
// node has.
struct Gateway {
  int32_t pe;  // -1: my own node
  int32_t slot;
  int32_t n_members;
};

struct Node {
  int32_t index;
  int32_t n_nodes;
  int32_t me;  // my local index
  int32_t n_members;
  int32_t n_sources;
  const int32_t* members;   // [n_members]
  const int32_t* sources;   // [n_sources] remote PEs whose rows I forward, by slot
  const int32_t* writers;   // [n_pes] the member that places this source's rows in my node
  const Gateway* gateways;  // [n_nodes]
};

// A PE that would receive more rows than it has room for.
struct Refusal {
  int64_t pe;  // -1: nobody
  uint64_t rows;
  uint64_t room;
};

// What one peer tells this PE: sequence numbers that only grow, each stored by that peer alone.
struct alignas(64) FromPeer {
  uint64_t ready;     // member: rows may be written into its buffers, ...
  uint64_t room;      // ... so many: the two are a pair, stored together
  uint64_t arrived;   // member: the rows it places, own and forwarded, are in my buffers
  uint64_t results;   // member: its expert results may be read
  uint64_t header;    // source: what I need to route its rows is in my staging
  uint64_t rows;      // source: progress() of its rows into my staging
  uint64_t freed;     // forwarder: it has forwarded my rows; `refusal` was put before
  uint64_t partials;  // forwarder: progress() of its partial sums
  Refusal refusal;    // forwarder: of a member of its node
};

// How many rows a source has for a member of this node, or for one of its experts. Stored by the
// source's writer in this node, as a pair.
struct alignas(16) Count {
  uint64_t sequence;
  uint64_t rows;
};
constexpr uint64_t kRefused = ~0ull;  // in place of the first row: there is no room

// Starts the metadata of a staging slot; ids, weights and scales of `rows` rows follow, densely.
struct Header {
  uint64_t rows;
  uint64_t unused;
};

// Symmetric memory. What one PE receives comes in two orders: *arrivals* are tokens by (source PE,
// source token), each once; *rows* are what the experts get. In the contiguous layout they are the
// same; in the expert-major layout an arrival has a row per local expert, and experts their blocks.
struct Buffers {
  char* tokens;         // [max_received] rows, with the next three: what dispatch delivers
  float* weights;       // [max_received, topk], expert-major: [max_received]
  int64_t* indices;     // as weights
  float* scales;        // [max_received, scales]
  char* expert_rows;    // [max_received] rows of expert results
  char* results;        // [max_arrivals] rows that members read; contiguous: the expert_rows
  int64_t* places;      // expert-major: [max_arrivals, topk] rows of an arrival, -1: not here
  float* pair_weights;  // expert-major: [max_arrivals, topk]
  char* staged_rows;    // [slots, max_tokens] rows
  char* staged_meta;    // [slots] of meta_bytes
  char* send_rows;      // [max_tokens] rows: tokens that the caller does not keep in the heap
  char* send_meta;      // [n_nodes] of meta_bytes
  float* send_scales;   // [max_tokens, scales] of tokens that were rounded here
  float* partials_in;   // [n_nodes, max_tokens, hidden]
  float* partials_out;  // [slots, max_tokens, hidden]
  Refusal* refusal_out;
  FromPeer* from;  // [n_pes]
  Count* counts;   // [n_pes, counted_columns()] by source
  uint64_t meta_bytes;
};

// Expert ids, as they are.
struct Ids {
  const void* at;  // [rows, topk] experts of the job, -1: none
  bool wide;       // of 8 bytes, else 4
};
RSH_DEVICE int64_t id_at(const Ids& ids, uint64_t i) {
  return ids.wide ? static_cast<const int64_t*>(ids.at)[i] : static_cast<const int32_t*>(ids.at)[i];
}

// Which of 32 consecutive rows go to a column, a bit each, and how many rows before them do. A row
// goes once, however many of its experts are there.
struct alignas(8) Marks {
  uint32_t rows;
  uint32_t before;
};
constexpr uint32_t kMarked = 32;

// Rows of one source that this PE places in its node: its own, or those it forwards. Their columns
// are the members of the node, the nodes (for own rows) and, expert-major, the members' experts.
struct Stream {
  int32_t pe;
  Given given;
  uint64_t rows;
  const char* tokens;  // [rows] of token_bytes
  Ids ids;
  const float* weights;    // [rows, topk]
  const float* scales;     // [rows, scales]
  Marks* marks;            // [columns(), units]
  uint32_t* totals;        // [columns()] rows that go there
  uint64_t* bases;         // [n_members] arrival of the member that its first row becomes
  uint64_t* expert_bases;  // expert-major: [n_members, most_experts] the same for rows of blocks
};

// What this PE gets by the last dispatch.
struct Summary {
  uint64_t round;     // of that dispatch: they are counted in these buffers, from 1
  uint64_t combined;  // the last round that was combined
  uint64_t ticket;    // DispatchCall::ticket
  uint64_t arrivals;  // tokens
  uint64_t rows;      // contiguous: arrivals; expert-major: of all blocks
  Refusal refusal;    // the first that this PE learnt of
};

// The same as arrays: one behind the other, so that they are read at once.
struct Outcome {
  Summary* summary;
  int64_t* received;       // [n_pes] arrivals from each source
  int64_t* expert_counts;  // expert-major: [most_experts] rows of this PE's experts, without ...
  int64_t* padded_counts;  // ... and with what fills their blocks
  uint64_t words;          // of all of it, of 8 bytes each
};

// Everything that lasts as long as the buffers. Streams and what follows are private to this PE and
// keep the routing of the last dispatch for its combine.
struct Exchange {
  Shape shape;
  Node node;
  Buffers buffers;
  const Home* homes;       // [experts]
  Stream* streams;         // [1 + n_sources]; the first is this PE's own
  int32_t* ids;            // [max_tokens, topk] of this PE's own rows; by slot, of every stream's
  uint32_t units;          // of kMarked rows, for max_tokens
  uint64_t* member_rows;   // [n_members] that each gets
  uint64_t* block_starts;  // expert-major: [n_members, most_experts] first row of every block
  Outcome outcome;
  Summary* summary;  // the outcome's
  Summary* copy;     // of the outcome, for a host that waits for it; null: it reads the outcome
  arch::GridWords* grid;
};

// The first row of the block of one of this PE's experts.
RSH_DEVICE uint64_t block_start(const Exchange& x, int32_t expert) {
  return x
      .block_starts[static_cast<uint64_t>(x.node.me) * static_cast<uint64_t>(x.shape.most_experts) +
                    static_cast<uint64_t>(expert)];
}

// Columns of a stream, in this order: members, nodes where there are several, experts of members.
RSH_DEVICE uint32_t node_column(const Exchange& x, int32_t node) {
  return static_cast<uint32_t>(x.node.n_members + node);
}
RSH_DEVICE uint32_t expert_column(const Exchange& x, int32_t member, int32_t local) {
  const int32_t nodes = x.node.n_nodes > 1 ? x.node.n_nodes : 0;
  return static_cast<uint32_t>(x.node.n_members + nodes + member * x.shape.most_experts + local);
}
RSH_DEVICE uint32_t columns(const Exchange& x) {
  if (by_slot(x.shape)) return 0;  // a row's number is its place among all
  return expert_column(x, by_expert(x.shape) ? x.node.n_members : 0, 0);
}

// Columns that members tell each other: members, experts of members; by slot one: all rows.
RSH_DEVICE uint32_t counted_columns(const Exchange& x) {
  if (by_slot(x.shape)) return 1;
  const int32_t most = by_expert(x.shape) ? x.shape.most_experts : 0;
  return static_cast<uint32_t>(x.node.n_members * (1 + most));
}
RSH_DEVICE Count* count_of(const Exchange& x, int32_t source, uint32_t column) {
  return x.buffers.counts + uint64_t{static_cast<uint32_t>(source)} * counted_columns(x) + column;
}

RSH_DEVICE uint64_t last_round(const Exchange& x) {
  return arch::load_relaxed(&x.summary->round);
}

// Grows with the round and, within a round, with the rows; never repeats.
RSH_DEVICE uint64_t progress(const Shape& shape, uint64_t round, uint64_t rows) {
  return round * (shape.max_tokens + 1) + rows;
}

// Items that one block must handle from start to end, because it alone may signal for them.
RSH_DEVICE bool is_mine(int32_t item) {
  return static_cast<uint32_t>(item) % arch::blocks() == arch::block();
}

}  // namespace railshmem::device::ep
