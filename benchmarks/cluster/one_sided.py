"""Puts from PE 0 to the last PE, as bare_fabric.c writes: a line of microseconds for each figure.

    one_sided.py CONTEXTS [BYTES WINDOW COUNT]...

WINDOW 1: each put is completed before the next. Else the puts of all contexts stream, and quiet
ends them; how many are on their way is then the library's affair.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import railshmem
from railshmem import _core
from railshmem.bench.job import address

LARGEST = 4 << 20


class Streams:
    """Contexts that put into the same peer, each into a place of its own."""

    def __init__(self, count: int) -> None:
        self.contexts = [railshmem.shmem_ctx_create() for _ in range(count)]
        self.source = railshmem.shmem_array(LARGEST, np.uint8)
        self.dest = railshmem.shmem_array((count, LARGEST), np.uint8)
        self.peer = railshmem.shmem_n_pes() - 1

    def one_by_one(self, nbytes: int, count: int) -> float:
        where = (address(self.dest[0]), address(self.source), nbytes, self.peer)
        return _core.bench.put_quiet(railshmem.runtime(), *where, count)

    def together(self, nbytes: int, count: int) -> float:
        start = time.perf_counter()
        for number in range(count):
            row = number % len(self.contexts)
            dest, source = self.dest[row, :nbytes], self.source[:nbytes]
            railshmem.shmem_ctx_put_nbi(self.contexts[row], dest, source, self.peer)
        for context in self.contexts:
            railshmem.shmem_ctx_quiet(context)
        return time.perf_counter() - start


def main() -> None:
    n_contexts, *numbers = map(int, sys.argv[1:])
    railshmem.shmem_init()
    streams = Streams(n_contexts)
    railshmem.shmem_barrier_all()
    if railshmem.shmem_my_pe() == 0:
        for nbytes, window, count in zip(*(numbers[i::3] for i in range(3)), strict=True):
            measure = streams.one_by_one if window == 1 else streams.together
            measure(nbytes, max(count // 10, 1))
            print(f"{measure(nbytes, count) / count * 1e6:.4f}\n", end="", flush=True)
    # In here the peer waits and drives its NIC, as that of bare_fabric does.
    railshmem.shmem_barrier_all()
    railshmem.shmem_finalize()


main()
