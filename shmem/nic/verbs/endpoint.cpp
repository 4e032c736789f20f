#include "shmem/nic/verbs/endpoint.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "shmem/base/error.hpp"
#include "shmem/nic/verbs/verbs_nic.hpp"

namespace railshmem::nic::verbs {
namespace {

// What the other side must know of a queue pair.
struct EndpointLocation {
  uint32_t number = 0;
  uint32_t psn = 0;
  uint8_t mtu = 0;
  uint8_t reads_answered = 0;
};
static_assert(sizeof(EndpointLocation) <= sizeof(EndpointAddress));

constexpr uint32_t kPsnMask = (1u << 24) - 1;
constexpr int kMostReads = 16;        // at once, per queue pair
constexpr uint8_t kMinRnrTimer = 12;  // 0.64 ms until a message is sent again
constexpr uint8_t kHops = 64;         // RoCE between subnets needs more than one
constexpr uint64_t kReceiveBit = 1u << 31;
constexpr uint64_t kIndexMask = kReceiveBit - 1;

// Soft-RoCE never gives up where it should after 7 retries.
uint8_t retries_of(const DeviceAttributes& device, uint32_t retries) {
  constexpr uint32_t kSoftRoce = 0xffffff;
  return static_cast<uint8_t>(device.vendor == kSoftRoce ? std::min(retries, 6u) : retries);
}

uint8_t reads_at_once(int limit) {
  return static_cast<uint8_t>(std::clamp(limit, 1, kMostReads));
}

bool is_atomic(Opcode op) {
  return op == Opcode::fetch_add || op == Opcode::compare_swap;
}

WireOpcode wire_opcode(Opcode op) {
  switch (op) {
    case Opcode::write:
      return WireOpcode::write;
    case Opcode::write_imm:
      return WireOpcode::write_imm;
    case Opcode::read:
      return WireOpcode::read;
    case Opcode::send_imm:
      return WireOpcode::send_imm;
    case Opcode::fetch_add:
      return WireOpcode::fetch_add;
    case Opcode::compare_swap:
      return WireOpcode::compare_swap;
  }
  return WireOpcode::write;
}

}  // namespace

VerbsEndpoint::VerbsEndpoint(VerbsNic& nic, uint32_t id, uint32_t depth, uint32_t receive_depth)
    : nic_(nic),
      id_(id),
      depth_(depth),
      receive_depth_(receive_depth),
      psn_(std::random_device()() & kPsnMask),
      queue_(nic.reserve(depth + receive_depth)),
      requests_(depth),
      pieces_(depth),
      inlined_(std::size_t{depth} * kInlineBytes),
      arrived_(receive_depth) {
  QueuePairMaking how{};
  how.send_completions = how.receive_completions = queue_.queue.get();
  how.kind = kReliableConnection;
  const QueueCapacity capacity{depth, receive_depth, 1, 1, kInlineBytes};
  how.capacity = capacity;
  const auto& library = nic.library();
  QueuePair* made = library->create_qp(nic.domain(), &how);
  if (made == nullptr) {
    how.capacity = capacity;
    how.capacity.inline_bytes = 0;
    made = library->create_qp(nic.domain(), &how);
  }
  pair_ = OwnedPair(library, made);
  const bool inlines = how.capacity.inline_bytes >= kInlineBytes;
  if (made != nullptr && !inlines)
    inlined_region_ = OwnedRegion(library, library->reg_mr(nic.domain(), inlined_.data(),
                                                           inlined_.size(), kAccessLocalWrite));
  if (made == nullptr || (!inlines && inlined_region_.get() == nullptr)) {
    const std::string why = errno_text();
    queue_.room += reserved();
    fail(ErrorKind::init, nic.text(), ": no queue pair of ", depth, " requests and ", receive_depth,
         " receive buffers can be made: ", why);
  }
  number_ = made->number;
}

VerbsEndpoint::~VerbsEndpoint() {
  pair_ = OwnedPair();
  nic_.forget(*this);
}

EndpointAddress VerbsEndpoint::address() const {
  EndpointLocation here;
  here.number = number_;
  here.psn = psn_;
  here.mtu = static_cast<uint8_t>(nic_.port().mtu);
  here.reads_answered = reads_at_once(nic_.attributes().max_reads_answered);
  EndpointAddress out;
  std::memcpy(out.bytes, &here, sizeof here);
  return out;
}

void VerbsEndpoint::modify(QueuePairAttributes& attributes, int mask, const char* state,
                           const std::string& peer) {
  const int answer = nic_.library()->modify_qp(pair_.get(), &attributes, kSetState | mask);
  if (answer == 0) return;
  errno = answer;
  fail(ErrorKind::init, nic_.text(), " cannot reach ", peer, ": its queue pair cannot be made ",
       state, ": ", errno_text());
}

void VerbsEndpoint::connect(const NicAddress& peer_nic, const EndpointAddress& peer) {
  if (connected_) fail(ErrorKind::init, nic_.text(), ", endpoint ", id_, ": already connected");
  NicLocation far_nic;
  EndpointLocation far;
  std::memcpy(&far_nic, peer_nic.bytes, sizeof far_nic);
  std::memcpy(&far, peer.bytes, sizeof far);
  const Port& port = nic_.port();
  const VerbsSettings& settings = nic_.settings();
  if (std::memcmp(far_nic.provider, NicLocation().provider, sizeof far_nic.provider) != 0)
    fail(ErrorKind::init, nic_.text(), " cannot reach a NIC of another provider");
  const std::string its_name(far_nic.name, ::strnlen(far_nic.name, sizeof far_nic.name));
  if (port.ethernet != (far_nic.ethernet != 0))
    fail(ErrorKind::init, nic_.text(), " cannot reach ", its_name,
         ": one is on Ethernet, the other on InfiniBand");

  QueuePairAttributes set{};
  set.state = QueueState::init;
  set.port = port.number;
  set.access = kAccessRemoteWriteFlag | kAccessRemoteReadFlag;
  if (nic_.attributes().atomics != 0) set.access |= kAccessRemoteAtomicFlag;
  modify(set, kSetPkey | kSetPort | kSetAccess, "ready", its_name);

  set = {};
  set.state = QueueState::receive;
  set.mtu = std::min<int>(port.mtu, far.mtu);
  set.peer = far.number;
  set.receive_psn = far.psn;
  set.reads_answered = reads_at_once(nic_.attributes().max_reads_answered);
  set.min_rnr_timer = kMinRnrTimer;
  set.path.port = port.number;
  set.path.service_level = static_cast<uint8_t>(settings.service_level);
  set.path.lid = far_nic.lid;
  // Inside one InfiniBand subnet the LID is enough.
  set.path.has_gid = port.ethernet || std::memcmp(port.gid.raw, far_nic.gid.raw, 8) != 0;
  if (set.path.has_gid != 0) {
    set.path.peer = far_nic.gid;
    set.path.gid_index = static_cast<uint8_t>(port.gid_index);
    set.path.hop_limit = kHops;
    set.path.traffic_class = static_cast<uint8_t>(settings.traffic_class);
  }
  modify(set, kSetPath | kSetMtu | kSetPeer | kSetReceivePsn | kSetReadsAnswered | kSetMinRnrTimer,
         "ready to receive", its_name);

  set = {};
  set.state = QueueState::send;
  set.timeout = static_cast<uint8_t>(settings.timeout);
  set.retries = retries_of(nic_.attributes(), settings.retries);
  set.rnr_retries = static_cast<uint8_t>(settings.rnr_retries);
  set.send_psn = psn_;
  set.reads_asked = std::min(reads_at_once(nic_.attributes().max_reads_asked),
                             std::max<uint8_t>(far.reads_answered, 1));
  modify(set, kSetTimeout | kSetRetries | kSetRnrRetries | kSetSendPsn | kSetReadsAsked,
         "ready to send", its_name);
  connected_ = true;
  // Some vendors' queue pairs take buffers only from here on.
  for (const EarlyReceive& one : early_) hand_receive(one.address, one.lkey, one.bytes);
  early_.clear();
}

void VerbsEndpoint::check(const WorkRequest& request) const {
  const auto refuse = [&](const auto&... why) {
    fail(ErrorKind::argument, nic_.text(), ", endpoint ", id_, ": ", name_of(request.op), " of ",
         bytes_text(request.length), ": ", why...);
  };
  if (!connected_) refuse("not connected");
  if (is_atomic(request.op) && request.length != 8) refuse("atomics are of 8 bytes");
  const uint64_t most = nic_.capabilities().max_message;
  if (request.length > most) refuse("the most is ", bytes_text(most));
  if (!request.inlined) return;
  if (is_atomic(request.op) || request.op == Opcode::read) refuse("nothing of it can be inlined");
  if (request.length > kInlineBytes) refuse("at most ", kInlineBytes, " bytes can be inlined");
}

void VerbsEndpoint::encode(const WorkRequest& request) {
  const std::size_t at = posted_ & (depth_ - 1);
  ScatterGather& piece = pieces_[at];
  piece = {request.local, request.length, request.lkey};
  SendRequest& out = requests_[at];
  out = {};
  out.id = uint64_t{id_} << 32 | (posted_ & kIndexMask);
  out.pieces = &piece;
  out.n_pieces = request.length == 0 ? 0 : 1;
  out.opcode = wire_opcode(request.op);
  out.imm = htonl(request.imm);
  if (request.inlined) {
    char* copy = inlined_.data() + at * kInlineBytes;
    std::memcpy(copy, reinterpret_cast<const void*>(request.local), request.length);
    piece.address = reinterpret_cast<uint64_t>(copy);
    if (inlined_region_.get() == nullptr)
      out.flags |= kSendInline;
    else
      piece.lkey = inlined_region_->lkey;
  }
  // A reliable connection keeps the order of WRITEs, but lets a WRITE overtake the READ or atomic
  // before it.
  if (request.op == Opcode::write && request.order != Order::free && reads_ > done_)
    out.flags |= kSendFence;
  if (is_atomic(request.op) || request.op == Opcode::read) {
    out.flags |= kSendSignaled;
    reads_ = posted_ + 1;
  }
  if (is_atomic(request.op)) {
    const bool adds = request.op == Opcode::fetch_add;
    out.atomic.address = request.remote;
    out.atomic.rkey = static_cast<uint32_t>(request.rkey);  // 32 bits, as made
    out.atomic.compare_add = adds ? request.operand : request.compare;
    out.atomic.swap = adds ? 0 : request.operand;
  } else {
    out.rdma.address = request.remote;
    out.rdma.rkey = static_cast<uint32_t>(request.rkey);
  }
}

bool VerbsEndpoint::post(const WorkRequest& request) {
  check(request);
  if (posted_ - completed_ == depth_) return false;
  encode(request);
  ++posted_;
  return true;
}

void VerbsEndpoint::ring_doorbell() {
  if (rung_ == posted_) return;
  const uint64_t first = rung_;
  rung_ = posted_;
  if (ended_) return settle();
  const uint64_t mask = depth_ - 1;
  for (uint64_t index = first; index + 1 < posted_; ++index)
    requests_[index & mask].next = &requests_[(index + 1) & mask];
  requests_[(posted_ - 1) & mask].flags |= kSendSignaled;
  SendRequest* bad = nullptr;
  const int answer = pair_->context->ops.post_send(pair_.get(), &requests_[first & mask], &bad);
  uint64_t taken = answer == 0 ? posted_ - first : 0;
  if (bad != nullptr && answer != 0)
    taken = (static_cast<uint64_t>(bad - requests_.data()) - first) & mask;
  handed_ += taken;
  queue_.awaited += taken;
  // Those that were taken may have no completion to come.
  if (answer != 0) abandon(Status::local_operation);
}

bool VerbsEndpoint::post_receive(uint64_t address, uint32_t lkey, uint32_t bytes) {
  if (receives_posted_ - receives_completed_ == receive_depth_) return false;
  ++receives_posted_;
  if (connected_)
    hand_receive(address, lkey, bytes);
  else
    early_.push_back({address, lkey, bytes});
  return true;
}

void VerbsEndpoint::hand_receive(uint64_t address, uint32_t lkey, uint32_t bytes) {
  if (ended_) return;  // nothing will come
  ScatterGather piece{address, bytes, lkey};
  ReceiveRequest receive{};
  receive.id = uint64_t{id_} << 32 | kReceiveBit;
  receive.pieces = &piece;
  receive.n_pieces = bytes == 0 ? 0 : 1;
  ReceiveRequest* bad = nullptr;
  if (pair_->context->ops.post_recv(pair_.get(), &receive, &bad) != 0)
    return end(Status::local_operation);
  ++receives_handed_;
  ++queue_.awaited;
}

void VerbsEndpoint::end(Status why) {
  if (ended_) return;
  ended_ = true;
  why_ended_ = why;
  QueuePairAttributes set{};
  set.state = QueueState::error;
  // A device that cannot even do that must at least forget the queue pair.
  if (connected_ && nic_.library()->modify_qp(pair_.get(), &set, kSetState) != 0) {
    pair_ = OwnedPair();
    abandon(why);
  }
  settle();
}

void VerbsEndpoint::abandon(Status why) {
  end(why);
  if (done_ < handed_) {
    if (error_at_ == kNone) {
      error_at_ = done_;
      error_ = why;
    }
    advance(handed_);
  }
  settle();
}

bool VerbsEndpoint::shut() {
  end(Status::flushed);
  return true;
}

// Requests that the device never saw end here, behind those it did.
void VerbsEndpoint::settle() {
  if (!ended_ || done_ != handed_ || done_ == rung_) return;
  if (error_at_ == kNone) {
    error_at_ = done_;
    error_ = why_ended_;
  }
  done_ = handed_ = rung_;
  nic_.list_completions(*this);
}

void VerbsEndpoint::advance(uint64_t done) {
  queue_.awaited -= done - done_;
  done_ = done;
  nic_.list_completions(*this);
}

Status VerbsEndpoint::status_of(WorkStatus status) const {
  switch (status) {
    case WorkStatus::success:
      return Status::ok;
    case WorkStatus::local_length:
      return Status::local_length;
    case WorkStatus::local_protection:
    case WorkStatus::local_access:
      return Status::local_protection;
    case WorkStatus::flushed:
      // Not by us, so a request of the peer failed here: it has left this queue pair.
      return ended_ ? why_ended_ : Status::peer_unreachable;
    case WorkStatus::remote_access:
      return Status::remote_access;
    case WorkStatus::remote_invalid_request:
    case WorkStatus::remote_operation:
    case WorkStatus::remote_abort:
    case WorkStatus::bad_response:
      return Status::remote_operation;
    case WorkStatus::receiver_not_ready:
      return Status::receiver_not_ready;
    case WorkStatus::retries_exceeded:
    case WorkStatus::response_timeout:
      return Status::peer_unreachable;
    default:
      return Status::local_operation;
  }
}

void VerbsEndpoint::take_in(const WorkCompletion& completion) {
  if ((completion.id & kReceiveBit) != 0) return received(completion);
  const uint64_t index = done_ + ((completion.id - done_) & kIndexMask);
  if (index >= handed_) return;  // it was abandoned
  if (completion.status != WorkStatus::success && error_at_ == kNone) {
    // A port that went down fails requests in ways that say nothing of it, but its event is there.
    nic_.hear();
    if (index < done_) return;
    error_at_ = index;
    error_ = ended_ && why_ended_ != Status::flushed ? why_ended_ : status_of(completion.status);
    // The queue pair is in error, but some vendors leave it to us to say so.
    end(Status::flushed);
  }
  advance(index + 1);
  settle();
}

void VerbsEndpoint::received(const WorkCompletion& completion) {
  ++receives_seen_;
  --queue_.awaited;
  if (completion.status == WorkStatus::flushed) return;  // nothing came
  Completion& out = arrived_[receives_arrived_ & (receive_depth_ - 1)];
  out = {};
  out.endpoint = id_;
  out.received = true;
  out.status = status_of(completion.status);
  out.index = receives_arrived_++;
  if (out.status == Status::ok) {
    out.bytes = completion.bytes;
    out.imm = ntohl(completion.imm);
  }
  nic_.list_completions(*this);
}

bool VerbsEndpoint::yield(Completion* out) {
  if (receives_completed_ != receives_arrived_) {
    *out = arrived_[receives_completed_++ & (receive_depth_ - 1)];
    return true;
  }
  if (completed_ == done_) return false;
  *out = {};
  out->endpoint = id_;
  out->index = completed_++;
  if (out->index >= error_at_) out->status = out->index == error_at_ ? error_ : Status::flushed;
  return true;
}

}  // namespace railshmem::nic::verbs
