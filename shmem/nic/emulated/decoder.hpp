// What a NIC understands of one work-queue entry. It reads the bytes by their place in the format
// and shares nothing with the functions that write them: a wrong entry must not look right twice.
#pragma once

#include <cstdint>

#include "kernels/nic/mlx5.hpp"
#include "shmem/nic/nic.hpp"

namespace railshmem::nic::emulated {

constexpr uint64_t kMaxMessage = uint64_t{1} << 30;

struct Request {
  mlx5::Opcode op;
  Order order;
  bool signalled;          // its success is reported; a failure always is
  uint32_t length;         // bytes of payload
  const uint8_t* payload;  // inline, inside the entry; null: at `local`
  uint64_t local;
  uint32_t lkey;
  uint32_t rkey;
  uint64_t remote;
  uint32_t imm;
  uint64_t swap_add;
  uint64_t compare;
};

// Checks everything that the entry alone can get wrong; `index` and `qpn` are what it must carry.
mlx5::Syndrome decode(const mlx5::Entry& entry, uint32_t qpn, uint16_t index, Request* out);

}  // namespace railshmem::nic::emulated
