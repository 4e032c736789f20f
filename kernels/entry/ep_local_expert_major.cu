// Expert parallelism in jobs of one node, expert-major layout.
#include "kernels/ep/entry.hpp"

namespace railshmem::device::ep {

using ThisJob = Job<false, Rows::by_expert>;

RSH_KERNEL rsh_ep_dispatch_local_expert_major(const DeviceContext* ctx, const Exchange x,
                                              const DispatchCall call, const ReceiveCall receive) {
  ThisJob::dispatch(ctx, x, call, receive);
}
RSH_KERNEL rsh_ep_dispatch_send_local_expert_major(const DeviceContext* ctx, const Exchange x,
                                                   const DispatchCall call) {
  ThisJob::dispatch_send(ctx, x, call);
}
RSH_KERNEL rsh_ep_dispatch_recv_local_expert_major(const DeviceContext* ctx, const Exchange x,
                                                   const ReceiveCall call) {
  ThisJob::dispatch_recv(ctx, x, call);
}

RSH_KERNEL rsh_ep_combine_local_expert_major_bf16(const DeviceContext* ctx, const Exchange x,
                                                  const char* expert_rows, char* out) {
  ThisJob::combine<Bf16>(ctx, x, expert_rows, out);
}
RSH_KERNEL rsh_ep_combine_send_local_expert_major_bf16(const DeviceContext* ctx, const Exchange x,
                                                       const char* expert_rows) {
  ThisJob::combine_send<Bf16>(ctx, x, expert_rows);
}
RSH_KERNEL rsh_ep_combine_recv_local_expert_major_bf16(const DeviceContext* ctx, const Exchange x,
                                                       char* out) {
  ThisJob::combine_recv<Bf16>(ctx, x, out);
}

RSH_KERNEL rsh_ep_combine_local_expert_major_fp16(const DeviceContext* ctx, const Exchange x,
                                                  const char* expert_rows, char* out) {
  ThisJob::combine<Fp16>(ctx, x, expert_rows, out);
}
RSH_KERNEL rsh_ep_combine_send_local_expert_major_fp16(const DeviceContext* ctx, const Exchange x,
                                                       const char* expert_rows) {
  ThisJob::combine_send<Fp16>(ctx, x, expert_rows);
}
RSH_KERNEL rsh_ep_combine_recv_local_expert_major_fp16(const DeviceContext* ctx, const Exchange x,
                                                       char* out) {
  ThisJob::combine_recv<Fp16>(ctx, x, out);
}

RSH_KERNEL rsh_ep_combine_local_expert_major_fp32(const DeviceContext* ctx, const Exchange x,
                                                  const char* expert_rows, char* out) {
  ThisJob::combine<float>(ctx, x, expert_rows, out);
}
RSH_KERNEL rsh_ep_combine_send_local_expert_major_fp32(const DeviceContext* ctx, const Exchange x,
                                                       const char* expert_rows) {
  ThisJob::combine_send<float>(ctx, x, expert_rows);
}
RSH_KERNEL rsh_ep_combine_recv_local_expert_major_fp32(const DeviceContext* ctx, const Exchange x,
                                                       char* out) {
  ThisJob::combine_recv<float>(ctx, x, out);
}

}  // namespace railshmem::device::ep
