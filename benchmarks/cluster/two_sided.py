"""MPI messages from rank 0 to the last rank: a line of microseconds for each figure.

    two_sided.py [BYTES WINDOW COUNT]...

After each WINDOW of messages the receiver answers, so that the sender knows what has arrived.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from mpi4py import MPI

LARGEST = 4 << 20

comm = MPI.COMM_WORLD
buffer = np.zeros(LARGEST, np.uint8)
answer = np.zeros(1, np.uint8)
last = comm.size - 1


def send(nbytes: int, window: int, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count // window):
        MPI.Request.Waitall([comm.Isend(buffer[:nbytes], last) for _ in range(window)])
        comm.Recv(answer, last)
    return time.perf_counter() - start


def receive(nbytes: int, window: int, count: int) -> float:
    for _ in range(count // window):
        MPI.Request.Waitall([comm.Irecv(buffer[:nbytes], 0) for _ in range(window)])
        comm.Send(answer, 0)
    return 0.0


numbers = [int(text) for text in sys.argv[1:]]
for nbytes, window, count in zip(*(numbers[i::3] for i in range(3)), strict=True):
    play = {0: send, last: receive}.get(comm.rank, lambda *_: 0.0)
    play(nbytes, window, max(count // 10, window))
    seconds = play(nbytes, window, count)
    if comm.rank == 0:
        print(f"{seconds / count * 1e6:.4f}\n", end="", flush=True)
