#include "ep/expert_parallel.hpp"

#include <atomic>

#include "kernels/ep/combine.hpp"
#include "kernels/ep/dispatch.hpp"

namespace railshmem::ep {
namespace {

using device::DeviceContext;
using device::ep::CombineCall;
using device::ep::DispatchCall;
using device::ep::Exchange;

using CombineKernel = bool (*)(const DeviceContext*, const Exchange&, const CombineCall&);

template <bool kRemote>
CombineKernel combine_for(Type type) {
  switch (type) {
    case Type::bf16:
      return device::ep::combine<kRemote, device::ep::Bf16>;
    case Type::fp16:
      return device::ep::combine<kRemote, device::ep::Fp16>;
    default:
      return device::ep::combine<kRemote, float>;  // Config::check allows no other
  }
}

uint64_t next_id() {
  static std::atomic<uint64_t> ids{0};
  return ++ids;
}

// Collective.
const Config& agreed(Runtime& runtime, const Config& config) {
  config.check(runtime.n_pes());
  runtime.require_same("ExpertParallel", config.describe(runtime.n_pes()));
  return config;
}

}  // namespace

ExpertParallel::ExpertParallel(std::shared_ptr<Runtime> runtime, const Config& config)
    : runtime_(std::move(runtime)),
      config_(agreed(*runtime_, config)),
      nodes_(runtime_->topology(), runtime_->my_pe()),
      buffers_(runtime_, config_, nodes_),
      routing_(config_, runtime_->n_pes(), runtime_->my_pe(), nodes_, buffers_.view()),
      id_(next_id()) {}

std::string ExpertParallel::who(const char* call) const {
  return text("PE ", runtime_->my_pe(), ": ", call, ": ");
}

void ExpertParallel::require_usable(const char* call) const {
  if (freed_) fail(ErrorKind::argument, who(call), "this ExpertParallel was freed");
  if (broken_)
    fail(ErrorKind::aborted, who(call),
         "an earlier call was stopped in the middle; make a new "
         "ExpertParallel on every PE");
}

void ExpertParallel::check_handle(const char* call, const Handle& handle) const {
  if (handle.owner != id_)
    fail(ErrorKind::argument, who(call), "the handle belongs to another ExpertParallel");
  if (handle.round != round_)
    fail(ErrorKind::argument, who(call), "the handle is of dispatch ", handle.round,
         ", but dispatch ", round_, " has overwritten its buffers");
  if (handle.round == combined_)
    fail(ErrorKind::argument, who(call), "the handle of dispatch ", handle.round,
         " was combined already");
}

void ExpertParallel::check_overlap(const char* name, const Matrix& matrix) const {
  if (matrix.bytes() > 0 && buffers_.receives_into(matrix.data, matrix.bytes()))
    fail(ErrorKind::argument, who("dispatch"), name,
         " lie in the buffers that a dispatch delivers into; "
         "pass a copy");
}

template <class Kernel>
void ExpertParallel::launch(const Kernel& kernel) {
  broken_ = true;  // unless the kernel ends as it should
  runtime_->launch(static_cast<uint32_t>(config_.blocks), kernel);
  broken_ = false;
}

void ExpertParallel::raise_if_refused() const {
  const device::ep::Refusal& refusal = routing_.refusal();
  if (refusal.pe >= 0)
    fail(ErrorKind::argument, who("dispatch"), "PE ", refusal.pe, " would receive ", refusal.rows,
         " rows, more than max_received=", config_.received(runtime_->n_pes()));
}

Received ExpertParallel::dispatch(const Batch& batch) {
  require_usable("dispatch");
  check_overlap("tokens", batch.tokens);
  check_overlap("weights", batch.weights);
  if (batch.scales) check_overlap("scales", *batch.scales);
  routing_.load(who("dispatch"), config_, batch);
  const DispatchCall call{++round_, runtime_->in_heap(batch.tokens.data, batch.tokens.bytes())};
  const auto kernel =
      nodes_.view().n_nodes > 1 ? device::ep::dispatch<true> : device::ep::dispatch<false>;
  const device::TraceSpan span(runtime_->context().trace, device::Moment::ep_dispatch, 0, -1, -1, 0,
                               round_);
  launch([&] { kernel(&runtime_->context(), routing_.view(), call); });
  raise_if_refused();
  return received();
}

Received ExpertParallel::received() const {
  Received out;
  out.counts = routing_.received();
  out.handle = {id_, round_, 0};
  for (const int64_t rows : out.counts) out.handle.rows += rows;
  const device::ep::Buffers& at = buffers_.view();
  const int64_t rows = out.handle.rows;
  out.tokens = {at.tokens, rows, config_.hidden, config_.dtype};
  out.weights = {at.weights, rows, config_.topk, Type::fp32};
  out.indices = {at.indices, rows, config_.topk, Type::int64};
  out.scales = {at.scales, rows, config_.scales(), Type::fp32};
  return out;
}

void* ExpertParallel::expert_buffer(const Handle& handle) const {
  require_usable("expert_buffer");
  check_handle("expert_buffer", handle);
  return buffers_.view().results;
}

void ExpertParallel::combine(const Matrix& expert_out, const Handle& handle, void* out) {
  require_usable("combine");
  check_handle("combine", handle);
  check_matrix(who("combine"), "expert_out", expert_out, handle.rows, config_.hidden,
               config_.combined());
  const bool in_place = expert_out.data == buffers_.view().results;
  const CombineCall call{round_, static_cast<uint64_t>(handle.rows),
                         in_place ? nullptr : static_cast<const char*>(expert_out.data),
                         static_cast<char*>(out)};
  const CombineKernel kernel = nodes_.view().n_nodes > 1 ? combine_for<true>(config_.combined())
                                                         : combine_for<false>(config_.combined());
  const device::TraceSpan span(runtime_->context().trace, device::Moment::ep_combine, 0, -1, -1, 0,
                               round_);
  launch([&] { kernel(&runtime_->context(), routing_.view(), call); });
  raise_if_refused();
  combined_ = round_;
}

void ExpertParallel::free() {
  if (freed_) return;
  freed_ = true;
  buffers_.free();
}

}  // namespace railshmem::ep
