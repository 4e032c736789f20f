// What the dispatch and combine kernels receive. Rows travel once per PE of the own node, by stores
// into its memory, and once per remote node, through a NIC, to the PE there that forwards them: its
// forwarder for this source. docs/decisions/003-ep-protocol.md has the protocol and why it is safe.
#pragma once

#include "kernels/shmem/order.hpp"

namespace railshmem::device::ep {

constexpr arch::Scope kBlock = arch::Scope::block;

// The same on every PE.
struct Shape {
  uint64_t hidden;  // elements of a row
  uint64_t topk;
  uint64_t scales;  // of a row
  uint64_t max_tokens;
  uint64_t token_bytes;   // of a row of tokens
  uint64_t result_bytes;  // of a row of expert results
  uint64_t chunk_rows;    // rows that go to a NIC at once
  uint64_t alignment;     // expert-major layout: rows of a block; 0: contiguous layout
  int32_t n_pes;
  int32_t experts;       // of the job
  int32_t most_experts;  // of one PE
};

RSH_DEVICE bool by_expert(const Shape& shape) {
  return shape.alignment > 0;
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
  const int32_t* members;    // [n_members]
  const int32_t* sources;    // [n_sources] remote PEs whose rows I forward, by slot
  const int32_t* writers;    // [n_pes] the member that places this source's rows in my node
  const int32_t* member_of;  // [n_pes] local index in my node, or -1
  const int32_t* node_of;    // [n_pes] index of a remote node, or -1 for mine
  const Gateway* gateways;   // [n_nodes]
};

// A PE that would receive more rows than it has room for.
struct Refusal {
  int64_t pe;  // -1: nobody
  uint64_t rows;
  uint64_t room;
};

// What one peer tells this PE: sequence numbers that only grow, each stored by that peer alone.
struct alignas(64) FromPeer {
  uint64_t ready;     // member: rows of a known routing may be written into its buffers
  uint64_t arrived;   // member: the rows it places, own and forwarded, are in my buffers
  uint64_t results;   // member: its expert results may be read
  uint64_t header;    // source: what I need to route its rows is in my staging
  uint64_t rows;      // source: progress() of its rows into my staging
  uint64_t freed;     // forwarder: it has forwarded my rows; `refusal` was put before
  uint64_t partials;  // forwarder: progress() of its partial sums
  Refusal refusal;    // forwarder: of a member of its node
};

// How many rows a source has for this PE. Stored by the source's writer in this node.
struct Count {
  uint64_t rows;
  uint64_t sequence;
};

// Where a member wants a source's rows: the answer to Count, and the consent to overwrite its
// buffers.
struct Grant {
  uint64_t base;  // first row, or kRefused
  uint64_t total;
  uint64_t room;
  uint64_t sequence;
};
constexpr uint64_t kRefused = ~0ull;

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
  float* partials_in;   // [n_nodes, max_tokens, hidden]
  float* partials_out;  // [slots, max_tokens, hidden]
  Refusal* refusal_out;
  FromPeer* from;           // [n_pes]
  Count* counts;            // [n_pes] by source
  Grant* grants;            // [n_pes, n_members] by source
  uint64_t* expert_counts;  // expert-major: [n_pes, most_experts], part of counts
  uint64_t* expert_bases;   // expert-major: [n_pes, n_members, most_experts], part of grants
  uint64_t meta_bytes;
};

// Rows of one source that this PE places in its node: its own, or those it forwards.
struct Stream {
  int32_t pe;
  uint64_t rows;
  const char* tokens;      // [rows] of token_bytes
  const int32_t* ids;      // [rows, topk] experts of the job, -1: none
  const float* weights;    // [rows, topk]
  const float* scales;     // [rows, scales]
  int64_t* ordinals;       // [rows, n_members] place among the source's rows for that member, or -1
  uint64_t* counts;        // [n_members]
  uint64_t* bases;         // [n_members] arrival of the member that ordinal 0 becomes
  int64_t* pair_ordinals;  // expert-major: [rows, topk] place among the source's rows of an expert
  uint64_t* expert_counts;  // expert-major: [n_members, most_experts]
};

// The block of one of this PE's experts.
struct ExpertRows {
  uint64_t first;
  uint64_t rows;
  uint64_t padded;  // the rows and what fills the block
};

// Everything that lasts as long as the buffers. Streams and what follows are private to this PE and
// keep the routing of the last dispatch for its combine.
struct Exchange {
  Shape shape;
  Node node;
  Buffers buffers;
  Stream* streams;         // [1 + n_sources]; the first is this PE's own
  int64_t* node_ordinals;  // [max_tokens, n_nodes] place among my rows for that remote node, or -1
  uint64_t* node_rows;     // [n_nodes]
  int64_t* received;       // [n_pes] arrivals from each source
  ExpertRows* experts;     // expert-major: this PE's
  Refusal* refusal;        // the first that this PE learnt of
};

// Grows with the round and, within a round, with the rows; never repeats.
RSH_DEVICE uint64_t progress(const Shape& shape, uint64_t round, uint64_t rows) {
  return round * (shape.max_tokens + 1) + rows;
}

// The end of a phase: all blocks come, also after a failure, and all learn of another's failure.
RSH_DEVICE bool next_phase(const DeviceContext* ctx, bool ok) {
  arch::sync_grid(nullptr);
  return ok && !stopped(ctx);
}

// Items that one thread must handle from start to end, because it alone may signal for them.
RSH_DEVICE bool is_mine(int32_t item) {
  return static_cast<uint32_t>(item) % arch::blocks() == arch::block();
}

}  // namespace railshmem::device::ep
