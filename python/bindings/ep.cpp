// Expert parallelism on numpy arrays and those of GPUs; railshmem/ep.py is what people import.
#include "ep/expert_parallel.hpp"

#include <pybind11/stl.h>

#include "python/bindings/array_view.hpp"
#include "python/bindings/device_layout.hpp"
#include "python/bindings/stream_argument.hpp"

namespace railshmem::python {
namespace {

using ep::ExpertParallel;
using ep::Matrix;

std::string text_of(py::handle object) {
  return py::str(object);
}

enum class Access : uint8_t { read, write };
enum class Rank : uint8_t { two, one_or_two };  // one: a column

// An array of two dimensions: numpy's, or where the job runs on GPUs any array of this PE's GPU.
// `name` and `call` are for the error.
Matrix matrix_of(py::handle object, const char* call, const char* name,
                 Access access = Access::read, Rank rank = Rank::two) {
  if (!py::hasattr(object, "shape"))
    fail(ErrorKind::argument, call, ": ", name, " of type ", Py_TYPE(object.ptr())->tp_name,
         " is not an array");
  const ArrayView view(object, call, name, access == Access::write);
  const py::tuple shape = py::tuple(object.attr("shape"));
  const bool column = rank == Rank::one_or_two && shape.size() == 1;
  if ((shape.size() != 2 && !column) || !view.typed())
    fail(ErrorKind::argument, call, ": ", name, " has shape ", text_of(shape),
         ": expected two dimensions");
  try {
    return {view.data(), py::cast<int64_t>(shape[0]), column ? 1 : py::cast<int64_t>(shape[1]),
            ep::type_from(text_of(view.dtype()))};
  } catch (const Error& error) {
    fail(ErrorKind::argument, call, ": ", name, ": ", error.what());
  }
}

// A view of memory that `owner` keeps alive.
py::object array_of(const Matrix& matrix, const py::object& owner) {
  // Knows the types that numpy lacks once ml_dtypes has been imported.
  const auto dtype = py::dtype::from_args(py::str(ep::name_of(matrix.type)));
  const py::array elements(dtype, {matrix.rows, matrix.columns}, {}, matrix.data, owner);
  const auto& exchange = py::cast<const ExpertParallel&>(owner);
  return exchange.runtime()->gpu() == nullptr ? py::object(elements)
                                              : device_array(exchange.runtime(), elements);
}

std::unique_ptr<ExpertParallel> make(std::shared_ptr<Runtime> runtime, int64_t hidden,
                                     int64_t experts, int64_t topk, int64_t max_tokens,
                                     const std::string& dtype,
                                     const std::optional<std::string>& combine_dtype,
                                     std::optional<int64_t> max_received, const std::string& layout,
                                     int64_t alignment, int64_t handles, int64_t blocks,
                                     bool fixed_shapes,
                                     const std::optional<std::string>& quantise_from, bool bulk) {
  ep::Config config;
  config.hidden = hidden;
  config.experts = experts;
  config.topk = topk;
  config.max_tokens = max_tokens;
  config.dtype = ep::type_from(dtype);
  if (combine_dtype) config.combine_dtype = ep::type_from(*combine_dtype);
  config.max_received = max_received;
  config.layout = ep::layout_from(layout);
  config.alignment = alignment;
  config.handles = handles;
  config.blocks = blocks;
  config.fixed_shapes = fixed_shapes;
  config.bulk = bulk;
  if (quantise_from) config.quantise_from = ep::type_from(*quantise_from);
  const HookScope released;
  return std::make_unique<ExpertParallel>(std::move(runtime), config);
}

std::optional<Matrix> given(py::handle object, const char* name, Access access = Access::read,
                            Rank rank = Rank::two) {
  if (object.is_none()) return std::nullopt;
  return matrix_of(object, "dispatch", name, access, rank);
}

// `out`: tokens, weights, indices, scales; each may be None.
ep::Outputs outputs_of(const py::tuple& out) {
  return {given(out[0], "out.tokens", Access::write),
          given(out[1], "out.weights", Access::write, Rank::one_or_two),
          given(out[2], "out.indices", Access::write, Rank::one_or_two),
          given(out[3], "out.scales", Access::write)};
}

struct Given {
  const ep::Batch batch;
  const ep::Outputs out;
  const gpu::Stream stream;
};
Given given_of(py::handle tokens, py::handle indices, py::handle weights, py::handle scales,
               const py::tuple& out, py::handle stream) {
  ep::Batch batch;
  batch.tokens = matrix_of(tokens, "dispatch", "tokens");
  batch.indices = matrix_of(indices, "dispatch", "indices");
  batch.weights = matrix_of(weights, "dispatch", "weights");
  batch.scales = given(scales, "scales");
  return {batch, outputs_of(out), stream_of(stream, "dispatch")};
}

ep::Handle dispatch_send(ExpertParallel& self, py::handle tokens, py::handle indices,
                         py::handle weights, py::handle scales, const py::tuple& out,
                         py::handle stream) {
  const Given it = given_of(tokens, indices, weights, scales, out, stream);
  const HookScope released;
  return self.dispatch_send(it.batch, it.out, it.stream);
}

ep::Handle dispatch_send_again(ExpertParallel& self, py::handle tokens, py::handle scales,
                               const ep::Handle& known, const py::tuple& out, py::handle stream) {
  const Matrix rows = matrix_of(tokens, "dispatch", "tokens");
  const std::optional<Matrix> row_scales = given(scales, "scales");
  const ep::Outputs into = outputs_of(out);
  const gpu::Stream on = stream_of(stream, "dispatch");
  const HookScope released;
  return self.dispatch_send(rows, row_scales, known, into, on);
}

py::array_t<int64_t> array_of(const std::vector<int64_t>& values) {
  return py::array_t<int64_t>(static_cast<py::ssize_t>(values.size()), values.data());
}

// (handle, arrays, counts): as railshmem.ep.Dispatched has them.
py::tuple tuple_of(const py::object& self, const ep::Received& got) {
  const auto& exchange = py::cast<const ExpertParallel&>(self);
  const py::tuple arrays = py::make_tuple(array_of(got.tokens, self), array_of(got.weights, self),
                                          array_of(got.indices, self), array_of(got.scales, self));
  if (!exchange.config().fixed())
    return py::make_tuple(got.handle, arrays,
                          py::make_tuple(array_of(got.counts), array_of(got.expert_counts),
                                         array_of(got.padded_counts), py::none()));
  const ep::Counts at = exchange.counts(got.handle);
  const auto column = [&](const void* data, int64_t n) {
    return array_of({data, n, 1, ep::Type::int64}, self).attr("reshape")(-1);
  };
  const int64_t experts = exchange.config().by_expert() ? exchange.my_experts() : 0;
  return py::make_tuple(got.handle, arrays,
                        py::make_tuple(column(at.counts, exchange.runtime()->n_pes()),
                                       column(at.expert_counts, experts),
                                       column(at.padded_counts, experts), column(at.rows, 1)));
}

py::tuple dispatch(const py::object& self, py::handle tokens, py::handle indices,
                   py::handle weights, py::handle scales, const py::tuple& out, py::handle stream) {
  auto& exchange = py::cast<ExpertParallel&>(self);
  const Given it = given_of(tokens, indices, weights, scales, out, stream);
  const ep::Received got = [&] {
    const HookScope released;
    return exchange.dispatch(it.batch, it.out, it.stream);
  }();
  return tuple_of(self, got);
}

py::tuple dispatch_recv(const py::object& self, const ep::Handle& handle, py::handle stream) {
  auto& exchange = py::cast<ExpertParallel&>(self);
  const gpu::Stream on = stream_of(stream, "dispatch_recv");
  const ep::Received got = [&] {
    const HookScope released;
    return exchange.dispatch_recv(handle, on);
  }();
  return tuple_of(self, got);
}

py::object expert_buffer(const py::object& self, const ep::Handle& handle) {
  const auto& exchange = py::cast<const ExpertParallel&>(self);
  const ep::Config& config = exchange.config();
  return array_of({exchange.expert_buffer(handle), handle.rows, config.hidden, config.combined()},
                  self);
}

// The caller's array for the sums, or one that is there, or a new one.
py::object sums_of(const py::object& self, const ep::Handle& handle, const py::object& out) {
  if (!out.is_none()) return out;
  const auto& exchange = py::cast<const ExpertParallel&>(self);
  if (exchange.runtime()->gpu() != nullptr) return array_of(exchange.sums(handle), self);
  const ep::Config& config = exchange.config();
  const auto dtype = py::dtype::from_args(py::str(ep::name_of(config.combined())));
  return py::array(dtype, {handle.tokens, config.hidden});
}

py::object combine(const py::object& self, py::handle expert_out, const ep::Handle& handle,
                   const py::object& out, py::handle stream) {
  auto& exchange = py::cast<ExpertParallel&>(self);
  const Matrix results = matrix_of(expert_out, "combine", "expert_out");
  py::object into = sums_of(self, handle, out);
  const Matrix sums = matrix_of(into, "combine", "out", Access::write);
  const gpu::Stream on = stream_of(stream, "combine");
  const HookScope released;
  exchange.combine(results, handle, sums, on);
  return into;
}

void combine_send(ExpertParallel& self, py::handle expert_out, const ep::Handle& handle,
                  py::handle stream) {
  const Matrix results = matrix_of(expert_out, "combine", "expert_out");
  const gpu::Stream on = stream_of(stream, "combine");
  const HookScope released;
  self.combine_send(results, handle, on);
}

py::object combine_recv(const py::object& self, const ep::Handle& handle, const py::object& out,
                        py::handle stream) {
  auto& exchange = py::cast<ExpertParallel&>(self);
  py::object into = sums_of(self, handle, out);
  const Matrix sums = matrix_of(into, "combine_recv", "out", Access::write);
  const gpu::Stream on = stream_of(stream, "combine_recv");
  const HookScope released;
  exchange.combine_recv(handle, sums, on);
  return into;
}

void finish(ExpertParallel& self, py::handle stream) {
  const gpu::Stream on = stream_of(stream, "finish");
  const HookScope released;
  self.finish(on);
}

}  // namespace

void bind_ep(py::module_& m) {
  py::module_ sub = m.def_submodule("ep", "The core of railshmem.ep.");
  py::class_<ep::Handle>(sub, "Handle").def_readonly("rows", &ep::Handle::rows);
  py::class_<ExpertParallel>(sub, "ExpertParallel")
      .def(py::init(&make), py::arg("runtime"), py::kw_only(), py::arg("hidden"),
           py::arg("experts"), py::arg("topk"), py::arg("max_tokens"), py::arg("dtype"),
           py::arg("combine_dtype"), py::arg("max_received"), py::arg("layout"),
           py::arg("alignment"), py::arg("handles"), py::arg("blocks"), py::arg("fixed_shapes"),
           py::arg("quantise_from"), py::arg("bulk"))
      .def("dispatch", &dispatch, py::arg("tokens"), py::arg("indices"), py::arg("weights"),
           py::arg("scales"), py::arg("out"), py::arg("stream"))
      .def("dispatch_send", &dispatch_send, py::arg("tokens"), py::arg("indices"),
           py::arg("weights"), py::arg("scales"), py::arg("out"), py::arg("stream"))
      .def("dispatch_send_again", &dispatch_send_again, py::arg("tokens"), py::arg("scales"),
           py::arg("known"), py::arg("out"), py::arg("stream"))
      .def("dispatch_recv", &dispatch_recv, py::arg("handle"), py::arg("stream"))
      .def("expert_buffer", &expert_buffer, py::arg("handle"))
      .def("combine", &combine, py::arg("expert_out"), py::arg("handle"), py::arg("out"),
           py::arg("stream"))
      .def("combine_send", &combine_send, py::arg("expert_out"), py::arg("handle"),
           py::arg("stream"))
      .def("combine_recv", &combine_recv, py::arg("handle"), py::arg("out"), py::arg("stream"))
      .def("finish", &finish, py::arg("stream"))
      .def("free", &ExpertParallel::free, py::call_guard<HookScope>());
}

}  // namespace railshmem::python
