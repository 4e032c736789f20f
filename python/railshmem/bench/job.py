"""What every benchmark knows about the job it runs in."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import nan
from typing import Any, TypeVar

import click
import numpy as np
from mpi4py import MPI

import railshmem
from railshmem import _core
from railshmem.bench.measure import Batch, Phases, stand_by
from railshmem.bench.openshmem import OpenShmem

LINE_PASSES, LINE_TRIES = 500, 10

KindOfJob = TypeVar("KindOfJob", bound="Job")


class BenchError(Exception):
    """The benchmark cannot run in this job; the text says what to change."""


class Job:
    """The default runtime beside the MPI communicator of the same processes."""

    def __init__(self) -> None:
        self.comm = MPI.COMM_WORLD
        self.runtime: Any = railshmem.runtime()
        self.me: int = self.runtime.my_pe
        self.n_pes: int = self.runtime.n_pes
        info = self.runtime.info()
        self.n_nodes: int = info["n_nodes"]
        self.emulated_nodes = int(info["settings"]["RAILSHMEM_NODES"])
        self.emulated: bool = self.n_nodes > len({pe["boot_id"] for pe in info["pes"]})
        self._paths: list[str] = [pair["path"] for pair in info["pairs"][0]]
        self._node: list[int] = [pe["node"] for pe in info["pes"]]
        # What `railshmem model` has to know of the job that measured a line.
        self.shape: dict[str, int] = shape_of(info)
        self.openshmem_text = ""

    @property
    def title(self) -> str:
        """Where the figures come from, for the head of the table."""
        library = MPI.Get_library_version().split("\n")[0].split(",")[0].strip("\x00 ")
        pes = "1 PE" if self.n_pes == 1 else f"{self.n_pes} PEs"
        nodes = "1 node" if self.n_nodes == 1 else f"{self.n_nodes} nodes"
        emulated = ", which shares memory across emulated nodes" if self.emulated else ""
        text = f"{pes}, {nodes}; MPI: {' '.join(library.split())} through mpi4py{emulated}"
        return f"{text}\nSHMEM: {self.openshmem_text}" if self.openshmem_text else text

    def peers_of_pe_0(self) -> dict[str, int]:
        """For each transport that PE 0 uses, the first peer reached by it.

        A PE that is alone puts to itself.
        """
        peers: dict[str, int] = {}
        for pe, path in enumerate(self._paths):
            if pe > 0:
                peers.setdefault(path, pe)
        return peers or {"P2P": 0}

    def contests_of_pe_0(self) -> list[tuple[str, int]]:
        """On PE 0: (transport, peer) of what it does alone; nothing on the others."""
        return list(self.peers_of_pe_0().items()) if self.me == 0 else []

    def mapped_peer_of_pe_0(self) -> int | None:
        """The first other PE whose memory PE 0 maps."""
        mapped = [pe for pe in range(1, self.n_pes) if self._node[pe] == self._node[0]]
        return mapped[0] if mapped else None

    def pass_line(self, words: np.ndarray, passes: int) -> float:
        """Collective: seconds for `passes` one-way trips of a cache line.

        Between PE 0 and the first PE it shares memory with, else between two threads of PE 0.
        `words`: 32 symmetric words, zero at first.
        """
        partner = self.mapped_peer_of_pe_0()
        seconds = 0.0
        if partner is None and self.me == 0:
            seconds = _core.bench.pass_line_between_threads(passes)
        elif partner is not None and self.me in (0, partner):
            other = partner if self.me == 0 else 0
            seconds = _core.bench.pass_line(self.runtime, address(words), other, passes)
        stand_by(self.comm)  # the cores belong to the two that play
        return seconds

    def one_way_us(self) -> float:
        """Collective: what a cache line takes from one core to another now; 0 beside PE 0.

        The best of several tries: in some the two threads begin on one core.
        """
        tries = (
            [0.0]
            if self.me != 0
            else [_core.bench.pass_line_between_threads(LINE_PASSES) for _ in range(LINE_TRIES)]
        )
        stand_by(self.comm)
        return min(tries) / LINE_PASSES * 1e6

    @contextmanager
    def window(self, nbytes: int) -> Iterator[MPI.Win]:
        """Collective: MPI memory for PE 0 to use in the body, while the others sleep at its end."""
        window = MPI.Win.Allocate(nbytes, 1, comm=self.comm)
        window.Lock_all(MPI.MODE_NOCHECK)
        stand_by(self.comm)
        yield window
        stand_by(self.comm)
        window.Unlock_all()
        window.Free()

    @contextmanager
    def openshmem_for(self, nbytes: int) -> Iterator[Rival]:
        """Collective: the OpenSHMEM of this machine, for operations of `nbytes` bytes per PE."""
        heap_bytes = 8 * nbytes * self.n_pes + (64 << 20)
        if self.me != 0:
            stand_by(self.comm)
            yield Rival(self.comm, None, self.comm.bcast(None))
            return
        with OpenShmem(self.n_pes, heap_bytes) as program:
            stand_by(self.comm)
            self.comm.bcast(program.available)
            yield Rival(self.comm, program, program.available)
            self.openshmem_text = program.text

    @contextmanager
    def on_own_cores(self) -> Iterator[None]:
        """Collective: each PE stays on a core of its own, where there are enough of them.

        For what PEs do together: launchers bind processes (Open MPI does so unasked, MPICH does
        not), and two PEs that happen to share a core measure the scheduler.
        """
        cores = sorted(os.sched_getaffinity(0))
        host = self.comm.Split_type(MPI.COMM_TYPE_SHARED)
        place, others = host.Get_rank(), host.Get_size()
        enough = host.allreduce(len(cores), op=MPI.MIN) >= others
        host.Free()
        if enough:
            os.sched_setaffinity(0, {cores[place]})
        yield
        os.sched_setaffinity(0, cores)

    def heap_array(self, shape: int | tuple[int, ...], dtype: Any = np.uint8) -> np.ndarray:
        """Collective: zeroed symmetric memory."""
        array: np.ndarray = railshmem.shmem_array(shape, dtype)
        array[...] = np.zeros((), array.dtype)
        railshmem.shmem_barrier_all()
        return array


def shape_of(info: Mapping[str, Any]) -> dict[str, int]:
    """The size of a job, by Runtime.info(), as results say it."""
    pes = info["pes"]
    return {
        "n_pes": len(pes),
        "n_nodes": info["n_nodes"],
        "n_hosts": len({pe["boot_id"] for pe in pes}),
        "rails": max(len(pe["nics"]) for pe in pes),
        "lanes": info["lanes"],
    }


@contextmanager
def joined_job(
    kind: Callable[[], KindOfJob], settings: Mapping[str, str] | None = None
) -> Iterator[KindOfJob]:
    """The job from init to finalize. What every PE finds wrong with it becomes a usage error."""
    railshmem.shmem_init(settings=settings)
    problem: BenchError | None = None
    try:
        yield kind()
    except BenchError as error:  # the same on every PE
        problem = error
    railshmem.shmem_finalize()
    if problem is not None:
        raise click.ClickException(str(problem))


class Rival:
    """The OpenSHMEM of this machine, if there is one, as contestants beside ours."""

    def __init__(self, comm: MPI.Comm, program: OpenShmem | None, available: bool) -> None:
        self._comm = comm
        self._program = program  # None beside PE 0
        self.available = available  # the same on every PE

    @property
    def init_seconds(self) -> float:
        """What its shmem_init took; not a number where there is none, and beside PE 0."""
        return nan if self._program is None else self._program.init_seconds

    def one_sided(self, operations: Mapping[str, str], nbytes: int = 8) -> dict[str, Batch]:
        """On PE 0: contestants of `take_turns` by name, for operations by name."""
        if self._program is None or not self.available:
            return {}
        return {name: self._program.batch(each, nbytes) for name, each in operations.items()}

    def together(self, name: str, operation: str, nbytes: int, count: int) -> dict[str, Phases]:
        """Collective: a contestant of `take_turns_together` that reports one call of `count`."""
        if not self.available:
            return {}
        batch = None if self._program is None else self._program.batch(operation, nbytes)
        return {name: lambda: {name: self._alone(batch, count)}}

    def _alone(self, batch: Batch | None, count: int) -> float:
        seconds = batch(count) if batch is not None else 0.0
        stand_by(self._comm)  # the cores belong to the rival
        return seconds / count


def address(array: np.ndarray) -> int:
    """Where the array's bytes begin."""
    return int(array.ctypes.data)
