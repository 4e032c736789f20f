// The GPU's driver as the library uses it: one interface, one implementation per vendor. Drivers
// are reached at run time and never linked, so the library runs where there is none.
//
// Every call throws Error(gpu) with the driver's function, its arguments that matter and its
// answer. Calls work on the thread's current context (use()).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "shmem/base/file_descriptor.hpp"

namespace railshmem::gpu {

using Address = uint64_t;  // in the GPU's (and, being unified, the process's) address space
using Allocation = uint64_t;
using Stream = void*;  // null: the legacy default stream
using Event = void*;
using Module = void*;
using Function = void*;

enum class Sharing { none, descriptor, fabric };
struct FabricHandle {
  std::array<unsigned char, 64> bytes{};
};

// What a GPU is and can do, as its driver says.
struct Facts {
  std::string name;
  std::string architecture;  // "sm_90", "gfx942"
  std::string bus_id;        // names the card, whatever the process may see of it
  uint64_t memory_bytes = 0;
  int processors = 0;        // SMs, compute units
  bool vmm = false;          // memory made, shared and mapped in pieces
  bool fabric = false;       // says that fabric handles exist; only making one proves it
  bool cooperative = false;  // grids whose blocks wait for each other
  bool dma_buf = false;      // Driver::export_dma_buf works
};

struct Launch {
  uint32_t blocks = 1;
  uint32_t threads = 1;
  uint32_t shared_bytes = 0;
  Stream stream = nullptr;
  bool cooperative = false;  // all blocks run at once
};

class Driver {
 public:
  virtual ~Driver() = default;

  virtual const char* name() const = 0;     // "CUDA", "HIP"
  virtual std::string version() const = 0;  // "13.0"
  virtual int device_count() const = 0;     // that this process may see
  virtual Facts facts(int device) const = 0;
  virtual bool can_access(int device, int peer) const = 0;

  // Makes the device's primary context, which torch and others share, current in this thread.
  virtual void use(int device) = 0;
  virtual void free_and_total(uint64_t* free, uint64_t* total) = 0;

  // ---- memory in pieces: addresses, allocations, and the one mapped at the other ----

  virtual uint64_t granularity(int device, Sharing sharing) = 0;
  // `hint` 0: anywhere. The driver may answer with another address than the hint.
  virtual Address reserve(uint64_t bytes, uint64_t alignment, Address hint) = 0;
  virtual void free_reserved(Address address, uint64_t bytes) = 0;
  virtual Allocation create(int device, uint64_t bytes, Sharing sharing) = 0;
  virtual void release(Allocation allocation) = 0;
  virtual FileDescriptor export_descriptor(Allocation allocation) = 0;
  virtual FabricHandle export_fabric(Allocation allocation) = 0;
  // Of mapped memory, whole pages of the host's size: what other devices (NICs) reach it with.
  virtual FileDescriptor export_dma_buf(Address address, uint64_t bytes) = 0;
  virtual Allocation import_descriptor(int fd) = 0;
  virtual Allocation import_fabric(const FabricHandle& handle) = 0;
  // Readable and writable by `device`.
  virtual void map(Address address, uint64_t bytes, Allocation allocation, int device) = 0;
  // What is mapped there, by one more device of this process.
  virtual void allow(Address address, uint64_t bytes, int device) = 0;
  virtual void unmap(Address address, uint64_t bytes) = 0;

  // ---- other memory ----

  virtual Address allocate(uint64_t bytes) = 0;  // of the current device; holds anything
  virtual void free(Address address) = 0;
  // Host memory that the GPU reaches at the same address. Whole pages.
  virtual void register_host(void* address, uint64_t bytes) = 0;
  virtual void unregister_host(void* address) = 0;
  // The device that holds the memory at `address`; -1: it is no GPU's.
  virtual int device_of(const void* address) const = 0;

  // ---- work ----

  // Between any memories; host memory that is not registered is copied before the call returns.
  virtual void copy(Address to, Address from, uint64_t bytes, Stream stream) = 0;
  virtual void fill(Address at, unsigned char value, uint64_t bytes, Stream stream) = 0;

  // `apart`: work neither waits for the default stream's nor makes that wait. `urgent`: its blocks
  // start before those of other streams.
  virtual Stream create_stream(bool apart, bool urgent) = 0;
  virtual void destroy_stream(Stream stream) = 0;
  virtual void synchronize(Stream stream) = 0;
  virtual bool idle(Stream stream) = 0;  // everything enqueued has ended
  virtual bool capturing(Stream stream) = 0;
  virtual Event create_event() = 0;
  virtual void destroy_event(Event event) = 0;
  virtual void record(Event event, Stream stream) = 0;
  virtual void wait(Stream stream, Event event) = 0;
  virtual bool ended(Event event) = 0;

  // `image`: machine code of the device's architecture. Loaded whole, at once: a lazy load could
  // wait for kernels that wait for what is loaded.
  virtual Module load(const void* image) = 0;
  virtual void unload(Module module) = 0;
  virtual Function function(Module module, const char* name) = 0;
  virtual int blocks_per_processor(Function function, uint32_t threads, uint32_t shared_bytes) = 0;
  virtual void allow_shared(Function function, uint32_t bytes) = 0;  // more than 48 KiB
  virtual void launch(Function function, const Launch& how, void** arguments) = 0;
};

// A GPU as one PE uses it.
struct Site {
  std::shared_ptr<Driver> driver;
  int device = 0;
};

// Each throws Error(gpu) saying why there is no such driver. `path` names the library; empty: the
// system's.
std::unique_ptr<Driver> load_cuda(const std::string& path);
std::unique_ptr<Driver> load_hip(const std::string& path);

}  // namespace railshmem::gpu
