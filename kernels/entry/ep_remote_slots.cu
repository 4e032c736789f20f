// Expert parallelism in jobs of several nodes, layout by slots.
#include "kernels/ep/entry.hpp"

namespace railshmem::device::ep {

using ThisJob = Job<true, Rows::by_slot>;

RSH_KERNEL rsh_ep_dispatch_remote_slots(const DeviceContext* ctx, const Exchange x,
                                        const DispatchCall call, const ReceiveCall receive) {
  ThisJob::dispatch(ctx, x, call, receive);
}
RSH_KERNEL rsh_ep_dispatch_send_remote_slots(const DeviceContext* ctx, const Exchange x,
                                             const DispatchCall call) {
  ThisJob::dispatch_send(ctx, x, call);
}
RSH_KERNEL rsh_ep_dispatch_recv_remote_slots(const DeviceContext* ctx, const Exchange x,
                                             const ReceiveCall call) {
  ThisJob::dispatch_recv(ctx, x, call);
}

RSH_KERNEL rsh_ep_combine_remote_slots_bf16(const DeviceContext* ctx, const Exchange x,
                                            const char* expert_rows, char* out) {
  ThisJob::combine<Bf16>(ctx, x, expert_rows, out);
}
RSH_KERNEL rsh_ep_combine_send_remote_slots_bf16(const DeviceContext* ctx, const Exchange x,
                                                 const char* expert_rows) {
  ThisJob::combine_send<Bf16>(ctx, x, expert_rows);
}
RSH_KERNEL rsh_ep_combine_recv_remote_slots_bf16(const DeviceContext* ctx, const Exchange x,
                                                 char* out) {
  ThisJob::combine_recv<Bf16>(ctx, x, out);
}

RSH_KERNEL rsh_ep_combine_remote_slots_fp16(const DeviceContext* ctx, const Exchange x,
                                            const char* expert_rows, char* out) {
  ThisJob::combine<Fp16>(ctx, x, expert_rows, out);
}
RSH_KERNEL rsh_ep_combine_send_remote_slots_fp16(const DeviceContext* ctx, const Exchange x,
                                                 const char* expert_rows) {
  ThisJob::combine_send<Fp16>(ctx, x, expert_rows);
}
RSH_KERNEL rsh_ep_combine_recv_remote_slots_fp16(const DeviceContext* ctx, const Exchange x,
                                                 char* out) {
  ThisJob::combine_recv<Fp16>(ctx, x, out);
}

RSH_KERNEL rsh_ep_combine_remote_slots_fp32(const DeviceContext* ctx, const Exchange x,
                                            const char* expert_rows, char* out) {
  ThisJob::combine<float>(ctx, x, expert_rows, out);
}
RSH_KERNEL rsh_ep_combine_send_remote_slots_fp32(const DeviceContext* ctx, const Exchange x,
                                                 const char* expert_rows) {
  ThisJob::combine_send<float>(ctx, x, expert_rows);
}
RSH_KERNEL rsh_ep_combine_recv_remote_slots_fp32(const DeviceContext* ctx, const Exchange x,
                                                 char* out) {
  ThisJob::combine_recv<float>(ctx, x, out);
}

RSH_KERNEL rsh_ep_learn_refusals_remote_slots(const DeviceContext* ctx, const Exchange x,
                                              uint32_t unasked) {
  ThisJob::learn_refusals(ctx, x, unasked);
}

}  // namespace railshmem::device::ep
