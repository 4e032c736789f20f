"""Every PE greets its right neighbour: `mpirun -n 4 python examples/hello_ring.py`."""

import numpy as np

import railshmem as rs

rs.shmem_init()
me, n_pes = rs.shmem_my_pe(), rs.shmem_n_pes()
right, left = (me + 1) % n_pes, (me - 1) % n_pes

inbox = rs.shmem_array(4, np.float32)  # symmetric: the same object on every PE
mine = rs.shmem_array(4, np.float32)
arrived = rs.shmem_array(1, np.uint64)
arrived[0] = 0
mine[:] = me
rs.shmem_barrier_all()

# One-sided: the neighbour does nothing, and sees the data once it sees the signal.
rs.shmem_put_signal(inbox, mine, arrived, 1, rs.SHMEM_SIGNAL_SET, right)
rs.shmem_signal_wait_until(arrived, rs.SHMEM_CMP_EQ, 1)

print(f"PE {me}: {inbox} from PE {left}\n", end="", flush=True)
rs.shmem_finalize()
