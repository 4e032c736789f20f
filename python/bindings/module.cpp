// The module: errors, settings and the parts bound in the other files.
#include <pybind11/pybind11.h>

#include <cstdlib>

#include "kernels/shmem/context.hpp"
#include "python/bindings/bindings.hpp"
#include "shmem/base/settings.hpp"

namespace railshmem::python {
namespace {

const char* class_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::argument:
      return "ArgumentError";
    case ErrorKind::heap_exhausted:
      return "HeapExhausted";
    case ErrorKind::init:
      return "InitError";
    case ErrorKind::timeout:
      return "WaitTimeout";
    case ErrorKind::network:
      return "NetworkError";
    case ErrorKind::peer_lost:
      return "PeerLost";
    case ErrorKind::aborted:
    case ErrorKind::interrupted:
      return "JobAborted";
    case ErrorKind::gpu:
      return "GpuError";
  }
  return "RailshmemError";
}

void bind_errors() {
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const Error& error) {
      // Ctrl-C: the handler has set KeyboardInterrupt, or whatever else it raised.
      if (error.kind() == ErrorKind::interrupted && PyErr_Occurred() != nullptr) return;
      const py::object type = py::module_::import("railshmem.errors").attr(class_of(error.kind()));
      PyErr_SetString(type.ptr(), error.what());
    }
  });
}

py::list settings_table() {
  py::list rows;
  for (const SettingInfo& row : setting_table()) {
    const SettingValue now = setting_value([](const char* name) { return std::getenv(name); }, row);
    rows.append(py::make_tuple(row.name, now.value, now.variable, row.fallback, row.meaning));
  }
  return rows;
}

}  // namespace

bool signal_pending() {
  const py::gil_scoped_acquire held;
  return PyErr_CheckSignals() != 0;
}

}  // namespace railshmem::python

PYBIND11_MODULE(_core, m) {
  using namespace railshmem::python;
  m.doc() = "The C++ core of railshmem; use the package railshmem.";
  bind_errors();
  m.def("set_default", &railshmem::set_default_runtime);
  m.def("get_default", &railshmem::find_default_runtime);
  // Kernels are compiled with it, so that none takes another layout for this library's.
  m.attr("DEVICE_ABI") = railshmem::device::kAbi;
  m.def("settings_table", settings_table,
        "(name, value, variable that holds it or '', default, meaning) of every setting.");
  m.def(
      "check_settings", [] { railshmem::read_settings_from_environment(); },
      "Raises InitError, naming the variable, where init would refuse the environment.");
  bind_bootstrap(m);
  bind_runtime(m);
  bind_teams(m);
  bind_contexts(m);
  bind_rma(m);
  bind_atomics(m);
  bind_waits(m);
  bind_collectives(m);
  bind_gpu(m);
  bind_torch_pool(m);
  bind_ep(m);
  bind_bench(m);
  bind_model(m);
  bind_trace(m);
}
