// Expert parallelism on numpy arrays; railshmem/ep.py is what people import.
#include "ep/expert_parallel.hpp"

#include <pybind11/stl.h>

#include "python/bindings/array_view.hpp"

namespace railshmem::python {
namespace {

using ep::ExpertParallel;
using ep::Matrix;

std::string text_of(py::handle object) {
  return py::str(object);
}

// A numpy array of two dimensions; `name` and `call` are for the error.
Matrix matrix_of(py::handle object, const char* call, const char* name, bool writable = false) {
  if (!py::isinstance<py::array>(object))
    fail(ErrorKind::argument, call, ": ", name, " of type ", Py_TYPE(object.ptr())->tp_name,
         " is not a numpy array");
  const ArrayView view(object, call, name, writable);
  const auto array = py::reinterpret_borrow<py::array>(object);
  if (array.ndim() != 2)
    fail(ErrorKind::argument, call, ": ", name, " has shape ", text_of(array.attr("shape")),
         ": expected two dimensions");
  try {
    return {view.data(), array.shape(0), array.shape(1), ep::type_from(text_of(view.dtype()))};
  } catch (const Error& error) {
    fail(ErrorKind::argument, call, ": ", name, ": ", error.what());
  }
}

// A view of memory that `owner` keeps alive.
py::array array_of(const Matrix& matrix, const py::object& owner) {
  // Knows the types that numpy lacks once ml_dtypes has been imported.
  const auto dtype = py::dtype::from_args(py::str(ep::name_of(matrix.type)));
  return py::array(dtype, {matrix.rows, matrix.columns}, {}, matrix.data, owner);
}

std::unique_ptr<ExpertParallel> make(std::shared_ptr<Runtime> runtime, int64_t hidden,
                                     int64_t experts, int64_t topk, int64_t max_tokens,
                                     const std::string& dtype,
                                     const std::optional<std::string>& combine_dtype,
                                     std::optional<int64_t> max_received, int64_t blocks) {
  ep::Config config;
  config.hidden = hidden;
  config.experts = experts;
  config.topk = topk;
  config.max_tokens = max_tokens;
  config.dtype = ep::type_from(dtype);
  if (combine_dtype) config.combine_dtype = ep::type_from(*combine_dtype);
  config.max_received = max_received;
  config.blocks = blocks;
  const HookScope released;
  return std::make_unique<ExpertParallel>(std::move(runtime), config);
}

py::tuple dispatch(const py::object& self, py::handle tokens, py::handle indices,
                   py::handle weights, py::handle scales) {
  auto& exchange = py::cast<ExpertParallel&>(self);
  ep::Batch batch;
  batch.tokens = matrix_of(tokens, "dispatch", "tokens");
  batch.indices = matrix_of(indices, "dispatch", "indices");
  batch.weights = matrix_of(weights, "dispatch", "weights");
  if (!scales.is_none()) batch.scales = matrix_of(scales, "dispatch", "scales");
  const ep::Received got = [&] {
    const HookScope released;
    return exchange.dispatch(batch);
  }();
  const py::object received_scales =
      got.scales.columns > 0 ? py::object(array_of(got.scales, self)) : py::none();
  const auto n_pes = static_cast<py::ssize_t>(got.counts.size());
  return py::make_tuple(array_of(got.tokens, self), array_of(got.weights, self),
                        array_of(got.indices, self), received_scales,
                        py::array_t<int64_t>(n_pes, got.counts.data()), got.handle);
}

py::array expert_buffer(const py::object& self, const ep::Handle& handle) {
  const auto& exchange = py::cast<const ExpertParallel&>(self);
  const ep::Config& config = exchange.config();
  return array_of({exchange.expert_buffer(handle), handle.rows, config.hidden, config.combined()},
                  self);
}

py::object combine(ExpertParallel& self, py::handle expert_out, const ep::Handle& handle,
                   const py::object& out) {
  const Matrix results = matrix_of(expert_out, "combine", "expert_out");
  const ep::Config& config = self.config();
  py::object into = out;
  if (out.is_none()) {
    const auto dtype = py::dtype::from_args(py::str(ep::name_of(config.combined())));
    into = py::array(dtype, {self.tokens(), config.hidden});
  }
  const Matrix sums = matrix_of(into, "combine", "out", true);
  ep::check_matrix("combine: ", "out", sums, self.tokens(), config.hidden, config.combined());
  const HookScope released;
  self.combine(results, handle, const_cast<void*>(sums.data));
  return into;
}

}  // namespace

void bind_ep(py::module_& m) {
  py::module_ sub = m.def_submodule("ep", "The core of railshmem.ep.");
  py::class_<ep::Handle>(sub, "Handle").def_readonly("rows", &ep::Handle::rows);
  py::class_<ExpertParallel>(sub, "ExpertParallel")
      .def(py::init(&make), py::arg("runtime"), py::kw_only(), py::arg("hidden"),
           py::arg("experts"), py::arg("topk"), py::arg("max_tokens"), py::arg("dtype"),
           py::arg("combine_dtype"), py::arg("max_received"), py::arg("blocks"))
      .def("dispatch", &dispatch, py::arg("tokens"), py::arg("indices"), py::arg("weights"),
           py::arg("scales"))
      .def("expert_buffer", &expert_buffer, py::arg("handle"))
      .def("combine", &combine, py::arg("expert_out"), py::arg("handle"), py::arg("out"))
      .def("free", &ExpertParallel::free, py::call_guard<HookScope>());
}

}  // namespace railshmem::python
