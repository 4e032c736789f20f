// What a call needs to know of an argument that holds elements: a numpy array of any dtype,
// symmetric memory, an array of a GPU, a tensor, or anything with a contiguous buffer.
#pragma once

#include <pybind11/numpy.h>

#include <string>

#include "python/bindings/bindings.hpp"
#include "shmem/api/gpu_arguments.hpp"

namespace railshmem::python {

// A block of the symmetric heap as shmem_malloc returns it.
struct SymmetricMemory {
  std::shared_ptr<Runtime> runtime;  // keeps the heap mapped
  void* address = nullptr;
  std::size_t bytes = 0;
};

class ArrayView {
 public:
  // Throws Error(argument) naming call, argument and what is wrong. `writable`: the call writes it.
  ArrayView(py::handle object, const char* call, const char* name, bool writable);

  void* data() const { return data_; }
  std::size_t size() const { return size_; }  // elements
  std::size_t item_bytes() const { return item_bytes_; }
  std::size_t bytes() const { return size_ * item_bytes_; }
  bool typed() const {
    return static_cast<bool>(dtype_);
  }  // false: plain bytes that take any dtype
  const py::dtype& dtype() const { return dtype_; }
  // In GPU memory, as its owner says.
  bool on_gpu() const { return on_gpu_; }
  std::string describe() const;

 private:
  struct Argument {
    const char* call;
    const char* name;
    bool writable;
  };
  void take_array(const py::array& array, const Argument& as);
  void take_buffer(py::handle object, const Argument& as);
  void take_tensor(py::handle tensor, const Argument& as);
  void take_gpu_array(py::handle object, const Argument& as);

  void* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t item_bytes_ = 1;
  bool on_gpu_ = false;
  py::dtype dtype_ = py::reinterpret_steal<py::dtype>(py::handle());
  py::buffer_info buffer_;
};

// An argument that lies anywhere: GPU memory must be the one that the job's PE uses.
template <class Where>  // Context or Runtime
void require_reachable(const Where& where, const ArrayView& view, const char* call,
                       const char* name) {
  if (view.on_gpu()) require_own_gpu(where, call, name, view.data());
}

// Bytes to move between two arguments: `nelems` elements (None: all of `counted`), both long enough
// and of one dtype.
std::size_t common_bytes(const char* call, const ArrayView& dest, const ArrayView& source,
                         const ArrayView& counted, py::handle nelems);

// The first element of an integer or float array of 4 or 8 bytes.
struct Word {
  void* address;
  unsigned width;
  char kind;  // 'i', 'u' or 'f'
};
Word word_of(py::handle object, const char* call, const char* name, bool allow_float);

// Calls f(T{}) with the C++ integer of the word's width and signedness.
template <class F>
auto with_type(const Word& word, const F& f) {
  if (word.width == 8) return word.kind == 'i' ? f(int64_t{}) : f(int64_t{} + uint64_t{});
  return word.kind == 'i' ? f(int32_t{}) : f(uint32_t{});
}

// A signal: the first element of an array of uint64.
uint64_t* signal_word(py::handle object, const char* call);

// A Python number as the bits of the word's type, and back. Throws Error(argument) when it does not
// fit.
uint64_t bits_of(py::handle number, const Word& word, const char* call, const char* name);
py::object number_of(uint64_t bits, const Word& word);

}  // namespace railshmem::python
