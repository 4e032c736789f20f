// The kernels of one kind of job, which the compiler then knows: what other kinds need costs
// neither registers nor code. A file of kernels/entry defines, and then includes this one:
//   RSH_EP_KIND       the end of the kernels' names
//   RSH_EP_REMOTE     true: several nodes
//   RSH_EP_BY_EXPERT  true: the expert-major layout
//
// Blocks wait for each other: all of a grid must run at once. Compiled with RAILSHMEM_ABI, the
// layout that the launching side has.
#pragma once

#include "kernels/ep/combine.hpp"
#include "kernels/ep/dispatch.hpp"

static_assert(railshmem::device::kAbi == RAILSHMEM_ABI, "kernels and library: not of one release");

namespace railshmem::device::ep {

RSH_DEVICE Exchange of_this_kind(Exchange x) {
  if (!RSH_EP_REMOTE) x.node.n_nodes = 1;
  if (!RSH_EP_BY_EXPERT) x.shape.alignment = 0;
  return x;
}

// What a block has at most.
constexpr int kThreads = 1024;

#define RSH_EP_JOIN(NAME, KIND) NAME##_##KIND
#define RSH_EP_NAME(NAME, KIND) RSH_EP_JOIN(NAME, KIND)

RSH_KERNEL_OF(kThreads)
RSH_EP_NAME(rsh_ep_dispatch, RSH_EP_KIND)
(const DeviceContext* ctx, const Exchange x, const DispatchCall call, const ReceiveCall receive) {
  dispatch<RSH_EP_REMOTE>(ctx, of_this_kind(x), call, receive);
}

RSH_KERNEL_OF(kThreads)
RSH_EP_NAME(rsh_ep_dispatch_send, RSH_EP_KIND)
(const DeviceContext* ctx, const Exchange x, const DispatchCall call) {
  dispatch_send<RSH_EP_REMOTE>(ctx, of_this_kind(x), call);
}

RSH_KERNEL_OF(kThreads)
RSH_EP_NAME(rsh_ep_dispatch_recv, RSH_EP_KIND)
(const DeviceContext* ctx, const Exchange x, const ReceiveCall receive) {
  dispatch_recv<RSH_EP_REMOTE>(ctx, of_this_kind(x), receive);
}

#define RSH_EP_COMBINE(NAME, TYPE)                                                   \
  RSH_KERNEL_OF(kThreads)                                                            \
  RSH_EP_NAME(rsh_ep_combine_##NAME, RSH_EP_KIND)                                    \
  (const DeviceContext* ctx, const Exchange x, const char* expert_rows, char* out) { \
    combine<RSH_EP_REMOTE, TYPE>(ctx, of_this_kind(x), expert_rows, out);            \
  }                                                                                  \
  RSH_KERNEL_OF(kThreads)                                                            \
  RSH_EP_NAME(rsh_ep_combine_send_##NAME, RSH_EP_KIND)                               \
  (const DeviceContext* ctx, const Exchange x, const char* expert_rows) {            \
    combine_send<RSH_EP_REMOTE, TYPE>(ctx, of_this_kind(x), expert_rows);            \
  }                                                                                  \
  RSH_KERNEL_OF(kThreads)                                                            \
  RSH_EP_NAME(rsh_ep_combine_recv_##NAME, RSH_EP_KIND)                               \
  (const DeviceContext* ctx, const Exchange x, char* out) {                          \
    combine_recv<RSH_EP_REMOTE, TYPE>(ctx, of_this_kind(x), out);                    \
  }
RSH_EP_COMBINE(bf16, Bf16)
RSH_EP_COMBINE(fp16, Fp16)
RSH_EP_COMBINE(fp32, float)

#if RSH_EP_REMOTE
// Whether another node refused this PE's rows.
RSH_KERNEL RSH_EP_NAME(rsh_ep_learn_refusals, RSH_EP_KIND)(const DeviceContext* ctx,
                                                           const Exchange x) {
  if (arch::leader<kBlock>()) learn_refusals(ctx, of_this_kind(x));
}
#endif

}  // namespace railshmem::device::ep
