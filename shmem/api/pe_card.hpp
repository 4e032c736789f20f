// What each PE tells the others at init, in one allgather: identity, settings, heap and NICs.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "shmem/memory/host_segment.hpp"
#include "shmem/nic/nic.hpp"
#include "shmem/topology/host_identity.hpp"

namespace railshmem {

constexpr int kMaxNics = 16;

// A text of bounded length inside plain data; longer ones are cut.
template <std::size_t N>
struct FixedText {
  char chars[N] = {};
  FixedText& operator=(const std::string& value) {
    const std::size_t count = value.size() < N - 1 ? value.size() : N - 1;
    std::memcpy(chars, value.data(), count);
    std::memset(chars + count, 0, N - count);
    return *this;
  }
  std::string str() const { return chars; }
};

struct NicCard {
  FixedText<32> name;
  FixedText<64> network;
  uint32_t rail = 0;      // known when all cards are there
  uint32_t distance = 0;  // from the PE's GPU or cores
  bool answers = true;    // known when that was tried: a NIC of its rail hears it
  nic::NicAddress address;
  nic::Capabilities capabilities;
};

struct GpuCard {
  int32_t index = -1;  // among those the PE may see; -1: the job runs on CPUs
  FixedText<64> name;
  FixedText<16> architecture;
  FixedText<32> bus_id;
  uint64_t memory_bytes = 0;
};

struct PeCard {
  uint64_t abi = 0;
  int32_t pid = 0;
  uint32_t emulated_node = 0;
  FixedText<2048> settings;
  FixedText<64> host;
  FixedText<64> boot_id;
  FixedText<512> error;    // why this PE cannot go on; empty when it can
  FixedText<256> no_nics;  // why it has none, though it should
  CoreSet cores = {};
  SegmentHandle heap;
  GpuCard gpu;
  FixedText<256> device_reason;  // why this GPU, or none
  int32_t n_nics = 0;
  NicCard nics[kMaxNics];
};

}  // namespace railshmem
