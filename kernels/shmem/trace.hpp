// What device code and the layers above it tell a timeline: a function and its state in plain data,
// so that this side knows neither files nor threads. Null means that nobody records; the cost is
// then one branch.
#pragma once

#include "kernels/arch/arch.hpp"

namespace railshmem::device {

// What happened. Names, and what an event's numbers mean, are in shmem/trace/moments.cpp.
enum class Moment : uint32_t {
  none,  // an event that was never written
  put,
  get,
  put_signal,
  atomic,
  fence,
  quiet,
  meeting,
  collective,
  malloc,
  free,
  ring_posted,
  ring_command,
  nic_posted,
  nic_completed,
  ep_dispatch,
  ep_combine,
  ep_headers,
  ep_grants,
  ep_place,
  ep_arrivals,
  ep_sums,
  waiting,  // the first of a range: waiting + n is a wait for device::Waiting(n)
};

// One event, as it lies in the file.
struct TraceEvent {
  uint64_t at_ns;        // of arch::clock_ns, when it began
  uint64_t duration_ns;  // 0 where it has none
  uint64_t bytes;        // or another quantity, see the moment's name
  uint64_t id;           // joins the events of one command or of one request
  int32_t peer;          // -1: none in particular
  int32_t rail;          // -1: no NIC involved
  uint32_t where;        // the context, lane, or queue pair
  uint32_t moment;       // Moment; the last to be written
};
static_assert(sizeof(TraceEvent) == 48, "the file's readers know this layout");

struct Trace {
  void (*record)(void* recorder, const TraceEvent& event);
  void* recorder;
};

// Only the host writes timelines: elsewhere the code that would is not there.
RSH_DEVICE bool recording(const Trace* trace) {
  return arch::kOnHost && trace != nullptr;
}

RSH_DEVICE constexpr uint32_t number_of(Moment moment) {
  return static_cast<uint32_t>(moment);
}

RSH_DEVICE void record_instant(const Trace* trace, Moment moment, uint64_t bytes, int peer,
                               int rail = -1, uint32_t where = 0, uint64_t id = 0) {
  if (recording(trace))
    trace->record(trace->recorder,
                  {arch::clock_ns(), 0, bytes, id, peer, rail, where, number_of(moment)});
}

// From here to the end of the enclosing block, also when an exception leaves it.
class TraceSpan {
 public:
  RSH_DEVICE explicit TraceSpan(const Trace* trace, Moment moment, uint64_t bytes = 0,
                                int peer = -1, int rail = -1, uint32_t where = 0, uint64_t id = 0)
      : trace_(trace) {
    if (recording(trace_))
      event_ = {arch::clock_ns(), 0, bytes, id, peer, rail, where, number_of(moment)};
  }
  RSH_DEVICE ~TraceSpan() {
    if (!recording(trace_)) return;
    event_.duration_ns = arch::clock_ns() - event_.at_ns;
    trace_->record(trace_->recorder, event_);
  }
  // For what is known only on the way.
  RSH_DEVICE void set_id(uint64_t id) { event_.id = id; }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  const Trace* trace_;
  TraceEvent event_;  // set and read only where a timeline is written
};

}  // namespace railshmem::device
