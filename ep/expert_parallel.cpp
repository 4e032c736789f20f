#include "ep/expert_parallel.hpp"

#include <atomic>

#include "kernels/ep/combine.hpp"
#include "kernels/ep/dispatch.hpp"

namespace railshmem::ep {
namespace {

using device::DeviceContext;
using device::ep::DispatchCall;
using device::ep::Exchange;
using device::ep::ReceiveCall;

// combine's kernels for one type of results.
struct CombineKernels {
  void (*send)(const DeviceContext*, const Exchange&, const char*);
  void (*recv)(const DeviceContext*, const Exchange&, char*);
};

template <bool kRemote, class T>
CombineKernels combine_of() {
  return {device::ep::combine_send<kRemote, T>, device::ep::combine_recv<kRemote, T>};
}

CombineKernels combine_for(Type type, bool remote) {
  using device::ep::Bf16;
  using device::ep::Fp16;
  switch (type) {
    case Type::bf16:
      return remote ? combine_of<true, Bf16>() : combine_of<false, Bf16>();
    case Type::fp16:
      return remote ? combine_of<true, Fp16>() : combine_of<false, Fp16>();
    default:  // Config::check allows no other
      return remote ? combine_of<true, float>() : combine_of<false, float>();
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

// Collective.
std::vector<std::unique_ptr<Slot>> make_slots(const std::shared_ptr<Runtime>& runtime,
                                              const Config& config, const NodeMap& nodes) {
  std::vector<std::unique_ptr<Slot>> slots;
  for (int64_t i = 0; i < config.handles; ++i)
    slots.push_back(std::make_unique<Slot>(runtime, config, nodes));
  return slots;
}

device::ep::Delivery delivery_to(const Outputs& out) {
  return {out.tokens ? out.tokens->target<char>() : nullptr,
          out.weights ? out.weights->target<float>() : nullptr,
          out.indices ? out.indices->target<int64_t>() : nullptr,
          out.scales ? out.scales->target<float>() : nullptr};
}

}  // namespace

ExpertParallel::ExpertParallel(std::shared_ptr<Runtime> runtime, const Config& config)
    : runtime_(std::move(runtime)),
      config_(agreed(*runtime_, config)),
      nodes_(runtime_->topology(), runtime_->my_pe()),
      slots_(make_slots(runtime_, config_, nodes_)),
      id_(next_id()) {}

std::string ExpertParallel::who(const char* call) const {
  return text("PE ", runtime_->my_pe(), ": ", call, ": ");
}

void ExpertParallel::require_usable(const char* call) const {
  if (freed_) fail(ErrorKind::argument, who(call), "this ExpertParallel was freed");
  if (broken_)
    fail(ErrorKind::aborted, who(call),
         "an earlier call was stopped in the middle; make a new ExpertParallel on every PE");
}

// ---- slots and handles -------------------------------------------------------------------------

// The same on every PE, because every PE makes the same calls.
std::size_t ExpertParallel::oldest_slot() const {
  std::size_t oldest = 0;
  for (std::size_t i = 1; i < slots_.size(); ++i)
    if (slots_[i]->dispatch < slots_[oldest]->dispatch) oldest = i;
  const Slot& slot = *slots_[oldest];
  if (slot.phase == Phase::sent || slot.phase == Phase::combining)
    fail(ErrorKind::argument, who("dispatch"), "handles=", config_.handles,
         " are all in use: dispatch ", slot.dispatch, " ", name_of(slot.phase));
  return oldest;
}

Slot& ExpertParallel::slot_of(const char* call, const Handle& handle) const {
  require_usable(call);
  if (handle.owner != id_)
    fail(ErrorKind::argument, who(call), "the handle belongs to another ExpertParallel");
  Slot& slot = *slots_[handle.slot];
  if (handle.dispatch != slot.dispatch)
    fail(ErrorKind::argument, who(call), "the handle is of dispatch ", handle.dispatch,
         ", but dispatch ", slot.dispatch, " has overwritten its buffers");
  return slot;
}

void ExpertParallel::require_phase(const char* call, const Slot& slot, Phase phase) const {
  if (slot.phase != phase)
    fail(ErrorKind::argument, who(call), "dispatch ", slot.dispatch, " ", name_of(slot.phase));
}

// ---- checks ------------------------------------------------------------------------------------

void ExpertParallel::check_input(const Slot& slot, const char* name, const Matrix& matrix) const {
  if (slot.buffers.receives_into(matrix.data, matrix.bytes()))
    fail(ErrorKind::argument, who("dispatch"), name,
         " lie in the buffers that this dispatch delivers into; pass a copy, or use more handles");
}

// Returns the rows that this PE has room for.
int64_t ExpertParallel::check_outputs(const Outputs& out) const {
  const int64_t room =
      ep::check_outputs(who("dispatch"), config_, out, config_.received(runtime_->n_pes()));
  for (const auto* array : {&out.tokens, &out.weights, &out.indices, &out.scales})
    for (const auto& slot : slots_)
      if (*array && slot->buffers.holds((*array)->data, (*array)->bytes()))
        fail(ErrorKind::argument, who("dispatch"),
             "out lies in this ExpertParallel's own buffers; pass another array");
  return room;
}

void ExpertParallel::check_out(const char* call, const Handle& handle, const Matrix& out) const {
  check_matrix(who(call), "out", out, handle.tokens, config_.hidden, config_.combined());
  for (const auto& slot : slots_)
    if (slot->buffers.holds(out.data, out.bytes()))
      fail(ErrorKind::argument, who(call),
           "out lies in this ExpertParallel's own buffers; pass another array");
}

// ---- kernels -----------------------------------------------------------------------------------

template <class Kernel>
void ExpertParallel::launch(const char* call, const Slot& slot, int64_t blocks,
                            const Kernel& kernel) {
  broken_ = true;  // unless the kernel ends as it should
  try {
    runtime_->launch(static_cast<uint32_t>(blocks),
                     [&] { kernel(&runtime_->context(), slot.routing.view()); });
  } catch (const Error& error) {
    fail(error.kind(), error.what(), " (in ", call, ", dispatch ", slot.dispatch, ")");
  }
  broken_ = false;
}

void ExpertParallel::raise_if_refused(const char* call, const Slot& slot) const {
  const device::ep::Refusal& refusal = slot.routing.refusal();
  if (refusal.pe < 0) return;
  const auto declared = static_cast<uint64_t>(config_.received(runtime_->n_pes()));
  const std::string room = refusal.room == declared ? text("max_received=", declared)
                                                    : text("the ", refusal.room, " of its out");
  fail(ErrorKind::argument, who(call), "PE ", refusal.pe, " would receive ", refusal.rows,
       " rows, more than ", room);
}

// A refusal in another node reaches this PE behind the rows that it sent there.
void ExpertParallel::learn_refusals(const char* call, Slot& slot) {
  if (nodes_.view().n_nodes > 1)
    launch(call, slot, 1, [&](const DeviceContext* ctx, const Exchange& x) {
      device::ep::learn_refusals(ctx, x);
    });
  if (slot.routing.refusal().pe >= 0) slot.phase = Phase::combined;
  raise_if_refused(call, slot);
}

DispatchCall ExpertParallel::call_of(const Matrix& tokens, const std::optional<Matrix>& scales,
                                     int64_t room, const Batch* routed) const {
  DispatchCall call{};
  call.tokens = static_cast<const char*>(tokens.data);
  call.scales = scales ? static_cast<const float*>(scales->data) : nullptr;
  call.rows = static_cast<uint64_t>(tokens.rows);
  call.room = static_cast<uint64_t>(room);
  call.in_heap = runtime_->in_heap(tokens.data, tokens.bytes());
  call.again = routed == nullptr;
  if (call.again) return call;
  call.weights = static_cast<const float*>(routed->weights.data);
  call.ids = {routed->indices.data, routed->indices.type == Type::int64};
  return call;
}

// ---- dispatch ----------------------------------------------------------------------------------

Handle ExpertParallel::dispatch_send(const Batch& batch, const Outputs& out) {
  require_usable("dispatch");
  const std::size_t index = oldest_slot();
  const Slot& slot = *slots_[index];
  check_input(slot, "tokens", batch.tokens);
  check_input(slot, "weights", batch.weights);
  if (batch.scales) check_input(slot, "scales", *batch.scales);
  const int64_t room = check_outputs(out);
  check_batch(who("dispatch"), config_, batch);
  return send(index, call_of(batch.tokens, batch.scales, room, &batch), out);
}

Handle ExpertParallel::dispatch_send(const Matrix& tokens, const std::optional<Matrix>& scales,
                                     const Handle& known, const Outputs& out) {
  Slot& slot = slot_of("dispatch", known);
  if (slot.phase != Phase::combined) require_phase("dispatch", slot, Phase::received);
  check_input(slot, "tokens", tokens);
  if (scales) check_input(slot, "scales", *scales);
  const int64_t room = check_outputs(out);
  if (known.rows > room)
    fail(ErrorKind::argument, who("dispatch"), "out has room for ", room, " rows, but ", known.rows,
         " come");
  check_known(who("dispatch"), config_, tokens, scales, slot.tokens);
  learn_refusals("dispatch", slot);
  return send(known.slot, call_of(tokens, scales, room, nullptr), out);
}

Handle ExpertParallel::send(std::size_t index, const DispatchCall& call, const Outputs& out) {
  Slot& slot = *slots_[index];
  slot.dispatch = ++dispatches_;
  slot.tokens = static_cast<int64_t>(call.rows);
  slot.phase = Phase::sent;
  slot.delivery = delivery_to(out);
  slot.again = call.again;
  const auto kernel = nodes_.view().n_nodes > 1 ? device::ep::dispatch_send<true>
                                                : device::ep::dispatch_send<false>;
  launch("dispatch", slot, config_.blocks,
         [&](const DeviceContext* ctx, const Exchange& x) { kernel(ctx, x, call); });
  if (slot.routing.refusal().pe >= 0) {
    receive(slot);  // the others must not wait for this PE
    slot.phase = Phase::combined;
    raise_if_refused("dispatch", slot);
  }
  return {id_, index, slot.dispatch, slot.routing.rows(), slot.tokens};
}

Received ExpertParallel::dispatch_recv(const Handle& handle) {
  Slot& slot = slot_of("dispatch_recv", handle);
  if (slot.phase != Phase::sent)
    fail(ErrorKind::argument, who("dispatch_recv"), "dispatch ", handle.dispatch,
         " was received already");
  receive(slot);
  slot.phase = Phase::received;
  return received(handle);
}

void ExpertParallel::receive(Slot& slot) {
  const ReceiveCall call{slot.delivery, slot.again};
  const auto kernel = nodes_.view().n_nodes > 1 ? device::ep::dispatch_recv<true>
                                                : device::ep::dispatch_recv<false>;
  launch("dispatch", slot, config_.blocks,
         [&](const DeviceContext* ctx, const Exchange& x) { kernel(ctx, x, call); });
}

Received ExpertParallel::received(const Handle& handle) const {
  const Slot& slot = *slots_[handle.slot];
  const device::ep::Buffers& at = slot.buffers.view();
  const device::ep::Delivery& to = slot.delivery;
  const int64_t columns = config_.routing_columns();
  Received out;
  out.counts = slot.routing.received();
  for (const device::ep::ExpertRows& block : slot.routing.experts()) {
    out.expert_counts.push_back(static_cast<int64_t>(block.rows));
    out.padded_counts.push_back(static_cast<int64_t>(block.padded));
  }
  out.handle = handle;
  const auto where = [](const void* given, const void* own) { return given ? given : own; };
  out.tokens = {where(to.tokens, at.tokens), handle.rows, config_.hidden, config_.dtype};
  out.weights = {where(to.weights, at.weights), handle.rows, columns, Type::fp32};
  out.indices = {where(to.indices, at.indices), handle.rows, columns, Type::int64};
  out.scales = {where(to.scales, at.scales), handle.rows, config_.scales(), Type::fp32};
  return out;
}

void* ExpertParallel::expert_buffer(const Handle& handle) const {
  const Slot& slot = slot_of("expert_buffer", handle);
  require_phase("expert_buffer", slot, Phase::received);
  return slot.buffers.view().expert_rows;
}

// ---- combine -----------------------------------------------------------------------------------

void ExpertParallel::combine(const Matrix& expert_out, const Handle& handle, const Matrix& out) {
  slot_of("combine", handle);
  check_out("combine", handle, out);
  combine_send(expert_out, handle);
  combine_recv(handle, out);
}

void ExpertParallel::combine_send(const Matrix& expert_out, const Handle& handle) {
  Slot& slot = slot_of("combine", handle);
  require_phase("combine", slot, Phase::received);
  check_matrix(who("combine"), "expert_out", expert_out, handle.rows, config_.hidden,
               config_.combined());
  learn_refusals("combine", slot);
  const bool in_place = !config_.by_expert() && expert_out.data == slot.buffers.view().expert_rows;
  const auto* const rows = in_place ? nullptr : static_cast<const char*>(expert_out.data);
  const auto kernel = combine_for(config_.combined(), nodes_.view().n_nodes > 1).send;
  launch("combine", slot, config_.blocks,
         [&](const DeviceContext* ctx, const Exchange& x) { kernel(ctx, x, rows); });
  slot.phase = Phase::combining;
}

void ExpertParallel::combine_recv(const Handle& handle, const Matrix& out) {
  Slot& slot = slot_of("combine_recv", handle);
  require_phase("combine_recv", slot, Phase::combining);
  check_out("combine_recv", handle, out);
  const auto kernel = combine_for(config_.combined(), nodes_.view().n_nodes > 1).recv;
  launch("combine", slot, config_.blocks,
         [&](const DeviceContext* ctx, const Exchange& x) { kernel(ctx, x, out.target<char>()); });
  slot.phase = Phase::combined;
}

void ExpertParallel::free() {
  if (freed_) return;
  freed_ = true;
  for (const auto& slot : slots_) slot->buffers.free();
}

}  // namespace railshmem::ep
