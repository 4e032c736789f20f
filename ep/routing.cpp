#include "ep/routing.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "ep/carver.hpp"

namespace railshmem::ep {
namespace {

device::ep::Rows rows_of(Layout layout) {
  switch (layout) {
    case Layout::contiguous:
      return device::ep::Rows::contiguous;
    case Layout::expert_major:
      return device::ep::Rows::by_expert;
    case Layout::slots:
      break;
  }
  return device::ep::Rows::by_slot;
}

device::ep::Shape shape_of(const Config& config, int n_pes) {
  device::ep::Shape shape{};
  shape.rows = rows_of(config.layout);
  if (config.quantise_from)
    shape.given =
        *config.quantise_from == Type::bf16 ? device::ep::Given::bf16 : device::ep::Given::fp16;
  shape.hidden = static_cast<uint64_t>(config.hidden);
  shape.topk = static_cast<uint64_t>(config.topk);
  shape.scales = static_cast<uint64_t>(config.scales());
  shape.max_tokens = static_cast<uint64_t>(config.max_tokens);
  shape.token_bytes = config.token_bytes();
  shape.result_bytes = config.result_bytes();
  shape.chunk_rows = std::max<uint64_t>(1, kChunkBytes / shape.token_bytes);
  shape.alignment = static_cast<uint64_t>(config.alignment);
  shape.n_pes = n_pes;
  shape.experts = static_cast<int32_t>(config.experts);
  shape.most_experts = static_cast<int32_t>(config.most_experts(n_pes));
  return shape;
}

struct Sizes {
  uint64_t pes, members, nodes, sources, tokens, topk, units, experts, most, columns, ids;
};

// The memory that the kernels' tables take.
void take_tables(Carver& carver, const Sizes& n, device::ep::Exchange& x) {
  const uint64_t streams = n.sources + 1;
  x.node.members = carver.take<int32_t>(n.members);
  x.node.sources = carver.take<int32_t>(n.sources);
  x.node.writers = carver.take<int32_t>(n.pes);
  x.node.gateways = carver.take<device::ep::Gateway>(n.nodes);
  x.homes = carver.take<device::ep::Home>(n.experts);
  x.streams = carver.take<device::ep::Stream>(streams);
  x.ids = carver.take<int32_t>(n.ids, n.tokens, n.topk);
  x.member_rows = carver.take<uint64_t>(n.members);
  x.block_starts = carver.take<uint64_t>(n.members, n.most);
  x.grid = carver.take<arch::GridWords>(uint64_t{1});
  // The outcome is one array.
  const uint64_t summary = sizeof(device::ep::Summary) / sizeof(uint64_t);
  x.outcome.words = summary + n.pes + 2 * n.most;
  auto* const words = carver.take<uint64_t>(x.outcome.words);
  x.outcome.summary = x.summary = reinterpret_cast<device::ep::Summary*>(words);
  x.outcome.received = reinterpret_cast<int64_t*>(words + summary);
  x.outcome.expert_counts = x.outcome.received + n.pes;
  x.outcome.padded_counts = x.outcome.expert_counts + n.most;
}

// A stream's own tables; they are not touched here.
device::ep::Stream take_stream(Carver& carver, const Sizes& n) {
  device::ep::Stream stream{};
  stream.marks = carver.take<device::ep::Marks>(n.columns, n.units);
  stream.totals = carver.take<uint32_t>(n.columns);
  stream.bases = carver.take<uint64_t>(n.members);
  stream.expert_bases = carver.take<uint64_t>(n.members, n.most);
  return stream;
}

}  // namespace

Routing::Routing(Runtime& runtime, const Config& config, const NodeMap& nodes,
                 const device::ep::Buffers& buffers) {
  const device::ep::Node node = nodes.view();
  const int n_pes = runtime.n_pes();
  exchange_.shape = shape_of(config, n_pes);
  exchange_.node = node;
  exchange_.buffers = buffers;
  const auto size = [](int64_t value) { return static_cast<uint64_t>(value); };
  const uint64_t tokens = size(config.max_tokens);
  exchange_.units = static_cast<uint32_t>((tokens + device::ep::kMarked - 1) / device::ep::kMarked);
  const Sizes n{size(n_pes),
                size(node.n_members),
                size(node.n_nodes),
                size(node.n_sources),
                tokens,
                size(config.topk),
                exchange_.units,
                size(config.experts),
                config.by_expert() ? size(config.most_experts(n_pes)) : 0,
                device::ep::columns(exchange_),
                config.by_slot() ? size(node.n_sources) + 1 : 1};

  std::vector<device::ep::Stream> streams(n.sources + 1);
  const auto carve = [&](void* block) {
    Carver carver(block);
    take_tables(carver, n, exchange_);
    for (device::ep::Stream& stream : streams) stream = take_stream(carver, n);
    return carver.used();
  };
  memory_ = std::make_unique<KernelMemory>(runtime.gpu(), carve(nullptr));
  carve(memory_->at());
  for (std::size_t i = 0; i < streams.size(); ++i) {
    streams[i].pe = i == 0 ? runtime.my_pe() : node.sources[i - 1];
    if (i == 0 || config.by_slot()) streams[i].ids = {exchange_.ids + i * tokens * n.topk, false};
    if (i > 0) streams[i].tokens = buffers.staged_rows + (i - 1) * tokens * config.token_bytes();
  }

  const auto write = [&](const auto* to, const auto* from, uint64_t count) {
    memory_->copy(const_cast<std::remove_const_t<std::remove_reference_t<decltype(*to)>>*>(to),
                  from, count * sizeof *from);
  };
  const std::vector<device::ep::Home> homes = nodes.homes(exchange_.shape);
  write(exchange_.node.members, node.members, n.members);
  write(exchange_.node.sources, node.sources, n.sources);
  write(exchange_.node.writers, node.writers, n.pes);
  write(exchange_.node.gateways, node.gateways, n.nodes);
  write(exchange_.homes, homes.data(), n.experts);
  write(exchange_.streams, streams.data(), streams.size());
  summary_.refusal.pe = -1;
  write(exchange_.summary, &summary_, uint64_t{1});

  if (runtime.gpu() != nullptr) {
    copy_ = gpu::PinnedBlock(runtime.gpu()->site(), exchange_.outcome.words * sizeof(uint64_t));
    exchange_.copy = copy_.as<device::ep::Summary>();
  }
  received_.resize(n.pes);
  if (config.by_expert()) {
    const auto mine = size(device::ep::experts_of(exchange_.shape, runtime.my_pe()));
    expert_counts_.resize(mine);
    padded_counts_.resize(mine);
  }
}

bool Routing::known(uint64_t ticket) const {
  if (exchange_.copy == nullptr) return true;
  return arch::load_acquire(&exchange_.copy->ticket) == ticket;  // pairs with publish()'s release
}

void Routing::read() {
  const uint64_t* const from = reinterpret_cast<const uint64_t*>(
      exchange_.copy != nullptr ? exchange_.copy : exchange_.summary);
  const auto part = [&](const int64_t* array, std::vector<int64_t>& to) {
    const auto at = array - reinterpret_cast<const int64_t*>(exchange_.summary);
    if (!to.empty()) std::memcpy(to.data(), from + at, to.size() * sizeof(int64_t));
  };
  std::memcpy(&summary_, from, sizeof summary_);
  part(exchange_.outcome.received, received_);
  part(exchange_.outcome.expert_counts, expert_counts_);
  part(exchange_.outcome.padded_counts, padded_counts_);
}

void Routing::learn_refusal() {
  memory_->copy(&summary_.refusal, &exchange_.summary->refusal, sizeof summary_.refusal);
}

}  // namespace railshmem::ep
