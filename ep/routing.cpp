#include "ep/routing.hpp"

#include <algorithm>
#include <numeric>

namespace railshmem::ep {
namespace {

// Rows are handed to NICs in pieces of about this size: large enough to hide the cost of a command,
// small enough that the receiver starts early.
constexpr uint64_t kChunkBytes = 256 << 10;

device::ep::Shape shape_of(const Config& config, int n_pes) {
  device::ep::Shape shape;
  shape.hidden = static_cast<uint64_t>(config.hidden);
  shape.topk = static_cast<uint64_t>(config.topk);
  shape.scales = static_cast<uint64_t>(config.scales());
  shape.max_tokens = static_cast<uint64_t>(config.max_tokens);
  shape.token_bytes = config.token_bytes();
  shape.result_bytes = config.result_bytes();
  shape.chunk_rows = std::max<uint64_t>(1, kChunkBytes / shape.token_bytes);
  shape.alignment = config.by_expert() ? static_cast<uint64_t>(config.alignment) : 0;
  shape.n_pes = n_pes;
  shape.experts = static_cast<int32_t>(config.experts);
  shape.most_experts = static_cast<int32_t>(config.most_experts(n_pes));
  return shape;
}

}  // namespace

Routing::Routing(const Config& config, int n_pes, int pe, const NodeMap& nodes,
                 const device::ep::Buffers& buffers) {
  const device::ep::Node& node = nodes.view();
  const auto tokens = static_cast<std::size_t>(config.max_tokens);
  const auto topk = static_cast<std::size_t>(config.topk);
  const auto members = static_cast<std::size_t>(node.n_members);
  const auto n_streams = static_cast<std::size_t>(node.n_sources) + 1;
  const auto n_nodes = static_cast<std::size_t>(node.n_nodes);
  const std::size_t remote_tokens = n_nodes > 1 ? tokens : 0;
  checked_ids_.resize(tokens * topk);
  ids_.resize(checked_ids_.size());
  ordinals_.resize(n_streams * tokens * members);
  counts_.resize(n_streams * members);
  bases_.resize(n_streams * members);
  node_ordinals_.resize(remote_tokens * n_nodes);
  node_rows_.resize(n_nodes);
  received_.resize(static_cast<std::size_t>(n_pes));
  const auto experts = static_cast<std::size_t>(config.most_experts(n_pes));
  const device::ep::Shape shape = shape_of(config, n_pes);
  if (config.by_expert()) {
    pair_ordinals_.resize(n_streams * tokens * topk);
    expert_counts_.resize(n_streams * members * experts);
    experts_.resize(static_cast<std::size_t>(device::ep::first_expert(shape, pe + 1) -
                                             device::ep::first_expert(shape, pe)));
  }

  for (std::size_t i = 0; i < n_streams; ++i) {
    device::ep::Stream stream{};
    stream.pe = i == 0 ? pe : node.sources[i - 1];
    if (i > 0) stream.tokens = buffers.staged_rows + (i - 1) * tokens * config.token_bytes();
    stream.ordinals = ordinals_.data() + i * tokens * members;
    stream.counts = counts_.data() + i * members;
    stream.bases = bases_.data() + i * members;
    if (config.by_expert()) {
      stream.pair_ordinals = pair_ordinals_.data() + i * tokens * topk;
      stream.expert_counts = expert_counts_.data() + i * members * experts;
    }
    streams_.push_back(stream);
  }
  exchange_ = {shape,
               node,
               buffers,
               streams_.data(),
               node_ordinals_.data(),
               node_rows_.data(),
               received_.data(),
               experts_.data(),
               &refusal_};
}

void Routing::load(const std::string& who, const Config& config, const Batch& batch) {
  check_batch(who, config, batch, checked_ids_.data());
  ids_.swap(checked_ids_);
  device::ep::Stream& own = streams_.front();
  own.rows = static_cast<uint64_t>(batch.tokens.rows);
  own.tokens = static_cast<const char*>(batch.tokens.data);
  own.ids = ids_.data();
  own.weights = static_cast<const float*>(batch.weights.data);
  own.scales = batch.scales ? static_cast<const float*>(batch.scales->data) : nullptr;
}

void Routing::load_again(const std::string& who, const Config& config, const Matrix& tokens,
                         const std::optional<Matrix>& scales) {
  check_known(who, config, tokens, scales, this->tokens());
  device::ep::Stream& own = streams_.front();
  own.tokens = static_cast<const char*>(tokens.data);
  own.weights = nullptr;  // they are where they belong already
  own.scales = scales ? static_cast<const float*>(scales->data) : nullptr;
}

int64_t Routing::arrivals() const {
  return std::accumulate(received_.begin(), received_.end(), int64_t{0});
}

int64_t Routing::rows() const {
  if (exchange_.shape.alignment == 0) return arrivals();
  int64_t rows = 0;
  for (const device::ep::ExpertRows& block : experts_) rows += static_cast<int64_t>(block.padded);
  return rows;
}

}  // namespace railshmem::ep
