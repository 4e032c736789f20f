// What the kernels of kernels/entry/ep_*.cu are made of. Each file is for one kind of job, which
// the compiler then knows: what other kinds need costs neither registers nor code.
//
// Blocks wait for each other: all of a grid must run at once. Compiled with RAILSHMEM_ABI, the
// layout that the launching side has.
#pragma once

#include "kernels/ep/combine.hpp"
#include "kernels/ep/dispatch.hpp"

static_assert(railshmem::device::kAbi == RAILSHMEM_ABI, "kernels and library: not of one release");

namespace railshmem::device::ep {

template <bool kRemote, Rows kRows>
struct Job {
  RSH_DEVICE static Exchange known(Exchange x) {
    if (!kRemote) x.node.n_nodes = 1;
    x.shape.rows = kRows;
    return x;
  }

  RSH_DEVICE static void dispatch(const DeviceContext* ctx, const Exchange& x,
                                  const DispatchCall& call, const ReceiveCall& receive) {
    ep::dispatch<kRemote>(ctx, known(x), call, receive);
  }
  RSH_DEVICE static void dispatch_send(const DeviceContext* ctx, const Exchange& x,
                                       const DispatchCall& call) {
    ep::dispatch_send<kRemote>(ctx, known(x), call);
  }
  RSH_DEVICE static void dispatch_recv(const DeviceContext* ctx, const Exchange& x,
                                       const ReceiveCall& call) {
    ep::dispatch_recv<kRemote>(ctx, known(x), call);
  }
  template <class T>
  RSH_DEVICE static void combine(const DeviceContext* ctx, const Exchange& x,
                                 const char* expert_rows, char* out) {
    ep::combine<kRemote, T>(ctx, known(x), expert_rows, out);
  }
  template <class T>
  RSH_DEVICE static void combine_send(const DeviceContext* ctx, const Exchange& x,
                                      const char* expert_rows) {
    ep::combine_send<kRemote, T>(ctx, known(x), expert_rows);
  }
  template <class T>
  RSH_DEVICE static void combine_recv(const DeviceContext* ctx, const Exchange& x, char* out) {
    ep::combine_recv<kRemote, T>(ctx, known(x), out);
  }
  RSH_DEVICE static void learn_refusals(const DeviceContext* ctx, const Exchange& x,
                                        uint32_t unasked) {
    if (arch::leader<kBlock>()) ep::learn_refusals(ctx, known(x), unasked != 0);
  }
};

}  // namespace railshmem::device::ep
