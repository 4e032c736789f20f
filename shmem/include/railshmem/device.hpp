// RailSHMEM inside kernels. Included by what nvcc, NVRTC, cupy and cuda.core compile, with the
// folder that `railshmem path --include` prints; no other header of the library is needed, and no
// CUDA one.
//
//   extern "C" __global__ void send(const railshmem::device::DeviceContext* ctx, float* symmetric)
//   {
//     using namespace railshmem::device;
//     if (!compatible(ctx)) return;
//     put<Scope::block>(ctx, symmetric, symmetric, 4096, (my_pe(ctx) + 1) % n_pes(ctx));
//   }
//
// The context is what railshmem.device_context() gives: a pointer that kernels pass on and never
// keep beyond the job. Each call names its scope, the threads that make it together: thread, warp
// or block; all of them must come, with the same arguments. Calls return false when the PE was
// stopped, by a deadline, a peer's death or an error of a NIC; the host raises what it was. The
// list of calls, what each promises and which transports it takes is docs/device.md.
#pragma once

#include "kernels/shmem/order.hpp"

namespace railshmem::device {

using arch::Scope;

// The library that made the context has the layout that this header knows. Ask before any other
// call: kernels that were compiled with the headers of another release must not go on.
RSH_DEVICE bool compatible(const DeviceContext* ctx) {
  return ctx->abi == kAbi;
}

RSH_DEVICE int my_pe(const DeviceContext* ctx) {
  return ctx->pe;
}
RSH_DEVICE int n_pes(const DeviceContext* ctx) {
  return ctx->n_pes;
}

// Where this PE finds the symmetric object of `pe` with plain loads and stores; null where it does
// not.
template <class T>
RSH_DEVICE T* ptr(const DeviceContext* ctx, T* symmetric, int pe) {
  return ctx->peer_base[pe] == nullptr ? nullptr : in_peer(ctx, symmetric, pe);
}

}  // namespace railshmem::device
