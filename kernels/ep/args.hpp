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
  uint64_t max_received;
  uint64_t token_bytes;   // of a row of tokens
  uint64_t result_bytes;  // of a row of expert results
  uint64_t chunk_rows;    // rows that go to a NIC at once
  int32_t experts_per_pe;
};

// Who forwards my rows in a remote node, and which of its staging slots is mine.
struct Gateway {
  int32_t pe;  // -1: my own node
  int32_t slot;
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
};

// What one peer tells this PE: sequence numbers that only grow, each stored by that peer alone.
struct alignas(64) FromPeer {
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
  uint64_t sequence;
};
constexpr uint64_t kRefused = ~0ull;

// Starts the metadata of a staging slot; ids, weights and scales of `rows` rows follow, densely.
struct Header {
  uint64_t rows;
  uint64_t unused;
};

// Symmetric memory.
struct Buffers {
  char* tokens;         // [max_received] rows, with the next three: what dispatch delivers
  float* weights;       // [max_received, topk]
  int64_t* indices;     // [max_received, topk]
  float* scales;        // [max_received, scales]
  char* results;        // [max_received] rows of expert results
  char* staged_rows;    // [slots, max_tokens] rows
  char* staged_meta;    // [slots] of meta_bytes
  char* send_rows;      // [max_tokens] rows: tokens that the caller does not keep in the heap
  char* send_meta;      // [n_nodes] of meta_bytes
  float* partials_in;   // [n_nodes, max_tokens, hidden]
  float* partials_out;  // [slots, max_tokens, hidden]
  Refusal* refusal_out;
  FromPeer* from;  // [n_pes]
  Count* counts;   // [n_pes] by source
  Grant* grants;   // [n_pes, n_members] by source
  uint64_t meta_bytes;
};

// Rows of one source that this PE places in its node: its own, or those it forwards.
struct Stream {
  int32_t pe;
  uint64_t rows;
  const char* tokens;    // [rows] of token_bytes
  const int32_t* ids;    // [rows, topk] experts of the job, -1: none
  const float* weights;  // [rows, topk]
  const float* scales;   // [rows, scales]
  int64_t* ordinals;     // [rows, n_members] place among the source's rows for that member, or -1
  uint64_t* counts;      // [n_members]
  uint64_t* bases;       // [n_members] row of the member's buffers where ordinal 0 goes
};

// Everything that lasts as long as the ExpertParallel object. Streams and what follows are private
// to this PE and keep the routing of the last dispatch for its combine.
struct Exchange {
  Shape shape;
  Node node;
  Buffers buffers;
  Stream* streams;         // [1 + n_sources]; the first is this PE's own
  int64_t* node_ordinals;  // [max_tokens, n_nodes] place among my rows for that remote node, or -1
  uint64_t* node_rows;     // [n_nodes]
  int64_t* received;       // [n_pes] rows from each source
  Refusal* refusal;        // the first that this PE learnt of
};

// Grows with the round and, within a round, with the rows; never repeats.
RSH_DEVICE uint64_t progress(const Shape& shape, uint64_t round, uint64_t rows) {
  return round * (shape.max_tokens + 1) + rows;
}

// The end of a phase: all blocks come, also after a failure, and all learn of another's failure.
RSH_DEVICE bool next_phase(const DeviceContext* ctx, bool ok) {
  arch::sync_grid();
  return ok && !stopped(ctx);
}

// Items that one thread must handle from start to end, because it alone may signal for them.
RSH_DEVICE bool is_mine(int32_t item) {
  return static_cast<uint32_t>(item) % arch::blocks() == arch::block();
}

}  // namespace railshmem::device::ep
