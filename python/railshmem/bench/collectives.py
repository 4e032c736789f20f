"""`railshmem bench collectives`: all PEs, doubles, from Python and (..._core) from C++.

broadcast   PE 0's array to everybody, and a barrier, without which the root would run ahead
fcollect    everybody's array to everybody
alltoall    an array for each pair of PEs
sum_reduce  the sum of everybody's arrays to everybody
limit       the bytes that a PE has to read, by memcpy on every PE at once, and a cache line for
            each of log2 n steps

`bytes` is the size of one PE's array (alltoall: of one pair's).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import ceil, log2
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

import railshmem
from railshmem import _core
from railshmem.bench.job import Job, address
from railshmem.bench.measure import Figure, Phases, repeat, take_turns_together
from railshmem.bench.report import Result, result_of, size_text

CALLS = 10  # per sample
PASSES = 500  # of the cache line per sample


class Operation(NamedTuple):
    """One collective, ours and MPI's, and the bytes a PE has to read for it."""

    ours: Callable[[], object]
    mpi: Callable[[], object]
    mpi_name: str
    reads: int


def run(job: Job, sizes: Sequence[int], rounds: int) -> list[Result]:
    """Collective: results on PE 0, nothing on the others."""
    largest = max(sizes) * job.n_pes
    source = job.heap_array(largest // 8, np.float64)
    dest = job.heap_array(largest // 8, np.float64)
    results: list[Result] = []
    with job.openshmem_for(largest) as shmem, job.on_own_cores():
        for size in sizes:
            operations = _operations(job, dest, source, size)
            contestants = _contestants(job, dest, source, size, operations)
            for name in operations:
                contestants |= shmem.together(f"{name}_core shmem", name, size, CALLS)
            figures = take_turns_together(
                job.comm, contestants, rounds, what=f"collectives {size_text(size)}"
            )
            if job.me == 0:
                results += _results(job, size, operations, figures)
    return results


def _operations(job: Job, dest: np.ndarray, source: np.ndarray, size: int) -> dict[str, Operation]:
    comm, n_pes, count = job.comm, job.n_pes, size // 8
    team = railshmem.SHMEM_TEAM_WORLD
    # MPI works on ordinary memory, as its programs do.
    out, into = np.zeros(count * n_pes), np.zeros(count * n_pes)

    def broadcast() -> None:
        railshmem.shmem_broadcast(team, dest, source, 0, nelems=count)
        railshmem.shmem_barrier_all()

    def bcast() -> None:
        comm.Bcast(out[:count], 0)
        comm.Barrier()

    return {
        "broadcast": Operation(broadcast, bcast, "Bcast+Barrier", size),
        "fcollect": Operation(
            lambda: railshmem.shmem_fcollect(team, dest, source, nelems=count),
            lambda: comm.Allgather(out[:count], into),
            "Allgather",
            size * n_pes,
        ),
        "alltoall": Operation(
            lambda: railshmem.shmem_alltoall(team, dest, source, nelems=count),
            lambda: comm.Alltoall(out, into),
            "Alltoall",
            size * n_pes,
        ),
        "sum_reduce": Operation(
            lambda: railshmem.shmem_sum_reduce(team, dest, source, nreduce=count),
            lambda: comm.Allreduce(out[:count], into[:count], op=MPI.SUM),
            "Allreduce",
            size * n_pes,
        ),
    }


def _contestants(
    job: Job,
    dest: np.ndarray,
    source: np.ndarray,
    size: int,
    operations: dict[str, Operation],
) -> dict[str, Phases]:
    where = (job.runtime, address(dest), address(source))

    def phase(name: str, call: Callable[[], object]) -> Phases:
        batch = repeat(call)
        return lambda: {name: batch(CALLS) / CALLS}

    def core(name: str, operation: str) -> Phases:
        loop = partial(_core.bench.collective, job.runtime, operation, *where[1:], size)
        return lambda: {name: loop(CALLS) / CALLS}

    def copy(name: str, nbytes: int) -> Phases:
        return lambda: {name: _core.bench.copy(*where, nbytes, job.me, CALLS) / CALLS}

    words = job.heap_array(32, np.uint64)
    contestants: dict[str, Phases] = {
        "line": lambda: {"line": job.pass_line(words, PASSES) / PASSES}
    }
    for name, operation in operations.items():
        contestants[name] = phase(name, operation.ours)
        contestants[f"{name}_core"] = core(f"{name}_core", name)
        contestants[f"{name} mpi"] = phase(f"{name} mpi", operation.mpi)
        contestants[f"{name} copy"] = copy(f"{name} copy", operation.reads)
    return contestants


def _results(
    job: Job, size: int, operations: dict[str, Operation], figures: dict[str, Figure]
) -> list[Result]:
    steps = ceil(log2(job.n_pes)) * figures["line"].median_us
    row = partial(
        result_of, figures, transport="+".join(sorted(job.peers_of_pe_0())), nbytes=size, moves=True
    )
    results = []
    for name, operation in operations.items():
        limit_us = steps + figures[f"{name} copy"].median_us
        results.append(row(name, limit_us=limit_us, mpi=operation.mpi_name))
        results.append(row(f"{name}_core", limit_us=limit_us))
    return results
