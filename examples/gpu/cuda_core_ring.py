"""Every PE's kernel greets its right neighbour: `mpirun -n 2 python cuda_core_ring.py`.

Compiled and launched with cuda.core, NVIDIA's own Python interface.
"""

from __future__ import annotations

KERNEL = r"""
#include <railshmem/device.hpp>

// One block. Puts `mine` into the right neighbour's `inbox`, waits for the left one's row.
extern "C" __global__ void greet(const railshmem::device::DeviceContext* ctx, float* inbox,
                                 const float* mine, uint64_t* arrived, uint64_t bytes) {
  using namespace railshmem::device;
  if (!compatible(ctx)) return;
  const int right = (my_pe(ctx) + 1) % n_pes(ctx);
  put_signal<Scope::block>(ctx, inbox, mine, bytes, set_signal(arrived, 1), right);
  wait_until<Scope::block>(ctx, arrived, Compare::equal, uint64_t{1});
}
"""
FLOATS = 1024


def main() -> None:
    import numpy as np
    from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

    import railshmem as rs
    from railshmem.kernels import INCLUDE

    rs.shmem_init()  # makes this PE's GPU the thread's current one
    me, n_pes = rs.shmem_my_pe(), rs.shmem_n_pes()
    inbox = rs.shmem_array(FLOATS, np.float32)
    mine = rs.shmem_array(FLOATS, np.float32)
    arrived = rs.shmem_array(1, np.uint64)

    device = Device()
    device.set_current()
    major, minor = device.compute_capability
    options = ProgramOptions(std="c++17", arch=f"sm_{major}{minor}", include_path=str(INCLUDE))
    greet = Program(KERNEL, "c++", options).compile("cubin").get_kernel("greet")

    # The host's operations take any memory, a PE's own GPU included.
    rs.shmem_put(mine, np.full(FLOATS, me, np.float32), me)
    rs.shmem_put(arrived, np.zeros(1, np.uint64), me)
    rs.shmem_barrier_all()
    stream = device.create_stream()
    pointers = [x.__cuda_array_interface__["data"][0] for x in (inbox, mine, arrived)]
    arguments = (rs.device_context(), *pointers, np.uint64(4 * FLOATS))
    launch(stream, LaunchConfig(grid=1, block=256), greet, *arguments)
    stream.sync()
    rs.shmem_barrier_all()  # raises what stopped a kernel, here or elsewhere

    left = (me - 1) % n_pes
    received = np.empty(FLOATS, np.float32)
    rs.shmem_get(received, inbox, me)
    assert (received == left).all(), received
    print(f"PE {me}: {received[:4]} from PE {left}\n", end="", flush=True)
    rs.shmem_finalize()


if __name__ == "__main__":
    main()
