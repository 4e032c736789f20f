// libibverbs, opened at run time: its functions, and owners of what they make.
#pragma once

#include <memory>
#include <string>

#include "shmem/nic/verbs/abi.hpp"

namespace railshmem::nic::verbs {

class Library {
 public:
  // Throws Error(init) saying why it cannot be had.
  static std::shared_ptr<const Library> open();

  Device** (*get_device_list)(int* count);
  void (*free_device_list)(Device** list);
  const char* (*get_device_name)(Device* device);
  Context* (*open_device)(Device* device);
  int (*close_device)(Context* context);
  int (*query_device)(Context* context, DeviceAttributes* out);
  int (*query_port)(Context* context, uint8_t port, PortAttributes* out);
  int (*query_gid)(Context* context, uint8_t port, int index, Gid* out);
  ProtectionDomain* (*alloc_pd)(Context* context);
  int (*dealloc_pd)(ProtectionDomain* domain);
  MemoryRegion* (*reg_mr)(ProtectionDomain* domain, void* address, std::size_t bytes, int access);
  int (*dereg_mr)(MemoryRegion* region);
  CompletionQueue* (*create_cq)(Context* context, int entries, void* own, void* channel,
                                int vector);
  int (*destroy_cq)(CompletionQueue* queue);
  QueuePair* (*create_qp)(ProtectionDomain* domain, QueuePairMaking* how);
  int (*modify_qp)(QueuePair* pair, QueuePairAttributes* attributes, int mask);
  int (*destroy_qp)(QueuePair* pair);
  int (*get_async_event)(Context* context, Event* out);
  void (*ack_async_event)(Event* event);
  // Null where the library is too old.
  MemoryRegion* (*reg_mr_iova2)(ProtectionDomain* domain, void* address, std::size_t bytes,
                                uint64_t remote_address, unsigned access);
  MemoryRegion* (*reg_dmabuf_mr)(ProtectionDomain* domain, uint64_t offset, std::size_t bytes,
                                 uint64_t remote_address, int fd, int access);

 private:
  explicit Library(void* handle);
};

// An object that `Release` of the library gives back.
template <class T, int (*Library::*Release)(T*)>
class Owned {
 public:
  Owned() = default;
  Owned(std::shared_ptr<const Library> library, T* object)
      : library_(std::move(library)), object_(object) {}
  Owned(Owned&& other) noexcept { *this = static_cast<Owned&&>(other); }
  Owned& operator=(Owned&& other) noexcept {
    std::swap(library_, other.library_);
    std::swap(object_, other.object_);
    return *this;
  }
  ~Owned() {
    if (object_ != nullptr) ((*library_).*Release)(object_);
  }

  T* get() const { return object_; }
  T* operator->() const { return object_; }

 private:
  std::shared_ptr<const Library> library_;
  T* object_ = nullptr;
};

using OwnedContext = Owned<Context, &Library::close_device>;
using OwnedDomain = Owned<ProtectionDomain, &Library::dealloc_pd>;
using OwnedRegion = Owned<MemoryRegion, &Library::dereg_mr>;
using OwnedQueue = Owned<CompletionQueue, &Library::destroy_cq>;
using OwnedPair = Owned<QueuePair, &Library::destroy_qp>;

}  // namespace railshmem::nic::verbs
