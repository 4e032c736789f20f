// The functions of AMD's HIP runtime that the library uses, and their plain types, as
// hip_runtime_api.h declares them from HIP 7.2 on: the library is built without HIP's headers.
// Allocations, streams and modules are pointers there; addresses are, too.
#pragma once

#include <cstddef>

#include "shmem/gpu/library.hpp"

namespace railshmem::gpu::hip {

using Result = int;  // hipError_t; 0: success

struct Location {
  int type;
  int id;
};
constexpr int kOnDevice = 1;  // hipMemLocationTypeDevice

// hip_runtime_api.h: hipMemAllocationProp.
struct AllocationProperties {
  int type;
  int handle_types;
  Location location;
  void* win32_meta_data;
  unsigned char compression;
  unsigned char gpu_direct_rdma;
  unsigned short usage;
};
constexpr int kUncached = 0x40000000;  // hipMemAllocationTypeUncached
constexpr int kHandleNone = 0;
constexpr int kHandleDescriptor = 1;
constexpr int kHandleFabric = 8;
constexpr int kGranularityRecommended = 1;

// hip_runtime_api.h: hipMemAccessDesc.
struct AccessDescription {
  Location location;
  int flags;
};
constexpr int kReadWrite = 3;

// hip_runtime_api.h: hipDeviceProp_tR0600, of which only two texts are looked at.
struct Properties {
  char name[256];
  char between[904];
  char architecture[256];
  char behind[56];
};
static_assert(offsetof(Properties, architecture) == 1160 && sizeof(Properties) == 1472,
              "hipDeviceProp_tR0600");

// hip_runtime_api.h: hipDeviceAttribute_t.
constexpr int kHostPointerUsable = 4;
constexpr int kCooperative = 10;
constexpr int kProcessors = 63;
constexpr int kSharedBytesPerBlock = 74;
constexpr int kVmm = 89;
constexpr int kRdmaWithVmm = 94;
constexpr int kFabricHandles = 95;

constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kEventNoTiming = 2;
constexpr unsigned kHostRegisterPortableMapped = 3;
constexpr int kPointerMemoryType = 2;  // HIP_POINTER_ATTRIBUTE_MEMORY_TYPE
constexpr int kPointerOrdinal = 9;     // HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL
constexpr int kMemoryOfDevice = 2;     // hipMemoryTypeDevice
constexpr int kCopyDefault = 4;        // hipMemcpyDefault: the addresses tell
constexpr Result kNotReady = 600;

struct Table {
  explicit Table(const Library& library);

  Result (*init)(unsigned flags);
  Result (*driver_version)(int* version);
  const char* (*error_string)(Result error);
  Result (*device_count)(int* count);
  Result (*device_properties)(Properties* properties, int device);
  Result (*device_memory)(std::size_t* bytes, int device);
  Result (*device_attribute)(int* value, int attribute, int device);
  Result (*bus_id)(char* name, int room, int device);
  Result (*can_access)(int* can, int device, int peer);
  Result (*set_device)(int device);
  Result (*current_device)(int* device);
  Result (*memory_info)(std::size_t* free, std::size_t* total);

  Result (*granularity)(std::size_t* bytes, const AllocationProperties* what, int option);
  Result (*reserve)(void** at, std::size_t bytes, std::size_t alignment, void* hint,
                    unsigned long long flags);
  Result (*free_reserved)(void* at, std::size_t bytes);
  Result (*create)(void** handle, std::size_t bytes, const AllocationProperties* what,
                   unsigned long long flags);
  Result (*release)(void* handle);
  Result (*export_handle)(void* out, void* handle, int type, unsigned long long flags);
  Result (*import_handle)(void** handle, void* from, int type);
  Result (*map)(void* at, std::size_t bytes, std::size_t offset, void* handle,
                unsigned long long flags);
  Result (*set_access)(void* at, std::size_t bytes, const AccessDescription* access,
                       std::size_t count);
  Result (*unmap)(void* at, std::size_t bytes);

  Result (*allocate)(void** at, std::size_t bytes);
  Result (*free)(void* at);
  Result (*register_host)(void* at, std::size_t bytes, unsigned flags);
  Result (*unregister_host)(void* at);
  Result (*device_pointer)(void** device, void* host, unsigned flags);
  Result (*pointer_attribute)(void* value, int attribute, void* at);

  Result (*copy)(void* to, const void* from, std::size_t bytes, int kind, void* stream);
  Result (*fill)(void* at, unsigned char value, std::size_t bytes, void* stream);
  Result (*create_stream)(void** stream, unsigned flags, int priority);
  Result (*stream_priorities)(int* least, int* greatest);
  Result (*destroy_stream)(void* stream);
  Result (*synchronize)(void* stream);
  Result (*stream_query)(void* stream);
  Result (*stream_capturing)(void* stream, int* status);
  Result (*create_event)(void** event, unsigned flags);
  Result (*destroy_event)(void* event);
  Result (*record)(void* event, void* stream);
  Result (*wait_event)(void* stream, void* event, unsigned flags);
  Result (*event_query)(void* event);

  Result (*load_module)(void** module, const void* image);
  Result (*unload_module)(void* module);
  Result (*function)(void** function, void* module, const char* name);
  Result (*occupancy)(int* blocks, void* function, int threads, std::size_t shared_bytes);
  Result (*launch)(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared_bytes, void* stream, void** arguments,
                   void** extra);
  Result (*launch_cooperative)(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                               unsigned by, unsigned bz, unsigned shared_bytes, void* stream,
                               void** arguments);
};

}  // namespace railshmem::gpu::hip
