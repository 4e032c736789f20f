#include "shmem/nic/nic.hpp"

namespace railshmem::nic {

const char* name_of(Opcode op) {
  switch (op) {
    case Opcode::write:
      return "WRITE";
    case Opcode::write_imm:
      return "WRITE_WITH_IMM";
    case Opcode::read:
      return "READ";
    case Opcode::send_imm:
      return "SEND_WITH_IMM";
    case Opcode::fetch_add:
      return "FETCH_AND_ADD";
    case Opcode::compare_swap:
      return "COMPARE_AND_SWAP";
  }
  return "unknown operation";
}

const char* name_of(Status status) {
  switch (status) {
    case Status::ok:
      return "ok";
    case Status::local_length:
      return "local length error";
    case Status::local_operation:
      return "malformed work-queue entry";
    case Status::local_protection:
      return "local protection error (lkey or bounds)";
    case Status::flushed:
      return "flushed: the queue pair is in error";
    case Status::remote_access:
      return "remote access error (rkey, bounds or rights)";
    case Status::remote_operation:
      return "remote operation error";
    case Status::receiver_not_ready:
      return "receiver not ready (no receive buffer)";
    case Status::peer_unreachable:
      return "peer unreachable (retries exceeded)";
    case Status::peer_ended:
      return "peer unreachable: its process has ended";
  }
  return "unknown status";
}

}  // namespace railshmem::nic
