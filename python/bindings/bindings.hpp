// What the binding files share.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>

#include "kernels/arch/arch.hpp"
#include "shmem/api/context.hpp"
#include "shmem/api/default_runtime.hpp"
#include "shmem/api/runtime.hpp"

namespace railshmem::python {

namespace py = pybind11;

void bind_bootstrap(py::module_& m);
void bind_runtime(py::module_& m);
void bind_teams(py::module_& m);
void bind_contexts(py::module_& m);
void bind_rma(py::module_& m);
void bind_atomics(py::module_& m);
void bind_waits(py::module_& m);
void bind_collectives(py::module_& m);
void bind_ep(py::module_& m);
void bind_gpu(py::module_& m);
void bind_torch_pool(py::module_& m);
void bind_bench(py::module_& m);
void bind_model(py::module_& m);
void bind_trace(py::module_& m);

// The settings of the environment, with those of `overrides` before them.
Settings read_settings_with(const py::dict& overrides);

// Looks for a pending Ctrl-C; true leaves the Python error set and ends the wait.
bool signal_pending();

// For calls that may wait: releases the interpreter and lets Ctrl-C end the wait.
class HookScope {
 public:
  HookScope() : before_(arch::wait_hook) { arch::wait_hook = signal_pending; }
  ~HookScope() { arch::wait_hook = before_; }
  HookScope(const HookScope&) = delete;
  HookScope& operator=(const HookScope&) = delete;

 private:
  arch::WaitHook before_;
  py::gil_scoped_release released_;
};

template <class Call>
void run(bool brief, const Call& call) {
  if (brief) return call();
  const HookScope released;
  call();
}

// Keeps a Python object alive from C++ threads that do not hold the interpreter.
inline std::shared_ptr<void> owner_of(py::handle object) {
  return {object.inc_ref().ptr(), [](void* kept) {
            const py::gil_scoped_acquire held;
            py::handle(static_cast<PyObject*>(kept)).dec_ref();
          }};
}

// Out of int's range is out of the job's range: the runtime says so.
inline int pe_of(long long pe) {
  return pe < INT32_MIN || pe > INT32_MAX ? -1 : static_cast<int>(pe);
}

// A context as Python holds it.
struct ContextHandle {
  std::shared_ptr<Runtime> runtime;
  std::shared_ptr<Context> context;  // null once it is destroyed
  Context& get(const char* call) const {
    if (!context) fail(ErrorKind::argument, call, ": this context was destroyed");
    return *context;
  }
};
// SHMEM_CTX_DEFAULT.
struct DefaultContext {};

// A team argument: a Team, or one of the predefined ones of `runtime`.
std::shared_ptr<Team> team_of(const Runtime& runtime, const char* call, py::handle team);

using RuntimeClass = py::class_<Runtime, std::shared_ptr<Runtime>>;
using ContextClass = py::class_<ContextHandle>;

// ---- the forms of one operation ----

// `function` takes a Runtime& first; it becomes shmem_<name> and Runtime.<name>.
template <class... Args, class Result, class... Extra>
void bind_job_operation(py::module_& m, const std::string& name,
                        Result (*function)(Runtime&, Args...), const Extra&... extra) {
  auto runtime = py::reinterpret_borrow<RuntimeClass>(m.attr("Runtime"));
  runtime.def(name.c_str(), function, extra...);
  m.def(("shmem_" + name).c_str(),
        [function](Args... args) { return function(default_runtime(), args...); }, extra...);
}

// `method` takes a Context& first; it becomes shmem_<name> and Runtime.<name>, on the default
// context, and shmem_ctx_<name> and Context.<name>. A closure, so that one function can serve
// several names.
template <class... Args, class Method, class... Extra>
void bind_context_operation_as(py::module_& m, const std::string& name, const Method& method,
                               const Extra&... extra) {
  auto runtime = py::reinterpret_borrow<RuntimeClass>(m.attr("Runtime"));
  auto context = py::reinterpret_borrow<ContextClass>(m.attr("Context"));
  const std::string full = "shmem_ctx_" + name;
  runtime.def(
      name.c_str(),
      [method](Runtime& self, Args... args) { return method(self.default_context(), args...); },
      extra...);
  context.def(
      name.c_str(),
      [method, full](const ContextHandle& self, Args... args) {
        return method(self.get(full.c_str()), args...);
      },
      extra...);
  m.def(("shmem_" + name).c_str(),
        [method](Args... args) { return method(default_runtime().default_context(), args...); },
        extra...);
  m.def(
      full.c_str(),
      [method, full](const py::object& ctx, Args... args) {
        if (py::isinstance<DefaultContext>(ctx))
          return method(default_runtime().default_context(), args...);
        if (!py::isinstance<ContextHandle>(ctx))
          fail(ErrorKind::argument, full, ": ctx of type ", Py_TYPE(ctx.ptr())->tp_name,
               " is no context");
        return method(py::cast<const ContextHandle&>(ctx).get(full.c_str()), args...);
      },
      py::arg("ctx"), extra...);
}

template <class... Args, class Result, class... Extra>
void bind_context_operation(py::module_& m, const std::string& name,
                            Result (*function)(Context&, Args...), const Extra&... extra) {
  bind_context_operation_as<Args...>(m, name, function, extra...);
}

}  // namespace railshmem::python
