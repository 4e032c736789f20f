#include "shmem/nic/libfabric/endpoint.hpp"

#include <cerrno>
#include <cstring>

#include "shmem/base/error.hpp"
#include "shmem/nic/libfabric/address.hpp"
#include "shmem/nic/libfabric/libfabric_nic.hpp"
#include "shmem/nic/libfabric/status.hpp"

namespace railshmem::nic::libfabric {
namespace {

// A message finds its endpoint and carries its immediate by its tag.
constexpr uint64_t kImmBits = 0xffffffff;
uint64_t tag_of(uint32_t endpoint, uint32_t imm) {
  return uint64_t{endpoint} << 32 | imm;
}

}  // namespace

LibfabricEndpoint::LibfabricEndpoint(LibfabricNic& nic, uint32_t id, uint32_t depth,
                                     uint32_t receive_depth)
    : nic_(nic),
      id_(id),
      mask_(depth - 1),
      operations_(std::make_unique<Operations>(this, depth, receive_depth)) {
  for (uint32_t slot = receive_depth; slot > 0; --slot) free_receives_.push_back(slot - 1);
  if (nic_.needs_descriptors())
    inline_key_ = nic_.register_memory(operations_->inlined.get(),
                                       std::size_t{depth} * kInlineBytes, kAccessLocal, nullptr);
}

LibfabricEndpoint::~LibfabricEndpoint() {
  shut();
  nic_.forget(*this, std::move(operations_), inline_key_);
}

EndpointAddress LibfabricEndpoint::address() const {
  return pack<EndpointAddress>(EndpointLocation{id_});
}

void LibfabricEndpoint::connect(const NicAddress& peer_nic, const EndpointAddress& peer) {
  if (connected_) fail(ErrorKind::init, nic_.name(), ", endpoint ", id_, ": already connected");
  peer_ = nic_.reach(peer_nic);
  peer_id_ = unpack<EndpointLocation>(peer).id;
  connected_ = true;
}

void LibfabricEndpoint::check(const WorkRequest& request) const {
  const auto refuse = [&](const auto&... why) {
    fail(ErrorKind::argument, nic_.name(), ", endpoint ", id_, ": ", name_of(request.op), " of ",
         bytes_text(request.length), ": ", why...);
  };
  if (!connected_) refuse("not connected");
  const bool known =
      request.op == Opcode::write || request.op == Opcode::read || request.op == Opcode::send_imm;
  if (!known) refuse("not offered over libfabric");
  if (request.length > nic_.capabilities().max_message)
    refuse("the most is ", bytes_text(nic_.capabilities().max_message));
  if (!request.inlined) return;
  if (request.op == Opcode::read) refuse("nothing of it can be inlined");
  if (request.length > kInlineBytes) refuse("at most ", kInlineBytes, " bytes can be inlined");
}

bool LibfabricEndpoint::post(const WorkRequest& request) {
  check(request);
  if (posted_ - completed_ == operations_->requests.size()) return false;
  Request& entry = request_at(posted_);
  entry.asked = request;
  entry.index = posted_;
  entry.done = stopped_;
  entry.status = Status::flushed;
  ++posted_;
  if (stopped_) {
    submitted_ = posted_;
    nic_.list_completions(*this);
    return true;
  }
  if (request.inlined && request.length != 0) {
    char* kept = operations_->inlined_of(entry.index & mask_);
    std::memcpy(kept, reinterpret_cast<const void*>(request.local), request.length);
    entry.asked.local = reinterpret_cast<uint64_t>(kept);
    entry.asked.lkey = inline_key_.lkey;
  }
  return true;
}

void LibfabricEndpoint::ring_doorbell() {
  if (submitted_ != posted_) nic_.serve(*this);
}

bool LibfabricEndpoint::post_receive(uint64_t address, uint32_t lkey, uint32_t bytes) {
  nic_.check_receive(id_, address, lkey, bytes);
  if (free_receives_.empty()) return false;
  const uint32_t slot = free_receives_.back();
  free_receives_.pop_back();
  Receive& receive = operations_->receives[slot];
  receive.index = receives_posted_++;
  receive.address = address;
  receive.lkey = lkey;
  receive.bytes = bytes;
  waiting_receives_.push_back(slot);
  nic_.serve(*this);
  return true;
}

bool LibfabricEndpoint::shut() {
  const auto lock = nic_.lock();
  abandon(Status::flushed);
  cancel_receives();
  return true;
}

bool LibfabricEndpoint::submit() {
  if (stopped_) return true;
  const bool received_all = submit_receives();
  while (submitted_ < posted_) {
    Request& next = request_at(submitted_);
    // No fabric promises to keep a WRITE behind a READ. The READ's end brings us here again.
    if (next.asked.order != Order::free && reads_in_flight_ != 0) return false;
    const int result = hand_over(next);
    if (result == -EAGAIN) {
      if (!waits_in_vain()) return false;
      ended(next, Status::peer_unreachable);
      return true;
    }
    refused_since_ = {};
    ++submitted_;
    if (result == 0) continue;
    ended(next, status_of(-result));
    return true;
  }
  return received_all;
}

// A transport that is connecting takes no requests; one that never will must not be asked for ever.
bool LibfabricEndpoint::waits_in_vain() {
  const auto now = std::chrono::steady_clock::now();
  if (requests_in_flight_ != 0 || refused_since_ == std::chrono::steady_clock::time_point{})
    refused_since_ = now;
  return now - refused_since_ > kPatience;
}

int LibfabricEndpoint::hand_over(Request& request) {
  const WorkRequest& asked = request.asked;
  void* descriptor = nullptr;
  const bool ours = asked.inlined && inline_key_.lkey == 0;
  if (asked.length != 0 && !ours &&
      !nic_.regions().find(asked.lkey, asked.local, asked.length, &descriptor)) {
    request.status = Status::local_protection;
    return kNoSuchLocalMemory;
  }
  const iovec local{reinterpret_cast<void*>(asked.local), asked.length};
  abi::Ep& ep = nic_.endpoint();
  auto* context = static_cast<Operation*>(&request);
  ssize_t result = 0;
  if (asked.op == Opcode::send_imm) {
    const abi::TaggedMessage message{&local, &descriptor, 1, peer_, tag_of(peer_id_, asked.imm),
                                     0,      context,     0};
    result = ep.tagged->sendmsg(&ep, &message, abi::kCompletion);
  } else {
    const abi::RmaIov remote =
        nic_.regions().naming().remote(asked.remote, asked.length, asked.rkey);
    const abi::RmaMessage message{&local, &descriptor, 1, peer_, &remote, 1, context, 0};
    // Complete means that the peer has it, not that it is on its way.
    result = asked.op == Opcode::read
                 ? ep.rma->readmsg(&ep, &message, abi::kCompletion)
                 : ep.rma->writemsg(&ep, &message, abi::kCompletion | abi::kDeliveryComplete);
  }
  if (result != 0) return static_cast<int>(result);
  request.in_flight = true;
  ++requests_in_flight_;
  if (asked.op == Opcode::read) ++reads_in_flight_;
  ++operations_->in_flight;
  return 0;
}

bool LibfabricEndpoint::submit_receives() {
  std::size_t taken = 0;
  while (taken < waiting_receives_.size() &&
         hand_over(operations_->receives[waiting_receives_[taken]]) == 0)
    ++taken;
  waiting_receives_.erase(waiting_receives_.begin(),
                          waiting_receives_.begin() + static_cast<std::ptrdiff_t>(taken));
  return waiting_receives_.empty();
}

int LibfabricEndpoint::hand_over(Receive& receive) {
  void* descriptor = nullptr;
  // It was there when the buffer was posted; where it has gone, so has whoever waits for messages.
  if (receive.bytes != 0 &&
      !nic_.regions().find(receive.lkey, receive.address, receive.bytes, &descriptor))
    return kNoSuchLocalMemory;
  const iovec local{reinterpret_cast<void*>(receive.address), receive.bytes};
  const abi::TaggedMessage message{&local,
                                   &descriptor,
                                   1,
                                   abi::kNoAddress,
                                   tag_of(id_, 0),
                                   kImmBits,
                                   static_cast<Operation*>(&receive),
                                   0};
  abi::Ep& ep = nic_.endpoint();
  const ssize_t result = ep.tagged->recvmsg(&ep, &message, abi::kCompletion);
  if (result != 0) return static_cast<int>(result);
  receive.in_flight = true;
  ++operations_->in_flight;
  return 0;
}

void LibfabricEndpoint::ended(Request& request, Status status) {
  if (request.in_flight) {
    request.in_flight = false;
    --requests_in_flight_;
    if (request.asked.op == Opcode::read) --reads_in_flight_;
  }
  if (request.done) return;  // it was abandoned
  request.done = true;
  request.status = status;
  nic_.list_completions(*this);
  if (status != Status::ok) stop();
}

// What is in flight comes back by itself; the rest is flushed.
void LibfabricEndpoint::stop() {
  if (stopped_) return;
  stopped_ = true;
  for (; submitted_ < posted_; ++submitted_) {
    Request& request = request_at(submitted_);
    if (request.done) continue;
    request.done = true;
    request.status = Status::flushed;
  }
}

void LibfabricEndpoint::abandon(Status status) {
  for (uint64_t index = completed_; index < posted_; ++index) {
    Request& request = request_at(index);
    if (request.done) continue;
    request.done = true;
    request.status = status;
  }
  stop();
  if (completed_ != posted_) nic_.list_completions(*this);
}

void LibfabricEndpoint::cancel_receives() {
  waiting_receives_.clear();
  for (Receive& receive : operations_->receives)
    if (receive.in_flight) nic_.cancel(receive);
}

bool LibfabricEndpoint::received(Receive& receive, Status status, std::size_t bytes, uint32_t imm,
                                 Completion* out) {
  receive.in_flight = false;
  if (stopped_) return false;
  free_receives_.push_back(static_cast<uint32_t>(&receive - operations_->receives.data()));
  *out = Completion{};
  out->endpoint = id_;
  out->received = true;
  out->status = status;
  out->index = receive.index;
  out->bytes = static_cast<uint32_t>(bytes);
  out->imm = imm;
  if (status != Status::ok) stop();
  return true;
}

bool LibfabricEndpoint::poll(Completion* out) {
  if (completed_ == posted_) return false;
  const Request& request = request_at(completed_);
  if (!request.done) return false;
  *out = Completion{};
  out->endpoint = id_;
  out->status = broken_ ? Status::flushed : request.status;
  out->index = completed_++;
  broken_ = broken_ || out->status != Status::ok;
  return true;
}

}  // namespace railshmem::nic::libfabric
