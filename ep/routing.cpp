#include "ep/routing.hpp"

#include <algorithm>

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
  const device::ep::Shape shape = shape_of(config, n_pes);
  const auto tokens = static_cast<std::size_t>(config.max_tokens);
  const auto topk = static_cast<std::size_t>(config.topk);
  const auto members = static_cast<std::size_t>(node.n_members);
  const auto n_streams = static_cast<std::size_t>(node.n_sources) + 1;
  const std::size_t experts =
      config.by_expert() ? static_cast<std::size_t>(config.most_experts(n_pes)) : 0;
  homes_ = nodes.homes(shape);
  ids_.resize(tokens * topk);
  member_rows_.resize(members);
  block_starts_.resize(members * experts);
  received_.resize(static_cast<std::size_t>(n_pes));
  if (config.by_expert())
    experts_.resize(static_cast<std::size_t>(device::ep::experts_of(shape, pe)));
  exchange_ = {};
  exchange_.shape = shape;
  exchange_.node = node;
  exchange_.buffers = buffers;
  exchange_.homes = homes_.data();
  exchange_.ids = ids_.data();
  exchange_.units = (tokens + device::ep::kMarked - 1) / device::ep::kMarked;
  exchange_.member_rows = member_rows_.data();
  exchange_.block_starts = block_starts_.data();
  exchange_.received = received_.data();
  exchange_.experts = experts_.data();
  exchange_.summary = &summary_;
  exchange_.grid = &grid_;

  const uint64_t columns = device::ep::columns(exchange_);
  marks_.resize(n_streams * columns * exchange_.units);
  totals_.resize(n_streams * columns);
  bases_.resize(n_streams * members);
  expert_bases_.resize(n_streams * members * experts);
  for (std::size_t i = 0; i < n_streams; ++i) {
    device::ep::Stream stream{};
    stream.pe = i == 0 ? pe : node.sources[i - 1];
    stream.ids = ids_.data();
    if (i > 0) stream.tokens = buffers.staged_rows + (i - 1) * tokens * config.token_bytes();
    stream.marks = marks_.data() + i * columns * exchange_.units;
    stream.totals = totals_.data() + i * columns;
    stream.bases = bases_.data() + i * members;
    stream.expert_bases = expert_bases_.data() + i * members * experts;
    streams_.push_back(stream);
  }
  exchange_.streams = streams_.data();
}

}  // namespace railshmem::ep
