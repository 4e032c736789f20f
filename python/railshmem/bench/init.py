"""`railshmem bench init`: joining a job, by number of PEs and heap size, and leaving it again.

init_N   shmem_init of N PEs of this job (imports and MPI_Init are over by then), as emulated nodes
         where RAILSHMEM_NODES says so, at most one for each PE; the lines say how many queue pairs
         the PE with most of them has, and the memory of its connections
MPI      Win.Allocate of the same heap, on a communicator duplicated for it
SHMEM    shmem_init of as many PEs as this job has, in a process started for it
limit    three allgathers through MPI, the heap made, and every PE's heap mapped
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from railshmem._core import Runtime
from railshmem.bench.job import Job, shape_of
from railshmem.bench.measure import Figure, Phases, figure, stand_by, take_turns_together
from railshmem.bench.report import Result, result_of, size_text
from railshmem.bootstrap import MpiBootstrap

TIMEOUT_S = 60.0
CARD_BYTES = 4096  # about what each PE tells the others
EXCHANGES = 3


def run(job: Job, heaps: Sequence[int], rounds: int) -> list[Result]:
    """Collective: results on PE 0, nothing on the others."""
    results: list[Result] = []
    # Its start is what is measured, so it is started anew for every sample.
    starts = [_start_of_openshmem(job) for _ in range(min(rounds, 3))]
    for n_pes in _job_sizes(job.n_pes):
        taking_part = job.me < n_pes
        comm = job.comm.Split(0 if taking_part else MPI.UNDEFINED, job.me)
        name = f"init_{n_pes}"
        for heap in heaps:
            ours = _Joining(comm, heap, job.emulated_nodes)
            contestants = {
                name: _phase(job, name, taking_part, ours.join),
                f"{name} mpi": _phase(job, f"{name} mpi", taking_part, _allocate(comm, heap)),
                "limit": _phase(job, "limit", taking_part, _least(comm, heap)),
            }
            figures = take_turns_together(
                job.comm, contestants, rounds, 1, what=f"init {n_pes} {size_text(heap)}"
            )
            if n_pes == job.n_pes and job.me == 0:
                figures[f"{name} shmem"] = figure(starts)
            if job.me == 0:
                results.append(_result(name, heap, figures, ours.shape))
        if taking_part:
            comm.Free()
    return results


def _job_sizes(n_pes: int) -> list[int]:
    """1, 2, 4, ... and the whole job."""
    powers = [1 << bit for bit in range(n_pes.bit_length()) if 1 << bit < n_pes]
    return [*powers, n_pes]


def _phase(job: Job, name: str, taking_part: bool, join: Callable[[], float]) -> Phases:
    def phases() -> dict[str, float]:
        seconds = join() if taking_part else 0.0
        stand_by(job.comm)
        return {name: seconds}

    return phases


class _Joining:
    """Joins a job of `comm` and leaves it; afterwards `shape` says what kind of job it was."""

    def __init__(self, comm: MPI.Comm, heap: int, nodes: int) -> None:
        self._comm, self._heap, self._nodes = comm, heap, nodes
        self.shape: dict[str, int] = {}

    def join(self) -> float:
        """Seconds of init."""
        settings = {"RAILSHMEM_HEAP_SIZE": str(self._heap)}
        if self._nodes:
            settings["RAILSHMEM_NODES"] = str(min(self._nodes, self._comm.Get_size()))
        start = time.perf_counter()
        runtime = Runtime(MpiBootstrap(MPI.Intracomm(self._comm), TIMEOUT_S), settings)
        taken = time.perf_counter() - start
        if not self.shape:
            self.shape = self._shape_of(runtime.info())
        runtime.finalize()
        return taken

    def _shape_of(self, info: Mapping[str, Any]) -> dict[str, int]:
        most = {
            key: self._comm.allreduce(info[key], op=MPI.MAX)
            for key in ("queue_pairs", "connection_bytes")
        }
        return shape_of(info) | most


def _allocate(comm: MPI.Comm, heap: int) -> Callable[[], float]:
    def join() -> float:
        start = time.perf_counter()
        own = comm.Dup()
        window = MPI.Win.Allocate(heap, 1, comm=MPI.Intracomm(own))
        taken = time.perf_counter() - start
        window.Free()
        own.Free()
        return taken

    return join


def _least(comm: MPI.Comm, heap: int) -> Callable[[], float]:
    def join() -> float:
        mine = np.zeros(CARD_BYTES, np.uint8)
        all_cards = np.empty((comm.Get_size(), CARD_BYTES), np.uint8)
        start = time.perf_counter()
        memory = os.memfd_create("limit")
        os.ftruncate(memory, heap)
        for _ in range(EXCHANGES):
            comm.Allgather(mine, all_cards)
        maps = [mmap.mmap(memory, heap) for _ in range(comm.Get_size())]
        taken = time.perf_counter() - start
        for each in maps:
            each.close()
        os.close(memory)
        return taken

    return join


def _start_of_openshmem(job: Job) -> float:
    with job.openshmem_for(64) as rival:
        return rival.init_seconds


def _result(name: str, heap: int, figures: dict[str, Figure], shape: Mapping[str, int]) -> Result:
    return result_of(
        figures,
        name,
        nbytes=heap,
        limit_us=figures["limit"].median_us,
        mpi="Win.Allocate",
        extra=shape,
    )
