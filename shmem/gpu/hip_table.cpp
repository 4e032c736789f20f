#include "shmem/gpu/hip_table.hpp"

namespace railshmem::gpu::hip {

Table::Table(const Library& library) {
  library.find("hipInit", init);
  library.find("hipDriverGetVersion", driver_version);
  library.find("hipGetErrorString", error_string);
  library.find("hipGetDeviceCount", device_count);
  library.find("hipGetDevicePropertiesR0600", device_properties);
  library.find("hipDeviceTotalMem", device_memory);
  library.find("hipDeviceGetAttribute", device_attribute);
  library.find("hipDeviceGetPCIBusId", bus_id);
  library.find("hipDeviceCanAccessPeer", can_access);
  library.find("hipSetDevice", set_device);
  library.find("hipGetDevice", current_device);
  library.find("hipMemGetInfo", memory_info);
  library.find("hipMemGetAllocationGranularity", granularity);
  library.find("hipMemAddressReserve", reserve);
  library.find("hipMemAddressFree", free_reserved);
  library.find("hipMemCreate", create);
  library.find("hipMemRelease", release);
  library.find("hipMemExportToShareableHandle", export_handle);
  library.find("hipMemImportFromShareableHandle", import_handle);
  library.find("hipMemMap", map);
  library.find("hipMemSetAccess", set_access);
  library.find("hipMemUnmap", unmap);
  library.find("hipMalloc", allocate);
  library.find("hipFree", free);
  library.find("hipHostRegister", register_host);
  library.find("hipHostUnregister", unregister_host);
  library.find("hipHostGetDevicePointer", device_pointer);
  library.find("hipPointerGetAttribute", pointer_attribute);
  library.find("hipMemcpyAsync", copy);
  library.find("hipMemsetD8Async", fill);
  library.find("hipStreamCreateWithPriority", create_stream);
  library.find("hipDeviceGetStreamPriorityRange", stream_priorities);
  library.find("hipStreamDestroy", destroy_stream);
  library.find("hipStreamSynchronize", synchronize);
  library.find("hipStreamQuery", stream_query);
  library.find("hipStreamIsCapturing", stream_capturing);
  library.find("hipEventCreateWithFlags", create_event);
  library.find("hipEventDestroy", destroy_event);
  library.find("hipEventRecord", record);
  library.find("hipStreamWaitEvent", wait_event);
  library.find("hipEventQuery", event_query);
  library.find("hipModuleLoadData", load_module);
  library.find("hipModuleUnload", unload_module);
  library.find("hipModuleGetFunction", function);
  library.find("hipModuleOccupancyMaxActiveBlocksPerMultiprocessor", occupancy);
  library.find("hipModuleLaunchKernel", launch);
  library.find("hipModuleLaunchCooperativeKernel", launch_cooperative);
}

}  // namespace railshmem::gpu::hip
