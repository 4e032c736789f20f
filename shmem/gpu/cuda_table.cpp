#include "shmem/gpu/cuda_table.hpp"

namespace railshmem::gpu::cuda {

// Where a function has several versions, the one whose types are those of the table.
Table::Table(const Library& library) {
  library.find("cuInit", init);
  library.find("cuDriverGetVersion", driver_version);
  library.find("cuGetErrorString", error_string);
  library.find("cuDeviceGetCount", device_count);
  library.find("cuDeviceGet", device);
  library.find("cuDeviceGetName", device_name);
  library.find("cuDeviceTotalMem_v2", device_memory);
  library.find("cuDeviceGetAttribute", device_attribute);
  library.find("cuDeviceGetPCIBusId", bus_id);
  library.find("cuDeviceCanAccessPeer", can_access);
  library.find("cuDevicePrimaryCtxRetain", retain_primary);
  library.find("cuDevicePrimaryCtxRelease_v2", release_primary);
  library.find("cuCtxSetCurrent", set_current);
  library.find("cuMemGetInfo_v2", memory_info);
  library.find("cuMemGetAllocationGranularity", granularity);
  library.find("cuMemAddressReserve", reserve);
  library.find("cuMemAddressFree", free_reserved);
  library.find("cuMemCreate", create);
  library.find("cuMemRelease", release);
  library.find("cuMemExportToShareableHandle", export_handle);
  library.find("cuMemImportFromShareableHandle", import_handle);
  library.find_newer("cuMemGetHandleForAddressRange", export_range);
  library.find("cuMemMap", map);
  library.find("cuMemSetAccess", set_access);
  library.find("cuMemUnmap", unmap);
  library.find("cuMemAlloc_v2", allocate);
  library.find("cuMemFree_v2", free);
  library.find("cuMemHostRegister_v2", register_host);
  library.find("cuMemHostUnregister", unregister_host);
  library.find("cuPointerGetAttribute", pointer_attribute);
  library.find("cuMemcpyAsync", copy);
  library.find("cuMemsetD8Async", fill);
  library.find("cuStreamCreateWithPriority", create_stream);
  library.find("cuCtxGetStreamPriorityRange", stream_priorities);
  library.find("cuStreamDestroy_v2", destroy_stream);
  library.find("cuStreamSynchronize", synchronize);
  library.find("cuStreamQuery", stream_query);
  library.find("cuStreamIsCapturing", stream_capturing);
  library.find("cuEventCreate", create_event);
  library.find("cuEventDestroy_v2", destroy_event);
  library.find("cuEventRecord", record);
  library.find("cuStreamWaitEvent", wait_event);
  library.find("cuEventQuery", event_query);
  library.find("cuModuleLoadData", load_module);
  library.find("cuModuleUnload", unload_module);
  library.find("cuModuleGetFunction", function);
  library.find_newer("cuModuleGetFunctionCount", function_count);
  library.find_newer("cuModuleEnumerateFunctions", all_functions);
  library.find_newer("cuFuncLoad", load_function);
  library.find("cuFuncSetAttribute", set_attribute);
  library.find("cuOccupancyMaxActiveBlocksPerMultiprocessor", occupancy);
  library.find("cuLaunchKernel", launch);
  library.find("cuLaunchCooperativeKernel", launch_cooperative);
}

}  // namespace railshmem::gpu::cuda
