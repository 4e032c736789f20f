// Memory that is private to a PE and that its kernels use: the GPU's where kernels run there, else
// the process's own.
#pragma once

#include <cstdint>
#include <vector>

#include "shmem/api/gpu_side.hpp"

namespace railshmem::ep {

class KernelMemory {
 public:
  // Zeros. `gpu` null: kernels run on the CPU.
  KernelMemory(GpuSide* gpu, uint64_t bytes);
  KernelMemory(const KernelMemory&) = delete;
  KernelMemory& operator=(const KernelMemory&) = delete;

  // As kernels know it: on a GPU CPU code only copies.
  void* at() { return gpu_ != nullptr ? block_.as<void>() : own_.data(); }
  // Between this memory and the process's own; does not wait for kernels.
  void copy(void* to, const void* from, uint64_t bytes) const;

 private:
  struct alignas(64) Line {
    char bytes[64];
  };
  GpuSide* const gpu_;
  std::vector<Line> own_;
  gpu::DeviceBlock block_;
};

}  // namespace railshmem::ep
