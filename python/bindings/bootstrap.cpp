// Bootstrap as a class that Python can implement (mpi4py), and the one of threads.
#include <pybind11/stl.h>

#include <cstring>
#include <mutex>

#include "python/bindings/bindings.hpp"
#include "shmem/bootstrap/threads.hpp"

namespace railshmem::python {
namespace {

// Python's side: rank() -> int, size() -> int, allgather(bytes) -> bytes, barrier(), abort(code,
// why).
class PythonBootstrap final : public Bootstrap, public py::trampoline_self_life_support {
 public:
  using Bootstrap::Bootstrap;

  int rank() const override { PYBIND11_OVERRIDE_PURE(int, Bootstrap, rank, ); }
  int size() const override { PYBIND11_OVERRIDE_PURE(int, Bootstrap, size, ); }
  void barrier() override { PYBIND11_OVERRIDE_PURE(void, Bootstrap, barrier, ); }
  void abort(int code, const std::string& why) override {
    PYBIND11_OVERRIDE_PURE(void, Bootstrap, abort, code, why);
  }
  void allgather(const void* mine, std::size_t bytes, void* all) override {
    const py::gil_scoped_acquire held;
    const py::function method = py::get_override(static_cast<const Bootstrap*>(this), "allgather");
    if (!method) fail(ErrorKind::init, "this Bootstrap has no method allgather");
    const py::bytes result = method(py::bytes(static_cast<const char*>(mine), bytes));
    const std::string_view view = result;
    const std::size_t expected = bytes * static_cast<std::size_t>(size());
    if (view.size() != expected)
      fail(ErrorKind::init, "allgather of ", bytes, " bytes on ", size(), " ranks gave ",
           view.size(), " bytes instead of ", expected);
    std::memcpy(all, view.data(), view.size());
  }
};

}  // namespace

void bind_bootstrap(py::module_& m) {
  py::class_<Bootstrap, PythonBootstrap, py::smart_holder>(
      m, "Bootstrap",
      "Who is in the job, and the collectives that init needs. Subclass it in Python.")
      .def(py::init<>())
      .def("rank", &Bootstrap::rank)
      .def("size", &Bootstrap::size)
      .def("barrier", &Bootstrap::barrier, py::call_guard<py::gil_scoped_release>())
      .def("abort", &Bootstrap::abort);

  py::class_<ThreadJob, std::shared_ptr<ThreadJob>>(m, "ThreadJob",
                                                    "A job whose PEs are threads of one process.")
      .def(py::init<int, double>(), py::arg("size"), py::arg("timeout_s") = 60.0);
  py::class_<ThreadBootstrap, Bootstrap, py::smart_holder>(m, "ThreadBootstrap")
      .def(py::init<std::shared_ptr<ThreadJob>, int>(), py::arg("job"), py::arg("rank"));
}

}  // namespace railshmem::python
