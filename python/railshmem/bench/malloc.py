"""`railshmem bench malloc`: 2,000 allocations.

The standard asks shmem_malloc for one barrier, and nothing else of it may touch the network: the
limit is as many of our own barriers. MPI has nothing like it: as many of its barriers stand beside.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

import railshmem
from railshmem.bench.job import Job
from railshmem.bench.measure import figure, in_rounds, slowest_of, take_turns_together
from railshmem.bench.report import Result, result_of

CALLS = 2000


def run(job: Job, nbytes: int, rounds: int) -> list[Result]:
    """Collective: results on PE 0, nothing on the others."""
    contestants: dict[str, Callable[[], np.ndarray]] = {
        "malloc": lambda: _timed_mallocs(nbytes),
        "malloc mpi": lambda: _timed_calls(job.comm.Barrier),
        "limit": lambda: _timed_calls(railshmem.shmem_barrier_all),
    }
    taken: dict[str, list[np.ndarray]] = {name: [] for name in contestants}
    with job.openshmem_for(CALLS * nbytes) as shmem, job.on_own_cores():
        for done in in_rounds(range(-1, rounds), "malloc"):
            for name, sample in contestants.items():
                job.comm.Barrier()
                seconds = sample()
                if done >= 0:
                    taken[name].append(seconds)
        rival = take_turns_together(
            job.comm, shmem.together("malloc shmem", "malloc", nbytes, CALLS), rounds, warm_up=1
        )
    slowest = {name: slowest_of(job.comm, np.array(s)) for name, s in taken.items()}
    totals = {name: float(np.median(np.array(s).sum(axis=1))) for name, s in taken.items()}
    if job.me != 0:
        return []
    figures = {name: figure(samples.ravel()) for name, samples in slowest.items()} | rival
    extra = {
        "calls": CALLS,
        "total_s": totals["malloc"],
        "rival_total_s": totals["malloc mpi"],
        "limit_total_s": totals["limit"],
    }
    limit_us = figures["limit"].median_us
    return [
        result_of(figures, "malloc", nbytes=nbytes, limit_us=limit_us, mpi="barriers", extra=extra)
    ]


def _timed_calls(operation: Callable[[], object]) -> np.ndarray:
    seconds = np.empty(CALLS)
    for call in range(CALLS):
        start = time.perf_counter()
        operation()
        seconds[call] = time.perf_counter() - start
    return seconds


def _timed_mallocs(nbytes: int) -> np.ndarray:
    blocks: list[railshmem.SymmetricMemory | railshmem.DeviceArray] = []
    seconds = _timed_calls(lambda: blocks.append(railshmem.shmem_malloc(nbytes)))
    for block in blocks:
        railshmem.shmem_free(block)
    return seconds
