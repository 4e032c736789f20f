// DLPack: the exchange of arrays between libraries, by a structure of C that a capsule carries.
// Declared here as its specification lays it out (https://dmlc.github.io/dlpack, version 1.1).
#include <cstdint>
#include <memory>
#include <vector>

#include "python/bindings/device_layout.hpp"

namespace railshmem::python {
namespace {

struct DlDevice {
  int32_t type;
  int32_t number;
};
constexpr int32_t kCuda = 2;
constexpr int32_t kRocm = 10;

struct DlType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct DlTensor {
  void* data;
  DlDevice device;
  int32_t n_axes;
  DlType type;
  int64_t* shape;
  int64_t* strides;  // in elements
  uint64_t byte_offset;
};

struct DlManaged {
  DlTensor tensor;
  void* context;
  void (*deleter)(DlManaged* self);
};
constexpr const char* kName = "dltensor";

struct DlManagedVersioned {
  uint32_t major;
  uint32_t minor;
  void* context;
  void (*deleter)(DlManagedVersioned* self);
  uint64_t flags;
  DlTensor tensor;
};
constexpr const char* kNameVersioned = "dltensor_versioned";
static_assert(sizeof(DlTensor) == 48 && sizeof(DlManaged) == 64 &&
              sizeof(DlManagedVersioned) == 80);

// What a capsule points at, and what that points at.
template <class Managed>
struct Exported {
  Managed managed;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
  std::shared_ptr<void> owner;
};

DlType type_of(const py::dtype& dtype) {
  const auto bits = static_cast<uint8_t>(dtype.itemsize() * 8);
  const std::string name = py::str(dtype);
  static constexpr struct {
    const char* name;
    uint8_t code;
  } kNamed[] = {{"bfloat16", 4},           {"float8_e3m4", 7},      {"float8_e4m3", 8},
                {"float8_e4m3b11fnuz", 9}, {"float8_e4m3fn", 10},   {"float8_e4m3fnuz", 11},
                {"float8_e5m2", 12},       {"float8_e5m2fnuz", 13}, {"float8_e8m0fnu", 14}};
  for (const auto& row : kNamed)
    if (name == row.name) return {row.code, bits, 1};
  const bool native = dtype.byteorder() != '>' && dtype.itemsize() <= 8;
  switch (native ? dtype.kind() : '?') {
    case 'i':
      return {0, bits, 1};
    case 'u':
      return {1, bits, 1};
    case 'f':
      return {2, bits, 1};
    case 'b':
      return {6, bits, 1};
    case 'c':
      return {5, bits, 1};
    default:
      break;
  }
  if (name == "complex128") return {5, bits, 1};
  throw py::buffer_error("DLPack has no type for " + name + "; pass a view of bytes");
}

DlDevice device_of(const DeviceLayout& layout) {
  const GpuSide& gpu = *layout.runtime()->gpu();
  return {std::string(gpu.driver().name()) == "CUDA" ? kCuda : kRocm, gpu.site().device};
}

// Called by whoever took the array, with or without the interpreter.
template <class Managed>
void give_back(Managed* managed) {
  delete static_cast<Exported<Managed>*>(managed->context);
}

// A capsule that nobody took still has its first name.
template <class Managed>
void drop(PyObject* capsule, const char* name) {
  if (PyCapsule_IsValid(capsule, name) == 0) return;
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  managed->deleter(managed);
}

template <class Managed>
py::object export_as(const DeviceLayout& layout, const py::object& owner, const char* name,
                     void (*destructor)(PyObject*)) {
  const py::array& elements = layout.elements();
  auto exported = std::make_unique<Exported<Managed>>();
  for (py::ssize_t axis = 0; axis < elements.ndim(); ++axis) {
    const py::ssize_t stride = elements.strides(axis);
    if (elements.shape(axis) > 1 && stride % elements.itemsize() != 0)
      throw py::buffer_error("DLPack has no strides that are no whole elements");
    exported->shape.push_back(elements.shape(axis));
    exported->strides.push_back(stride / elements.itemsize());
  }
  exported->owner = owner_of(owner);
  Managed& managed = exported->managed;
  managed = {};
  managed.context = exported.get();
  managed.deleter = give_back<Managed>;
  managed.tensor = {const_cast<void*>(elements.data()),
                    device_of(layout),
                    static_cast<int32_t>(elements.ndim()),
                    type_of(elements.dtype()),
                    exported->shape.data(),
                    exported->strides.data(),
                    0};
  if constexpr (std::is_same_v<Managed, DlManagedVersioned>) {
    managed.major = 1;
    managed.minor = 1;
  }
  PyObject* capsule = PyCapsule_New(&managed, name, destructor);
  if (capsule == nullptr) throw py::error_already_set();
  exported.release();  // the capsule's, and then whose takes it
  return py::reinterpret_steal<py::object>(capsule);
}

}  // namespace

py::object dlpack_capsule(const DeviceLayout& layout, const py::object& owner, bool versioned) {
  if (versioned)
    return export_as<DlManagedVersioned>(layout, owner, kNameVersioned, [](PyObject* capsule) {
      drop<DlManagedVersioned>(capsule, kNameVersioned);
    });
  return export_as<DlManaged>(layout, owner, kName,
                              [](PyObject* capsule) { drop<DlManaged>(capsule, kName); });
}

py::tuple dlpack_device(const DeviceLayout& layout) {
  const DlDevice device = device_of(layout);
  return py::make_tuple(device.type, device.number);
}

}  // namespace railshmem::python
