#include "python/bindings/device_layout.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <vector>

namespace railshmem::python {
namespace {

std::vector<py::ssize_t> shape_of(const py::array& array) {
  return {array.shape(), array.shape() + array.ndim()};
}

// The bytes from the first to the last of an array's elements, in the order of addresses.
struct Span {
  const char* first;
  std::size_t bytes;
};
Span span_of(const py::array& array) {
  const auto* first = static_cast<const char*>(array.data());
  const char* last = first;
  for (py::ssize_t axis = 0; axis < array.ndim(); ++axis) {
    const py::ssize_t reach = (array.shape(axis) - 1) * array.strides(axis);
    (reach < 0 ? first : last) += reach;
  }
  return {first, static_cast<std::size_t>(last - first + array.itemsize())};
}

// Where elements that lie one behind the other begin, in the array's order.
struct Runs {
  std::vector<char*> starts;
  std::size_t bytes;  // of each
};
Runs runs_of(const py::array& array) {
  auto* data = static_cast<char*>(const_cast<void*>(array.data()));
  Runs runs{{data}, static_cast<std::size_t>(array.itemsize())};
  py::ssize_t outer = array.ndim();
  for (; outer > 0; --outer) {
    const py::ssize_t count = array.shape(outer - 1);
    if (count != 1 && array.strides(outer - 1) != static_cast<py::ssize_t>(runs.bytes)) break;
    runs.bytes *= static_cast<std::size_t>(count);
  }
  for (py::ssize_t axis = 0; axis < outer; ++axis) {
    std::vector<char*> next;
    next.reserve(runs.starts.size() * static_cast<std::size_t>(array.shape(axis)));
    for (char* start : runs.starts)
      for (py::ssize_t i = 0; i < array.shape(axis); ++i)
        next.push_back(start + i * array.strides(axis));
    runs.starts = std::move(next);
  }
  return runs;
}

}  // namespace

DeviceLayout::DeviceLayout(std::shared_ptr<Runtime> runtime, py::array elements)
    : runtime_(std::move(runtime)), elements_(std::move(elements)) {
  if (runtime_->gpu() == nullptr)
    fail(ErrorKind::argument, "DeviceArray: the job runs on CPUs (", runtime_->device_reason(),
         "): its arrays are numpy's");
}

py::array DeviceLayout::read() const {
  if (contiguous()) {
    py::array out(elements_.dtype(), shape_of(elements_));
    void* to = out.mutable_data();
    const void* from = elements_.data();
    {
      const py::gil_scoped_release released;
      gpu().copy(to, from, bytes());
    }
    return out;
  }
  const Span span = elements_.size() == 0 ? Span{nullptr, 0} : span_of(elements_);
  py::array_t<unsigned char> whole(static_cast<py::ssize_t>(span.bytes));
  auto* to = whole.mutable_data();
  {
    const py::gil_scoped_release released;
    gpu().copy(to, span.first, span.bytes);
  }
  const std::vector<py::ssize_t> strides(elements_.strides(),
                                         elements_.strides() + elements_.ndim());
  const auto skipped = static_cast<const char*>(elements_.data()) - span.first;
  const py::array there(elements_.dtype(), shape_of(elements_), strides, to + skipped, whole);
  return there.attr("copy")();
}

void DeviceLayout::require_like(const py::array& source) const {
  if (source.ndim() != elements_.ndim() ||
      !std::equal(source.shape(), source.shape() + source.ndim(), elements_.shape()) ||
      !source.dtype().equal(elements_.dtype()) || (source.flags() & py::array::c_style) == 0)
    fail(ErrorKind::argument, "DeviceArray: elements of shape ",
         std::string(py::str(source.attr("shape"))), " and ", std::string(py::str(source.dtype())),
         " for an array of shape ", std::string(py::str(elements_.attr("shape"))), " and ",
         std::string(py::str(elements_.dtype())));
}

void DeviceLayout::write(const py::array& source) const {
  require_like(source);
  if (elements_.size() == 0) return;
  const Runs runs = runs_of(elements_);
  const auto* from = static_cast<const char*>(source.data());
  std::vector<GpuSide::Piece> pieces;
  pieces.reserve(runs.starts.size());
  for (char* start : runs.starts) {
    pieces.push_back({start, from, runs.bytes});
    from += runs.bytes;
  }
  const py::gil_scoped_release released;
  gpu().copy_all(pieces);
}

void DeviceLayout::copy_from(const DeviceLayout& source) const {
  require_like(source.elements_);
  void* to = const_cast<void*>(elements_.data());
  const void* from = source.elements_.data();
  const py::gil_scoped_release released;
  gpu().copy(to, from, bytes());
}

void DeviceLayout::fill(unsigned char value) const {
  void* to = const_cast<void*>(elements_.data());
  const py::gil_scoped_release released;
  gpu().fill(to, value, bytes());
}

py::object device_array(const std::shared_ptr<Runtime>& runtime, const py::array& elements) {
  return py::module_::import("railshmem.device_array").attr("DeviceArray")(runtime, elements);
}

}  // namespace railshmem::python
