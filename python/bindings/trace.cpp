// What was counted.
#include "python/bindings/bindings.hpp"

namespace railshmem::python {
namespace {

constexpr const char* kOperationNames[] = {"put", "get", "atomic", "signal", "collective"};
static_assert(sizeof kOperationNames / sizeof kOperationNames[0] == trace::kOperations,
              "every operation has a name");

py::dict counts_of(const std::array<trace::Count, trace::kOperations>& counts) {
  py::dict out;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    py::dict count;
    count["operations"] = counts[i].operations;
    count["bytes"] = counts[i].bytes;
    out[kOperationNames[i]] = count;
  }
  return out;
}

py::dict operation_counts(const Runtime& runtime) {
  const trace::Counters::Sums sums = runtime.operation_counts();
  const auto by = [&](device::Transport transport) {
    return counts_of(sums[static_cast<std::size_t>(transport)]);
  };
  py::dict out;
  out["P2P"] = by(device::Transport::p2p);
  out["PROXY"] = by(device::Transport::proxy);
  return out;
}

py::dict proxy_statistics(const Runtime& runtime) {
  const proxy::Statistics seen = runtime.statistics();
  py::dict rails;
  for (const proxy::RailStatistics& of : seen.rails) {
    py::dict rail;
    rail["requests"] = of.requests;
    rail["bytes"] = of.bytes;
    rail["completions"] = of.completions;
    rail["errors"] = of.errors;
    rail["doorbells"] = of.doorbells;
    rails[py::int_(of.rail)] = rail;
  }
  uint64_t commands = 0;
  uint64_t replayed = 0;
  for (const proxy::LaneStatistics& lane : seen.lanes) {
    commands += lane.commands;
    replayed += lane.replayed;
  }
  py::dict proxy;
  proxy["commands"] = commands;
  proxy["replayed"] = replayed;
  proxy["failovers"] = seen.failovers;
  proxy["ring_full"] = seen.ring_full;
  proxy["stalls"] = seen.stalls;
  proxy["credit_waits"] = seen.credit_waits;
  proxy["atomic_retries"] = seen.atomic_retries;
  proxy["polls"] = seen.polls;
  proxy["sleeps"] = seen.sleeps;
  py::dict out;
  out["rails"] = rails;
  out["proxy"] = proxy;
  return out;
}

}  // namespace

void bind_trace(py::module_& m) {
  auto cls =
      py::reinterpret_borrow<py::class_<Runtime, std::shared_ptr<Runtime>>>(m.attr("Runtime"));
  cls.def("operation_counts", operation_counts,
          "Operations and bytes of this PE's host calls: transport -> kind -> counts.");
  cls.def("proxy_statistics", proxy_statistics,
          "What this PE's progress thread has counted, by rail and in all.");
}

}  // namespace railshmem::python
