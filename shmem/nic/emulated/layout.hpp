// The shared segment of one PE: what engines of other PEs read and write of its NICs. It starts as
// zeros and is never constructed, so that only the pages in use exist; sizes are for the worst
// case. Words that several engines touch are accessed with arch:: atomics or under the NIC's mutex.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <type_traits>

#include "kernels/nic/mlx5.hpp"
#include "shmem/memory/segment.hpp"

namespace railshmem::nic::emulated {

constexpr uint32_t kMaxRegions = 1u << 14;
constexpr uint32_t kMaxQueuePairs = 1u << 13;
constexpr uint32_t kMaxReceiveDepth = 1u << 12;
constexpr uint32_t kLogReceiveCq = 18;
constexpr uint32_t kReceiveCqEntries = 1u << kLogReceiveCq;

// A registered region. `key` is 0 while the other fields may change.
struct RegionSlot {
  uint32_t key;
  uint32_t access;
  uint64_t base;
  uint64_t bytes;
  uint64_t segment[sizeof(SegmentHandle) / 8];
};
static_assert(sizeof(RegionSlot) == 64 && sizeof(SegmentHandle) % 8 == 0);

struct QueuePairSlot {
  // Token of the endpoint whose requests are accepted; 0: of none (unconnected, failed, closed).
  alignas(64) uint64_t link;
  uint64_t executed;  // of the peer's requests, written by its engine: Endpoint::executed
  uint32_t receive_depth;
  alignas(64) mlx5::DoorbellRecord doorbell;
  // Odd while this queue pair's engine is inside its peer's memory; see Connection::Visit.
  alignas(64) uint64_t visits;
};

struct SharedNic {
  alignas(64) uint32_t alive;
  uint32_t regions_used;  // slots of `regions` that were ever filled
  // Serialises atomics on this NIC's memory and writers of its receive completion queue.
  alignas(64) pthread_mutex_t mutex;
  uint64_t arrived;  // completions ever written to receive_cq; see open_nic for its first value
  alignas(64) RegionSlot regions[kMaxRegions];
  QueuePairSlot queue_pairs[kMaxQueuePairs];
  mlx5::Cqe receive_cq[kReceiveCqEntries];
  mlx5::DataSegment receive_queues[kMaxQueuePairs][kMaxReceiveDepth];
};

struct SharedHeader {
  alignas(64) uint32_t sleep_word;  // Provider::sleep_word
  // Held by the thread that drives the NICs. Robust: when its process ends, however that happens,
  // the kernel marks it, and peers see the mark in the word itself at the cost of a load.
  alignas(64) pthread_mutex_t driver;
};
static_assert(std::is_trivial_v<SharedNic> && std::is_trivial_v<SharedHeader>);

constexpr std::size_t shared_bytes(uint32_t nics) {
  return sizeof(SharedHeader) + nics * sizeof(SharedNic);
}
inline SharedHeader& header_in(const Segment& segment) {
  return *reinterpret_cast<SharedHeader*>(segment.data());
}
inline SharedNic& nic_in(const Segment& segment, uint32_t index) {
  return *reinterpret_cast<SharedNic*>(segment.data() + shared_bytes(index));
}

// A queue pair's number carries its slot and how often the slot was used, so that what arrives late
// for its predecessor is not taken for its own.
inline uint32_t slot_of(uint32_t qpn) {
  return qpn % kMaxQueuePairs;
}

// Makes the mutexes and starts the receive queues; before any peer knows of the segment.
void open_header(SharedHeader& header);
void open_nic(SharedNic& nic);

bool driver_died(const SharedHeader& header);

}  // namespace railshmem::nic::emulated
