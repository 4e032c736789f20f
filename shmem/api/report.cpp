#include "shmem/api/report.hpp"

#include "shmem/nic/nic.hpp"

namespace railshmem {
namespace {

using device::Stop;
using device::Waiting;

constexpr const char* kUnknown = "an unknown condition";

const char* name_of(Waiting waiting) {
  switch (waiting) {
    case Waiting::nothing:
      return "nothing in particular";
    case Waiting::quiet:
      return "quiet: posted commands to complete";
    case Waiting::ring_room:
      return "room in the command ring";
    case Waiting::completion:
      return "the result of a get or fetching atomic";
    case Waiting::result_slot:
      return "a free result slot";
    case Waiting::word:
      return "wait_until: a word to change";
    case Waiting::signal:
      return "signal_wait_until: a signal";
    case Waiting::barrier:
      return "barrier: a peer, or one that it waits for itself, to arrive";
    case Waiting::collective:
      return "collective: what a member of the team gives";
    case Waiting::lock:
      return "shmem_set_lock: the lock's holder to clear it";
    case Waiting::ep_header:
      return "dispatch: the header of a remote PE's rows";
    case Waiting::ep_counts:
      return "dispatch: how many rows a PE sends";
    case Waiting::ep_base:
      return "dispatch: where a PE wants the rows";
    case Waiting::ep_staging:
      return "dispatch: the forwarder's staging to be free";
    case Waiting::ep_rows:
      return "dispatch: rows to arrive";
    case Waiting::ep_results:
      return "combine: a PE's expert results to be ready";
    case Waiting::ep_partials:
      return "combine: partial sums of a remote node";
  }
  return kUnknown;
}

std::string waited_for(const device::Report& report) {
  std::string out = name_of(report.waiting);
  if (report.peer >= 0) out += text("; peer PE ", report.peer);
  if (report.rail >= 0) out += text("; rail ", report.rail);
  if (report.word != device::kNoWord) out += text("; word at heap offset ", report.word);
  if (report.waiting != Waiting::nothing)
    out += text("; expected ", report.expected, ", seen ", report.seen);
  return out;
}

// "WRITE of 8 bytes to PE 1, heap offset 64, on rail 0"
std::string operation(const device::Report& report) {
  std::string out = text(nic::name_of(static_cast<nic::Opcode>(report.operation)), " of ",
                         report.bytes, " bytes to PE ", report.peer);
  if (report.word != device::kNoWord) out += text(", heap offset ", report.word);
  return out + text(", on rail ", report.rail);
}

std::string failure(const device::Report& report) {
  return nic::name_of(static_cast<nic::Status>(report.status));
}

std::string seconds(uint64_t ns) {
  return text(static_cast<double>(ns / 1000000) / 1000, " s");
}

}  // namespace

Error error_of(Stop reason, const device::Report& report, int pe) {
  const std::string who = text("PE ", pe, ": ");
  switch (reason) {
    case Stop::none:
    case Stop::writing:
      return {ErrorKind::timeout,
              text(who, "a wait ended together with another thread's, which reported why")};
    case Stop::timeout:
      return {ErrorKind::timeout,
              text(who, "gave up after ", seconds(report.waited_ns), " waiting for ",
                   waited_for(report), " (RAILSHMEM_TIMEOUT_S)")};
    case Stop::interrupted:
      return {ErrorKind::interrupted,
              text(who, "interrupted while waiting for ", waited_for(report))};
    case Stop::bad_expert:
      return {ErrorKind::argument,
              text(who, "dispatch: token ", report.word, ", column ", report.expected, ": expert ",
                   static_cast<int64_t>(report.seen), " does not exist; ids go from 0 to ",
                   report.bytes - 1, ", and -1 means not routed")};
    case Stop::no_room:
      return {ErrorKind::argument,
              text(who, "dispatch: PE ", report.peer, " would receive ", report.seen,
                   " rows, more than max_received=", report.expected)};
    case Stop::ring_dead:
      return {
          ErrorKind::aborted,
          text(who, "the command ring lost a slot when an earlier post gave up; restart the job")};
    case Stop::network:
      return {ErrorKind::network, text(who, operation(report), " failed: ", failure(report))};
    case Stop::no_rail:
      return {ErrorKind::network, text(who, operation(report), " failed: ", failure(report),
                                       "; no other rail joins PE ", pe, " and PE ", report.peer)};
    case Stop::rail_lost:
      return {ErrorKind::network,
              text(who, operation(report), " failed: ", failure(report),
                   "; it may or may not have arrived, and is not repeated over another rail")};
    case Stop::atomic_lost:
      return {
          ErrorKind::network,
          text(who, operation(report), " failed: ", failure(report),
               "; the atomic operation may or may not have been executed, and is not repeated")};
    case Stop::atomics_down:
      return {ErrorKind::network, text(who, operation(report), " was not sent: rail ", report.rail,
                                       ", through which all atomics on the heap of PE ",
                                       report.peer, " go, failed before: ", failure(report))};
    case Stop::peer_lost:
      if (report.peer < 0)
        return {ErrorKind::peer_lost,
                text(who, "the process that made the job's id has ended; restart the job")};
      return {ErrorKind::peer_lost,
              text(who, "the process of PE ", report.peer, " has ended; restart the job")};
    case Stop::aborted:
      return {ErrorKind::aborted, report.peer < 0
                                      ? text(who, "the job is being aborted")
                                      : text(who, "the job is being aborted by PE ", report.peer)};
  }
  return {ErrorKind::aborted,
          text(who, "stopped for an unknown reason ", static_cast<uint32_t>(reason))};
}

std::vector<std::string> waiting_names() {
  std::vector<std::string> names;
  for (uint32_t number = 0;; ++number) {
    const char* name = name_of(static_cast<Waiting>(number));
    if (name == kUnknown) return names;
    names.push_back(name);
  }
}

}  // namespace railshmem
