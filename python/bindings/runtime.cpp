// The Runtime class and the memory it hands out.
#include <pybind11/stl.h>

#include <cstdlib>

#include "python/bindings/array_view.hpp"
#include "python/bindings/device_layout.hpp"
#include "shmem/api/runtime_parts.hpp"

namespace railshmem::python {
namespace {

// Machine code of kernels for a GPU, from the package's cache or compiler. Asked by threads that do
// not hold the interpreter.
std::string kernel_image(const std::string& name, const std::string& architecture) {
  const py::gil_scoped_acquire held;
  try {
    const py::object kernels = py::module_::import("railshmem.kernels");
    return py::cast<std::string>(kernels.attr("kernel_image")(name, architecture));
  } catch (const py::error_already_set& error) {
    fail(ErrorKind::gpu, "kernels ", name, " for ", architecture, ": ",
         std::string(py::str(error.value())));
  }
}

// "cpu", "cuda" or "hip".
std::string device_of(const Runtime& runtime) {
  if (runtime.gpu() == nullptr) return name_of(DeviceKind::cpu);
  const bool cuda = std::string(runtime.gpu()->driver().name()) == "CUDA";
  return name_of(cuda ? DeviceKind::cuda : DeviceKind::hip);
}

std::shared_ptr<Runtime> make_runtime(std::shared_ptr<Bootstrap> bootstrap,
                                      const py::dict& overrides) {
  const Settings settings = read_settings_with(overrides);
  const bool compiles = settings.kernels.empty();
  const HookScope released;
  return std::make_shared<Runtime>(std::move(bootstrap), settings,
                                   compiles ? KernelSource(kernel_image) : nullptr);
}

py::dict info_of_nic(const NicCard& nic) {
  const nic::Capabilities& can = nic.capabilities;
  py::dict capabilities;
  capabilities["atomics"] = can.atomics;
  capabilities["ordered"] = can.ordered;
  capabilities["device_queues"] = can.device_queues;
  capabilities["reaches_gpu"] = can.reaches_gpu;
  capabilities["max_inline"] = can.max_inline;
  capabilities["max_message"] = can.max_message;
  capabilities["max_region"] = can.max_region;
  py::dict out;
  out["name"] = nic.name.str();
  out["rail"] = nic.rail;
  out["network"] = nic.network.str();
  out["distance"] = nic.distance;
  out["answers"] = nic.answers;
  out["capabilities"] = capabilities;
  return out;
}

py::object info_of_gpu(const GpuCard& gpu) {
  if (gpu.index < 0) return py::none();
  py::dict out;
  out["index"] = gpu.index;
  out["name"] = gpu.name.str();
  out["architecture"] = gpu.architecture.str();
  out["bus_id"] = gpu.bus_id.str();
  out["memory_bytes"] = gpu.memory_bytes;
  return std::move(out);
}

py::dict info_of_pe(const Runtime& runtime, int pe) {
  const PeCard& card = runtime.cards()[static_cast<std::size_t>(pe)];
  const Topology& topology = runtime.topology();
  py::list nics;
  for (int i = 0; i < card.n_nics; ++i) nics.append(info_of_nic(card.nics[i]));
  py::dict out;
  out["pe"] = pe;
  out["host"] = card.host.str();
  out["boot_id"] = card.boot_id.str();
  out["pid"] = card.pid;
  out["cores"] = count_cores(card.cores);
  out["node"] = topology.node(pe);
  out["local_index"] = topology.local_index(pe);
  out["home_rail"] = topology.home_rail(pe);
  out["nics"] = nics;
  out["no_nics"] = card.no_nics.str();
  out["gpu"] = info_of_gpu(card.gpu);
  out["device_reason"] = card.device_reason.str();
  return out;
}

py::dict settings_of(const Settings& settings) {
  py::dict out;
  std::istringstream lines(settings.source);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t equals = line.find('=');
    if (line.rfind("RAILSHMEM_", 0) == 0)
      out[py::str(line.substr(0, equals))] = line.substr(equals + 1);
  }
  return out;
}

py::dict info(const Runtime& runtime) {
  const Topology& topology = runtime.topology();
  py::list pes;
  py::list pairs;
  for (int from = 0; from < runtime.n_pes(); ++from) {
    pes.append(info_of_pe(runtime, from));
    py::list row;
    for (int to = 0; to < runtime.n_pes(); ++to) {
      const Pair pair = topology.pair(from, to);
      py::dict cell;
      cell["path"] = name_of(pair.path);
      cell["rail"] = pair.path == Path::proxy ? topology.rail(from, to, 0) : -1;
      cell["reason"] = pair.reason;
      row.append(cell);
    }
    pairs.append(row);
  }
  py::dict out;
  out["pes"] = pes;
  out["device"] = device_of(runtime);
  out["nic_provider"] = name_of(runtime.nic_choice().kind);
  out["nic_reason"] = runtime.nic_choice().reason;
  out["n_nodes"] = topology.n_nodes();
  out["pairs"] = pairs;
  out["queue_pairs"] = runtime.n_queue_pairs();
  out["connection_bytes"] = runtime.connection_bytes();
  out["lanes"] = runtime.settings().lanes;
  out["progress_thread"] = !topology.all_p2p();
  out["settings"] = settings_of(runtime.settings());
  return out;
}

py::list proxy_traffic(const Runtime& runtime) {
  py::list out;
  for (const Traffic& traffic : runtime.proxy_traffic()) {
    py::dict row;
    row["pe"] = traffic.pe;
    row["rail"] = traffic.rail;
    row["bytes"] = traffic.bytes;
    row["commands"] = traffic.commands;
    out.append(row);
  }
  return out;
}

// What Python holds of a block of the heap: a DeviceArray of bytes where it is a GPU's.
py::object block_of(const std::shared_ptr<Runtime>& runtime, void* address, std::size_t bytes) {
  const py::object memory = py::cast(SymmetricMemory{runtime, address, bytes});
  if (runtime->gpu() == nullptr) return memory;
  return device_array(runtime, py::array(py::dtype::of<uint8_t>(), {bytes}, {1}, address, memory));
}

py::object allocate(const std::shared_ptr<Runtime>& runtime, const py::int_& nbytes,
                    long long alignment) {
  int overflow = 0;
  const long long bytes = PyLong_AsLongLongAndOverflow(nbytes.ptr(), &overflow);
  if (overflow != 0)
    fail(ErrorKind::argument, "shmem_malloc: ", std::string(py::str(nbytes)),
         " bytes is beyond 64 bits");
  if (bytes < 0 || alignment < 0)
    fail(ErrorKind::argument, "shmem_malloc: ", bytes, " bytes with alignment ", alignment,
         ": expected no negative number");
  void* address = nullptr;
  {
    const HookScope released;
    address = runtime->malloc(static_cast<std::size_t>(bytes), static_cast<std::size_t>(alignment));
  }
  return block_of(runtime, address, static_cast<std::size_t>(bytes));
}

py::object allocate_zeros(const std::shared_ptr<Runtime>& runtime, long long count,
                          long long size) {
  if (count < 0 || size < 0)
    fail(ErrorKind::argument, "shmem_calloc: ", count, " elements of ", size,
         " bytes: expected no negative number");
  const auto n = static_cast<std::size_t>(count);
  const auto each = static_cast<std::size_t>(size);
  void* address = nullptr;
  {
    const HookScope released;
    address = runtime->calloc(n, each);
  }
  return block_of(runtime, address, n * each);
}

// Where the block begins that an argument of free or realloc names: null for nothing.
void* start_of(py::handle object, const char* call) {
  if (object.is_none()) return nullptr;
  const ArrayView view(object, call, "ptr", false);
  return view.on_gpu() && view.size() == 0 ? nullptr : view.data();  // 0 bytes lie nowhere
}

py::object reallocate(const std::shared_ptr<Runtime>& runtime, py::handle object,
                      long long nbytes) {
  if (nbytes < 0)
    fail(ErrorKind::argument, "shmem_realloc: ", nbytes, " bytes: expected no negative number");
  void* address = start_of(object, "shmem_realloc");
  {
    const HookScope released;
    address = runtime->realloc(address, static_cast<std::size_t>(nbytes));
  }
  return block_of(runtime, address, static_cast<std::size_t>(nbytes));
}

// ---- users' own memory ----

void register_buffer(Runtime& runtime, py::handle object) {
  const ArrayView view(object, "shmemx_buffer_register", "buffer", true);
  require_reachable(runtime, view, "shmemx_buffer_register", "buffer");
  runtime.register_buffer(view.data(), view.bytes(), owner_of(object));
}

void unregister_buffer(Runtime& runtime, py::handle object) {
  const ArrayView view(object, "shmemx_buffer_unregister", "buffer", true);
  const HookScope released;
  runtime.unregister_buffer(view.data());
}

// An array of the buffer's dtype and shape over the heap's view of it.
py::array register_symmetric(const py::object& self, const py::array& buffer) {
  auto& runtime = py::cast<Runtime&>(self);
  const ArrayView view(buffer, "shmemx_buffer_register_symmetric", "buffer", true);
  std::shared_ptr<void> owner = owner_of(buffer);
  void* symmetric = nullptr;
  {
    const HookScope released;
    symmetric = runtime.register_symmetric(view.data(), view.bytes(), std::move(owner));
  }
  const std::vector<py::ssize_t> shape(buffer.shape(), buffer.shape() + buffer.ndim());
  return py::array(buffer.dtype(), shape, {}, symmetric, self);
}

void unregister_symmetric(Runtime& runtime, py::handle object) {
  const ArrayView view(object, "shmemx_buffer_unregister_symmetric", "symmetric", true);
  const HookScope released;
  runtime.unregister_symmetric(view.data());
}

// The peer's copy of an array: of its dtype and shape, alive as long as the runtime.
py::object peer_array(const py::object& self, py::handle dest, long long pe) {
  const auto runtime = py::cast<std::shared_ptr<Runtime>>(self);
  const ArrayView view(dest, "shmem_ptr", "dest", false);
  void* there = runtime->ptr(view.data(), pe_of(pe));
  if (there == nullptr) return py::none();
  if (py::isinstance<DeviceLayout>(dest)) {
    const py::array& elements = py::cast<const DeviceLayout&>(dest).elements();
    const std::vector<py::ssize_t> shape(elements.shape(), elements.shape() + elements.ndim());
    return device_array(runtime, py::array(elements.dtype(), shape, {}, there, self));
  }
  if (!py::isinstance<py::array>(dest))
    return py::array(py::dtype::of<uint8_t>(), {view.bytes()}, {1}, there, self);
  const auto array = py::reinterpret_borrow<py::array>(dest);
  const std::vector<py::ssize_t> shape(array.shape(), array.shape() + array.ndim());
  return py::array(array.dtype(), shape, {}, there, self);
}

void release(Runtime& runtime, py::handle object) {
  void* address = start_of(object, "shmem_free");
  const HookScope released;
  runtime.free(address);
}

uint64_t heap_offset(const Runtime& runtime, py::handle array) {
  const ArrayView view(array, "heap_offset", "array", false);
  if (!runtime.in_heap(view.data(), view.bytes()))
    runtime.parts().refuse_address("heap_offset", "array", view.data(), view.bytes());
  return device::offset_of(&runtime.context(), view.data());
}

uintptr_t device_context(const Runtime& runtime) {
  return reinterpret_cast<uintptr_t>(runtime.device_context());
}

py::array as_bytes(const py::object& memory) {
  const auto& self = py::cast<const SymmetricMemory&>(memory);
  return py::array(py::dtype::of<uint8_t>(), {self.bytes}, {1}, self.address, memory);
}

}  // namespace

Settings read_settings_with(const py::dict& overrides) {
  std::vector<std::pair<std::string, std::string>> given;
  for (const auto& item : overrides) given.emplace_back(py::str(item.first), py::str(item.second));
  return read_settings([&](const char* name) -> const char* {
    for (const auto& entry : given)
      if (entry.first == name) return entry.second.c_str();
    return std::getenv(name);
  });
}

void bind_runtime(py::module_& m) {
  py::class_<Runtime, std::shared_ptr<Runtime>>(
      m, "Runtime", "One PE of a job: heap, peers, NICs, progress thread.")
      .def(py::init(&make_runtime), py::arg("bootstrap"), py::arg("settings") = py::dict(),
           "Collective: joins the job of `bootstrap`. `settings` maps names such as "
           "RAILSHMEM_NODES to\n"
           "values and goes before the environment. Raises InitError.")
      .def("finalize", &Runtime::finalize, py::call_guard<HookScope>(),
           "Collective: completes all communication. A second call does nothing.")
      .def_property_readonly("finalized", &Runtime::finalized)
      .def_property_readonly("device", &device_of,
                             "Where the heap is and kernels run: cpu, cuda or hip.")
      .def_property_readonly(
          "device_index",
          [](const Runtime& self) -> std::optional<int> {
            if (self.gpu() == nullptr) return std::nullopt;
            return self.gpu()->site().device;
          },
          "The number of this PE's GPU among those it may see; None on CPUs.")
      .def_property_readonly("device_reason", &Runtime::device_reason,
                             "Why the job runs on GPUs, and this PE on this one, or why not.")
      .def("device_context", &device_context,
           "The address of what kernels on this PE's GPU receive (railshmem/device.hpp), valid "
           "until\n"
           "finalize. Raises ArgumentError where the job runs on CPUs.")
      .def("check_kernels", &Runtime::check_kernels, py::call_guard<HookScope>(),
           "Raises what has stopped a kernel of this PE's GPU, if anything did; so do quiet, "
           "barriers "
           "and\n"
           "finalize. Synchronise the kernel's stream first. Does nothing where the job runs on "
           "CPUs.")
      .def_property_readonly("my_pe", &Runtime::my_pe)
      .def_property_readonly("n_pes", &Runtime::n_pes)
      .def("info", &info,
           "Hosts, PEs, NICs and the transport of each pair with its reason, as plain data.")
      .def("proxy_traffic", &proxy_traffic,
           "Bytes and commands this PE posted through NICs, per lane.")
      .def(
          "wait_for_news", &Runtime::wait_for_news, py::arg("timeout_s"),
          py::call_guard<py::gil_scoped_release>(),
          "Waits for the first news that nobody has taken: a PE was lost, or a PE aborts the job.\n"
          "Kind NONE after `timeout_s` seconds, and when this runtime is finalized.")
      .def_property_readonly("loss_reported", &Runtime::loss_reported)
      .def("abort_waits", &Runtime::abort_waits, "Ends every wait of this PE with JobAborted.")
      .def("require_same", &Runtime::require_same, py::arg("what"), py::arg("value"),
           py::call_guard<HookScope>(),
           "Collective: raises ArgumentError on every PE, naming all values, where they differ.")
      .def(
          "in_heap",
          [](const Runtime& self, py::handle object) {
            const ArrayView view(object, "in_heap", "object", false);
            return self.in_heap(view.data(), view.bytes());
          },
          "True when the whole array lies in the symmetric heap.")
      .def("heap_offset", &heap_offset, py::arg("array"),
           "Where in the symmetric heap an array or tensor begins: the same on all PEs where it is "
           "symmetric.\n"
           "Raises ArgumentError where it does not lie in the heap.")
      .def_property_readonly("heap_free", &Runtime::heap_free, "Free bytes of the symmetric heap.")
      .def("malloc", &allocate, py::arg("nbytes"), py::arg("alignment") = 64)
      .def("calloc", &allocate_zeros, py::arg("count"), py::arg("size"))
      .def("realloc", &reallocate, py::arg("ptr"), py::arg("nbytes"))
      .def("ptr", &peer_array, py::arg("dest"), py::arg("pe"))
      .def("register_buffer", &register_buffer, py::arg("buffer"))
      .def("unregister_buffer", &unregister_buffer, py::arg("buffer"))
      .def("register_symmetric", &register_symmetric, py::arg("buffer"))
      .def("unregister_symmetric", &unregister_symmetric, py::arg("symmetric"))
      .def("free", &release, py::arg("ptr"));

  py::class_<SymmetricMemory>(
      m, "SymmetricMemory", py::buffer_protocol(),
      "A block of the symmetric heap: bytes, for numpy.frombuffer or DLPack.")
      .def_property_readonly(
          "ptr",
          [](const SymmetricMemory& self) { return reinterpret_cast<uintptr_t>(self.address); })
      .def_property_readonly("nbytes", [](const SymmetricMemory& self) { return self.bytes; })
      .def("__len__", [](const SymmetricMemory& self) { return self.bytes; })
      .def("__repr__",
           [](const SymmetricMemory& self) {
             return text("<SymmetricMemory of ", self.bytes, " bytes at ", self.address, ">");
           })
      .def("__dlpack__",
           [](const py::object& self, const py::kwargs& options) {
             return as_bytes(self).attr("__dlpack__")(**options);
           })
      .def("__dlpack_device__",
           [](const py::object& self) { return as_bytes(self).attr("__dlpack_device__")(); })
      .def_buffer([](SymmetricMemory& self) {
        return py::buffer_info(static_cast<uint8_t*>(self.address),
                               static_cast<py::ssize_t>(self.bytes));
      });
}

}  // namespace railshmem::python
