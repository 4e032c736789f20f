// Expert parallelism for Mixture-of-Experts layers: dispatch brings every token to the PEs that own
// its experts, combine brings the experts' results back and sums them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ep/batch.hpp"
#include "ep/config.hpp"
#include "ep/kernels.hpp"
#include "ep/slot.hpp"

namespace railshmem::ep {

// The routing of one dispatch, for its combine and for further dispatches. Valid until another
// dispatch takes its buffers.
struct Handle {
  uint64_t owner = 0;     // which ExpertParallel of this process
  std::size_t slot = 0;   // which of its buffers
  uint64_t dispatch = 0;  // which of its dispatches
  int64_t rows = 0;       // that this PE received
  int64_t tokens = 0;     // that this PE sent
};

// What this PE received. Contiguous layout: R tokens, ordered by (source PE, token there).
// Expert-major: R rows in a block per expert of this PE, each ordered in that way and followed by
// rows of zeros up to the alignment. Arrays lie in the symmetric heap, unless the caller gave
// others, and stay until a dispatch takes their buffers.
struct Received {
  Matrix tokens;                // [R, hidden], the senders' bits
  Matrix weights;               // [R, topk] of the whole token; expert-major: [R, 1] of the row
  Matrix indices;               // as weights, int64: experts of this PE from 0, -1 for none
  Matrix scales;                // [R, hidden / 128]; no columns where dtype is not fp8
  std::vector<int64_t> counts;  // [n_pes] tokens from each PE
  std::vector<int64_t> expert_counts;  // expert-major: rows of each expert of this PE, without...
  std::vector<int64_t> padded_counts;  // ... and with the zeros behind them
  Handle handle;
};

// With fixed_shapes: where the counts are, in the kernels' memory, once dispatch has run. All
// int64.
struct Counts {
  const void* rows = nullptr;           // [1] of the received arrays' rows
  const void* counts = nullptr;         // [n_pes], and further as in Received
  const void* expert_counts = nullptr;  // [experts of this PE]
  const void* padded_counts = nullptr;
};

// Used by one thread at a time. Every PE makes the same calls in the same order. After a wait that
// ended in an error (a timeout, a lost peer) the PEs no longer agree on what was sent, and every
// later call throws.
//
// On a GPU all arrays are its own, calls are ordered by their stream and return before their work
// is done: where a call "returns when" something, the stream has come so far. Dispatch waits for
// the counts only, and with fixed_shapes for nothing: it may be captured and replayed, with other
// values in the same arrays. What stopped a kernel is thrown by a later call, or by finish().
class ExpertParallel {
 public:
  // Collective: throws Error(argument), on every PE where the configurations differ, and
  // Error(heap_exhausted).
  ExpertParallel(std::shared_ptr<Runtime> runtime, const Config& config);
  ExpertParallel(const ExpertParallel&) = delete;
  ExpertParallel& operator=(const ExpertParallel&) = delete;
  ~ExpertParallel() = default;

  // Collective: returns when this PE's rows have arrived and its arrays may change. Takes the
  // buffers of the oldest dispatch. Throws Error(argument) before anything is sent, or where a PE
  // of this node would receive more rows than max_received or its `out` has room for; PEs of other
  // nodes then learn of it in combine, and all may dispatch again.
  Received dispatch(const Batch& batch, const Outputs& out = {}, Stream stream = nullptr);
  // The same for other tokens by the routing of `known`, into its buffers: nobody exchanges counts.
  // The result has a handle of its own.
  Received dispatch(const Matrix& tokens, const std::optional<Matrix>& scales, const Handle& known,
                    const Outputs& out = {}, Stream stream = nullptr);

  // Collective: the halves of dispatch. The first waits until every PE is in it (by known routing:
  // every PE of the node, and the PEs whose rows this one forwards), writes this PE's rows into the
  // PEs of its node, and hands the rest to the NICs, which carry it while the caller does something
  // else. The second forwards what came from other nodes and waits for the rows of this PE. The
  // arrays must stay as they are in between.
  Handle dispatch_send(const Batch& batch, const Outputs& out = {}, Stream stream = nullptr);
  Handle dispatch_send(const Matrix& tokens, const std::optional<Matrix>& scales,
                       const Handle& known, const Outputs& out = {}, Stream stream = nullptr);
  Received dispatch_recv(const Handle& handle, Stream stream = nullptr);

  Counts counts(const Handle& handle) const;

  // [rows, hidden] of the combine type, in the heap: results written here need no copy. May be
  // written between the dispatch and its combine.
  void* expert_buffer(const Handle& handle) const;

  // On a GPU: [tokens, hidden] of the combine type, for the sums of callers that have no array; in
  // the handle's buffers, overwritten by their next combine.
  Matrix sums(const Handle& handle) const;

  // Collective: out[t] = the sum over PEs of what they made of token t, in fp32, rounded once;
  // zeros for a token that went nowhere. `out` is [tokens, hidden] of the combine type. Contiguous
  // layout: row i of `expert_out` is what this PE makes of received row i. Expert-major: a PE's
  // part is the weighted sum of the token's rows, in fp32, rounded to the combine type. Returns
  // when `out` is complete and `expert_out` may change, unless that is the expert buffer: in the
  // contiguous layout node peers read it until they return.
  void combine(const Matrix& expert_out, const Handle& handle, const Matrix& out,
               Stream stream = nullptr);

  // Collective: the halves of combine. The first makes this PE's results readable (after it
  // `expert_out` may change, unless it is the expert buffer); with several nodes it waits for the
  // results of this node and hands the parts of remote tokens to the NICs. The second waits for the
  // others' results and sums.
  void combine_send(const Matrix& expert_out, const Handle& handle, Stream stream = nullptr);
  void combine_recv(const Handle& handle, const Matrix& out, Stream stream = nullptr);

  // Waits for the stream's work and throws what stopped a kernel.
  void finish(Stream stream = nullptr);

  // Collective: gives the symmetric memory back. No call may follow.
  void free();

  const Config& config() const { return config_; }
  const std::shared_ptr<Runtime>& runtime() const { return runtime_; }
  // That this PE owns.
  int64_t my_experts() const;

 private:
  using DispatchCall = device::ep::DispatchCall;
  using Exchange = device::ep::Exchange;

  void require_usable(const char* call);
  std::size_t oldest_slot() const;
  Slot& slot_of(const char* call, const Handle& handle) const;
  void require_phase(const char* call, const Slot& slot, Phase phase) const;
  void check_input(const Slot& slot, const char* call, const char* name,
                   const Matrix& matrix) const;
  void check_reachable(const char* call, const char* name, const Matrix& matrix) const;
  int64_t check_outputs(const Outputs& out) const;
  void check_out(const char* call, const Handle& handle, const Matrix& out) const;
  std::string who(const char* call) const;
  template <class Launch>
  void launch(const char* call, const Slot& slot, const Launch& launch);
  void raise_if_refused(const char* call, const Slot& slot) const;
  void learn_refusals(const char* call, Slot& slot, Stream stream);

  // What a dispatch is to do, in the buffers that it takes.
  struct Sending {
    std::size_t index;
    DispatchCall call;
  };
  Sending prepare(const Batch& batch, const Outputs& out);
  Sending prepare(const Matrix& tokens, const std::optional<Matrix>& scales, const Handle& known,
                  const Outputs& out, Stream stream);
  // `routed`: null by known routing.
  DispatchCall call_of(const Matrix& tokens, const std::optional<Matrix>& scales, int64_t room,
                       const Batch* routed);
  Slot& begin(const Sending& sending, const Outputs& out);
  void learn(Slot& slot, const DispatchCall& call, Stream stream);
  Handle handle_of(std::size_t index) const;
  Received run(const Sending& sending, const Outputs& out, Stream stream);
  Handle send(const Sending& sending, const Outputs& out, Stream stream);
  Received received(const Handle& handle) const;

  // What a combine gives to the others.
  struct Offer {
    Slot& slot;
    const char* expert_rows;  // null: they are where the others read
  };
  Offer offer(const Matrix& expert_out, const Handle& handle, Stream stream);

  std::shared_ptr<Runtime> runtime_;
  const Config config_;
  const NodeMap nodes_;
  std::vector<std::unique_ptr<Slot>> slots_;
  const std::unique_ptr<Kernels> kernels_;
  const uint64_t id_;
  uint64_t dispatches_ = 0;  // so far
  bool broken_ = false;
  bool freed_ = false;
};

}  // namespace railshmem::ep
