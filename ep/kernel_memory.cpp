#include "ep/kernel_memory.hpp"

#include <cstring>

namespace railshmem::ep {

KernelMemory::KernelMemory(GpuSide* gpu, uint64_t bytes) : gpu_(gpu) {
  if (gpu_ != nullptr)
    block_ = gpu::DeviceBlock(gpu_->site(), bytes);
  else
    own_.resize((bytes + sizeof(Line) - 1) / sizeof(Line));
}

void KernelMemory::copy(void* to, const void* from, uint64_t bytes) const {
  if (bytes == 0) return;
  if (gpu_ != nullptr)
    gpu_->look(to, from, bytes);
  else
    std::memcpy(to, from, bytes);
}

}  // namespace railshmem::ep
