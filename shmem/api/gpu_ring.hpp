// The ring by which kernels of a GPU hand commands to the progress thread: what they change lies in
// the GPU's memory, what the thread reads and writes in host memory that the GPU reaches.
#pragma once

#include "shmem/api/gpu_side.hpp"
#include "shmem/transport/proxy/ring_memory.hpp"

namespace railshmem {

class GpuRing {
 public:
  GpuRing(GpuSide& gpu, const proxy::RingShape& shape)
      : gpu_(gpu),
        host_(gpu.site(), proxy::ConsumerSide::bytes(shape)),
        device_(gpu.site(), proxy::ProducerSide::bytes(shape)),
        consumer_(shape, host_.as<char>()),
        producers_(consumer_, device_.address(), nullptr) {
    gpu_.copy(device_.as<void>(), producers_.image().data(), producers_.image().size());
  }
  GpuRing(const GpuRing&) = delete;
  GpuRing& operator=(const GpuRing&) = delete;

  const proxy::ConsumerSide& consumer() const { return consumer_; }
  // Lets the kernels' context post here.
  void join(device::DeviceContext& context) const { producers_.join(context); }
  // Waits until what ended kernels have posted is complete; `host`: this PE's context for CPU code.
  // False: stopped.
  bool quiet(const device::DeviceContext& host);

 private:
  GpuSide& gpu_;
  const gpu::PinnedBlock host_;
  const gpu::DeviceBlock device_;
  const proxy::ConsumerSide consumer_;
  const proxy::ProducerSide producers_;
};

}  // namespace railshmem
