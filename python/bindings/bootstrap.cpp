// Bootstrap as a class that Python can implement (mpi4py), the one of threads, and TCP.
#include <pybind11/stl.h>

#include <cstring>
#include <mutex>

#include "python/bindings/bindings.hpp"
#include "shmem/bootstrap/tcp/hub.hpp"
#include "shmem/bootstrap/tcp/tcp_bootstrap.hpp"
#include "shmem/bootstrap/threads.hpp"

namespace railshmem::python {
namespace {

// Python's side: rank() -> int, size() -> int, allgather(bytes) -> bytes, barrier(), abort(code,
// why); and, where it has something better than gathering everything, alltoall(bytes) -> bytes.
class PythonBootstrap final : public Bootstrap, public py::trampoline_self_life_support {
 public:
  using Bootstrap::Bootstrap;

  int rank() const override { PYBIND11_OVERRIDE_PURE(int, Bootstrap, rank, ); }
  int size() const override { PYBIND11_OVERRIDE_PURE(int, Bootstrap, size, ); }
  void barrier() override { PYBIND11_OVERRIDE_PURE(void, Bootstrap, barrier, ); }
  void abort(int code, const std::string& why) override {
    PYBIND11_OVERRIDE_PURE(void, Bootstrap, abort, code, why);
  }
  void leave() override { PYBIND11_OVERRIDE(void, Bootstrap, leave, ); }
  void allgather(const void* mine, std::size_t bytes, void* all) override {
    const py::gil_scoped_acquire held;
    const py::function method = py::get_override(static_cast<const Bootstrap*>(this), "allgather");
    if (!method) fail(ErrorKind::init, "this Bootstrap has no method allgather");
    call(method, "allgather", mine, bytes, all, bytes * static_cast<std::size_t>(size()));
  }
  void alltoall(const void* mine, std::size_t bytes, void* theirs) override {
    const std::size_t total = bytes * static_cast<std::size_t>(size());
    {
      const py::gil_scoped_acquire held;
      const py::function method = py::get_override(static_cast<const Bootstrap*>(this), "alltoall");
      if (method) return call(method, "alltoall", mine, total, theirs, total);
    }
    Bootstrap::alltoall(mine, bytes, theirs);
  }

 private:
  static void call(const py::function& method, const char* name, const void* mine,
                   std::size_t bytes, void* out, std::size_t expected) {
    const py::bytes result = method(py::bytes(static_cast<const char*>(mine), bytes));
    const std::string_view view = result;
    if (view.size() != expected)
      fail(ErrorKind::init, name, " of ", bytes, " bytes gave ", view.size(), " bytes instead of ",
           expected);
    if (expected > 0) std::memcpy(out, view.data(), expected);
  }
};

std::shared_ptr<tcp::TcpBootstrap> join(const std::string& id, int rank, int n_pes,
                                        double timeout_s, bool holds_hub) {
  const tcp::JobId parsed = tcp::JobId::parse(id);
  const py::gil_scoped_release released;
  return std::make_shared<tcp::TcpBootstrap>(parsed, tcp::Place{rank, n_pes, holds_hub}, timeout_s,
                                             signal_pending);
}

}  // namespace

void bind_bootstrap(py::module_& m) {
  py::class_<Bootstrap, PythonBootstrap, py::smart_holder>(
      m, "Bootstrap",
      "Who is in the job, and the collectives that init needs. Subclass it in Python.")
      .def(py::init<>())
      .def("rank", &Bootstrap::rank)
      .def("size", &Bootstrap::size)
      .def("barrier", &Bootstrap::barrier, py::call_guard<py::gil_scoped_release>())
      .def("abort", &Bootstrap::abort, py::call_guard<py::gil_scoped_release>(), py::arg("code"),
           py::arg("why"))
      .def("news", &Bootstrap::news, py::call_guard<py::gil_scoped_release>(),
           "What has happened to the job, the worst so far.");

  py::class_<JobNews> news(m, "JobNews", "What happened to the job: kind, rank, code, why.");
  py::enum_<JobNews::Kind>(news, "Kind")
      .value("NONE", JobNews::Kind::none)
      .value("LOST", JobNews::Kind::lost)
      .value("ABORTED", JobNews::Kind::aborted);
  news.def_readonly("kind", &JobNews::kind)
      .def_readonly("rank", &JobNews::rank)
      .def_readonly("code", &JobNews::code)
      .def_readonly("why", &JobNews::why);

  py::class_<tcp::Hub>(m, "TcpHub", "The meeting point of one job over TCP, while it lives.")
      .def(py::init([](const py::dict& settings) {
             return std::make_unique<tcp::Hub>(read_settings_with(settings).interface);
           }),
           py::arg("settings") = py::dict(), "Listens as RAILSHMEM_INTERFACE says.")
      .def_property_readonly("id", [](const tcp::Hub& self) { return self.id().str(); });
  py::class_<tcp::TcpBootstrap, Bootstrap, py::smart_holder>(
      m, "TcpBootstrap", "A process of a job that meets at the hub of an id.")
      .def(py::init(&join), py::arg("id"), py::arg("rank"), py::arg("n_pes"), py::arg("timeout_s"),
           py::arg("holds_hub") = false, "Collective: returns when all n_pes processes have come.");

  py::class_<ThreadJob, std::shared_ptr<ThreadJob>>(m, "ThreadJob",
                                                    "A job whose PEs are threads of one process.")
      .def(py::init<int, double>(), py::arg("size"), py::arg("timeout_s") = 60.0);
  py::class_<ThreadBootstrap, Bootstrap, py::smart_holder>(m, "ThreadBootstrap")
      .def(py::init<std::shared_ptr<ThreadJob>, int>(), py::arg("job"), py::arg("rank"));
}

}  // namespace railshmem::python
