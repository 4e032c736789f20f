#include "shmem/nic/emulated/completions.hpp"

namespace railshmem::nic::emulated {

using mlx5::CqeOpcode;
using mlx5::Syndrome;
namespace {

// Hardware gives details of its own in this field.
constexpr uint8_t kPeerEnded = 1;

}  // namespace

void publish(mlx5::Cqe* at, const Answer& answer, uint8_t owner) {
  at->imm = mlx5::be32(answer.imm);
  at->byte_count = mlx5::be32(answer.bytes);
  at->vendor_syndrome = answer.peer_ended ? kPeerEnded : 0;
  at->syndrome = static_cast<uint8_t>(answer.syndrome);
  at->qpn = mlx5::be32(static_cast<uint32_t>(answer.op) << 24 | answer.qpn);
  at->wqe_counter = mlx5::be16(answer.counter);
  const auto op_own = static_cast<uint8_t>(static_cast<uint8_t>(answer.kind) << 4 | owner);
  // Last, because it makes the entry valid. Ordered before the look at the sleep word that follows
  // where a peer waits; pairs with mlx5::is_ready.
  arch::store_ordered(&at->op_own, op_own);
}

Status status_of(const mlx5::Cqe& cqe) {
  const CqeOpcode kind = mlx5::opcode_of(cqe);
  if (kind != CqeOpcode::request_error && kind != CqeOpcode::receive_error) return Status::ok;
  switch (static_cast<Syndrome>(cqe.syndrome)) {
    case Syndrome::local_length:
      return Status::local_length;
    case Syndrome::local_protection:
      return Status::local_protection;
    case Syndrome::flushed:
      return Status::flushed;
    case Syndrome::remote_access:
      return Status::remote_access;
    case Syndrome::remote_invalid_request:
    case Syndrome::remote_operation:
      return Status::remote_operation;
    case Syndrome::transport_retry:
      return cqe.vendor_syndrome == kPeerEnded ? Status::peer_ended : Status::peer_unreachable;
    case Syndrome::receiver_not_ready:
      return Status::receiver_not_ready;
    case Syndrome::ok:
    case Syndrome::local_operation:
      break;
  }
  return Status::local_operation;
}

CompletionRing::CompletionRing(uint32_t entries)
    : entries_(entries), log_entries_(static_cast<uint32_t>(__builtin_ctz(entries))) {
  for (mlx5::Cqe& entry : entries_)
    entry.op_own = static_cast<uint8_t>(CqeOpcode::invalid) << 4 | 1;
}

void CompletionRing::write(const Answer& answer) {
  publish(&entries_[written_ & (entries_.size() - 1)], answer,
          mlx5::owner_bit(written_, log_entries_));
  ++written_;
}

const mlx5::Cqe* CompletionRing::take() {
  const mlx5::Cqe* next = &entries_[taken_ & (entries_.size() - 1)];
  if (!mlx5::is_ready(next, taken_, log_entries_)) return nullptr;
  ++taken_;
  return next;
}

}  // namespace railshmem::nic::emulated
