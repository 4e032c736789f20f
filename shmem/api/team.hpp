// A set of PEs that meet and move data together (OpenSHMEM 1.5, section 9.4). Its words and buffers
// in the heap are one of a fixed number of slots, so that making a team takes no memory from users
// and works the same on every PE.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/shmem/context.hpp"
#include "shmem/topology/topology.hpp"

namespace railshmem {

struct TeamConfig {
  int num_contexts = 0;  // that the caller means to make of the team; a hint
};

// Teams of up to this many PEs exchange small amounts of data all to all, in one step.
constexpr int kExchangePes = 16;
constexpr std::size_t kExchangeBytes = 1024;

// What one member tells another in such a step.
struct ExchangeSlot {
  uint64_t sequence;  // set after the rest
  uint64_t bytes;
  char payload[kExchangeBytes];
};

// Where the words and buffers of a team lie in the heap: offsets, the same on every PE.
struct TeamArea {
  uint64_t sync = 0;      // device::SyncArea
  uint64_t arrived = 0;   // [members] of uint64: number of the last transfer that this member did
  uint64_t exchange = 0;  // [2][kExchangePes] of ExchangeSlot, by parity and sender
  uint64_t work = 0;      // kWorkBytes for what travels between nodes
  static constexpr uint64_t kWorkBytes = 256 * 1024;

  static TeamArea at(uint64_t offset, int n_pes);
  static uint64_t bytes(int n_pes);
};

class Team {
 public:
  // `pes` in the order of the team. `start`: greater or equal to every sequence number that the
  // slot's words hold anywhere.
  Team(int slot, const TeamArea& area, std::vector<int> pes, int me, const Topology& topology,
       uint64_t start, TeamConfig config);
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  ~Team() = default;

  int my_pe() const { return device_.me; }
  int n_pes() const { return device_.n_pes; }
  // The number in the job of this team's PE; throws Error(argument) where there is no such PE.
  int world_pe(const char* call, int pe) const;
  // The number in this team of a PE of the job, -1 when it is no member.
  int index_of(int world_pe) const;
  const std::vector<int>& pes() const { return pes_; }
  const TeamConfig& config() const { return config_; }
  int slot() const { return slot_; }
  const TeamArea& area() const { return area_; }
  const device::Team& device() const { return device_; }
  // The members of each node, as numbers of this team, by node; the first of each is its leader.
  const std::vector<std::vector<int>>& nodes() const { return nodes_; }
  int node_of(int pe) const { return node_of_[static_cast<std::size_t>(pe)]; }
  int local_of(int pe) const { return local_of_[static_cast<std::size_t>(pe)]; }

  // The greatest number that any word of this team may hold.
  uint64_t last_number() const;

  uint64_t meetings;   // completed
  uint64_t exchanges;  // begun
  uint64_t transfers;  // begun
  bool destroyed = false;
  // A collective that moves data ended half way: the members no longer agree on what was moved.
  bool broken = false;

 private:
  int slot_;
  TeamArea area_;
  TeamConfig config_;
  std::vector<int> pes_;
  std::vector<std::vector<int>> nodes_;
  std::vector<int> node_of_;
  std::vector<int> local_of_;
  std::vector<int> leaders_;
  std::vector<int> locals_;
  device::Team device_;
};

}  // namespace railshmem
