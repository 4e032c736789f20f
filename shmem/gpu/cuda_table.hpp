// The functions of NVIDIA's driver that the library uses, and their plain types, as cuda.h declares
// them from CUDA 12 on: the library is built without CUDA's headers.
// tests/unit/test_gpu_tables.py compares this file with cuda.h.
#pragma once

#include <cstddef>

#include "shmem/gpu/library.hpp"

namespace railshmem::gpu::cuda {

using Result = int;  // 0: success
using DevicePointer = unsigned long long;
using Handle = unsigned long long;
using Context = void*;
using StreamPointer = void*;

struct Location {
  int type;
  int id;
};
constexpr int kOnDevice = 1;

// cuda.h: CUmemAllocationProp.
struct AllocationProperties {
  int type;
  int handle_types;
  Location location;
  void* win32_meta_data;
  unsigned char compression;
  unsigned char gpu_direct_rdma;
  unsigned short usage;
  unsigned char reserved[4];
};
constexpr int kPinned = 1;
constexpr int kHandleNone = 0;
constexpr int kHandleDescriptor = 1;
constexpr int kHandleFabric = 8;
constexpr int kGranularityRecommended = 1;

// cuda.h: CUmemAccessDesc.
struct AccessDescription {
  Location location;
  int flags;
};
constexpr int kReadWrite = 3;

// cuda.h: CUdevice_attribute.
constexpr int kProcessors = 16;
constexpr int kCapabilityMajor = 75;
constexpr int kCapabilityMinor = 76;
constexpr int kHostPointerUsable = 91;
constexpr int kCooperative = 95;
constexpr int kVmm = 102;
constexpr int kDescriptorHandles = 103;
constexpr int kRdmaWithVmm = 110;
constexpr int kDmaBuf = 124;
constexpr int kFabricHandles = 128;

constexpr int kRangeDmaBuf = 1;  // CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD

constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kEventNoTiming = 2;
constexpr unsigned kHostRegisterPortableMapped = 3;
constexpr int kPointerMemoryType = 2;  // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
constexpr int kPointerOrdinal = 9;     // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
constexpr int kMemoryOfDevice = 2;     // CU_MEMORYTYPE_DEVICE
constexpr int kSharedBytes = 8;        // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr Result kNotReady = 600;

struct Table {
  explicit Table(const Library& library);

  Result (*init)(unsigned flags);
  Result (*driver_version)(int* version);
  Result (*error_string)(Result error, const char** text);
  Result (*device_count)(int* count);
  Result (*device)(int* device, int ordinal);
  Result (*device_name)(char* name, int room, int device);
  Result (*device_memory)(std::size_t* bytes, int device);
  Result (*device_attribute)(int* value, int attribute, int device);
  Result (*bus_id)(char* name, int room, int device);
  Result (*can_access)(int* can, int device, int peer);
  Result (*retain_primary)(Context* context, int device);
  Result (*release_primary)(int device);
  Result (*set_current)(Context context);
  Result (*memory_info)(std::size_t* free, std::size_t* total);

  Result (*granularity)(std::size_t* bytes, const AllocationProperties* what, int option);
  Result (*reserve)(DevicePointer* at, std::size_t bytes, std::size_t alignment, DevicePointer hint,
                    unsigned long long flags);
  Result (*free_reserved)(DevicePointer at, std::size_t bytes);
  Result (*create)(Handle* handle, std::size_t bytes, const AllocationProperties* what,
                   unsigned long long flags);
  Result (*release)(Handle handle);
  Result (*export_handle)(void* out, Handle handle, int type, unsigned long long flags);
  Result (*import_handle)(Handle* handle, void* from, int type);
  // Null before CUDA 11.7.
  Result (*export_range)(void* out, DevicePointer at, std::size_t bytes, int type,
                         unsigned long long flags);
  Result (*map)(DevicePointer at, std::size_t bytes, std::size_t offset, Handle handle,
                unsigned long long flags);
  Result (*set_access)(DevicePointer at, std::size_t bytes, const AccessDescription* access,
                       std::size_t count);
  Result (*unmap)(DevicePointer at, std::size_t bytes);

  Result (*allocate)(DevicePointer* at, std::size_t bytes);
  Result (*free)(DevicePointer at);
  Result (*register_host)(void* at, std::size_t bytes, unsigned flags);
  Result (*unregister_host)(void* at);
  Result (*pointer_attribute)(void* value, int attribute, DevicePointer at);

  Result (*copy)(DevicePointer to, DevicePointer from, std::size_t bytes, StreamPointer stream);
  Result (*fill)(DevicePointer at, unsigned char value, std::size_t bytes, StreamPointer stream);
  Result (*create_stream)(StreamPointer* stream, unsigned flags, int priority);
  Result (*stream_priorities)(int* least, int* greatest);
  Result (*destroy_stream)(StreamPointer stream);
  Result (*synchronize)(StreamPointer stream);
  Result (*stream_query)(StreamPointer stream);
  Result (*stream_capturing)(StreamPointer stream, int* status);
  Result (*create_event)(void** event, unsigned flags);
  Result (*destroy_event)(void* event);
  Result (*record)(void* event, StreamPointer stream);
  Result (*wait_event)(StreamPointer stream, void* event, unsigned flags);
  Result (*event_query)(void* event);

  Result (*load_module)(void** module, const void* image);
  Result (*unload_module)(void* module);
  Result (*function)(void** function, void* module, const char* name);
  // The next three are null before CUDA 12.4.
  Result (*function_count)(unsigned* count, void* module);
  Result (*all_functions)(void** functions, unsigned count, void* module);
  Result (*load_function)(void* function);
  Result (*set_attribute)(void* function, int attribute, int value);
  Result (*occupancy)(int* blocks, void* function, int threads, std::size_t shared_bytes);
  Result (*launch)(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared_bytes, StreamPointer stream, void** arguments,
                   void** extra);
  Result (*launch_cooperative)(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                               unsigned by, unsigned bz, unsigned shared_bytes,
                               StreamPointer stream, void** arguments);
};

}  // namespace railshmem::gpu::cuda
