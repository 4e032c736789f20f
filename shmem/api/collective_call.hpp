// What the collectives share: checks, meetings and moves between members of one call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "shmem/api/runtime_parts.hpp"

namespace railshmem {

class CollectiveCall {
 public:
  CollectiveCall(Runtime& runtime, Team& team, const char* name);
  // A call that threw half way leaves the team unusable.
  ~CollectiveCall();
  CollectiveCall(const CollectiveCall&) = delete;
  CollectiveCall& operator=(const CollectiveCall&) = delete;

  // size * count; throws Error(argument) where that is beyond memory.
  std::size_t total(std::size_t size, std::size_t count) const;
  // `bytes` at `address` are in the heap.
  void require_symmetric(const char* what, const void* address, std::size_t bytes) const;
  void require_apart(const void* dest, std::size_t dest_bytes, const void* source,
                     std::size_t source_bytes) const;

  // The meeting that every collective begins with; `numbers` must be equal on all members.
  template <class... Numbers>
  void begin(const char* arguments, Numbers... numbers) {
    meetings.agree(team, hash(numbers...), [&] { return describe(arguments, numbers...); });
    start_moving();
  }
  void start_moving() {
    ++team.transfers;
    moving_ = true;
  }
  // The step that a collective of little data ends with: every member gives `bytes` bytes.
  void exchange(const void* data, std::size_t bytes, const Meetings::Take& take);
  // The one that others end with: all that this PE sent has arrived, and so has what
  // it gets.
  void end();
  // Members' moves before this are seen after it.
  void meet();

  template <class... Numbers>
  uint64_t hash(Numbers... numbers) const {
    return hash_of_numbers(name_hash_, numbers...);
  }
  template <class... Numbers>
  std::string describe(const char* arguments, Numbers... numbers) const {
    std::string out = text(name_, " (", arguments, ":");
    ((out += text(" ", numbers)), ...);
    return out + ")";
  }
  uint64_t offset(const void* symmetric) const {
    return device::offset_of(&parts.context, symmetric);
  }

  bool is_local(int member) const { return team.node_of(member) == team.device().node; }
  // A local member's copy of a symmetric object.
  template <class T>
  T* in(int member, T* symmetric) const {
    return device::in_peer(&parts.context, symmetric, world(member));
  }
  int world(int member) const { return team.pes()[static_cast<std::size_t>(member)]; }
  // The member that stands for `member` in a node: the same place, round and round.
  int counterpart(int member, int node) const;

  // Between any memories of this PE and of local members.
  void copy(void* to, const void* from, std::size_t bytes) const {
    parts.memory.copy(to, from, bytes);
  }
  // Starts a move to the same or another symmetric place of `member`, and tells it when it is done.
  void send(int member, void* dest, const void* source, std::size_t bytes, bool tell);
  void tell(int member);
  // Waits until `from` has told `holder`, a local member, that its move of this call has arrived.
  void wait_told(int holder, int from);

  Runtime::Parts& parts;
  Meetings& meetings;
  Team& team;

 private:
  device::Signal told_signal() const;

  const char* name_;
  const device::TraceSpan span_;
  uint64_t name_hash_;
  bool moving_ = false;
};

}  // namespace railshmem
