// The GPU's part of a runtime: kernels and the DeviceContext they receive, and what CPU code does
// to GPU memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/shmem/context.hpp"
#include "shmem/gpu/blocks.hpp"
#include "shmem/gpu/driver.hpp"

namespace railshmem {

// Machine code of the kernels of kernels/entry/<name>.cu for an architecture such as sm_90.
using KernelSource =
    std::function<std::string(const std::string& name, const std::string& architecture)>;

// What 'railshmem compile --to FOLDER' wrote. Throws Error(gpu) where it did not.
KernelSource kernels_from(const std::string& folder);

class GpuSide {
 public:
  GpuSide(const gpu::Site& site, KernelSource kernels);
  GpuSide(const GpuSide&) = delete;
  GpuSide& operator=(const GpuSide&) = delete;
  ~GpuSide();

  gpu::Driver& driver() const { return *site_.driver; }
  const gpu::Site& site() const { return site_; }
  const gpu::Facts& facts() const { return facts_; }
  // Makes this PE's GPU current in the calling thread: before any call of the driver.
  void use() const { site_.driver->use(site_.device); }

  // ---- what CPU code does, done when it returns; after what the default stream has been given
  // ----

  void copy(void* to, const void* from, std::size_t bytes);
  void fill(void* at, unsigned char value, std::size_t bytes);
  // Copies, then stores `value` where a signal is: whoever sees the value sees the data.
  void copy_and_set(void* to, const void* from, std::size_t bytes, uint64_t* at, uint64_t value);
  // Many small copies at once.
  struct Piece {
    void* to;
    const void* from;
    std::size_t bytes;
  };
  void copy_all(const std::vector<Piece>& pieces);
  // A look at a few bytes that waits for no stream.
  void look(void* to, const void* from, std::size_t bytes);
  // An atomic on mapped memory; returns the old value.
  uint64_t atomic(device::AtomicOp op, void* word, unsigned width, uint64_t operand,
                  uint64_t compare, int pe);

  // ---- kernels ----

  // One of kernels/entry/<module>.cu, which is loaded where it is not yet.
  gpu::Function kernel(const std::string& module, const std::string& name);
  // Launches it with these arguments, each of exactly the kernel's type.
  template <class... Arguments>
  void launch(gpu::Function function, const gpu::Launch& how, Arguments... arguments) {
    void* list[] = {&arguments..., nullptr};
    use();
    site_.driver->launch(function, how, list);
  }

  // What kernels receive, in the GPU's memory.
  const device::DeviceContext* context() const { return context_.as<device::DeviceContext>(); }
  // `host`: this PE's context for CPU code, once it is complete. `words`: offset in the heap of the
  // kernels' own area. `join`: gives the context its ring, where the job has NICs.
  void make_context(const device::DeviceContext& host, uint64_t words,
                    const std::function<void(device::DeviceContext&)>& join);
  // Where kernels report what stopped them.
  device::StopRecord& stop() const { return *stop_.as<device::StopRecord>(); }
  // After a report was taken: kernels may wait again.
  void clear_stop();

 private:
  const int32_t* upload(const int32_t* numbers, int32_t count);

  const gpu::Site site_;
  const gpu::Facts facts_;
  const KernelSource source_;
  std::mutex mutex_;        // of the streams below and of the results
  gpu::OwnedStream work_;   // ordered with the default stream
  gpu::OwnedStream looks_;  // never waits
  gpu::PinnedBlock results_;
  std::mutex kernels_mutex_;
  std::map<std::string, gpu::Module> modules_;
  gpu::PinnedBlock stop_;
  gpu::DeviceBlock claim_;
  gpu::DeviceBlock context_;
  std::vector<gpu::DeviceBlock> tables_;
};

}  // namespace railshmem
