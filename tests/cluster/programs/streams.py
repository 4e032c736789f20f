"""Every PE puts so many MiB, through so many contexts, to the PE of its index on the next host.

streams.py CONTEXTS MIB_OF_INDEX_0 MIB_OF_INDEX_1 ...
"""

from __future__ import annotations

import sys

import numpy as np

import railshmem

MIB = 1 << 20

railshmem.shmem_init()
me, n = railshmem.shmem_my_pe(), railshmem.shmem_n_pes()
n_contexts, *mib = map(int, sys.argv[1:])
pes = railshmem.runtime().info()["pes"]
node, index = pes[me]["node"], pes[me]["local_index"]
places = {(pe["node"], pe["local_index"]): pe["pe"] for pe in pes}
n_nodes = 1 + max(pe["node"] for pe in pes)
to, before = (places[(node + step) % n_nodes, index] for step in (1, -1))

contexts = [railshmem.shmem_ctx_create() for _ in range(n_contexts)]
inbox = railshmem.shmem_array((n_contexts, MIB), np.uint8)
railshmem.shmem_barrier_all()
for number in range(mib[index]):
    row = number % n_contexts
    source = np.full(MIB, (me + number) % 251, np.uint8)
    railshmem.shmem_ctx_put(contexts[row], inbox[row], source, to)
for context in contexts:
    railshmem.shmem_ctx_quiet(context)
railshmem.shmem_barrier_all()
for row in range(n_contexts):
    last = max(range(row, mib[index], n_contexts))
    assert (inbox[row] == (before + last) % 251).all()
railshmem.shmem_barrier_all()
print(f"PE {me}: on host {node}, index {index}\n", end="", flush=True)
railshmem.shmem_finalize()
