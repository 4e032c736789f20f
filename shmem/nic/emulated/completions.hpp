// Completion rings: entries in the mlx5 format, valid when their owner bit is that of the lap.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/nic/mlx5.hpp"
#include "shmem/nic/nic.hpp"

namespace railshmem::nic::emulated {

// What a completion says.
struct Answer {
  mlx5::CqeOpcode kind = mlx5::CqeOpcode::request;
  mlx5::Syndrome syndrome = mlx5::Syndrome::ok;
  mlx5::Opcode op = mlx5::Opcode::nop;  // of a request
  uint32_t qpn = 0;
  uint16_t counter = 0;  // of the entry or receive buffer
  uint32_t bytes = 0;
  uint32_t imm = 0;
  bool peer_ended = false;  // why the peer did not answer
};

void publish(mlx5::Cqe* at, const Answer& answer, uint8_t owner);

Status status_of(const mlx5::Cqe& cqe);

// The requests' completions of one queue pair. It has as many entries as the send queue, whose own
// limit (posted and not yet polled) keeps it from overflowing.
class CompletionRing {
 public:
  explicit CompletionRing(uint32_t entries);  // a power of two

  void write(const Answer& answer);
  // The oldest completion not taken yet; null when there is none. Good until the next write().
  const mlx5::Cqe* take();

 private:
  std::vector<mlx5::Cqe> entries_;
  uint32_t log_entries_;
  uint64_t written_ = 0;
  uint64_t taken_ = 0;
};

}  // namespace railshmem::nic::emulated
