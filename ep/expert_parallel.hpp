// Expert parallelism for Mixture-of-Experts layers: dispatch brings every token to the PEs that own
// its experts, combine brings the experts' results back and sums them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ep/batch.hpp"
#include "ep/buffers.hpp"
#include "ep/config.hpp"
#include "ep/routing.hpp"

namespace railshmem::ep {

// The routing of one dispatch, for its combine. Valid until the next dispatch or its combine.
struct Handle {
  uint64_t owner = 0;  // which ExpertParallel of this process
  uint64_t round = 0;  // which of its dispatches
  int64_t rows = 0;    // that this PE received
};

// What this PE received, ordered by (source PE, token there). The arrays lie in the symmetric heap
// and stay as they are until the next dispatch.
struct Received {
  Matrix tokens;                // [R, hidden], the senders' bits
  Matrix weights;               // [R, topk] of the whole token
  Matrix indices;               // [R, topk] int64: experts of this PE from 0, -1 for others
  Matrix scales;                // [R, hidden / 128]; no columns where dtype is not fp8
  std::vector<int64_t> counts;  // [n_pes] rows from each PE
  Handle handle;
};

// Used by one thread at a time. After a wait that ended in an error (a timeout, a lost peer) the
// PEs no longer agree on what was sent, and every later call throws.
class ExpertParallel {
 public:
  // Collective: throws Error(argument), on every PE where the configurations differ, and
  // Error(heap_exhausted).
  ExpertParallel(std::shared_ptr<Runtime> runtime, const Config& config);
  ExpertParallel(const ExpertParallel&) = delete;
  ExpertParallel& operator=(const ExpertParallel&) = delete;
  ~ExpertParallel() = default;

  // Collective: returns when this PE's rows have arrived and its arrays may change. Throws
  // Error(argument) before anything is sent, or where a PE of this node would receive more than
  // max_received rows; PEs of other nodes then learn of it in combine, and all may dispatch again.
  Received dispatch(const Batch& batch);

  // [rows, hidden] of the combine type, in the heap: results written here need no copy. May be
  // written between the dispatch and its combine.
  void* expert_buffer(const Handle& handle) const;

  // Collective: out[t] = the sum over PEs of the row of `expert_out` that belongs to token t, in
  // fp32, rounded once; zeros for a token that went nowhere. `out` is [tokens, hidden] of the
  // combine type. Returns when `out` is complete and `expert_out` may change, unless that is the
  // expert buffer: node peers read it until they return.
  void combine(const Matrix& expert_out, const Handle& handle, void* out);

  // Collective: gives the symmetric memory back. No call may follow.
  void free();

  const Config& config() const { return config_; }
  // Tokens of the last dispatch: the rows that its combine returns.
  int64_t tokens() const { return routing_.tokens(); }

 private:
  void require_usable(const char* call) const;
  void check_handle(const char* call, const Handle& handle) const;
  void check_overlap(const char* name, const Matrix& matrix) const;
  std::string who(const char* call) const;
  template <class Kernel>
  void launch(const Kernel& kernel);
  void raise_if_refused() const;
  Received received() const;

  std::shared_ptr<Runtime> runtime_;
  const Config config_;
  const NodeMap nodes_;
  SymmetricBuffers buffers_;
  Routing routing_;
  const uint64_t id_;
  uint64_t round_ = 0;     // of the last dispatch
  uint64_t combined_ = 0;  // the last round that was combined
  bool broken_ = false;
  bool freed_ = false;
};

}  // namespace railshmem::ep
