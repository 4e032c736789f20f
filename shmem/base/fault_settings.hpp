// Faults that the emulated NICs produce on purpose: RAILSHMEM_FAULTS, see the table in
// settings.cpp.
#pragma once

#include <cstdint>
#include <string>

namespace railshmem {

struct FaultSettings {
  enum class Operation : uint8_t { any, write, read, atomic, send };
  enum class Answer : uint8_t { access, operation, retry };

  int pe = -1;  // whose NICs have the faults; -1: everybody's

  double lose = 0;       // share of completions that never come
  uint64_t lose_at = 0;  // and the n-th of each NIC, from 1; 0: none

  double delay = 0;       // share of requests that are held up
  uint64_t delay_ns = 0;  // for so long, before they are placed or before they are answered

  bool reorder = false;  // completions of different queue pairs come in any order

  uint64_t fail_at = 0;  // the n-th request of `fail_operation` of each NIC, from 1; 0: none
  Operation fail_operation = Operation::any;
  Answer fail_answer = Answer::operation;

  int rail = -1;              // goes down, for good; -1: none
  uint64_t rail_after = 0;    // with the n-th request of the NIC; 0: by time
  uint64_t rail_time_ns = 0;  // after the NIC was made

  bool any() const {
    return lose > 0 || lose_at > 0 || delay > 0 || reorder || fail_at > 0 || rail >= 0;
  }
};

// Throws Error(init) naming the part that is not understood and what is known.
FaultSettings parse_faults(const std::string& value);

}  // namespace railshmem
