#include "python/bindings/array_view.hpp"

#include <pybind11/stl.h>

#include <cstring>

#include "python/bindings/device_layout.hpp"

namespace railshmem::python {
namespace {

// numpy's NPY_ITEM_REFCOUNT, read without a call into Python: puts are short.
constexpr uint64_t kHoldsReferences = 1;

std::string type_name(py::handle object) {
  return Py_TYPE(object.ptr())->tp_name;
}

std::string text_of(py::handle object) {
  return py::str(object);
}

// "torch.bfloat16": numpy and ml_dtypes have the same names.
py::dtype dtype_of_torch(const std::string& name, const char* call, const char* argument) {
  py::module_::import("ml_dtypes");  // tells numpy of its types
  try {
    return py::dtype::from_args(py::str(name.substr(name.find('.') + 1)));
  } catch (const py::error_already_set&) {
    fail(ErrorKind::argument, call, ": ", argument, " is a tensor of ", name,
         ", which has no counterpart in numpy or ml_dtypes");
  }
}

}  // namespace

ArrayView::ArrayView(py::handle object, const char* call, const char* name, bool writable) {
  const Argument as{call, name, writable};
  if (py::isinstance<py::array>(object)) {
    take_array(py::reinterpret_borrow<py::array>(object), as);
  } else if (py::isinstance<SymmetricMemory>(object)) {
    const auto& memory = py::cast<const SymmetricMemory&>(object);
    data_ = memory.address;
    size_ = memory.bytes;
  } else if (py::isinstance<DeviceLayout>(object)) {
    take_array(py::cast<const DeviceLayout&>(object).elements(), as);
    on_gpu_ = true;
  } else if (PyObject_CheckBuffer(object.ptr()) != 0) {
    take_buffer(object, as);
  } else if (py::hasattr(object, "data_ptr") && py::hasattr(object, "is_contiguous")) {
    take_tensor(object, as);  // has a CUDA array interface, but not for types that numpy lacks
  } else if (py::hasattr(object, "__cuda_array_interface__")) {
    take_gpu_array(object, as);
  } else {
    fail(ErrorKind::argument, call, ": ", name, " of type ", type_name(object),
         " is neither an array, a tensor, symmetric memory nor a buffer");
  }
}

void ArrayView::take_buffer(py::handle object, const Argument& as) {
  buffer_ = py::reinterpret_borrow<py::buffer>(object).request(as.writable);
  if (PyBuffer_IsContiguous(buffer_.view(), 'C') == 0)
    fail(ErrorKind::argument, as.call, ": ", as.name, " of type ", type_name(object),
         " is not contiguous");
  data_ = buffer_.ptr;
  size_ = static_cast<std::size_t>(buffer_.size * buffer_.itemsize);
}

void ArrayView::take_array(const py::array& array, const Argument& as) {
  if ((array.flags() & py::array::c_style) == 0)
    fail(ErrorKind::argument, as.call, ": ", as.name, " of shape ", text_of(array.attr("shape")),
         " and strides ", text_of(array.attr("strides")),
         " is not contiguous; pass a contiguous array (numpy.ascontiguousarray for a source)");
  if (as.writable && !array.writeable())
    fail(ErrorKind::argument, as.call, ": ", as.name, " is a read-only array");
  data_ = const_cast<void*>(array.data());
  size_ = static_cast<std::size_t>(array.size());
  dtype_ = array.dtype();
  if ((dtype_.flags() & kHoldsReferences) != 0)
    fail(ErrorKind::argument, as.call, ": ", as.name, " of ", text_of(dtype_),
         " holds Python objects, which mean nothing on another PE");
  item_bytes_ = static_cast<std::size_t>(dtype_.itemsize());
}

// Of torch, by what its tensors say of themselves: it is not imported here.
void ArrayView::take_tensor(py::handle tensor, const Argument& as) {
  const std::string device = text_of(tensor.attr("device").attr("type"));
  if (device != "cpu" && device != "cuda")  // which is what AMD's are called, too
    fail(ErrorKind::argument, as.call, ": ", as.name, " is a tensor on ",
         text_of(tensor.attr("device")), "; expected one on cpu or cuda");
  if (!py::cast<bool>(tensor.attr("is_contiguous")()))
    fail(ErrorKind::argument, as.call, ": ", as.name, " of shape ",
         text_of(py::tuple(tensor.attr("shape"))), " and strides ",
         text_of(py::tuple(tensor.attr("stride")())),
         " is not contiguous; pass a contiguous tensor (.contiguous() for a source)");
  for (const char* lazy : {"is_conj", "is_neg"})  // what is in memory is not what it stands for
    if (py::cast<bool>(tensor.attr(lazy)()))
      fail(ErrorKind::argument, as.call, ": ", as.name,
           " is a tensor of values to be conjugated or negated; resolve them first "
           "(.resolve_conj(), .resolve_neg())");
  dtype_ = dtype_of_torch(text_of(tensor.attr("dtype")), as.call, as.name);
  data_ = reinterpret_cast<void*>(py::cast<uintptr_t>(tensor.attr("data_ptr")()));
  size_ = py::cast<std::size_t>(tensor.attr("numel")());
  item_bytes_ = static_cast<std::size_t>(dtype_.itemsize());
  on_gpu_ = device != "cpu";
}

// Version 3 of the CUDA array interface, which arrays of AMD's GPUs have, too.
void ArrayView::take_gpu_array(py::handle object, const Argument& as) {
  const auto description = py::cast<py::dict>(object.attr("__cuda_array_interface__"));
  const auto has = [&](const char* key) {
    return description.contains(key) && !description[key].is_none();
  };
  const auto data = py::cast<py::tuple>(description["data"]);
  const auto shape = py::cast<std::vector<py::ssize_t>>(description["shape"]);
  const auto dtype = py::dtype::from_args(py::reinterpret_borrow<py::object>(
      has("descr") && py::len(description["descr"]) > 1 ? description["descr"]
                                                        : description["typestr"]));
  std::vector<py::ssize_t> strides;
  if (has("strides")) strides = py::cast<std::vector<py::ssize_t>>(description["strides"]);
  if (has("mask"))
    fail(ErrorKind::argument, as.call, ": ", as.name, " of type ", type_name(object),
         " has a mask, which cannot be moved with it");
  if (as.writable && py::cast<bool>(data[1]))
    fail(ErrorKind::argument, as.call, ": ", as.name, " is a read-only array");
  // numpy knows where its elements lie; nobody looks at them.
  auto* at = reinterpret_cast<void*>(py::cast<uintptr_t>(data[0]));
  take_array(py::array(dtype, shape, strides, at, py::none()), as);
  on_gpu_ = true;
}

std::string ArrayView::describe() const {
  return typed() ? text(size_, " elements of ", text_of(dtype_)) : text(size_, " bytes");
}

std::size_t common_bytes(const char* call, const ArrayView& dest, const ArrayView& source,
                         const ArrayView& counted, py::handle nelems) {
  if (dest.typed() && source.typed() && !dest.dtype().is(source.dtype()) &&
      !dest.dtype().equal(source.dtype()))
    fail(ErrorKind::argument, call, ": dest has ", text_of(dest.dtype()), ", source has ",
         text_of(source.dtype()), "; they must be the same");
  const std::size_t item = dest.typed() ? dest.item_bytes() : source.item_bytes();
  std::size_t bytes = counted.size() * counted.item_bytes();
  if (!nelems.is_none()) {
    const auto count = py::cast<long long>(nelems);
    if (count < 0) fail(ErrorKind::argument, call, ": nelems ", count, " is negative");
    if (static_cast<unsigned long long>(count) > SIZE_MAX / item)
      fail(ErrorKind::argument, call, ": nelems ", count, " of ", item,
           " bytes is more than memory has");
    bytes = static_cast<std::size_t>(count) * item;
  }
  const auto need = [&](const ArrayView& view, const char* name) {
    if (bytes > view.size() * view.item_bytes())
      fail(ErrorKind::argument, call, ": ", bytes / item, " elements of ", item,
           " bytes do not fit ", name, ", which has ", view.describe());
  };
  need(dest, "dest");
  need(source, "source");
  return bytes;
}

Word word_of(py::handle object, const char* call, const char* name, bool allow_float) {
  const ArrayView view(object, call, name, false);
  const char kind = view.typed() ? view.dtype().kind() : '?';
  const bool known = kind == 'i' || kind == 'u' || (allow_float && kind == 'f');
  if (!known || (view.item_bytes() != 4 && view.item_bytes() != 8) || view.size() == 0)
    fail(ErrorKind::argument, call, ": ", name, " has ", view.describe(),
         "; expected at least one ", allow_float ? "integer or float" : "integer",
         " of 32 or 64 bits");
  if (view.dtype().byteorder() != '=')
    fail(ErrorKind::argument, call, ": ", name, " of ", text_of(view.dtype()),
         " is not in this machine's byte order");
  return {view.data(), static_cast<unsigned>(view.item_bytes()), kind};
}

uint64_t* signal_word(py::handle object, const char* call) {
  const Word word = word_of(object, call, "sig_addr", false);
  if (word.width != 8 || word.kind != 'u')
    fail(ErrorKind::argument, call, ": sig_addr has integers of ", word.width * 8, " bits, kind '",
         word.kind, "'; expected uint64");
  return static_cast<uint64_t*>(word.address);
}

uint64_t bits_of(py::handle number, const Word& word, const char* call, const char* name) {
  if (word.kind == 'f') {
    const double value = py::cast<double>(number);
    uint64_t bits = 0;
    if (word.width == 8) {
      std::memcpy(&bits, &value, 8);
    } else {
      const auto narrow = static_cast<float>(value);
      std::memcpy(&bits, &narrow, 4);
    }
    return bits;
  }
  const auto integer = py::reinterpret_steal<py::int_>(PyNumber_Index(number.ptr()));
  if (!integer) throw py::error_already_set();
  const bool is_signed = word.kind == 'i';
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(integer.ptr(), &overflow);
  bool fits = overflow == 0;
  if (fits && word.width == 4)
    fits = is_signed ? value >= INT32_MIN && value <= INT32_MAX : value >= 0 && value <= UINT32_MAX;
  if (fits && word.width == 8 && !is_signed) fits = value >= 0;
  if (overflow > 0 && !is_signed && word.width == 8) {
    const unsigned long long large = PyLong_AsUnsignedLongLong(integer.ptr());
    if (PyErr_Occurred() == nullptr) return large;
    PyErr_Clear();
  }
  if (!fits)
    fail(ErrorKind::argument, call, ": ", name, " ", text_of(integer), " does not fit a ",
         is_signed ? "signed" : "unsigned", " integer of ", word.width * 8, " bits");
  return static_cast<uint64_t>(value);
}

py::object number_of(uint64_t bits, const Word& word) {
  if (word.kind == 'f') {
    if (word.width == 8) {
      double value;
      std::memcpy(&value, &bits, 8);
      return py::float_(value);
    }
    float value;
    std::memcpy(&value, &bits, 4);
    return py::float_(value);
  }
  if (word.kind == 'u') return py::int_(bits);
  return word.width == 8 ? py::int_(static_cast<int64_t>(bits))
                         : py::int_(static_cast<int32_t>(static_cast<uint32_t>(bits)));
}

}  // namespace railshmem::python
