"""`railshmem bench put`: PE 0 writes into the first peer of each transport.

put        shmem_put from Python, one quiet at the end of a batch; rival: Win.Put, one Flush
put_quiet  shmem_put from Python, each one completed;              rival: Win.Put + Flush
put_core   the C++ put in a loop, one quiet at the end of a batch
limit      P2P: memcpy into the same mapped memory. PROXY: what another thread that moves the data
           costs at least: a command handed over (put), a cache line there and back (put_quiet),
           and a memcpy between two buffers of this PE
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from mpi4py import MPI

import railshmem
from railshmem import _core
from railshmem.bench.job import Job, address
from railshmem.bench.measure import Figure, repeat, stand_by, take_turns
from railshmem.bench.report import Result

# Per sample, so that starting the other thread does not count.
HAND_OVERS = 200


def run(job: Job, sizes: Sequence[int], rounds: int) -> list[Result]:
    """Collective: results on PE 0, nothing on the others."""
    largest = max(sizes)
    dest = job.heap_array(largest)
    source = job.heap_array(largest)
    source[:] = np.arange(largest, dtype=np.uint64).astype(np.uint8)
    window = MPI.Win.Allocate(largest, 1, comm=job.comm)
    window.Lock_all(MPI.MODE_NOCHECK)
    stand_by(job.comm)
    results: list[Result] = []
    if job.me == 0:
        for transport, pe in job.peers_of_pe_0().items():
            for size in sizes:
                figures = _measure(job, window, dest[:size], source[:size], pe, rounds)
                results += _results(transport, size, figures)
    stand_by(job.comm)
    window.Unlock_all()
    window.Free()
    return results


def _measure(
    job: Job, window: MPI.Win, dest: np.ndarray, source: np.ndarray, pe: int, rounds: int
) -> dict[str, Figure]:
    size = source.nbytes
    private = np.array(source)  # MPI sends from ordinary memory
    message = [private, size, MPI.BYTE]

    def put() -> None:
        railshmem.shmem_put(dest, source, pe)

    def put_quiet() -> None:
        railshmem.shmem_put(dest, source, pe)
        railshmem.shmem_quiet()

    def rival() -> None:
        window.Put(message, pe, 0)

    def rival_flush() -> None:
        window.Put(message, pe, 0)
        window.Flush(pe)

    where = (job.runtime, address(dest), address(source), size, pe)
    return take_turns(
        {
            "put": repeat(put, railshmem.shmem_quiet),
            "put_quiet": repeat(put_quiet),
            "put_core": partial(_core.bench.put, *where),
            "put rival": repeat(rival, partial(window.Flush, pe)),
            "put_quiet rival": repeat(rival_flush),
            "copy": partial(_core.bench.copy, *where),
            "ring": _core.bench.ring,
            "line": _core.bench.pass_line_between_threads,
        },
        rounds,
        {"ring": HAND_OVERS, "line": HAND_OVERS},
    )


def _limits(transport: str, figures: dict[str, Figure]) -> dict[str, float]:
    copy = figures["copy"].median_us
    if transport != "PROXY":
        return {"put": copy, "put_quiet": copy, "put_core": copy}
    handed_over = max(copy, figures["ring"].median_us)
    round_trip = copy + 2 * figures["line"].median_us
    return {"put": handed_over, "put_quiet": round_trip, "put_core": handed_over}


def _results(transport: str, size: int, figures: dict[str, Figure]) -> list[Result]:
    rivals = {"put": "Win.Put", "put_quiet": "Win.Put+Flush", "put_core": None}
    limits = _limits(transport, figures)
    results = []
    for bench, rival in rivals.items():
        ours, limit_us = figures[bench], limits[bench]
        results.append(
            Result(
                bench,
                ours.median_us,
                ours.p99_us,
                transport=transport,
                bytes=size,
                gbs=ours.gbs(size),
                limit_us=limit_us,
                limit_gbs=size / limit_us / 1e3,
                rival=rival,
                rival_us=figures[f"{bench} rival"].median_us if rival else None,
            )
        )
    return results
