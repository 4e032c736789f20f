// What the binding files share.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "kernels/arch/arch.hpp"
#include "shmem/api/runtime.hpp"

namespace railshmem::python {

namespace py = pybind11;

void bind_bootstrap(py::module_& m);
void bind_runtime(py::module_& m);
void bind_operations(py::module_& m);
void bind_ep(py::module_& m);
void bind_bench(py::module_& m);

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

}  // namespace railshmem::python
