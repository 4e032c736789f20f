// An array in GPU memory as the core of railshmem.DeviceArray: numpy's description of where its
// elements lie. Only the GPU's driver touches them: to look at the description's elements is a
// fault.
#pragma once

#include <pybind11/numpy.h>

#include "python/bindings/bindings.hpp"

namespace railshmem::python {

class DeviceLayout {
 public:
  // `elements`: addresses are the GPU's; its base keeps the memory.
  DeviceLayout(std::shared_ptr<Runtime> runtime, py::array elements);

  const std::shared_ptr<Runtime>& runtime() const { return runtime_; }
  const py::array& elements() const { return elements_; }

  // A copy in host memory, contiguous.
  py::array read() const;
  // Takes the elements of a contiguous array of the same shape and dtype, in host memory. What lies
  // between elements that are apart is not touched.
  void write(const py::array& source) const;
  // The same from an array of this job's GPU. Both are contiguous.
  void copy_from(const DeviceLayout& source) const;
  // Every byte. The array is contiguous.
  void fill(unsigned char value) const;

 private:
  bool contiguous() const { return (elements_.flags() & py::array::c_style) != 0; }
  std::size_t bytes() const { return static_cast<std::size_t>(elements_.nbytes()); }
  GpuSide& gpu() const { return *runtime_->gpu(); }
  void require_like(const py::array& source) const;

  std::shared_ptr<Runtime> runtime_;
  py::array elements_;
};

// A DeviceArray of Python over elements of GPU memory.
py::object device_array(const std::shared_ptr<Runtime>& runtime, const py::array& elements);

// The DLPack capsule of an array in GPU memory, which keeps `owner` alive. `versioned`: as of
// DLPack 1.0.
py::object dlpack_capsule(const DeviceLayout& layout, const py::object& owner, bool versioned);
// (kind of device, its number), as DLPack counts them.
py::tuple dlpack_device(const DeviceLayout& layout);

}  // namespace railshmem::python
