// What the files of `railshmem bench`'s loops share. Every loop returns the seconds it took.
// Addresses come from numpy views as integers.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "python/bindings/bindings.hpp"

namespace railshmem::python {

using RuntimePtr = std::shared_ptr<Runtime>;

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

template <class T = void>
T* pointer(uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

// The library's operations, and the physical limits beside them.
void bind_bench_operations(py::module_& m);
void bind_bench_limits(py::module_& m);
// What the CPU does meanwhile where the GPU's kernels are timed.
void bind_bench_gpu(py::module_& m);

}  // namespace railshmem::python
