#include "ep/buffers.hpp"

#include <cstring>

#include "ep/carver.hpp"

namespace railshmem::ep {
namespace {

uint64_t rounded_up(uint64_t bytes, uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

struct Sizes {
  uint64_t received;  // rows
  uint64_t arrivals;  // rows
  uint64_t tokens;    // rows
  uint64_t topk;
  uint64_t columns;  // of the received weights and indices
  uint64_t hidden;
  uint64_t scales;
  uint64_t experts;  // of a PE; 0 in the contiguous layout, which has no use for them
  uint64_t slots;
  uint64_t nodes;  // 0 where there is only one: then nothing is staged
  uint64_t pes;
  uint64_t members;
};

Sizes sizes_of(const Config& config, int n_pes, const NodeMap& nodes) {
  const auto size = [](int64_t value) { return static_cast<uint64_t>(value); };
  const int n_nodes = nodes.view().n_nodes;
  return {size(config.received(n_pes)),
          size(config.arrivals(n_pes)),
          size(config.max_tokens),
          size(config.topk),
          size(config.routing_columns()),
          size(config.hidden),
          size(config.scales()),
          config.by_expert() ? size(config.most_experts(n_pes)) : 0,
          size(nodes.n_slots()),
          n_nodes > 1 ? size(n_nodes) : 0,
          size(n_pes),
          size(nodes.most_members())};
}

// What the caller sees of a dispatch.
void take_received(Carver& carver, const Config& config, const Sizes& n, device::ep::Buffers& out) {
  out.tokens = carver.take<char>(n.received, config.token_bytes());
  out.weights = carver.take<float>(n.received, n.columns);
  out.indices = carver.take<int64_t>(n.received, n.columns);
  out.scales = carver.take<float>(n.received, n.scales);
}

void take_agreement(Carver& carver, const Sizes& n, device::ep::Buffers& out) {
  out.from = carver.take<device::ep::FromPeer>(n.pes);
  out.counts = carver.take<device::ep::Count>(n.pes, n.members, 1 + n.experts);
  out.refusal_out = carver.take<device::ep::Refusal>(uint64_t{1});
}

// `sums`: combine writes into them where the caller has no array of its own.
void take_results(Carver& carver, const Config& config, const Sizes& n, char** sums,
                  device::ep::Buffers& out) {
  if (sums != nullptr) *sums = carver.take<char>(n.tokens, config.result_bytes());
  out.expert_rows = carver.take<char>(n.received, config.result_bytes());
  out.results = out.expert_rows;
  if (!config.by_expert()) return;
  out.results = carver.take<char>(n.arrivals, config.result_bytes());
  out.places = carver.take<int64_t>(n.arrivals, n.topk);
  out.pair_weights = carver.take<float>(n.arrivals, n.topk);
}

void take_staging(Carver& carver, const Config& config, const Sizes& n, device::ep::Buffers& out) {
  out.meta_bytes = rounded_up(
      sizeof(device::ep::Header) + n.tokens * (2 * n.topk + n.scales) * sizeof(float), 64);
  out.staged_rows = carver.take<char>(n.slots, n.tokens, config.token_bytes());
  out.staged_meta = carver.take<char>(n.slots, out.meta_bytes);
  out.send_rows = carver.take<char>(n.nodes > 0 ? n.tokens : 0, config.token_bytes());
  out.send_meta = carver.take<char>(n.nodes, out.meta_bytes);
  out.send_scales =
      carver.take<float>(n.nodes > 0 && config.quantise_from ? n.tokens : 0, n.scales);
  out.partials_in = carver.take<float>(n.nodes, n.tokens, n.hidden);
  out.partials_out = carver.take<float>(n.slots, n.tokens, n.hidden);
}

}  // namespace

SymmetricBuffers::SymmetricBuffers(std::shared_ptr<Runtime> runtime, const Config& config,
                                   const NodeMap& nodes)
    : runtime_(std::move(runtime)) {
  const int n_pes = runtime_->n_pes();
  const Sizes n = sizes_of(config, n_pes, nodes);
  const auto carve = [&](void* block) {
    Carver carver(block);
    take_received(carver, config, n, view_);
    received_bytes_ = carver.used();
    take_agreement(carver, n, view_);
    take_results(carver, config, n, runtime_->gpu() != nullptr ? &sums_ : nullptr, view_);
    take_staging(carver, config, n, view_);
    return bytes_ = carver.used();
  };
  carve(nullptr);
  try {
    block_ = runtime_->malloc(bytes_);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::heap_exhausted) throw;
    fail(ErrorKind::heap_exhausted, error.what(), ". ExpertParallel needs ", bytes_text(bytes_),
         " a handle for ", config.describe(n_pes),
         "; a smaller max_received, max_tokens or handles needs less");
  }
  carve(block_);
  // Sequence numbers start at 0; nobody may send before all have cleared theirs.
  auto* const words = reinterpret_cast<char*>(view_.from);
  const auto bytes = static_cast<std::size_t>(reinterpret_cast<char*>(view_.refusal_out) - words);
  if (runtime_->gpu() != nullptr)
    runtime_->gpu()->fill(words, 0, bytes);
  else
    std::memset(words, 0, bytes);
  runtime_->barrier_all();
}

void SymmetricBuffers::free() {
  runtime_->free(block_);
  block_ = nullptr;
}

namespace {

bool overlap(const void* a, uint64_t a_bytes, const void* b, uint64_t b_bytes) {
  const auto first = reinterpret_cast<uintptr_t>(a), second = reinterpret_cast<uintptr_t>(b);
  return a_bytes > 0 && first < second + b_bytes && second < first + a_bytes;
}

}  // namespace

bool SymmetricBuffers::receives_into(const void* address, uint64_t bytes) const {
  return overlap(address, bytes, block_, received_bytes_);
}

bool SymmetricBuffers::holds(const void* address, uint64_t bytes) const {
  return overlap(address, bytes, block_, bytes_);
}

}  // namespace railshmem::ep
