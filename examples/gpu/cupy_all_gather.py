"""An all-gather in one kernel of one's own, with cupy: `mpirun -n 2 python cupy_all_gather.py`.

Block b of every PE sends this PE's row to PE (me + b), then waits for the row that its counterpart
there sends here. Nothing but the launch is the host's.
"""

from __future__ import annotations

KERNEL = r"""
#include <railshmem/device.hpp>

extern "C" __global__ void all_gather(const railshmem::device::DeviceContext* ctx, float* rows,
                                      uint64_t* arrived, uint64_t count, uint64_t round) {
  using namespace railshmem::device;
  if (!compatible(ctx)) return;
  const int me = my_pe(ctx);
  const int peer = (me + blockIdx.x) % n_pes(ctx);  // all start with another one
  float* mine = rows + me * count;
  // The row, then its signal: who sees the signal sees the row.
  put_signal<Scope::block>(ctx, mine, mine, count * sizeof(float),
                           set_signal(arrived + me, round), peer);
  wait_until<Scope::block>(ctx, arrived + peer, Compare::greater_equal, round);
}
"""
FLOATS = 1 << 20


def main() -> None:
    import cupy
    import numpy as np

    import railshmem as rs
    from railshmem.kernels import INCLUDE

    rs.shmem_init()
    me, n_pes = rs.shmem_my_pe(), rs.shmem_n_pes()
    rows = cupy.asarray(rs.shmem_array((n_pes, FLOATS), np.float32))  # the PE's GPU memory itself
    arrived = cupy.asarray(rs.shmem_array(n_pes, np.uint64))
    all_gather = cupy.RawKernel(KERNEL, "all_gather", options=("-std=c++17", f"-I{INCLUDE}"))

    with rows.device:
        arrived[:] = 0
        cupy.cuda.get_current_stream().synchronize()
        rs.shmem_barrier_all()  # nobody signals before all have zeroed
        for turn in range(1, 4):
            rows[me] = 10 * turn + me
            arguments = (np.uintp(rs.device_context()), rows, arrived)
            all_gather((n_pes,), (512,), (*arguments, np.uint64(FLOATS), np.uint64(turn)))
            seen = [float(row.min()) for row in rows]
            assert seen == [10 * turn + pe for pe in range(n_pes)], seen
            rs.shmem_barrier_all()  # nobody sends the next turn while somebody still reads
    print(f"PE {me}: gathered {n_pes} rows of {FLOATS} floats, three times\n", end="", flush=True)
    rs.shmem_finalize()


if __name__ == "__main__":
    main()
