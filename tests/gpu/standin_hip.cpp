// AMD's HIP runtime, as far as hip_table.cpp asks for it, in front of GPUs that are not there.
#include <algorithm>
#include <cstring>

#include "shmem/gpu/hip_table.hpp"
#include "tests/gpu/machine.hpp"

namespace {

using namespace railshmem::standin;
using namespace railshmem::gpu::hip;

constexpr uint32_t kSharedBytes = 64 * 1024;

// A thread that has chosen no device has the first.
template <class Body, class... Arguments>
Result call(const char* name, const Body& body, const Arguments&... arguments) {
  return answer(
      name,
      [&] {
        require(machine().setup() != nullptr, kNotInitialized);
        Machine::current() = std::max(Machine::current(), 0);
        body();
      },
      arguments...);
}

uint64_t value_of(const void* at) {
  return reinterpret_cast<uint64_t>(at);
}
void* pointer(uint64_t value) {
  return reinterpret_cast<void*>(value);
}

int attribute(const Setup& setup, int which) {
  switch (which) {
    case kProcessors:
      return setup.processors;
    case kSharedBytesPerBlock:
      return kSharedBytes;
    case kFabricHandles:
      require(setup.fabric != Fabric::none);  // unknown to versions without them
      return 1;
    case kHostPointerUsable:
    case kCooperative:
    case kVmm:
    case kRdmaWithVmm:
      return 1;
    default:
      throw Refusal{kInvalidValue};
  }
}

void check_properties(const AllocationProperties* what) {
  require(what->type == kUncached && what->location.type == kOnDevice);
  machine().check_device(what->location.id);
  require(what->handle_types == kHandleNone || what->handle_types == kHandleDescriptor ||
          what->handle_types == kHandleFabric);
  if (what->handle_types == kHandleFabric)
    require(machine().setup()->fabric == Fabric::works, kNotSupported);
}

Result launch(const char* name, void* function, const Grid& grid, const unsigned (&ones)[4],
              void* stream, void** arguments) {
  return call(
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

Result hipInit(unsigned flags) {
  return answer("hipInit", [&] {
    require(flags == 0);
    machine().initialise("HIP_VISIBLE_DEVICES", "70200000");
    require(machine().n_devices() > 0, kNoDevice);
  });
}
Result hipDriverGetVersion(int* version) {
  return answer("hipDriverGetVersion", [&] { *version = machine().setup()->version; });
}
const char* hipGetErrorString(Result error) {
  return text_of(error);
}
Result hipGetDeviceCount(int* count) {
  return call("hipGetDeviceCount", [&] { *count = machine().n_devices(); });
}
Result hipGetDevicePropertiesR0600(Properties* properties, int device) {
  return call(
      "hipGetDeviceProperties",
      [&] {
        machine().check_device(device);
        *properties = {};
        copy_text("stand-in GPU", properties->name, sizeof properties->name);
        copy_text("gfx942:sramecc+:xnack-", properties->architecture,
                  sizeof properties->architecture);
      },
      device);
}
Result hipDeviceTotalMem(std::size_t* bytes, int device) {
  return call(
      "hipDeviceTotalMem",
      [&] {
        machine().check_device(device);
        *bytes = machine().memory().total_bytes(machine().card(device));
      },
      device);
}
Result hipDeviceGetAttribute(int* value, int which, int device) {
  return call(
      "hipDeviceGetAttribute",
      [&] {
        machine().check_device(device);
        *value = attribute(*machine().setup(), which);
      },
      which, device);
}
Result hipDeviceGetPCIBusId(char* name, int room, int device) {
  return call(
      "hipDeviceGetPCIBusId",
      [&] {
        machine().check_device(device);
        copy_text(machine().bus_id(device), name, room);
      },
      device);
}
Result hipDeviceCanAccessPeer(int* can, int device, int peer) {
  return call(
      "hipDeviceCanAccessPeer",
      [&] {
        machine().check_device(device);
        machine().check_device(peer);
        *can = device != peer && machine().setup()->peers ? 1 : 0;
      },
      device, peer);
}
Result hipSetDevice(int device) {
  return call(
      "hipSetDevice",
      [&] {
        machine().check_device(device);
        Machine::current() = device;
      },
      device);
}
Result hipGetDevice(int* device) {
  return call("hipGetDevice", [&] { *device = Machine::current(); });
}
Result hipMemGetInfo(std::size_t* free, std::size_t* total) {
  return call("hipMemGetInfo", [&] {
    const Card& card = machine().card(Machine::current());
    *free = machine().memory().free_bytes(card);
    *total = machine().memory().total_bytes(card);
  });
}

// ---- memory in pieces --------------------------------------------------------------------------

Result hipMemGetAllocationGranularity(std::size_t* bytes, const AllocationProperties* what, int) {
  return call("hipMemGetAllocationGranularity", [&] {
    require(what->type == kUncached && what->location.type == kOnDevice);
    machine().check_device(what->location.id);
    *bytes = kGranularity;
  });
}
Result hipMemAddressReserve(void** at, std::size_t bytes, std::size_t alignment, void* hint,
                            unsigned long long flags) {
  return call(
      "hipMemAddressReserve",
      [&] {
        require(flags == 0);
        *at = pointer(machine().memory().reserve(bytes, alignment, value_of(hint),
                                                 machine().setup()->crowded));
      },
      bytes, alignment, hint != nullptr ? "hint" : "anywhere");
}
Result hipMemAddressFree(void* at, std::size_t bytes) {
  return call(
      "hipMemAddressFree", [&] { machine().memory().free_reserved(value_of(at), bytes); }, bytes);
}
Result hipMemCreate(void** handle, std::size_t bytes, const AllocationProperties* what,
                    unsigned long long flags) {
  return call(
      "hipMemCreate",
      [&] {
        require(flags == 0);
        check_properties(what);
        const int device = what->location.id;
        *handle = pointer(machine().memory().create(device, machine().card(device), bytes));
      },
      bytes, what->location.id, what->handle_types,
      what->type == kUncached ? "uncached" : "cached");
}
Result hipMemRelease(void* handle) {
  return call("hipMemRelease", [&] { machine().memory().release(value_of(handle)); });
}
Result hipMemExportToShareableHandle(void* out, void* handle, int type, unsigned long long flags) {
  return call(
      "hipMemExportToShareableHandle",
      [&] {
        require(flags == 0 && (type == kHandleDescriptor || type == kHandleFabric));
        if (type == kHandleDescriptor) {
          const int fd = machine().memory().export_descriptor(value_of(handle));
          std::memcpy(out, &fd, sizeof fd);
        } else {
          const FabricName name = machine().memory().export_fabric(value_of(handle));
          std::memcpy(out, &name, sizeof name);
        }
      },
      type);
}
Result hipMemImportFromShareableHandle(void** handle, void* from, int type) {
  return call(
      "hipMemImportFromShareableHandle",
      [&] {
        require(type == kHandleDescriptor || type == kHandleFabric);
        const int device = Machine::current();
        if (type == kHandleDescriptor) {
          const int fd = static_cast<int>(value_of(from));  // itself, not where it lies
          *handle = pointer(machine().memory().import_descriptor(device, fd));
        } else {
          require(machine().setup()->fabric == Fabric::works, kNotSupported);
          FabricName name;
          std::memcpy(&name, from, sizeof name);
          *handle = pointer(machine().memory().import_fabric(device, name));
        }
      },
      type);
}
Result hipMemMap(void* at, std::size_t bytes, std::size_t offset, void* handle,
                 unsigned long long flags) {
  return call(
      "hipMemMap",
      [&] {
        require(flags == 0);
        machine().memory().map(value_of(at), bytes, offset, value_of(handle));
      },
      bytes, offset);
}
Result hipMemSetAccess(void* at, std::size_t bytes, const AccessDescription* access,
                       std::size_t count) {
  return call(
      "hipMemSetAccess",
      [&] {
        require(count == 1 && access->location.type == kOnDevice && access->flags == kReadWrite);
        machine().check_device(access->location.id);
        machine().memory().allow(value_of(at), bytes);
      },
      bytes, access->location.id);
}
Result hipMemUnmap(void* at, std::size_t bytes) {
  return call("hipMemUnmap", [&] { machine().memory().unmap(value_of(at), bytes); }, bytes);
}

// ---- other memory ------------------------------------------------------------------------------

Result hipMalloc(void** at, std::size_t bytes) {
  return call(
      "hipMalloc",
      [&] {
        const int device = Machine::current();
        *at = pointer(machine().memory().allocate(device, machine().card(device), bytes));
      },
      bytes);
}
Result hipFree(void* at) {
  return call("hipFree", [&] { machine().memory().free(value_of(at)); });
}
Result hipHostRegister(void* at, std::size_t bytes, unsigned flags) {
  return call(
      "hipHostRegister",
      [&] {
        require(flags == kHostRegisterPortableMapped);
        machine().memory().register_host(value_of(at), bytes);
      },
      bytes, flags);
}
Result hipHostUnregister(void* at) {
  return call("hipHostUnregister", [&] { machine().memory().unregister_host(value_of(at)); });
}
Result hipHostGetDevicePointer(void** device, void* host, unsigned flags) {
  return call("hipHostGetDevicePointer", [&] {
    int owner;
    require(flags == 0 && machine().memory().place_of(value_of(host), &owner) == Place::registered);
    *device = host;
  });
}
Result hipPointerGetAttribute(void* value, int which, void* at) {
  return call(
      "hipPointerGetAttribute",
      [&] {
        int device = 0;
        const Place place = machine().memory().place_of(value_of(at), &device);
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

Result hipMemcpyAsync(void* to, const void* from, std::size_t bytes, int kind, void* stream) {
  return call(
      "hipMemcpyAsync",
      [&] {
        require(kind == kCopyDefault);
        machine().copy(value_of(to), value_of(from), bytes, stream);
      },
      bytes, kind, stream);
}
Result hipMemsetD8Async(void* at, unsigned char value, std::size_t bytes, void* stream) {
  return call(
      "hipMemsetD8Async", [&] { machine().fill(value_of(at), value, bytes, stream); }, int{value},
      bytes, stream);
}
Result hipStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
  return call(
      "hipStreamCreateWithPriority",
      [&] {
        require(flags <= kStreamNonBlocking);
        *stream = machine().create_stream(Machine::current(), flags == kStreamNonBlocking);
      },
      flags, priority);
}
Result hipDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return call("hipDeviceGetStreamPriorityRange", [&] {
    *least = 1;
    *greatest = -1;
  });
}
Result hipStreamDestroy(void* stream) {
  return call("hipStreamDestroy", [&] { machine().destroy_stream(stream); }, stream);
}
Result hipStreamSynchronize(void* stream) {
  return call("hipStreamSynchronize", [&] { machine().synchronize(stream); }, stream);
}
Result hipStreamQuery(void* stream) {
  return call(
      "hipStreamQuery", [&] { require(machine().idle(stream), Answer::kNotReady); }, stream);
}
Result hipStreamIsCapturing(void* stream, int* status) {
  return call(
      "hipStreamIsCapturing",
      [&] {
        machine().check_stream(stream);
        *status = 0;  // graphs are not stood in for
      },
      stream);
}
Result hipEventCreateWithFlags(void** event, unsigned flags) {
  return call("hipEventCreateWithFlags", [&] { *event = machine().create_event(); }, flags);
}
Result hipEventDestroy(void* event) {
  return call("hipEventDestroy", [&] { machine().destroy_event(event); }, event);
}
Result hipEventRecord(void* event, void* stream) {
  return call("hipEventRecord", [&] { machine().record(event, stream); }, event, stream);
}
Result hipStreamWaitEvent(void* stream, void* event, unsigned flags) {
  return call(
      "hipStreamWaitEvent",
      [&] {
        require(flags == 0);
        machine().wait(stream, event);
      },
      stream, event);
}
Result hipEventQuery(void* event) {
  return call(
      "hipEventQuery", [&] { require(machine().reached(event), Answer::kNotReady); }, event);
}

Result hipModuleLoadData(void** module, const void* image) {
  return call("hipModuleLoadData", [&] { *module = machine().load(image); });
}
Result hipModuleUnload(void* module) {
  return call("hipModuleUnload", [&] { machine().unload(module); }, module);
}
Result hipModuleGetFunction(void** function, void* module, const char* name) {
  return call(
      "hipModuleGetFunction",
      [&] {
        *function = machine().function(module, name);
        machine().load_function(*function);
        machine().allow_shared(*function, kSharedBytes);  // nobody has to ask for it
      },
      module, name);
}
Result hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void* function, int threads,
                                                          std::size_t shared_bytes) {
  return call(
      "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor",
      [&] {
        *blocks = machine().blocks_per_processor(function, static_cast<uint32_t>(threads),
                                                 static_cast<uint32_t>(shared_bytes));
      },
      threads, shared_bytes);
}
Result hipModuleLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                             unsigned by, unsigned bz, unsigned shared_bytes, void* stream,
                             void** arguments, void** extra) {
  if (extra != nullptr) return kInvalidValue;
  return launch("hipModuleLaunchKernel", function, {gx, bx, shared_bytes, false}, {gy, gz, by, bz},
                stream, arguments);
}
Result hipModuleLaunchCooperativeKernel(void* function, unsigned gx, unsigned gy, unsigned gz,
                                        unsigned bx, unsigned by, unsigned bz,
                                        unsigned shared_bytes, void* stream, void** arguments) {
  return launch("hipModuleLaunchCooperativeKernel", function, {gx, bx, shared_bytes, true},
                {gy, gz, by, bz}, stream, arguments);
}

}  // extern "C"
#pragma GCC visibility pop
