#include "shmem/trace/clock.hpp"

#include <algorithm>
#include <array>

#include "kernels/arch/arch.hpp"

namespace railshmem::trace {
namespace {

constexpr std::size_t kRounds = 8;

}  // namespace

ClockOffset offset_between(Span<const Meeting> mine, Span<const Meeting> theirs) {
  int64_t low = INT64_MIN;
  int64_t high = INT64_MAX;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    low = std::max(low, static_cast<int64_t>(mine[i].entered_ns - theirs[i].left_ns));
    high = std::min(high, static_cast<int64_t>(mine[i].left_ns - theirs[i].entered_ns));
  }
  // Clocks that drift during the rounds can cross the bounds by a few nanoseconds.
  const int64_t width = std::max<int64_t>(high - low, 0);
  return {low + width / 2, static_cast<uint64_t>(width - width / 2)};
}

ClockOffset compare_clocks(Bootstrap& bootstrap, bool same_host_as_pe_0) {
  std::array<Meeting, kRounds> mine;
  for (Meeting& meeting : mine) {
    meeting.entered_ns = arch::clock_ns();
    bootstrap.barrier();
    meeting.left_ns = arch::clock_ns();
  }
  const auto all = allgather(bootstrap, mine);
  if (same_host_as_pe_0) return {};
  return offset_between({mine.data(), kRounds}, {all.front().data(), kRounds});
}

}  // namespace railshmem::trace
