#include "ep/expert_parallel.hpp"

#include <atomic>

namespace railshmem::ep {
namespace {

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
      kernels_(make_kernels(*runtime_, config_, nodes_.view().n_nodes)),
      id_(next_id()) {}

std::string ExpertParallel::who(const char* call) const {
  return text("PE ", runtime_->my_pe(), ": ", call, ": ");
}

void ExpertParallel::require_usable(const char* call) {
  if (freed_) fail(ErrorKind::argument, who(call), "this ExpertParallel was freed");
  if (broken_)
    fail(ErrorKind::aborted, who(call),
         "an earlier call was stopped in the middle; make a new ExpertParallel on every PE");
  try {
    kernels_->check();
  } catch (const Error&) {
    broken_ = true;
    throw;
  }
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
  if (freed_) fail(ErrorKind::argument, who(call), "this ExpertParallel was freed");
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

// On a GPU, kernels read and write the caller's arrays 16 bytes at a time.
void ExpertParallel::check_reachable(const char* call, const char* name,
                                     const Matrix& matrix) const {
  const GpuSide* const gpu = runtime_->gpu();
  if (gpu == nullptr || matrix.bytes() == 0) return;
  const int mine = gpu->site().device, device = gpu->driver().device_of(matrix.data);
  if (device != mine)
    fail(ErrorKind::argument, who(call), name,
         device < 0 ? " lies in host memory" : " lies on GPU ",
         device < 0 ? "" : std::to_string(device), ": expected memory of GPU ", mine);
  if (reinterpret_cast<uintptr_t>(matrix.data) % 16 != 0)
    fail(ErrorKind::argument, who(call), name, " begins at an address that is no multiple of 16");
}

void ExpertParallel::check_input(const Slot& slot, const char* call, const char* name,
                                 const Matrix& matrix) const {
  if (slot.buffers.receives_into(matrix.data, matrix.bytes()))
    fail(ErrorKind::argument, who(call), name,
         " lie in the buffers that this dispatch delivers into; pass a copy, or use more handles");
  check_reachable(call, name, matrix);
}

// Returns the rows that this PE has room for.
int64_t ExpertParallel::check_outputs(const Outputs& out) const {
  const int64_t room =
      ep::check_outputs(who("dispatch"), config_, out, config_.received(runtime_->n_pes()));
  for (const auto* array : {&out.tokens, &out.weights, &out.indices, &out.scales}) {
    if (!*array) continue;
    check_reachable("dispatch", "out", **array);
    for (const auto& slot : slots_)
      if (slot->buffers.holds((*array)->data, (*array)->bytes()))
        fail(ErrorKind::argument, who("dispatch"),
             "out lies in this ExpertParallel's own buffers; pass another array");
  }
  return room;
}

void ExpertParallel::check_out(const char* call, const Handle& handle, const Matrix& out) const {
  check_matrix(who(call), "out", out, handle.tokens, config_.hidden, config_.combined());
  check_reachable(call, "out", out);
  for (const auto& slot : slots_)
    if (slot->buffers.holds(out.data, out.bytes()) && out.data != slot->buffers.sums())
      fail(ErrorKind::argument, who(call),
           "out lies in this ExpertParallel's own buffers; pass another array");
}

// ---- kernels -----------------------------------------------------------------------------------

template <class Launch>
void ExpertParallel::launch(const char* call, const Slot& slot, const Launch& launch) {
  broken_ = true;  // unless it ends as it should
  try {
    launch(slot.routing.exchange());
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
void ExpertParallel::learn_refusals(const char* call, Slot& slot, Stream stream) {
  if (nodes_.view().n_nodes > 1)
    launch(call, slot, [&](const Exchange& x) {
      kernels_->learn_refusals(x, config_.fixed(), stream);
      if (config_.fixed()) return;
      kernels_->finish(stream);
      slot.routing.learn_refusal();
    });
  if (config_.fixed()) return;  // a kernel stops this PE
  if (slot.routing.refusal().pe >= 0) slot.phase = Phase::combined;
  raise_if_refused(call, slot);
}

// ---- dispatch ----------------------------------------------------------------------------------

ExpertParallel::DispatchCall ExpertParallel::call_of(const Matrix& tokens,
                                                     const std::optional<Matrix>& scales,
                                                     int64_t room, const Batch* routed) {
  DispatchCall call{};
  call.tokens = static_cast<const char*>(tokens.data);
  call.scales = scales ? static_cast<const float*>(scales->data) : nullptr;
  call.rows = static_cast<uint64_t>(tokens.rows);
  call.room = static_cast<uint64_t>(room);
  call.in_heap = runtime_->in_heap(tokens.data, tokens.bytes());
  call.again = routed == nullptr;
  if (call.again) return call;
  if (!config_.fixed()) call.ticket = dispatches_ + 1;
  call.weights = static_cast<const float*>(routed->weights.data);
  call.ids = {routed->indices.data, routed->indices.type == Type::int64};
  return call;
}

ExpertParallel::Sending ExpertParallel::prepare(const Batch& batch, const Outputs& out) {
  require_usable("dispatch");
  const std::size_t index = oldest_slot();
  const Slot& slot = *slots_[index];
  check_input(slot, "dispatch", "tokens", batch.tokens);
  check_input(slot, "dispatch", "weights", batch.weights);
  check_reachable("dispatch", "indices", batch.indices);
  if (batch.scales) check_input(slot, "dispatch", "scales", *batch.scales);
  const int64_t room = check_outputs(out);
  check_batch(who("dispatch"), config_, batch);
  // On a GPU the kernel does it, before anything is sent.
  if (runtime_->gpu() == nullptr) check_ids(who("dispatch"), config_, batch.indices);
  return {index, call_of(batch.tokens, batch.scales, room, &batch)};
}

ExpertParallel::Sending ExpertParallel::prepare(const Matrix& tokens,
                                                const std::optional<Matrix>& scales,
                                                const Handle& known, const Outputs& out,
                                                Stream stream) {
  require_usable("dispatch");
  Slot& slot = slot_of("dispatch", known);
  if (slot.phase != Phase::combined) require_phase("dispatch", slot, Phase::received);
  check_input(slot, "dispatch", "tokens", tokens);
  if (scales) check_input(slot, "dispatch", "scales", *scales);
  const int64_t room = check_outputs(out);
  if (known.rows > room)
    fail(ErrorKind::argument, who("dispatch"), "out has room for ", room, " rows, but ", known.rows,
         " come");
  check_known(who("dispatch"), config_, tokens, scales, slot.tokens);
  learn_refusals("dispatch", slot, stream);
  return {known.slot, call_of(tokens, scales, room, nullptr)};
}

Slot& ExpertParallel::begin(const Sending& sending, const Outputs& out) {
  Slot& slot = *slots_[sending.index];
  slot.dispatch = ++dispatches_;
  slot.tokens = static_cast<int64_t>(sending.call.rows);
  slot.phase = Phase::sent;
  slot.delivery = delivery_to(out);
  slot.again = sending.call.again;
  return slot;
}

// Waits for the counts, where they are new and somebody wants them.
void ExpertParallel::learn(Slot& slot, const DispatchCall& call, Stream stream) {
  if (call.ticket != 0) slot.routing.learn(call.ticket, [&] { kernels_->keep_waiting(stream); });
}

Handle ExpertParallel::handle_of(std::size_t index) const {
  const Slot& slot = *slots_[index];
  const int64_t rows = config_.fixed() ? config_.received(runtime_->n_pes()) : slot.routing.rows();
  return {id_, index, slot.dispatch, rows, slot.tokens};
}

Received ExpertParallel::run(const Sending& sending, const Outputs& out, Stream stream) {
  Slot& slot = begin(sending, out);
  launch("dispatch", slot, [&](const Exchange& x) {
    kernels_->dispatch(x, sending.call, {slot.delivery, slot.again}, stream);
    learn(slot, sending.call, stream);
  });
  if (!config_.fixed() && slot.routing.refusal().pe >= 0) {
    slot.phase = Phase::combined;
    raise_if_refused("dispatch", slot);
  }
  slot.phase = Phase::received;
  return received(handle_of(sending.index));
}

Handle ExpertParallel::send(const Sending& sending, const Outputs& out, Stream stream) {
  Slot& slot = begin(sending, out);
  launch("dispatch", slot, [&](const Exchange& x) {
    kernels_->dispatch_send(x, sending.call, stream);
    learn(slot, sending.call, stream);
    if (config_.fixed() || slot.routing.refusal().pe < 0) return;
    // The others must not wait for this PE.
    kernels_->dispatch_recv(x, {slot.delivery, slot.again}, stream);
    slot.phase = Phase::combined;
  });
  if (slot.phase == Phase::combined) raise_if_refused("dispatch", slot);
  return handle_of(sending.index);
}

Received ExpertParallel::dispatch(const Batch& batch, const Outputs& out, Stream stream) {
  return run(prepare(batch, out), out, stream);
}
Received ExpertParallel::dispatch(const Matrix& tokens, const std::optional<Matrix>& scales,
                                  const Handle& known, const Outputs& out, Stream stream) {
  return run(prepare(tokens, scales, known, out, stream), out, stream);
}

Handle ExpertParallel::dispatch_send(const Batch& batch, const Outputs& out, Stream stream) {
  return send(prepare(batch, out), out, stream);
}
Handle ExpertParallel::dispatch_send(const Matrix& tokens, const std::optional<Matrix>& scales,
                                     const Handle& known, const Outputs& out, Stream stream) {
  return send(prepare(tokens, scales, known, out, stream), out, stream);
}

Received ExpertParallel::dispatch_recv(const Handle& handle, Stream stream) {
  require_usable("dispatch_recv");
  Slot& slot = slot_of("dispatch_recv", handle);
  if (slot.phase != Phase::sent)
    fail(ErrorKind::argument, who("dispatch_recv"), "dispatch ", handle.dispatch,
         " was received already");
  launch("dispatch", slot, [&](const Exchange& x) {
    kernels_->dispatch_recv(x, {slot.delivery, slot.again}, stream);
  });
  slot.phase = Phase::received;
  return received(handle);
}

Received ExpertParallel::received(const Handle& handle) const {
  const Slot& slot = *slots_[handle.slot];
  const device::ep::Buffers& at = slot.buffers.view();
  const device::ep::Delivery& to = slot.delivery;
  const int64_t columns = config_.routing_columns();
  Received out;
  if (!config_.fixed()) {
    out.counts = slot.routing.received();
    out.expert_counts = slot.routing.expert_counts();
    out.padded_counts = slot.routing.padded_counts();
  }
  out.handle = handle;
  const auto where = [](const void* given, const void* own) { return given ? given : own; };
  out.tokens = {where(to.tokens, at.tokens), handle.rows, config_.hidden, config_.dtype};
  out.weights = {where(to.weights, at.weights), handle.rows, columns, Type::fp32};
  out.indices = {where(to.indices, at.indices), handle.rows, columns, Type::int64};
  out.scales = {where(to.scales, at.scales), handle.rows, config_.scales(), Type::fp32};
  return out;
}

Counts ExpertParallel::counts(const Handle& handle) const {
  const Exchange& x = slot_of("counts", handle).routing.exchange();
  return {&x.summary->rows, x.outcome.received, x.outcome.expert_counts, x.outcome.padded_counts};
}

void* ExpertParallel::expert_buffer(const Handle& handle) const {
  const Slot& slot = slot_of("expert_buffer", handle);
  require_phase("expert_buffer", slot, Phase::received);
  return slot.buffers.view().expert_rows;
}

Matrix ExpertParallel::sums(const Handle& handle) const {
  return {slot_of("combine", handle).buffers.sums(), handle.tokens, config_.hidden,
          config_.combined()};
}

// ---- combine -----------------------------------------------------------------------------------

ExpertParallel::Offer ExpertParallel::offer(const Matrix& expert_out, const Handle& handle,
                                            Stream stream) {
  Slot& slot = slot_of("combine", handle);
  require_phase("combine", slot, Phase::received);
  check_matrix(who("combine"), "expert_out", expert_out, handle.rows, config_.hidden,
               config_.combined());
  check_reachable("combine", "expert_out", expert_out);
  learn_refusals("combine", slot, stream);
  const bool in_place = !config_.by_expert() && expert_out.data == slot.buffers.view().expert_rows;
  return {slot, in_place ? nullptr : static_cast<const char*>(expert_out.data)};
}

void ExpertParallel::combine(const Matrix& expert_out, const Handle& handle, const Matrix& out,
                             Stream stream) {
  require_usable("combine");
  slot_of("combine", handle);
  check_out("combine", handle, out);
  const Offer offered = offer(expert_out, handle, stream);
  launch("combine", offered.slot, [&](const Exchange& x) {
    kernels_->combine(x, offered.expert_rows, out.target<char>(), stream);
  });
  offered.slot.phase = Phase::combined;
}

void ExpertParallel::combine_send(const Matrix& expert_out, const Handle& handle, Stream stream) {
  require_usable("combine");
  const Offer offered = offer(expert_out, handle, stream);
  launch("combine", offered.slot,
         [&](const Exchange& x) { kernels_->combine_send(x, offered.expert_rows, stream); });
  offered.slot.phase = Phase::combining;
}

void ExpertParallel::combine_recv(const Handle& handle, const Matrix& out, Stream stream) {
  require_usable("combine_recv");
  Slot& slot = slot_of("combine_recv", handle);
  require_phase("combine_recv", slot, Phase::combining);
  check_out("combine_recv", handle, out);
  launch("combine", slot,
         [&](const Exchange& x) { kernels_->combine_recv(x, out.target<char>(), stream); });
  slot.phase = Phase::combined;
}

int64_t ExpertParallel::my_experts() const {
  return device::ep::experts_of(slots_.front()->routing.exchange().shape, runtime_->my_pe());
}

void ExpertParallel::finish(Stream stream) {
  require_usable("finish");
  broken_ = true;
  kernels_->finish(stream);
  broken_ = false;
}

void ExpertParallel::free() {
  if (freed_) return;
  freed_ = true;
  for (const auto& slot : slots_) slot->buffers.free();
}

}  // namespace railshmem::ep
