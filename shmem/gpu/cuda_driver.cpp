// NVIDIA's driver.
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "shmem/gpu/cuda_table.hpp"
#include "shmem/gpu/driver.hpp"

namespace railshmem::gpu {
namespace {

using namespace cuda;

// Kernels and libraries of this driver's time: below, functions and machine code are missing.
constexpr int kOldestDriver = 12000;

int handle_type(Sharing sharing) {
  switch (sharing) {
    case Sharing::none:
      return kHandleNone;
    case Sharing::descriptor:
      return kHandleDescriptor;
    case Sharing::fabric:
      return kHandleFabric;
  }
  return kHandleNone;
}

class CudaDriver final : public Driver {
 public:
  explicit CudaDriver(const std::string& path) : library_(path, "libcuda.so.1"), call_(library_) {
    check(call_.init(0), "cuInit");
    check(call_.driver_version(&version_), "cuDriverGetVersion");
    if (version_ < kOldestDriver)
      fail(ErrorKind::gpu, "the NVIDIA driver is of CUDA ", version(), ", but 12.0 is needed");
  }
  ~CudaDriver() override {
    for (const auto& primary : primaries_) call_.release_primary(primary.first);
  }

  const char* name() const override { return "CUDA"; }
  std::string version() const override { return text(version_ / 1000, ".", version_ % 1000 / 10); }
  int device_count() const override {
    int count = 0;
    check(call_.device_count(&count), "cuDeviceGetCount");
    return count;
  }

  Facts facts(int device) const override {
    Facts out;
    char text_of[256] = {};
    check(call_.device_name(text_of, sizeof text_of - 1, handle(device)), "cuDeviceGetName");
    out.name = text_of;
    check(call_.bus_id(text_of, sizeof text_of - 1, handle(device)), "cuDeviceGetPCIBusId");
    out.bus_id = text_of;
    out.architecture =
        text("sm_", attribute(device, kCapabilityMajor), attribute(device, kCapabilityMinor));
    std::size_t bytes = 0;
    check(call_.device_memory(&bytes, handle(device)), "cuDeviceTotalMem");
    out.memory_bytes = bytes;
    out.processors = attribute(device, kProcessors);
    out.vmm = attribute(device, kVmm) != 0 && attribute(device, kDescriptorHandles) != 0 &&
              attribute(device, kHostPointerUsable) != 0;
    out.fabric = attribute(device, kFabricHandles) != 0;
    out.cooperative = attribute(device, kCooperative) != 0;
    out.dma_buf = call_.export_range != nullptr && attribute(device, kDmaBuf) != 0;
    return out;
  }

  bool can_access(int device, int peer) const override {
    if (device == peer) return true;
    int can = 0;
    check(call_.can_access(&can, handle(device), handle(peer)), "cuDeviceCanAccessPeer");
    return can != 0;
  }

  void use(int device) override {
    Context context = nullptr;
    {
      const std::lock_guard<std::mutex> held(mutex_);
      const auto found = primaries_.find(handle(device));
      if (found != primaries_.end()) {
        context = found->second;
      } else {
        check(call_.retain_primary(&context, handle(device)), "cuDevicePrimaryCtxRetain of device ",
              device);
        primaries_[handle(device)] = context;
      }
    }
    check(call_.set_current(context), "cuCtxSetCurrent");
  }

  void free_and_total(uint64_t* free, uint64_t* total) override {
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    check(call_.memory_info(&free_bytes, &total_bytes), "cuMemGetInfo");
    *free = free_bytes;
    *total = total_bytes;
  }

  // ---- memory in pieces ----

  uint64_t granularity(int device, Sharing sharing) override {
    const AllocationProperties what = properties(device, sharing);
    std::size_t bytes = 0;
    check(call_.granularity(&bytes, &what, kGranularityRecommended),
          "cuMemGetAllocationGranularity");
    return bytes;
  }
  Address reserve(uint64_t bytes, uint64_t alignment, Address hint) override {
    DevicePointer at = 0;
    check(call_.reserve(&at, bytes, alignment, hint, 0), "cuMemAddressReserve of ",
          bytes_text(bytes));
    return at;
  }
  void free_reserved(Address address, uint64_t bytes) override {
    check(call_.free_reserved(address, bytes), "cuMemAddressFree");
  }
  Allocation create(int device, uint64_t bytes, Sharing sharing) override {
    const AllocationProperties what = properties(device, sharing);
    Handle out = 0;
    check(call_.create(&out, bytes, &what, 0), "cuMemCreate of ", bytes_text(bytes), " on device ",
          device);
    return out;
  }
  void release(Allocation allocation) override { check(call_.release(allocation), "cuMemRelease"); }
  FileDescriptor export_descriptor(Allocation allocation) override {
    int fd = -1;
    check(call_.export_handle(&fd, allocation, kHandleDescriptor, 0),
          "cuMemExportToShareableHandle (descriptor)");
    return FileDescriptor(fd);
  }
  FabricHandle export_fabric(Allocation allocation) override {
    FabricHandle out;
    check(call_.export_handle(out.bytes.data(), allocation, kHandleFabric, 0),
          "cuMemExportToShareableHandle (fabric)");
    return out;
  }
  FileDescriptor export_dma_buf(Address address, uint64_t bytes) override {
    if (call_.export_range == nullptr)
      fail(ErrorKind::gpu, "the NVIDIA driver has no cuMemGetHandleForAddressRange: it is too old");
    int fd = -1;
    check(call_.export_range(&fd, address, bytes, kRangeDmaBuf, 0),
          "cuMemGetHandleForAddressRange of ", bytes_text(bytes));
    return FileDescriptor(fd);
  }
  Allocation import_descriptor(int fd) override {
    Handle out = 0;
    check(call_.import_handle(&out, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                              kHandleDescriptor),
          "cuMemImportFromShareableHandle (descriptor ", fd, ")");
    return out;
  }
  Allocation import_fabric(const FabricHandle& handle) override {
    FabricHandle copy = handle;
    Handle out = 0;
    check(call_.import_handle(&out, copy.bytes.data(), kHandleFabric),
          "cuMemImportFromShareableHandle (fabric)");
    return out;
  }
  void map(Address address, uint64_t bytes, Allocation allocation, int device) override {
    check(call_.map(address, bytes, 0, allocation, 0), "cuMemMap of ", bytes_text(bytes));
    try {
      allow(address, bytes, device);
    } catch (const Error&) {
      call_.unmap(address, bytes);
      throw;
    }
  }
  void allow(Address address, uint64_t bytes, int device) override {
    const AccessDescription access{{kOnDevice, handle(device)}, kReadWrite};
    check(call_.set_access(address, bytes, &access, 1), "cuMemSetAccess of ", bytes_text(bytes),
          " for device ", device);
  }
  void unmap(Address address, uint64_t bytes) override {
    check(call_.unmap(address, bytes), "cuMemUnmap");
  }

  // ---- other memory ----

  Address allocate(uint64_t bytes) override {
    DevicePointer at = 0;
    check(call_.allocate(&at, bytes), "cuMemAlloc of ", bytes_text(bytes));
    return at;
  }
  void free(Address address) override { check(call_.free(address), "cuMemFree"); }
  void register_host(void* address, uint64_t bytes) override {
    check(call_.register_host(address, bytes, kHostRegisterPortableMapped), "cuMemHostRegister of ",
          bytes_text(bytes), " at ", address);
  }
  void unregister_host(void* address) override {
    check(call_.unregister_host(address), "cuMemHostUnregister");
  }
  int device_of(const void* address) const override {
    const auto at = reinterpret_cast<DevicePointer>(address);
    unsigned type = 0;
    int ordinal = -1;
    if (call_.pointer_attribute(&type, kPointerMemoryType, at) != 0 || type != kMemoryOfDevice ||
        call_.pointer_attribute(&ordinal, kPointerOrdinal, at) != 0)
      return -1;  // memory that the driver does not know
    return ordinal;
  }

  // ---- work ----

  void copy(Address to, Address from, uint64_t bytes, Stream stream) override {
    check(call_.copy(to, from, bytes, stream), "cuMemcpyAsync of ", bytes_text(bytes));
  }
  void fill(Address at, unsigned char value, uint64_t bytes, Stream stream) override {
    check(call_.fill(at, value, bytes, stream), "cuMemsetD8Async of ", bytes_text(bytes));
  }
  Stream create_stream(bool apart, bool urgent) override {
    int least = 0;
    int greatest = 0;
    check(call_.stream_priorities(&least, &greatest), "cuCtxGetStreamPriorityRange");
    StreamPointer out = nullptr;
    check(call_.create_stream(&out, apart ? kStreamNonBlocking : 0, urgent ? greatest : least),
          "cuStreamCreateWithPriority");
    return out;
  }
  void destroy_stream(Stream stream) override {
    check(call_.destroy_stream(stream), "cuStreamDestroy");
  }
  void synchronize(Stream stream) override {
    check(call_.synchronize(stream), "cuStreamSynchronize");
  }
  bool idle(Stream stream) override {
    return is_ready(call_.stream_query(stream), "cuStreamQuery");
  }
  bool capturing(Stream stream) override {
    int status = 0;
    check(call_.stream_capturing(stream, &status), "cuStreamIsCapturing");
    return status != 0;
  }
  Event create_event() override {
    Event out = nullptr;
    check(call_.create_event(&out, kEventNoTiming), "cuEventCreate");
    return out;
  }
  void destroy_event(Event event) override { check(call_.destroy_event(event), "cuEventDestroy"); }
  void record(Event event, Stream stream) override {
    check(call_.record(event, stream), "cuEventRecord");
  }
  void wait(Stream stream, Event event) override {
    check(call_.wait_event(stream, event, 0), "cuStreamWaitEvent");
  }
  bool ended(Event event) override { return is_ready(call_.event_query(event), "cuEventQuery"); }

  Module load(const void* image) override {
    Module out = nullptr;
    check(call_.load_module(&out, image), "cuModuleLoadData");
    load_all_functions(out);
    return out;
  }
  void unload(Module module) override { check(call_.unload_module(module), "cuModuleUnload"); }
  Function function(Module module, const char* name) override {
    Function out = nullptr;
    check(call_.function(&out, module, name), "cuModuleGetFunction of ", name);
    return out;
  }
  int blocks_per_processor(Function function, uint32_t threads, uint32_t shared_bytes) override {
    int blocks = 0;
    check(call_.occupancy(&blocks, function, static_cast<int>(threads), shared_bytes),
          "cuOccupancyMaxActiveBlocksPerMultiprocessor");
    return blocks;
  }
  void allow_shared(Function function, uint32_t bytes) override {
    check(call_.set_attribute(function, kSharedBytes, static_cast<int>(bytes)),
          "cuFuncSetAttribute of ", bytes, " bytes of shared memory");
  }
  void launch(Function function, const Launch& how, void** arguments) override {
    if (how.cooperative)
      check(call_.launch_cooperative(function, how.blocks, 1, 1, how.threads, 1, 1,
                                     how.shared_bytes, how.stream, arguments),
            "cuLaunchCooperativeKernel with ", how.blocks, " blocks of ", how.threads);
    else
      check(call_.launch(function, how.blocks, 1, 1, how.threads, 1, 1, how.shared_bytes,
                         how.stream, arguments, nullptr),
            "cuLaunchKernel with ", how.blocks, " blocks of ", how.threads);
  }

 private:
  // Drivers load a function when it is first launched, and wait with that for kernels that run; one
  // of those could wait for this function. Older ones than the table says do so only when asked to.
  void load_all_functions(Module module) const {
    if (call_.function_count == nullptr || call_.all_functions == nullptr ||
        call_.load_function == nullptr)
      return;
    unsigned count = 0;
    check(call_.function_count(&count, module), "cuModuleGetFunctionCount");
    std::vector<Function> all(count);
    check(call_.all_functions(all.data(), count, module), "cuModuleEnumerateFunctions");
    for (const Function function : all) check(call_.load_function(function), "cuFuncLoad");
  }

  template <class... Parts>
  void check(Result result, const Parts&... what) const {
    if (result == 0) return;
    const char* why = nullptr;
    call_.error_string(result, &why);
    fail(ErrorKind::gpu, what..., ": error ", result, " (", why == nullptr ? "unknown" : why, ")");
  }
  bool is_ready(Result result, const char* call) const {
    if (result == kNotReady) return false;
    check(result, call);
    return true;
  }
  int handle(int device) const {
    int out = 0;
    check(call_.device(&out, device), "cuDeviceGet of ", device);
    return out;
  }
  int attribute(int device, int which) const {
    int value = 0;
    check(call_.device_attribute(&value, which, handle(device)), "cuDeviceGetAttribute ", which);
    return value;
  }
  // The driver refuses to make memory for RDMA where it cannot be used for it.
  AllocationProperties properties(int device, Sharing sharing) const {
    AllocationProperties what = {};
    what.type = kPinned;
    what.handle_types = handle_type(sharing);
    what.location = {kOnDevice, handle(device)};
    what.gpu_direct_rdma = attribute(device, kRdmaWithVmm) != 0 ? 1 : 0;
    return what;
  }

  const Library library_;
  const Table call_;
  int version_ = 0;
  std::mutex mutex_;
  std::map<int, Context> primaries_;
};

}  // namespace

std::unique_ptr<Driver> load_cuda(const std::string& path) {
  return std::make_unique<CudaDriver>(path);
}

}  // namespace railshmem::gpu
