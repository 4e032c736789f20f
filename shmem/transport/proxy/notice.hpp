// What one end of a queue pair in error tells the other, in the immediate of a message without
// bytes.
#pragma once

#include <cstdint>

namespace railshmem::proxy {

struct Notice {
  static constexpr uint32_t kSlots = 128;
  static constexpr uint32_t kExecutedMask = (1u << 24) - 1;

  uint32_t slot = 0;      // of the queue pair, at the receiver
  uint64_t executed = 0;  // of the receiver's requests; modulo 2^24 on the wire
  bool refused = false;   // in error for a reason that would be met on any rail

  static Notice from(uint32_t imm) {
    return {imm >> 24 & (kSlots - 1), imm & kExecutedMask, imm >> 31 != 0};
  }
  uint32_t imm() const {
    return (refused ? 1u << 31 : 0) | slot << 24 |
           (static_cast<uint32_t>(executed) & kExecutedMask);
  }

  // The whole count, given the first request that is not known to be complete: what is in flight is
  // far less than 2^23.
  uint64_t executed_from(uint64_t first) const {
    const uint64_t ahead = (executed - first) & kExecutedMask;
    return ahead <= kExecutedMask / 2 ? first + ahead : first;
  }
};

}  // namespace railshmem::proxy
