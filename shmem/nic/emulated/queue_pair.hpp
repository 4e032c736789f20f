// What an endpoint and its engine share, and only in the formats of the hardware: the endpoint (or
// a kernel) writes entries and rings, the engine reads them and writes completions.
#pragma once

#include <vector>

#include "shmem/nic/emulated/completions.hpp"
#include "shmem/nic/emulated/layout.hpp"

namespace railshmem::nic::emulated {

struct QueuePair {
  QueuePair(uint32_t number, QueuePairSlot& shared, uint32_t depth)
      : qpn(number), slot(shared), entries(depth), completions(depth) {}

  uint64_t mask() const { return entries.size() - 1; }

  uint32_t qpn;
  QueuePairSlot& slot;
  std::vector<mlx5::Entry> entries;
  CompletionRing completions;
};

}  // namespace railshmem::nic::emulated
