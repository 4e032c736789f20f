// How CPU code touches what users allocate: by plain loads and stores where the heap is in host
// memory, else by the GPU's driver. Symmetric memory of mapped peers likewise.
#pragma once

#include <cstddef>
#include <cstring>

#include <vector>
#include "kernels/arch/arch.hpp"

#include "shmem/api/gpu_side.hpp"

namespace railshmem {

class HeapMemory {
 public:
  void set_gpu(GpuSide* gpu) { gpu_ = gpu; }
  bool on_gpu() const { return gpu_ != nullptr; }

  // Between any memories, the caller's included. Done when it returns.
  void copy(void* to, const void* from, std::size_t bytes) const {
    if (gpu_ != nullptr)
      gpu_->copy(to, from, bytes);
    else
      arch::copy<arch::Scope::thread>(to, from, bytes);
  }
  void fill(void* at, int value, std::size_t bytes) const {
    if (gpu_ != nullptr)
      gpu_->fill(at, static_cast<unsigned char>(value), bytes);
    else
      std::memset(at, value, bytes);
  }
  // The word as it is now. Acquire: what was put before its value is seen by who looks next.
  template <class T>
  T load(const T* word) const {
    if (gpu_ == nullptr) return arch::load_acquire(word);
    T seen;
    gpu_->look(&seen, word, sizeof seen);
    return seen;
  }

 private:
  GpuSide* gpu_ = nullptr;
};

// Several elements of heap memory as CPU code sees them: where they lie, or a copy.
class HeapView {
 public:
  HeapView(const HeapMemory& memory, const void* at, std::size_t bytes) : data_(at) {
    if (!memory.on_gpu() || bytes == 0) return;
    copy_.resize(bytes);
    memory.copy(copy_.data(), at, bytes);
    data_ = copy_.data();
  }
  HeapView(const HeapView&) = delete;
  HeapView& operator=(const HeapView&) = delete;
  const char* data() const { return static_cast<const char*>(data_); }

 private:
  std::vector<char> copy_;
  const void* data_;
};

}  // namespace railshmem
