// What `railshmem bench` needs of C++: loops without Python's own cost, the physical limits beside
// them, and the reduction of the exchange through MPI.
#include "python/bindings/bench.hpp"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <optional>

#include <string>
#include <vector>

#include "kernels/ep/rows.hpp"

namespace railshmem::python {
namespace {

// out[t] = sum over i of rows[places[i, t]], times weights[i, t] where those are given, in float32;
// place -1 holds nothing.
template <class Number>
void sum_rows_of(const py::array_t<uint8_t>& rows, const py::array_t<int32_t>& places,
                 py::array_t<uint8_t>& out, const std::optional<py::array_t<float>>& weights) {
  const auto row_bytes = out.shape(1);
  const auto hidden = static_cast<std::size_t>(row_bytes) / sizeof(Number);
  std::vector<float> sum(hidden);
  for (py::ssize_t token = 0; token < out.shape(0); ++token) {
    std::fill(sum.begin(), sum.end(), 0.0f);
    for (py::ssize_t part = 0; part < places.shape(0); ++part) {
      const int32_t place = places.at(part, token);
      if (place < 0) continue;
      const auto* row = reinterpret_cast<const Number*>(rows.data(place, 0));
      const float weight = weights ? weights->at(part, token) : 1.0f;
      for (std::size_t i = 0; i < hidden; ++i) sum[i] += weight * device::ep::widen(row[i]);
    }
    auto* to = reinterpret_cast<Number*>(out.mutable_data(token, 0));
    for (std::size_t i = 0; i < hidden; ++i) to[i] = device::ep::narrow<Number>(sum[i]);
  }
}

void sum_rows(const py::array_t<uint8_t>& rows, const py::array_t<int32_t>& places,
              py::array_t<uint8_t>& out, const std::string& type,
              const std::optional<py::array_t<float>>& weights) {
  if (type == "bf16")
    sum_rows_of<device::ep::Bf16>(rows, places, out, weights);
  else if (type == "fp32")
    sum_rows_of<float>(rows, places, out, weights);
  else if (type == "fp16")
    sum_rows_of<device::ep::Fp16>(rows, places, out, weights);
  else
    fail(ErrorKind::argument, "sum_rows: type ", type, " is not bf16, fp16 or fp32");
}

}  // namespace

void bind_bench(py::module_& module) {
  py::module_ m = module.def_submodule("bench", "Loops that `railshmem bench` times");
  bind_bench_operations(m);
  bind_bench_limits(m);
  bind_bench_gpu(m);
  m.def("sum_rows", &sum_rows, py::arg("rows").noconvert(), py::arg("places").noconvert(),
        py::arg("out").noconvert(), py::arg("type"), py::arg("weights") = py::none());
}

}  // namespace railshmem::python
