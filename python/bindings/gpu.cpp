// Arrays in GPU memory, and operations that a stream of the GPU carries out.
#include "shmem/api/stream_operations.hpp"

#include "python/bindings/array_view.hpp"
#include "python/bindings/device_layout.hpp"
#include "python/bindings/stream_argument.hpp"

namespace railshmem::python {

gpu::Stream stream_of(py::handle stream, const char* call) {
  const auto number = [](const py::object& value) {
    return reinterpret_cast<gpu::Stream>(py::cast<uintptr_t>(value));
  };
  if (stream.is_none()) return nullptr;
  if (PyLong_Check(stream.ptr()) != 0) return number(py::reinterpret_borrow<py::object>(stream));
  if (py::hasattr(stream, "__cuda_stream__")) {  // cuda.core: (version of the protocol, stream)
    const py::object protocol = stream.attr("__cuda_stream__");
    const py::tuple answer = PyCallable_Check(protocol.ptr()) != 0 ? protocol() : protocol;
    return number(answer[1]);
  }
  for (const char* name : {"cuda_stream", "ptr"})  // torch, cupy
    if (py::hasattr(stream, name)) return number(stream.attr(name));
  fail(ErrorKind::argument, call, ": stream of type ", Py_TYPE(stream.ptr())->tp_name,
       " is neither a number, a stream of torch, cupy or cuda.core, nor None");
}

namespace {

using device::AtomicOp;
using device::Compare;

// The arguments of a put or get.
struct Move {
  const ArrayView to;
  const ArrayView from;
  const gpu::Stream stream;
  const std::size_t bytes;

  Move(const char* call, py::handle dest, py::handle source, bool count_source, py::handle nelems,
       py::handle on)
      : to(dest, call, "dest", true),
        from(source, call, "source", false),
        stream(stream_of(on, call)),
        bytes(common_bytes(call, to, from, count_source ? from : to, nelems)) {}
};

void put(Runtime& runtime, py::handle dest, py::handle source, long long pe, py::handle nelems,
         py::handle stream) {
  const Move move("shmemx_put_on_stream", dest, source, true, nelems, stream);
  run(false, [&] {
    put_on_stream(runtime, move.to.data(), move.from.data(), move.bytes, pe_of(pe), move.stream);
  });
}

void get(Runtime& runtime, py::handle dest, py::handle source, long long pe, py::handle nelems,
         py::handle stream) {
  const Move move("shmemx_get_on_stream", dest, source, false, nelems, stream);
  run(false, [&] {
    get_on_stream(runtime, move.to.data(), move.from.data(), move.bytes, pe_of(pe), move.stream);
  });
}

void put_signal(Runtime& runtime, py::handle dest, py::handle source, py::handle sig_addr,
                uint64_t signal, AtomicOp sig_op, long long pe, py::handle nelems,
                py::handle stream) {
  constexpr const char* kCall = "shmemx_put_signal_on_stream";
  const Move move(kCall, dest, source, true, nelems, stream);
  uint64_t* word = signal_word(sig_addr, kCall);
  run(false, [&] {
    put_signal_on_stream(runtime, move.to.data(), move.from.data(), move.bytes, word, signal,
                         sig_op, pe_of(pe), move.stream);
  });
}

void signal_op(Runtime& runtime, py::handle sig_addr, uint64_t signal, AtomicOp sig_op,
               long long pe, py::handle stream) {
  constexpr const char* kCall = "shmemx_signal_op_on_stream";
  uint64_t* word = signal_word(sig_addr, kCall);
  const gpu::Stream on = stream_of(stream, kCall);
  run(false, [&] { signal_op_on_stream(runtime, word, signal, sig_op, pe_of(pe), on); });
}

void signal_wait(Runtime& runtime, py::handle sig_addr, Compare compare, uint64_t value,
                 py::handle stream) {
  constexpr const char* kCall = "shmemx_signal_wait_until_on_stream";
  const uint64_t* word = signal_word(sig_addr, kCall);
  const gpu::Stream on = stream_of(stream, kCall);
  run(false, [&] { signal_wait_until_on_stream(runtime, word, compare, value, on); });
}

void wait(Runtime& runtime, py::handle ivar, Compare compare, py::handle value, py::handle stream) {
  constexpr const char* kCall = "shmemx_wait_until_on_stream";
  const Word word = word_of(ivar, kCall, "ivar", false);
  const uint64_t expected = bits_of(value, word, kCall, "cmp_value");
  const gpu::Stream on = stream_of(stream, kCall);
  with_type(word, [&](auto zero) {
    using T = decltype(zero);
    run(false, [&] {
      wait_until_on_stream(runtime, static_cast<const T*>(word.address), compare,
                           static_cast<T>(expected), on);
    });
  });
}

template <void (*Operation)(Runtime&, gpu::Stream)>
void plain(Runtime& runtime, py::handle stream) {
  const gpu::Stream on = stream_of(stream, "shmemx_..._on_stream");
  run(false, [&] { Operation(runtime, on); });
}

// shmemx_<name> and Runtime.<name>.
template <class... Args, class... Extra>
void bind_on_stream(py::module_& m, const std::string& name, void (*function)(Runtime&, Args...),
                    const Extra&... extra) {
  auto runtime = py::reinterpret_borrow<RuntimeClass>(m.attr("Runtime"));
  runtime.def(name.c_str(), function, extra...);
  m.def(("shmemx_" + name).c_str(),
        [function](Args... args) { return function(default_runtime(), args...); }, extra...);
}

void bind_streams(py::module_& m) {
  const auto dest = py::arg("dest");
  const auto source = py::arg("source");
  const auto pe = py::arg("pe");
  const auto nelems = py::arg("nelems") = py::none();
  const auto stream = py::arg("stream") = py::none();
  const auto sig_addr = py::arg("sig_addr");
  bind_on_stream(
      m, "put_on_stream", put, dest, source, pe, py::kw_only(), nelems, stream,
      "shmem_put that the GPU carries out in the order of `stream`: a number (cudaStream_t), a "
      "stream of\n"
      "torch, cupy or cuda.core, or None, the default stream. Does not wait, and may be captured "
      "into a\n"
      "CUDA graph. `source` is memory of this PE's GPU. Where the job runs on CPUs the only "
      "stream is\n"
      "None, and the call is shmem_put. Raises ArgumentError.");
  bind_on_stream(m, "get_on_stream", get, dest, source, pe, py::kw_only(), nelems, stream,
                 "shmem_get in the order of `stream`: what follows on it finds the data in `dest`. "
                 "See\nshmemx_put_on_stream.");
  bind_on_stream(m, "put_signal_on_stream", put_signal, dest, source, sig_addr, py::arg("signal"),
                 py::arg("sig_op"), pe, py::kw_only(), nelems, stream,
                 "shmem_put_signal in the order of `stream`. See shmemx_put_on_stream.");
  bind_on_stream(m, "signal_op_on_stream", signal_op, sig_addr, py::arg("signal"),
                 py::arg("sig_op"), pe, py::kw_only(), stream,
                 "Sets or raises a signal of PE `pe`, without data, in the order of `stream`.");
  bind_on_stream(m, "signal_wait_until_on_stream", signal_wait, sig_addr, py::arg("cmp"),
                 py::arg("cmp_value"), py::kw_only(), stream,
                 "What follows on `stream` starts when the local signal compares, and finds the "
                 "data that was put\n"
                 "before it. The wait ends at RAILSHMEM_TIMEOUT_S; check_kernels raises it.");
  bind_on_stream(m, "wait_until_on_stream", wait, py::arg("ivar"), py::arg("cmp"),
                 py::arg("cmp_value"), py::kw_only(), stream,
                 "The same for a local symmetric integer of 32 or 64 bits.");
  bind_on_stream(m, "fence_on_stream", plain<fence_on_stream>, py::kw_only(), stream,
                 "shmem_fence for what kernels and streams of this PE posted.");
  bind_on_stream(m, "quiet_on_stream", plain<quiet_on_stream>, py::kw_only(), stream,
                 "What follows on `stream` starts when everything that kernels and streams of this "
                 "PE posted is\ncomplete. What host calls posted is shmem_quiet's.");
  bind_on_stream(m, "barrier_all_on_stream", plain<barrier_all_on_stream>, py::kw_only(), stream,
                 "Collective: quiet_on_stream, then the streams of all PEs meet. One at a time on "
                 "each PE.");
  bind_on_stream(m, "sync_all_on_stream", plain<sync_all_on_stream>, py::kw_only(), stream,
                 "Collective: the streams of all PEs meet, without quiet.");
}

}  // namespace

void bind_gpu(py::module_& m) {
  py::class_<DeviceLayout>(m, "DeviceLayout", "The core of railshmem.DeviceArray.")
      .def(py::init<std::shared_ptr<Runtime>, py::array>(), py::arg("runtime"), py::arg("elements"))
      .def_property_readonly("_runtime", &DeviceLayout::runtime)
      .def_property_readonly("_elements", &DeviceLayout::elements)
      .def("_read", &DeviceLayout::read)
      .def("_write", &DeviceLayout::write, py::arg("source"))
      .def("_copy_from", &DeviceLayout::copy_from, py::arg("source"))
      .def("_fill", &DeviceLayout::fill, py::arg("value"))
      .def(
          "_dlpack",
          [](const py::object& self, bool versioned) {
            return dlpack_capsule(py::cast<const DeviceLayout&>(self), self, versioned);
          },
          py::arg("versioned"))
      .def("__dlpack_device__", &dlpack_device);
  bind_streams(m);
}

}  // namespace railshmem::python
