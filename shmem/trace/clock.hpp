// How far apart the clocks of two hosts are, from moments that bracket the same barriers.
#pragma once

#include <cstdint>

#include "shmem/base/span.hpp"
#include "shmem/bootstrap/bootstrap.hpp"

namespace railshmem::trace {

// A PE's clock before it entered a barrier and after it left.
struct Meeting {
  uint64_t entered_ns = 0;
  uint64_t left_ns = 0;
};

struct ClockOffset {
  int64_t ahead_ns = 0;   // this clock minus the other
  uint64_t error_ns = 0;  // the true value is no further away than this
};

// Nobody leaves a barrier before everybody has entered it. So for each of the same barriers:
// theirs.entered <= mine.left - ahead and mine.entered - ahead <= theirs.left.
ClockOffset offset_between(Span<const Meeting> mine, Span<const Meeting> theirs);

// Collective: this PE's clock against PE 0's. Processes of one host share their clock.
ClockOffset compare_clocks(Bootstrap& bootstrap, bool same_host_as_pe_0);

}  // namespace railshmem::trace
