// All teams of a PE: the three that exist from the start, and those that are split off.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "shmem/api/team.hpp"

namespace railshmem {

class Meetings;

class Teams {
 public:
  // The whole job, the PEs whose memory is mapped here, those of this host.
  enum Predefined : int { kWorld, kShared, kNode, kFirstFree };

  Teams(uint64_t area_offset, uint32_t n_slots) : offset_(area_offset), n_slots_(n_slots) {}

  static uint64_t area_bytes(uint32_t n_slots, int n_pes) {
    return n_slots * TeamArea::bytes(n_pes);
  }

  // Makes the predefined teams.
  void start(int me, const Topology& topology);

  const std::shared_ptr<Team>& world() const { return slots_[kWorld]; }
  const std::shared_ptr<Team>& predefined(Predefined which) const {
    return slots_[static_cast<std::size_t>(which)];
  }

  // Collective over `parent`, same arguments on every member: the members start, start + stride,
  // ...
  // (`size` of them) of it. Null where this PE is none of them. Throws Error(argument) on every
  // member where arguments are wrong or differ, or no slot is free on all of them.
  std::shared_ptr<Team> split_strided(Meetings& meetings, Team& parent, int start, int stride,
                                      int size, TeamConfig config);
  struct Axes {
    std::shared_ptr<Team> x;
    std::shared_ptr<Team> y;
  };
  // Collective over `parent`: rows of `xrange` members and the columns across them; the last row,
  // and with it the last columns, may be short.
  Axes split_2d(Meetings& meetings, Team& parent, int xrange, TeamConfig x, TeamConfig y);

  // Collective over `team`.
  void destroy(Meetings& meetings, Team& team);

 private:
  struct Slot {
    int index;
    uint64_t start;  // of its sequence numbers
  };
  // Collective over `parent`: a slot that is free on all its members.
  Slot agree_on_slot(Meetings& meetings, Team& parent, const char* call);
  std::shared_ptr<Team> make(const Slot& slot, std::vector<int> pes, TeamConfig config);

  uint64_t offset_;
  uint32_t n_slots_;
  int me_ = 0;
  const Topology* topology_ = nullptr;
  std::mutex mutex_;                          // teams of disjoint parents may be made at once
  std::vector<std::shared_ptr<Team>> slots_;  // null: free
  uint64_t highest_ = 0;                      // number that any slot's words may hold
};

}  // namespace railshmem
