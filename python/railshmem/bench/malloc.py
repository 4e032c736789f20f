"""`railshmem bench malloc`: 2,000 allocations.

The standard asks shmem_malloc for one barrier, and nothing else of it may touch the network: the
limit is as many of our own barriers, the rival as many of MPI's.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

import railshmem
from railshmem.bench.job import Job
from railshmem.bench.measure import Figure, figure, slowest_of
from railshmem.bench.report import Result

CALLS = 2000


def run(job: Job, nbytes: int, rounds: int) -> list[Result]:
    """Collective: results on PE 0, nothing on the others."""
    contestants: dict[str, Callable[[], np.ndarray]] = {
        "malloc": lambda: _timed_mallocs(nbytes),
        "rival": lambda: _timed_calls(job.comm.Barrier),
        "limit": lambda: _timed_calls(railshmem.shmem_barrier_all),
    }
    taken: dict[str, list[np.ndarray]] = {name: [] for name in contestants}
    for done in range(-1, rounds):
        for name, sample in contestants.items():
            job.comm.Barrier()
            seconds = sample()
            if done >= 0:
                taken[name].append(seconds)
    slowest = {name: slowest_of(job.comm, np.array(s)) for name, s in taken.items()}
    totals = {name: float(np.median(np.array(s).sum(axis=1))) for name, s in taken.items()}
    if job.me != 0:
        return []
    figures = {name: figure(samples.ravel()) for name, samples in slowest.items()}
    return [_result(job, nbytes, figures, totals)]


def _timed_calls(operation: Callable[[], object]) -> np.ndarray:
    seconds = np.empty(CALLS)
    for call in range(CALLS):
        start = time.perf_counter()
        operation()
        seconds[call] = time.perf_counter() - start
    return seconds


def _timed_mallocs(nbytes: int) -> np.ndarray:
    blocks: list[railshmem.SymmetricMemory] = []
    seconds = _timed_calls(lambda: blocks.append(railshmem.shmem_malloc(nbytes)))
    for block in blocks:
        railshmem.shmem_free(block)
    return seconds


def _result(job: Job, nbytes: int, figures: dict[str, Figure], totals: dict[str, float]) -> Result:
    return Result(
        "malloc",
        figures["malloc"].median_us,
        figures["malloc"].p99_us,
        bytes=nbytes,
        limit_us=figures["limit"].median_us,
        rival="MPI barriers",
        rival_us=figures["rival"].median_us,
        extra={
            "calls": CALLS,
            "total_s": totals["malloc"],
            "rival_total_s": totals["rival"],
            "limit_total_s": totals["limit"],
        },
    )
