// NVIDIA's driver, as far as cuda_table.cpp asks for it, in front of GPUs that are not there.
#include <algorithm>
#include <cstring>

#include "shmem/gpu/cuda_table.hpp"
#include "tests/gpu/machine.hpp"

namespace {

using namespace railshmem::standin;
using namespace railshmem::gpu::cuda;

template <class Body, class... Arguments>
Result call(const char* name, const Body& body, const Arguments&... arguments) {
  return answer(
      name,
      [&] {
        require(machine().setup() != nullptr, kNotInitialized);
        body();
      },
      arguments...);
}

// With a context of the thread's.
template <class Body, class... Arguments>
Result call_in_context(const char* name, const Body& body, const Arguments&... arguments) {
  return call(
      name,
      [&] {
        require(Machine::current() >= 0, kInvalidContext);
        body();
      },
      arguments...);
}

// A context's name is its device's number, from 1 on.
Context context_of(int device) {
  return reinterpret_cast<Context>(static_cast<uintptr_t>(device) + 1);
}

int attribute(const Setup& setup, int which) {
  switch (which) {
    case kProcessors:
      return setup.processors;
    case kCapabilityMajor:
      return 9;
    case kCapabilityMinor:
      return 0;
    case kFabricHandles:
      return setup.fabric == Fabric::none ? 0 : 1;
    case kHostPointerUsable:
    case kCooperative:
    case kVmm:
    case kDescriptorHandles:
    case kRdmaWithVmm:
      return 1;
    default:
      throw Refusal{kInvalidValue};
  }
}

void check_properties(const AllocationProperties* what) {
  require(what->type == kPinned && what->location.type == kOnDevice);
  machine().check_device(what->location.id);
  require(what->handle_types == kHandleNone || what->handle_types == kHandleDescriptor ||
          what->handle_types == kHandleFabric);
  if (what->handle_types == kHandleFabric)
    require(machine().setup()->fabric == Fabric::works, kNotPermitted);
}

Result launch(const char* name, void* function, const Grid& grid, const unsigned (&ones)[4],
              StreamPointer stream, void** arguments) {
  return call_in_context(
      name,
      [&] {
        for (const unsigned one : ones) require(one == 1);
        machine().launch(function, grid, stream, arguments);
      },
      grid.blocks, grid.threads, grid.shared_bytes, stream);
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

Result cuInit(unsigned flags) {
  return answer("cuInit", [&] {
    require(flags == 0);
    machine().initialise("CUDA_VISIBLE_DEVICES", "13000");
    require(machine().n_devices() > 0, kNoDevice);
  });
}
Result cuDriverGetVersion(int* version) {
  return answer("cuDriverGetVersion", [&] { *version = machine().setup()->version; });
}
Result cuGetErrorString(Result error, const char** text) {
  *text = text_of(error);
  return kSuccess;
}
Result cuDeviceGetCount(int* count) {
  return call("cuDeviceGetCount", [&] { *count = machine().n_devices(); });
}
Result cuDeviceGet(int* device, int ordinal) {
  return call(
      "cuDeviceGet",
      [&] {
        machine().check_device(ordinal);
        *device = ordinal;
      },
      ordinal);
}
Result cuDeviceGetName(char* name, int room, int device) {
  return call(
      "cuDeviceGetName",
      [&] {
        machine().check_device(device);
        copy_text("stand-in GPU", name, room);
      },
      device);
}
Result cuDeviceTotalMem_v2(std::size_t* bytes, int device) {
  return call(
      "cuDeviceTotalMem",
      [&] {
        machine().check_device(device);
        *bytes = machine().memory().total_bytes(machine().card(device));
      },
      device);
}
Result cuDeviceGetAttribute(int* value, int which, int device) {
  return call(
      "cuDeviceGetAttribute",
      [&] {
        machine().check_device(device);
        *value = attribute(*machine().setup(), which);
      },
      which, device);
}
Result cuDeviceGetPCIBusId(char* name, int room, int device) {
  return call(
      "cuDeviceGetPCIBusId",
      [&] {
        machine().check_device(device);
        copy_text(machine().bus_id(device), name, room);
      },
      device);
}
Result cuDeviceCanAccessPeer(int* can, int device, int peer) {
  return call(
      "cuDeviceCanAccessPeer",
      [&] {
        machine().check_device(device);
        machine().check_device(peer);
        *can = device != peer && machine().setup()->peers ? 1 : 0;
      },
      device, peer);
}
Result cuDevicePrimaryCtxRetain(Context* context, int device) {
  return call(
      "cuDevicePrimaryCtxRetain",
      [&] {
        machine().check_device(device);
        machine().retain_context(device);
        *context = context_of(device);
      },
      device);
}
Result cuDevicePrimaryCtxRelease_v2(int device) {
  return call(
      "cuDevicePrimaryCtxRelease",
      [&] {
        machine().check_device(device);
        machine().release_context(device);
      },
      device);
}
Result cuCtxSetCurrent(Context context) {
  return call(
      "cuCtxSetCurrent",
      [&] {
        const int device = static_cast<int>(reinterpret_cast<uintptr_t>(context)) - 1;
        if (device >= 0) require(device < machine().n_devices(), kInvalidContext);
        Machine::current() = device;
      },
      context);
}
Result cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return call_in_context("cuMemGetInfo", [&] {
    const Card& card = machine().card(Machine::current());
    *free = machine().memory().free_bytes(card);
    *total = machine().memory().total_bytes(card);
  });
}

// ---- memory in pieces: needs no context --------------------------------------------------------

Result cuMemGetAllocationGranularity(std::size_t* bytes, const AllocationProperties* what, int) {
  return call("cuMemGetAllocationGranularity", [&] {
    require(what->location.type == kOnDevice);
    machine().check_device(what->location.id);
    *bytes = kGranularity;
  });
}
Result cuMemAddressReserve(DevicePointer* at, std::size_t bytes, std::size_t alignment,
                           DevicePointer hint, unsigned long long flags) {
  return call(
      "cuMemAddressReserve",
      [&] {
        require(flags == 0);
        *at = machine().memory().reserve(bytes, alignment, hint, machine().setup()->crowded);
      },
      bytes, alignment, hint != 0 ? "hint" : "anywhere");
}
Result cuMemAddressFree(DevicePointer at, std::size_t bytes) {
  return call("cuMemAddressFree", [&] { machine().memory().free_reserved(at, bytes); }, bytes);
}
Result cuMemCreate(Handle* handle, std::size_t bytes, const AllocationProperties* what,
                   unsigned long long flags) {
  return call(
      "cuMemCreate",
      [&] {
        require(flags == 0);
        check_properties(what);
        const int device = what->location.id;
        *handle = machine().memory().create(device, machine().card(device), bytes);
      },
      bytes, what->location.id, what->handle_types, int{what->gpu_direct_rdma});
}
Result cuMemRelease(Handle handle) {
  return call("cuMemRelease", [&] { machine().memory().release(handle); });
}
Result cuMemExportToShareableHandle(void* out, Handle handle, int type, unsigned long long flags) {
  return call(
      "cuMemExportToShareableHandle",
      [&] {
        require(flags == 0 && (type == kHandleDescriptor || type == kHandleFabric));
        if (type == kHandleDescriptor) {
          const int fd = machine().memory().export_descriptor(handle);
          std::memcpy(out, &fd, sizeof fd);
        } else {
          const FabricName name = machine().memory().export_fabric(handle);
          std::memcpy(out, &name, sizeof name);
        }
      },
      type);
}
Result cuMemImportFromShareableHandle(Handle* handle, void* from, int type) {
  return call(
      "cuMemImportFromShareableHandle",
      [&] {
        require(type == kHandleDescriptor || type == kHandleFabric);
        const int device = std::max(Machine::current(), 0);
        if (type == kHandleDescriptor) {
          const int fd = static_cast<int>(reinterpret_cast<intptr_t>(from));
          *handle = machine().memory().import_descriptor(device, fd);
        } else {
          require(machine().setup()->fabric == Fabric::works, kNotPermitted);
          FabricName name;
          std::memcpy(&name, from, sizeof name);
          *handle = machine().memory().import_fabric(device, name);
        }
      },
      type);
}
Result cuMemMap(DevicePointer at, std::size_t bytes, std::size_t offset, Handle handle,
                unsigned long long flags) {
  return call(
      "cuMemMap",
      [&] {
        require(flags == 0);
        machine().memory().map(at, bytes, offset, handle);
      },
      bytes, offset);
}
Result cuMemSetAccess(DevicePointer at, std::size_t bytes, const AccessDescription* access,
                      std::size_t count) {
  return call(
      "cuMemSetAccess",
      [&] {
        require(count == 1 && access->location.type == kOnDevice && access->flags == kReadWrite);
        machine().check_device(access->location.id);
        machine().memory().allow(at, bytes);
      },
      bytes, access->location.id);
}
Result cuMemUnmap(DevicePointer at, std::size_t bytes) {
  return call("cuMemUnmap", [&] { machine().memory().unmap(at, bytes); }, bytes);
}

// ---- other memory ------------------------------------------------------------------------------

Result cuMemAlloc_v2(DevicePointer* at, std::size_t bytes) {
  return call_in_context(
      "cuMemAlloc",
      [&] {
        const int device = Machine::current();
        *at = machine().memory().allocate(device, machine().card(device), bytes);
      },
      bytes);
}
Result cuMemFree_v2(DevicePointer at) {
  return call_in_context("cuMemFree", [&] { machine().memory().free(at); });
}
Result cuMemHostRegister_v2(void* at, std::size_t bytes, unsigned flags) {
  return call_in_context(
      "cuMemHostRegister",
      [&] {
        require(flags == kHostRegisterPortableMapped);
        machine().memory().register_host(reinterpret_cast<uint64_t>(at), bytes);
      },
      bytes, flags);
}
Result cuMemHostUnregister(void* at) {
  return call_in_context("cuMemHostUnregister", [&] {
    machine().memory().unregister_host(reinterpret_cast<uint64_t>(at));
  });
}
Result cuPointerGetAttribute(void* value, int which, DevicePointer at) {
  return call(
      "cuPointerGetAttribute",
      [&] {
        int device = 0;
        const Place place = machine().memory().place_of(at, &device);
        require(place != Place::unknown);
        if (which == kPointerMemoryType) {
          const unsigned type = place == Place::device ? kMemoryOfDevice : 1;
          std::memcpy(value, &type, sizeof type);
        } else {
          require(which == kPointerOrdinal);
          std::memcpy(value, &device, sizeof device);
        }
      },
      which);
}

// ---- work --------------------------------------------------------------------------------------

Result cuMemcpyAsync(DevicePointer to, DevicePointer from, std::size_t bytes,
                     StreamPointer stream) {
  return call_in_context(
      "cuMemcpyAsync", [&] { machine().copy(to, from, bytes, stream); }, bytes, stream);
}
Result cuMemsetD8Async(DevicePointer at, unsigned char value, std::size_t bytes,
                       StreamPointer stream) {
  return call_in_context(
      "cuMemsetD8Async", [&] { machine().fill(at, value, bytes, stream); }, int{value}, bytes,
      stream);
}
Result cuStreamCreateWithPriority(StreamPointer* stream, unsigned flags, int priority) {
  return call_in_context(
      "cuStreamCreateWithPriority",
      [&] {
        require(flags <= kStreamNonBlocking);
        *stream = machine().create_stream(Machine::current(), flags == kStreamNonBlocking);
      },
      flags, priority);
}
Result cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return call_in_context("cuCtxGetStreamPriorityRange", [&] {
    *least = 0;
    *greatest = -5;
  });
}
Result cuStreamDestroy_v2(StreamPointer stream) {
  return call_in_context("cuStreamDestroy", [&] { machine().destroy_stream(stream); }, stream);
}
Result cuStreamSynchronize(StreamPointer stream) {
  return call_in_context("cuStreamSynchronize", [&] { machine().synchronize(stream); }, stream);
}
Result cuStreamQuery(StreamPointer stream) {
  return call_in_context(
      "cuStreamQuery", [&] { require(machine().idle(stream), Answer::kNotReady); }, stream);
}
Result cuStreamIsCapturing(StreamPointer stream, int* status) {
  return call_in_context(
      "cuStreamIsCapturing",
      [&] {
        machine().check_stream(stream);
        *status = 0;  // graphs are not stood in for
      },
      stream);
}
Result cuEventCreate(void** event, unsigned flags) {
  return call_in_context("cuEventCreate", [&] { *event = machine().create_event(); }, flags);
}
Result cuEventDestroy_v2(void* event) {
  return call_in_context("cuEventDestroy", [&] { machine().destroy_event(event); }, event);
}
Result cuEventRecord(void* event, StreamPointer stream) {
  return call_in_context("cuEventRecord", [&] { machine().record(event, stream); }, event, stream);
}
Result cuStreamWaitEvent(StreamPointer stream, void* event, unsigned flags) {
  return call_in_context(
      "cuStreamWaitEvent",
      [&] {
        require(flags == 0);
        machine().wait(stream, event);
      },
      stream, event);
}
Result cuEventQuery(void* event) {
  return call_in_context(
      "cuEventQuery", [&] { require(machine().reached(event), Answer::kNotReady); }, event);
}
Result cuEventElapsedTime(float* milliseconds, void* start, void* end) {
  return call_in_context(
      "cuEventElapsedTime", [&] { *milliseconds = machine().milliseconds_between(start, end); },
      start, end);
}

Result cuModuleLoadData(void** module, const void* image) {
  return call_in_context("cuModuleLoadData", [&] { *module = machine().load(image); });
}
Result cuModuleUnload(void* module) {
  return call_in_context("cuModuleUnload", [&] { machine().unload(module); }, module);
}
Result cuModuleGetFunction(void** function, void* module, const char* name) {
  return call_in_context(
      "cuModuleGetFunction", [&] { *function = machine().function(module, name); }, module, name);
}
Result cuModuleGetFunctionCount(unsigned* count, void* module) {
  return call_in_context(
      "cuModuleGetFunctionCount", [&] { *count = Machine::n_functions(); }, module);
}
Result cuModuleEnumerateFunctions(void** functions, unsigned count, void* module) {
  return call_in_context(
      "cuModuleEnumerateFunctions", [&] { machine().functions(module, count, functions); }, count,
      module);
}
Result cuFuncLoad(void* function) {
  return call_in_context("cuFuncLoad", [&] { machine().load_function(function); }, function);
}
Result cuFuncSetAttribute(void* function, int which, int value) {
  return call_in_context(
      "cuFuncSetAttribute",
      [&] {
        require(which == kSharedBytes && value >= 0);
        machine().allow_shared(function, static_cast<uint32_t>(value));
      },
      which, value);
}
Result cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void* function, int threads,
                                                   std::size_t shared_bytes) {
  return call_in_context(
      "cuOccupancyMaxActiveBlocksPerMultiprocessor",
      [&] {
        *blocks = machine().blocks_per_processor(function, static_cast<uint32_t>(threads),
                                                 static_cast<uint32_t>(shared_bytes));
      },
      threads, shared_bytes);
}
Result cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                      unsigned by, unsigned bz, unsigned shared_bytes, StreamPointer stream,
                      void** arguments, void** extra) {
  if (extra != nullptr) return kInvalidValue;
  return launch("cuLaunchKernel", function, {gx, bx, shared_bytes, false}, {gy, gz, by, bz}, stream,
                arguments);
}
Result cuLaunchCooperativeKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                 unsigned by, unsigned bz, unsigned shared_bytes,
                                 StreamPointer stream, void** arguments) {
  return launch("cuLaunchCooperativeKernel", function, {gx, bx, shared_bytes, true},
                {gy, gz, by, bz}, stream, arguments);
}

}  // extern "C"
#pragma GCC visibility pop
