// AMD's HIP runtime. Built and tested against a stand-in only.
#include <fcntl.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "shmem/gpu/driver.hpp"
#include "shmem/gpu/hip_table.hpp"

namespace railshmem::gpu {
namespace {

using namespace hip;

// The first whose VMM makes memory that no cache holds back. A heap needs that: what peers and NICs
// write must be seen by kernels that are running.
constexpr int kOldestDriver = 70200000;

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
void* pointer(uint64_t value) {
  return reinterpret_cast<void*>(value);
}
uint64_t value_of(const void* at) {
  return reinterpret_cast<uint64_t>(at);
}

class HipDriver final : public Driver {
 public:
  explicit HipDriver(const std::string& path) : library_(path, "libamdhip64.so"), call_(library_) {
    check(call_.init(0), "hipInit");
    check(call_.driver_version(&version_), "hipDriverGetVersion");
    if (version_ < kOldestDriver)
      fail(ErrorKind::gpu, "the HIP runtime is of version ", version(),
           ", but 7.2 is needed: older ones have no uncached memory that other processes can map");
  }

  const char* name() const override { return "HIP"; }
  std::string version() const override {
    return text(version_ / 10000000, ".", version_ % 10000000 / 100000);
  }
  int device_count() const override {
    int count = 0;
    check(call_.device_count(&count), "hipGetDeviceCount");
    return count;
  }

  Facts facts(int device) const override {
    Facts out;
    Properties properties = {};
    check(call_.device_properties(&properties, device), "hipGetDeviceProperties of ", device);
    out.name = properties.name;
    const std::string target = properties.architecture;  // "gfx942:sramecc+:xnack-"
    out.architecture = target.substr(0, target.find(':'));
    char bus[64] = {};
    check(call_.bus_id(bus, sizeof bus, device), "hipDeviceGetPCIBusId of ", device);
    out.bus_id = bus;
    std::size_t bytes = 0;
    check(call_.device_memory(&bytes, device), "hipDeviceTotalMem of ", device);
    out.memory_bytes = bytes;
    out.processors = attribute(device, kProcessors);
    out.vmm = attribute(device, kVmm) != 0 && attribute(device, kHostPointerUsable) != 0;
    out.fabric = attribute(device, kFabricHandles) != 0;
    out.cooperative = attribute(device, kCooperative) != 0;
    return out;
  }

  bool can_access(int device, int peer) const override {
    if (device == peer) return true;
    int can = 0;
    check(call_.can_access(&can, device, peer), "hipDeviceCanAccessPeer");
    return can != 0;
  }

  void use(int device) override { check(call_.set_device(device), "hipSetDevice of ", device); }

  void free_and_total(uint64_t* free, uint64_t* total) override {
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    check(call_.memory_info(&free_bytes, &total_bytes), "hipMemGetInfo");
    *free = free_bytes;
    *total = total_bytes;
  }

  // ---- memory in pieces ----

  uint64_t granularity(int device, Sharing sharing) override {
    const AllocationProperties what = properties(device, sharing);
    std::size_t bytes = 0;
    check(call_.granularity(&bytes, &what, kGranularityRecommended),
          "hipMemGetAllocationGranularity");
    return bytes;
  }
  Address reserve(uint64_t bytes, uint64_t alignment, Address hint) override {
    void* at = nullptr;
    check(call_.reserve(&at, bytes, alignment, pointer(hint), 0), "hipMemAddressReserve of ",
          bytes_text(bytes));
    return value_of(at);
  }
  void free_reserved(Address address, uint64_t bytes) override {
    check(call_.free_reserved(pointer(address), bytes), "hipMemAddressFree");
  }
  Allocation create(int device, uint64_t bytes, Sharing sharing) override {
    const AllocationProperties what = properties(device, sharing);
    void* out = nullptr;
    check(call_.create(&out, bytes, &what, 0), "hipMemCreate of ", bytes_text(bytes), " on device ",
          device);
    return value_of(out);
  }
  void release(Allocation allocation) override {
    check(call_.release(pointer(allocation)), "hipMemRelease");
    const std::lock_guard<std::mutex> held(mutex_);
    imported_.erase(allocation);
  }
  FileDescriptor export_descriptor(Allocation allocation) override {
    int fd = -1;
    check(call_.export_handle(&fd, pointer(allocation), kHandleDescriptor, 0),
          "hipMemExportToShareableHandle (descriptor)");
    return FileDescriptor(fd);
  }
  FabricHandle export_fabric(Allocation allocation) override {
    FabricHandle out;
    check(call_.export_handle(out.bytes.data(), pointer(allocation), kHandleFabric, 0),
          "hipMemExportToShareableHandle (fabric)");
    return out;
  }
  FileDescriptor export_dma_buf(Address, uint64_t) override {
    fail(ErrorKind::gpu, "HIP has no function that exports a range of memory as a DMA-BUF");
  }
  Allocation import_descriptor(int fd) override {
    // Some runtimes open it only when access is set, so it lives as long as the allocation.
    FileDescriptor kept(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!kept.valid()) fail(ErrorKind::gpu, "descriptor ", fd, ": ", errno_text());
    const std::lock_guard<std::mutex> held(mutex_);
    void* out = nullptr;
    check(call_.import_handle(&out, pointer(static_cast<uint64_t>(kept.get())), kHandleDescriptor),
          "hipMemImportFromShareableHandle (descriptor ", fd, ")");
    imported_[value_of(out)] = std::move(kept);
    return value_of(out);
  }
  Allocation import_fabric(const FabricHandle& handle) override {
    FabricHandle copy = handle;
    const std::lock_guard<std::mutex> held(mutex_);
    void* out = nullptr;
    check(call_.import_handle(&out, copy.bytes.data(), kHandleFabric),
          "hipMemImportFromShareableHandle (fabric)");
    return value_of(out);
  }
  void map(Address address, uint64_t bytes, Allocation allocation, int device) override {
    {
      const std::lock_guard<std::mutex> held(mutex_);
      check(call_.map(pointer(address), bytes, 0, pointer(allocation), 0), "hipMemMap of ",
            bytes_text(bytes));
    }
    try {
      allow(address, bytes, device);
    } catch (const Error&) {
      call_.unmap(pointer(address), bytes);
      throw;
    }
  }
  void allow(Address address, uint64_t bytes, int device) override {
    const AccessDescription access{{kOnDevice, device}, kReadWrite};
    const std::lock_guard<std::mutex> held(mutex_);
    check(call_.set_access(pointer(address), bytes, &access, 1), "hipMemSetAccess of ",
          bytes_text(bytes), " for device ", device);
  }
  void unmap(Address address, uint64_t bytes) override {
    const std::lock_guard<std::mutex> held(mutex_);
    check(call_.unmap(pointer(address), bytes), "hipMemUnmap");
  }

  // ---- other memory ----

  Address allocate(uint64_t bytes) override {
    void* at = nullptr;
    check(call_.allocate(&at, bytes), "hipMalloc of ", bytes_text(bytes));
    return value_of(at);
  }
  void free(Address address) override { check(call_.free(pointer(address)), "hipFree"); }
  void register_host(void* address, uint64_t bytes) override {
    check(call_.register_host(address, bytes, kHostRegisterPortableMapped), "hipHostRegister of ",
          bytes_text(bytes), " at ", address);
    void* seen = nullptr;
    const Result result = call_.device_pointer(&seen, address, 0);
    if (result == 0 && seen == address) return;
    call_.unregister_host(address);
    check(result, "hipHostGetDevicePointer");
    fail(ErrorKind::gpu, "the GPU reaches host memory at ", address, " at another address, ", seen);
  }
  void unregister_host(void* address) override {
    check(call_.unregister_host(address), "hipHostUnregister");
  }
  int device_of(const void* address) const override {
    void* const at = const_cast<void*>(address);
    int type = 0;
    int ordinal = -1;
    if (call_.pointer_attribute(&type, kPointerMemoryType, at) != 0 || type != kMemoryOfDevice ||
        call_.pointer_attribute(&ordinal, kPointerOrdinal, at) != 0)
      return -1;  // memory that the driver does not know
    return ordinal;
  }

  // ---- work ----

  void copy(Address to, Address from, uint64_t bytes, Stream stream) override {
    check(call_.copy(pointer(to), pointer(from), bytes, kCopyDefault, stream), "hipMemcpyAsync of ",
          bytes_text(bytes));
  }
  void fill(Address at, unsigned char value, uint64_t bytes, Stream stream) override {
    check(call_.fill(pointer(at), value, bytes, stream), "hipMemsetD8Async of ", bytes_text(bytes));
  }
  Stream create_stream(bool apart, bool urgent) override {
    int least = 0;
    int greatest = 0;
    check(call_.stream_priorities(&least, &greatest), "hipDeviceGetStreamPriorityRange");
    Stream out = nullptr;
    check(call_.create_stream(&out, apart ? kStreamNonBlocking : 0, urgent ? greatest : least),
          "hipStreamCreateWithPriority");
    return out;
  }
  void destroy_stream(Stream stream) override {
    check(call_.destroy_stream(stream), "hipStreamDestroy");
  }
  void synchronize(Stream stream) override {
    check(call_.synchronize(stream), "hipStreamSynchronize");
  }
  bool idle(Stream stream) override {
    return is_ready(call_.stream_query(stream), "hipStreamQuery");
  }
  bool capturing(Stream stream) override {
    int status = 0;
    check(call_.stream_capturing(stream, &status), "hipStreamIsCapturing");
    return status != 0;
  }
  Event create_event() override {
    Event out = nullptr;
    check(call_.create_event(&out, kEventNoTiming), "hipEventCreateWithFlags");
    return out;
  }
  void destroy_event(Event event) override { check(call_.destroy_event(event), "hipEventDestroy"); }
  void record(Event event, Stream stream) override {
    check(call_.record(event, stream), "hipEventRecord");
  }
  void wait(Stream stream, Event event) override {
    check(call_.wait_event(stream, event, 0), "hipStreamWaitEvent");
  }
  bool ended(Event event) override { return is_ready(call_.event_query(event), "hipEventQuery"); }

  Module load(const void* image) override {
    Module out = nullptr;
    check(call_.load_module(&out, image), "hipModuleLoadData");
    return out;
  }
  void unload(Module module) override { check(call_.unload_module(module), "hipModuleUnload"); }
  Function function(Module module, const char* name) override {
    Function out = nullptr;
    check(call_.function(&out, module, name), "hipModuleGetFunction of ", name);
    return out;
  }
  int blocks_per_processor(Function function, uint32_t threads, uint32_t shared_bytes) override {
    int blocks = 0;
    check(call_.occupancy(&blocks, function, static_cast<int>(threads), shared_bytes),
          "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor");
    return blocks;
  }
  // A block may have all that there is, unasked.
  void allow_shared(Function, uint32_t bytes) override {
    int device = 0;
    check(call_.current_device(&device), "hipGetDevice");
    const int most = attribute(device, kSharedBytesPerBlock);
    if (bytes > static_cast<uint32_t>(most))
      fail(ErrorKind::gpu, bytes, " bytes of shared memory, and a block has ", most, " at most");
  }
  void launch(Function function, const Launch& how, void** arguments) override {
    if (how.cooperative)
      check(call_.launch_cooperative(function, how.blocks, 1, 1, how.threads, 1, 1,
                                     how.shared_bytes, how.stream, arguments),
            "hipModuleLaunchCooperativeKernel with ", how.blocks, " blocks of ", how.threads);
    else
      check(call_.launch(function, how.blocks, 1, 1, how.threads, 1, 1, how.shared_bytes,
                         how.stream, arguments, nullptr),
            "hipModuleLaunchKernel with ", how.blocks, " blocks of ", how.threads);
  }

 private:
  template <class... Parts>
  void check(Result result, const Parts&... what) const {
    if (result == 0) return;
    const char* const why = call_.error_string(result);
    fail(ErrorKind::gpu, what..., ": error ", result, " (", why == nullptr ? "unknown" : why, ")");
  }
  bool is_ready(Result result, const char* call) const {
    if (result == kNotReady) return false;
    check(result, call);
    return true;
  }
  // 0 where this runtime does not know the attribute: then it does not have what is asked for.
  int attribute(int device, int which) const {
    int value = 0;
    return call_.device_attribute(&value, which, device) == 0 ? value : 0;
  }
  AllocationProperties properties(int device, Sharing sharing) const {
    AllocationProperties what = {};
    what.type = kUncached;
    what.handle_types = handle_type(sharing);
    what.location = {kOnDevice, device};
    what.gpu_direct_rdma = attribute(device, kRdmaWithVmm) != 0 ? 1 : 0;
    return what;
  }

  const Library library_;
  const Table call_;
  int version_ = 0;
  std::mutex mutex_;  // some runtimes take one call about mappings at a time
  std::map<Allocation, FileDescriptor> imported_;
};

}  // namespace

std::unique_ptr<Driver> load_hip(const std::string& path) {
  return std::make_unique<HipDriver>(path);
}

}  // namespace railshmem::gpu
