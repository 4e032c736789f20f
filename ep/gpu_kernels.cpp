// Kernels on the PE's GPU: compiled and loaded when the object is made, launched on the caller's
// stream, and not waited for.
#include <sched.h>

#include "ep/kernels.hpp"

namespace railshmem::ep {
namespace {

constexpr uint32_t kThreads = 1024;
// Of shared memory for bulk copies: 7 KiB for each of 32 warps, half a row of 7168 elements of two
// bytes, and their barriers.
constexpr uint32_t kBulkBytes = 32 * 7168 + 256;

class GpuKernels : public Kernels {
 public:
  GpuKernels(Runtime& runtime, const Config& config, int n_nodes)
      : runtime_(runtime),
        gpu_(*runtime.gpu()),
        module_(text("ep_", n_nodes > 1 ? "remote" : "local", "_", suffix_of(config.layout))),
        dispatch_(find("dispatch", "")),
        dispatch_send_(find("dispatch_send", "")),
        dispatch_recv_(find("dispatch_recv", "")),
        combine_(find("combine", type_of(config))),
        combine_send_(find("combine_send", type_of(config))),
        combine_recv_(find("combine_recv", type_of(config))),
        learn_refusals_(n_nodes > 1 ? find("learn_refusals", "") : gpu::Function{}) {
    how_.blocks = static_cast<uint32_t>(config.blocks);
    how_.threads = kThreads;
    how_.cooperative = true;
    if (config.bulk) {
      bulk_bytes_ = kBulkBytes;
      gpu_.use();
      for (const gpu::Function function : {dispatch_, dispatch_send_, dispatch_recv_})
        gpu_.driver().allow_shared(function, bulk_bytes_);
    }
    check_blocks(config);
  }

  void dispatch(const Exchange& x, const DispatchCall& call, const ReceiveCall& receive,
                Stream stream) override {
    launch(dispatch_, bulk_bytes_, stream, x, call, receive);
  }
  void dispatch_send(const Exchange& x, const DispatchCall& call, Stream stream) override {
    launch(dispatch_send_, bulk_bytes_, stream, x, call);
  }
  void dispatch_recv(const Exchange& x, const ReceiveCall& call, Stream stream) override {
    launch(dispatch_recv_, bulk_bytes_, stream, x, call);
  }
  void combine(const Exchange& x, const char* expert_rows, char* out, Stream stream) override {
    launch(combine_, 0, stream, x, expert_rows, out);
  }
  void combine_send(const Exchange& x, const char* expert_rows, Stream stream) override {
    launch(combine_send_, 0, stream, x, expert_rows);
  }
  void combine_recv(const Exchange& x, char* out, Stream stream) override {
    launch(combine_recv_, 0, stream, x, out);
  }
  void learn_refusals(const Exchange& x, bool unasked, Stream stream) override {
    gpu::Launch how;
    how.threads = 32;
    how.stream = stream;
    gpu_.launch(learn_refusals_, how, gpu_.context(), x, static_cast<uint32_t>(unasked));
  }

  void check() override { runtime_.check_kernels(); }
  void keep_waiting(Stream stream) override {
    check();
    if (arch::wait_hook != nullptr && arch::wait_hook())
      fail(ErrorKind::interrupted, "PE ", runtime_.my_pe(),
           ": interrupted while waiting for a kernel");
    gpu_.use();
    if (ended_ && gpu_.driver().idle(stream))
      fail(ErrorKind::gpu, "PE ", runtime_.my_pe(), ": a kernel ended without an answer");
    ended_ = gpu_.driver().idle(stream);  // what it has stored is seen by the next look
    sched_yield();
  }
  void finish(Stream stream) override {
    gpu_.use();
    gpu_.driver().synchronize(stream);
    check();
  }

 private:
  static const char* suffix_of(Layout layout) {
    switch (layout) {
      case Layout::contiguous:
        return "contiguous";
      case Layout::expert_major:
        return "expert_major";
      case Layout::slots:
        break;
    }
    return "slots";
  }
  static const char* type_of(const Config& config) {
    switch (config.combined()) {
      case Type::bf16:
        return "_bf16";
      case Type::fp16:
        return "_fp16";
      default:
        return "_fp32";
    }
  }
  // rsh_ep_<what>_<kind of job><type>
  gpu::Function find(const char* what, const char* type) {
    return gpu_.kernel(module_, text("rsh_ep_", what, module_.substr(2), type));
  }

  void check_blocks(const Config& config) {
    gpu_.use();
    const auto check = [&](gpu::Function function, uint32_t shared_bytes) {
      const int most = gpu_.facts().processors *
                       gpu_.driver().blocks_per_processor(function, kThreads, shared_bytes);
      if (config.blocks > most)
        fail(ErrorKind::argument, "ExpertParallel: blocks=", config.blocks, ": ", gpu_.facts().name,
             " runs at most ", most, " at once");
    };
    for (const gpu::Function function : {dispatch_, dispatch_send_, dispatch_recv_})
      check(function, bulk_bytes_);
    for (const gpu::Function function : {combine_, combine_send_, combine_recv_})
      check(function, 0);
  }

  template <class... Arguments>
  void launch(gpu::Function function, uint32_t shared_bytes, Stream stream,
              Arguments... arguments) {
    gpu::Launch how = how_;
    how.shared_bytes = shared_bytes;
    how.stream = stream;
    ended_ = false;
    gpu_.launch(function, how, gpu_.context(), arguments...);
  }

  Runtime& runtime_;
  GpuSide& gpu_;
  const std::string module_;
  const gpu::Function dispatch_, dispatch_send_, dispatch_recv_;
  const gpu::Function combine_, combine_send_, combine_recv_;
  const gpu::Function learn_refusals_;
  gpu::Launch how_;
  uint32_t bulk_bytes_ = 0;
  bool ended_ = false;  // when keep_waiting() last looked
};

}  // namespace

std::unique_ptr<Kernels> make_gpu_kernels(Runtime& runtime, const Config& config, int n_nodes) {
  return std::make_unique<GpuKernels>(runtime, config, n_nodes);
}

}  // namespace railshmem::ep
