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

}  // namespace

void bind_trace(py::module_& m) {
  auto cls =
      py::reinterpret_borrow<py::class_<Runtime, std::shared_ptr<Runtime>>>(m.attr("Runtime"));
  cls.def("operation_counts", operation_counts,
          "Operations and bytes of this PE's host calls: transport -> kind -> counts.");
}

}  // namespace railshmem::python
