#include "shmem/nic/emulated/endpoint.hpp"

#include <random>

#include "shmem/base/error.hpp"
#include "shmem/nic/emulated/emulated_nic.hpp"

namespace railshmem::nic::emulated {
namespace {

uint64_t random_token() {
  std::random_device source;
  const uint64_t token = uint64_t{source()} << 32 | source();
  return token != 0 ? token : 1;  // 0 means "nobody"
}

mlx5::Opcode hardware_opcode(Opcode op) {
  switch (op) {
    case Opcode::write:
      return mlx5::Opcode::write;
    case Opcode::write_imm:
      return mlx5::Opcode::write_imm;
    case Opcode::read:
      return mlx5::Opcode::read;
    case Opcode::send_imm:
      return mlx5::Opcode::send_imm;
    case Opcode::fetch_add:
      return mlx5::Opcode::fetch_add;
    case Opcode::compare_swap:
      return mlx5::Opcode::compare_swap;
  }
  return mlx5::Opcode::nop;
}

uint8_t fence_flag(Order order) {
  switch (order) {
    case Order::free:
      return 0;
    case Order::after:
      return mlx5::kSmallFence;
    case Order::fence:
      return mlx5::kFence;
  }
  return mlx5::kFence;
}

}  // namespace

EmulatedEndpoint::EmulatedEndpoint(EmulatedNic& nic, uint32_t qpn, uint64_t* doorbell,
                                   uint32_t depth, uint32_t receive_depth)
    : nic_(nic),
      pair_(qpn, nic.shared().queue_pairs[slot_of(qpn)], depth),
      engine_(pair_, nic.shared(), nic.settings(), nic.faults(), nic.moves()),
      doorbell_(doorbell),
      receive_depth_(receive_depth),
      token_(random_token()) {
  // No peer looks at the slot before connect() stores the link.
  pair_.slot.receive_depth = receive_depth;
  arch::store_relaxed(&pair_.slot.executed, uint64_t{0});
  arch::store_relaxed(&pair_.slot.doorbell.receive, 0u);
  arch::store_relaxed(&pair_.slot.doorbell.send, 0u);
}

EmulatedEndpoint::~EmulatedEndpoint() {
  // Ordered before the look at the peer's visits: nobody comes in from here on.
  arch::store_ordered(&pair_.slot.link, uint64_t{0});
  if (engine_.connection()) engine_.connection()->wait_for_visitor();
  nic_.forget(*this);
}

EndpointAddress EmulatedEndpoint::address() const {
  return pack<EndpointAddress>(EndpointLocation{pair_.qpn, token_});
}

void EmulatedEndpoint::connect(const NicAddress& peer_nic, const EndpointAddress& peer) {
  if (engine_.connection())
    fail(ErrorKind::init, nic_.location().text(), ", queue pair ", id(), ": already connected");
  const auto far = unpack<EndpointLocation>(peer);
  engine_.connect(Connection(nic_.reach(peer_nic), far.qpn, pair_.slot, token_));
  // Pairs with Visit: the peer is let in when all of the slot is set.
  arch::store_release(&pair_.slot.link, far.token);
}

void EmulatedEndpoint::check(const WorkRequest& request) const {
  const auto refuse = [&](const auto&... why) {
    fail(ErrorKind::argument, nic_.location().text(), ", queue pair ", id(), ": ",
         name_of(request.op), " of ", bytes_text(request.length), ": ", why...);
  };
  if (!engine_.connection()) refuse("not connected");
  const bool atomic = request.op == Opcode::fetch_add || request.op == Opcode::compare_swap;
  if (atomic && request.length != 8) refuse("atomics are of 8 bytes");
  if (request.length > kMaxMessage) refuse("the most is ", bytes_text(kMaxMessage));
  if (!request.inlined) return;
  if (atomic || request.op == Opcode::read) refuse("nothing of it can be inlined");
  const uint32_t limit =
      request.op == Opcode::send_imm ? mlx5::kMaxInlineSend : mlx5::kMaxInlineWrite;
  if (request.length > limit) refuse("at most ", limit, " bytes can be inlined");
}

void EmulatedEndpoint::encode(const WorkRequest& request) {
  const auto flags = static_cast<uint8_t>(mlx5::kAskCompletion | fence_flag(request.order));
  const mlx5::Place place{&pair_.entries[posted_ & pair_.mask()], pair_.qpn,
                          static_cast<uint16_t>(posted_), flags};
  const mlx5::Local local{request.local, request.lkey, request.length};
  const mlx5::Remote remote{request.remote,
                            static_cast<uint32_t>(request.rkey)};  // 32 bits, as made
  const void* source = reinterpret_cast<const void*>(request.local);
  const mlx5::Opcode op = hardware_opcode(request.op);
  const uint32_t imm = request.op == Opcode::write_imm ? request.imm : 0;
  switch (request.op) {
    case Opcode::write:
    case Opcode::write_imm:
      if (request.inlined)
        return mlx5::encode_inline_write(place, op, remote, source, request.length, imm);
      return mlx5::encode_transfer(place, op, remote, local, imm);
    case Opcode::read:
      return mlx5::encode_transfer(place, op, remote, local);
    case Opcode::send_imm:
      if (request.inlined)
        return mlx5::encode_inline_send(place, source, request.length, request.imm);
      return mlx5::encode_send(place, local, request.imm);
    case Opcode::fetch_add:
      return mlx5::encode_atomic(place, op, remote, local, request.operand, 0);
    case Opcode::compare_swap:
      return mlx5::encode_atomic(place, op, remote, local, request.operand, request.compare);
  }
}

bool EmulatedEndpoint::post(const WorkRequest& request) {
  check(request);
  if (posted_ - completed_ == pair_.entries.size()) return false;
  encode(request);
  ++posted_;
  return true;
}

void EmulatedEndpoint::ring_doorbell() {
  if (rung_ == posted_) return;
  rung_ = posted_;
  mlx5::ring(&pair_.slot.doorbell, doorbell_, &pair_.entries[(posted_ - 1) & pair_.mask()],
             posted_);
}

bool EmulatedEndpoint::post_receive(uint64_t address, uint32_t lkey, uint32_t bytes) {
  Region region;
  const bool known = read_region(nic_.shared(), lkey, &region);
  if (bytes != 0 && (!known || region.segment.bytes == 0 || !region.holds(address, bytes)))
    fail(ErrorKind::argument, nic_.location().text(), ", queue pair ", id(),
         ": a receive buffer of ", bytes_text(bytes), " at ", address,
         " is not inside a registered region that lies in a shared segment");
  if (receives_posted_ - receives_completed_ == receive_depth_) return false;
  mlx5::DataSegment* queue = nic_.shared().receive_queues[slot_of(pair_.qpn)];
  queue[receives_posted_ & (receive_depth_ - 1)] = {mlx5::be32(bytes), mlx5::be32(lkey),
                                                    mlx5::be64(address)};
  ++receives_posted_;
  // Pairs with Connection::next_receive.
  arch::store_release(&pair_.slot.doorbell.receive,
                      mlx5::be32(static_cast<uint16_t>(receives_posted_)));
  return true;
}

bool EmulatedEndpoint::shut() {
  const bool alone = engine_.shut();
  nic_.list_completions(*this);
  return alone;
}

bool EmulatedEndpoint::poll(Completion* out) {
  const mlx5::Cqe* cqe = pair_.completions.take();
  if (cqe == nullptr) return false;
  *out = Completion{};
  out->endpoint = id();
  out->status = status_of(*cqe);
  // The counter has 16 bits; the distance from what was completed gives the rest.
  const auto ahead =
      static_cast<uint16_t>(mlx5::be16(cqe->wqe_counter) - static_cast<uint16_t>(completed_));
  out->index = completed_ + ahead;
  completed_ = out->index + 1;
  return true;
}

void EmulatedEndpoint::receive(const mlx5::Cqe& cqe, Completion* out) {
  *out = Completion{};
  out->endpoint = id();
  out->received = true;
  out->status = status_of(cqe);
  out->index = receives_completed_++;
  out->bytes = mlx5::be32(cqe.byte_count);
  out->imm = mlx5::be32(cqe.imm);
}

}  // namespace railshmem::nic::emulated
