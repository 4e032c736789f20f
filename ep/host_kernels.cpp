// Kernels on the CPU: in the caller's thread, with more blocks in as many threads more.
#include "ep/kernels.hpp"
#include "kernels/ep/combine.hpp"

namespace railshmem::ep {
namespace {

using device::DeviceContext;
using device::ep::Bf16;
using device::ep::Fp16;

template <bool kRemote, class T>
class HostKernels : public Kernels {
 public:
  HostKernels(Runtime& runtime, uint32_t blocks) : runtime_(runtime), blocks_(blocks) {}

  void dispatch(const Exchange& x, const DispatchCall& call, const ReceiveCall& receive,
                Stream) override {
    launch([&](const DeviceContext* ctx) { device::ep::dispatch<kRemote>(ctx, x, call, receive); });
  }
  void dispatch_send(const Exchange& x, const DispatchCall& call, Stream) override {
    launch([&](const DeviceContext* ctx) { device::ep::dispatch_send<kRemote>(ctx, x, call); });
  }
  void dispatch_recv(const Exchange& x, const ReceiveCall& call, Stream) override {
    launch([&](const DeviceContext* ctx) { device::ep::dispatch_recv<kRemote>(ctx, x, call); });
  }
  void combine(const Exchange& x, const char* expert_rows, char* out, Stream) override {
    launch([&](const DeviceContext* ctx) {
      device::ep::combine<kRemote, T>(ctx, x, expert_rows, out);
    });
  }
  void combine_send(const Exchange& x, const char* expert_rows, Stream) override {
    launch([&](const DeviceContext* ctx) {
      device::ep::combine_send<kRemote, T>(ctx, x, expert_rows);
    });
  }
  void combine_recv(const Exchange& x, char* out, Stream) override {
    launch([&](const DeviceContext* ctx) { device::ep::combine_recv<kRemote, T>(ctx, x, out); });
  }
  void learn_refusals(const Exchange& x, bool unasked, Stream) override {
    runtime_.launch(1, [&] { device::ep::learn_refusals(&runtime_.context(), x, unasked); });
  }

  void check() override {}
  void keep_waiting(Stream) override {}
  void finish(Stream) override {}

 private:
  template <class Kernel>
  void launch(const Kernel& kernel) {
    runtime_.launch(blocks_, [&] { kernel(&runtime_.context()); });
  }

  Runtime& runtime_;
  const uint32_t blocks_;
};

template <bool kRemote>
std::unique_ptr<Kernels> of_type(Type type, Runtime& runtime, uint32_t blocks) {
  switch (type) {
    case Type::bf16:
      return std::make_unique<HostKernels<kRemote, Bf16>>(runtime, blocks);
    case Type::fp16:
      return std::make_unique<HostKernels<kRemote, Fp16>>(runtime, blocks);
    default:  // Config::check allows no other
      return std::make_unique<HostKernels<kRemote, float>>(runtime, blocks);
  }
}

}  // namespace

std::unique_ptr<Kernels> make_host_kernels(Runtime& runtime, const Config& config, int n_nodes) {
  const auto blocks = static_cast<uint32_t>(config.blocks);
  return n_nodes > 1 ? of_type<true>(config.combined(), runtime, blocks)
                     : of_type<false>(config.combined(), runtime, blocks);
}

std::unique_ptr<Kernels> make_kernels(Runtime& runtime, const Config& config, int n_nodes) {
  return runtime.gpu() == nullptr ? make_host_kernels(runtime, config, n_nodes)
                                  : make_gpu_kernels(runtime, config, n_nodes);
}

}  // namespace railshmem::ep
