// Expert parallelism on numpy's arrays and on those of GPUs; railshmem/ep.py is what people import.
#include "ep/expert_parallel.hpp"

#include <pybind11/stl.h>

#include "python/bindings/array_view.hpp"
#include "python/bindings/device_layout.hpp"

namespace railshmem::python {
namespace {

using ep::ExpertParallel;
using ep::Matrix;

std::string text_of(py::handle object) {
  return py::str(object);
}

enum class Access : uint8_t { read, write };
enum class Rank : uint8_t { two, one_or_two };  // one: a column

// An array of two dimensions; `name` and `call` are for the error.
Matrix matrix_of(py::handle object, const char* call, const char* name,
                 Access access = Access::read, Rank rank = Rank::two) {
  if (!py::hasattr(object, "shape"))
    fail(ErrorKind::argument, call, ": ", name, " of type ", Py_TYPE(object.ptr())->tp_name,
         " is no array");
  const ArrayView view(object, call, name, access == Access::write);
  const auto shape = py::tuple(object.attr("shape"));
  const bool column = rank == Rank::one_or_two && shape.size() == 1;
  if (shape.size() != 2 && !column)
    fail(ErrorKind::argument, call, ": ", name, " has shape ", text_of(shape),
         ": expected two dimensions");
  try {
    return {view.data(), shape[0].cast<int64_t>(), column ? 1 : shape[1].cast<int64_t>(),
            ep::type_from(text_of(view.dtype()))};
  } catch (const Error& error) {
    fail(ErrorKind::argument, call, ": ", name, ": ", error.what());
  }
}

// A view of memory that `owner` keeps alive.
py::object array_of(const ExpertParallel& exchange, const Matrix& matrix, const py::object& owner) {
  // Knows the types that numpy lacks once ml_dtypes has been imported.
  const auto dtype = py::dtype::from_args(py::str(ep::name_of(matrix.type)));
  py::array elements(dtype, {matrix.rows, matrix.columns}, {}, matrix.data, owner);
  if (exchange.runtime()->gpu() == nullptr) return std::move(elements);
  return device_array(exchange.runtime(), elements);
}

std::unique_ptr<ExpertParallel> make(std::shared_ptr<Runtime> runtime, int64_t hidden,
                                     int64_t experts, int64_t topk, int64_t max_tokens,
                                     const std::string& dtype,
                                     const std::optional<std::string>& combine_dtype,
                                     std::optional<int64_t> max_received, const std::string& layout,
                                     int64_t alignment, int64_t handles, int64_t blocks,
                                     bool fixed_shapes) {
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

ep::Batch batch_of(py::handle tokens, py::handle indices, py::handle weights, py::handle scales) {
  ep::Batch batch;
  batch.tokens = matrix_of(tokens, "dispatch", "tokens");
  batch.indices = matrix_of(indices, "dispatch", "indices");
  batch.weights = matrix_of(weights, "dispatch", "weights");
  batch.scales = given(scales, "scales");
  return batch;
}

ep::Handle dispatch_send(ExpertParallel& self, py::handle tokens, py::handle indices,
                         py::handle weights, py::handle scales, const py::tuple& out,
                         py::handle stream) {
  const ep::Batch batch = batch_of(tokens, indices, weights, scales);
  const ep::Outputs into = outputs_of(out);
  const gpu::Stream on = stream_of(stream, "dispatch");
  const HookScope released;
  return self.dispatch_send(batch, into, on);
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

// int64 numbers where they are: counts that the host does not wait for.
py::object counts_at(const ExpertParallel& exchange, const void* at, int64_t count,
                     const py::object& owner) {
  const py::object column = array_of(exchange, {at, count, 1, ep::Type::int64}, owner);
  return column.attr("reshape")(-1);
}

py::object counts_of(const std::vector<int64_t>& values) {
  return py::array_t<int64_t>(static_cast<py::ssize_t>(values.size()), values.data());
}

// Views of what was received, its counts, and the handle.
py::tuple results_of(const py::object& self, const ep::Received& got) {
  const auto& exchange = py::cast<const ExpertParallel&>(self);
  const auto array = [&](const Matrix& matrix) { return array_of(exchange, matrix, self); };
  py::object counts = counts_of(got.counts);
  py::object expert_counts = counts_of(got.expert_counts);
  py::object padded_counts = counts_of(got.padded_counts);
  py::object rows = py::none();
  if (exchange.config().fixed()) {
    const ep::Counts at = exchange.counts(got.handle);
    const int n_pes = exchange.runtime()->n_pes();
    const auto pe = static_cast<int64_t>(exchange.runtime()->my_pe());
    const int64_t experts = exchange.config().experts;
    const int64_t mine = (pe + 1) * experts / n_pes - pe * experts / n_pes;
    rows = counts_at(exchange, at.rows, 1, self);
    counts = counts_at(exchange, at.counts, n_pes, self);
    if (at.expert_counts != nullptr) {
      expert_counts = counts_at(exchange, at.expert_counts, mine, self);
      padded_counts = counts_at(exchange, at.padded_counts, mine, self);
    }
  }
  return py::make_tuple(array(got.tokens), array(got.weights), array(got.indices),
                        array(got.scales), counts, expert_counts, padded_counts, rows, got.handle);
}

py::tuple dispatch_recv(const py::object& self, const ep::Handle& handle, py::handle stream) {
  auto& exchange = py::cast<ExpertParallel&>(self);
  const gpu::Stream on = stream_of(stream, "dispatch_recv");
  const ep::Received got = [&] {
    const HookScope released;
    return exchange.dispatch_recv(handle, on);
  }();
  return results_of(self, got);
}

// Both halves at once, which a GPU does in one kernel.
py::tuple dispatch(const py::object& self, py::handle tokens, py::handle indices,
                   py::handle weights, py::handle scales, const py::tuple& out, py::handle stream) {
  auto& exchange = py::cast<ExpertParallel&>(self);
  const ep::Batch batch = batch_of(tokens, indices, weights, scales);
  const ep::Outputs into = outputs_of(out);
  const gpu::Stream on = stream_of(stream, "dispatch");
  const ep::Received got = [&] {
    const HookScope released;
    return exchange.dispatch(batch, into, on);
  }();
  return results_of(self, got);
}

py::tuple dispatch_again(const py::object& self, py::handle tokens, py::handle scales,
                         const ep::Handle& known, const py::tuple& out, py::handle stream) {
  auto& exchange = py::cast<ExpertParallel&>(self);
  const Matrix rows = matrix_of(tokens, "dispatch", "tokens");
  const std::optional<Matrix> row_scales = given(scales, "scales");
  const ep::Outputs into = outputs_of(out);
  const gpu::Stream on = stream_of(stream, "dispatch");
  const ep::Received got = [&] {
    const HookScope released;
    return exchange.dispatch(rows, row_scales, known, into, on);
  }();
  return results_of(self, got);
}

py::object expert_buffer(const py::object& self, const ep::Handle& handle) {
  const auto& exchange = py::cast<const ExpertParallel&>(self);
  const ep::Config& config = exchange.config();
  return array_of(exchange,
                  {exchange.expert_buffer(handle), handle.rows, config.hidden, config.combined()},
                  self);
}

// The caller's array for the sums, or a new one.
py::object sums_of(const ExpertParallel& exchange, const ep::Handle& handle,
                   const py::object& out) {
  if (!out.is_none()) return out;
  const ep::Config& config = exchange.config();
  if (exchange.runtime()->gpu() != nullptr)
    fail(ErrorKind::argument, "combine: out is needed on a GPU: [", handle.tokens, ", ",
         config.hidden, "] of ", ep::name_of(config.combined()), ", such as torch.empty gives");
  const auto dtype = py::dtype::from_args(py::str(ep::name_of(config.combined())));
  return py::array(dtype, {handle.tokens, config.hidden});
}

py::object combine(ExpertParallel& self, py::handle expert_out, const ep::Handle& handle,
                   const py::object& out, py::handle stream) {
  const Matrix results = matrix_of(expert_out, "combine", "expert_out");
  py::object into = sums_of(self, handle, out);
  const Matrix sums = matrix_of(into, "combine", "out", Access::write);
  const gpu::Stream on = stream_of(stream, "combine");
  const HookScope released;
  self.combine(results, handle, sums, on);
  return into;
}

void combine_send(ExpertParallel& self, py::handle expert_out, const ep::Handle& handle,
                  py::handle stream) {
  const Matrix results = matrix_of(expert_out, "combine", "expert_out");
  const gpu::Stream on = stream_of(stream, "combine");
  const HookScope released;
  self.combine_send(results, handle, on);
}

py::object combine_recv(ExpertParallel& self, const ep::Handle& handle, const py::object& out,
                        py::handle stream) {
  py::object into = sums_of(self, handle, out);
  const Matrix sums = matrix_of(into, "combine_recv", "out", Access::write);
  const gpu::Stream on = stream_of(stream, "combine_recv");
  const HookScope released;
  self.combine_recv(handle, sums, on);
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
           py::arg("alignment"), py::arg("handles"), py::arg("blocks"), py::arg("fixed_shapes"))
      .def("dispatch", &dispatch, py::arg("tokens"), py::arg("indices"), py::arg("weights"),
           py::arg("scales"), py::arg("out"), py::arg("stream"))
      .def("dispatch_again", &dispatch_again, py::arg("tokens"), py::arg("scales"),
           py::arg("known"), py::arg("out"), py::arg("stream"))
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
