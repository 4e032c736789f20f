"""`railshmem bench put`: PE 0 writes into the first peer of each transport.

put             shmem_put from Python, one quiet at the end of a batch; MPI: Win.Put, one Flush
put_quiet       shmem_put from Python, each one completed;             MPI: Win.Put + Flush
put_core        the C++ put in a loop, one quiet at the end of a batch
put_quiet_core  the same, each one completed
limit           P2P: up to 8 bytes a bare store and a fence, above a memcpy into the same mapped
                memory. PROXY: what another thread that moves the data costs at least: a command
                handed over (put), a cache line there and back (put_quiet), and a memcpy.
                From Python an empty call comes on top.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from mpi4py import MPI

import railshmem
from railshmem import _core
from railshmem.bench.job import Job, Rival, address
from railshmem.bench.measure import HAND_OVERS, Batch, Figure, repeat, take_turns
from railshmem.bench.report import Result, result_of, size_text

SHMEM = {"put_core shmem": "put", "put_quiet_core shmem": "put_quiet"}


def run(job: Job, sizes: Sequence[int], rounds: int) -> list[Result]:
    """Collective: results on PE 0, nothing on the others."""
    largest = max(sizes)
    dest = job.heap_array(largest)
    source = job.heap_array(largest)
    source[:] = np.arange(largest, dtype=np.uint64).astype(np.uint8)
    results: list[Result] = []
    with job.openshmem_for(largest) as shmem, job.window(largest) as window:
        for transport, pe in job.contests_of_pe_0():
            for size in sizes:
                figures = take_turns(
                    _contestants(job, window, shmem, dest[:size], source[:size], pe),
                    rounds,
                    HAND_OVERS,
                    what=f"put {size_text(size)} {transport}",
                )
                results += _results(transport, size, figures)
    return results


def _contestants(
    job: Job, window: MPI.Win, shmem: Rival, dest: np.ndarray, source: np.ndarray, pe: int
) -> dict[str, Batch]:
    message = [np.array(source), source.nbytes, MPI.BYTE]  # MPI sends from ordinary memory

    def put_quiet() -> None:
        railshmem.shmem_put(dest, source, pe)
        railshmem.shmem_quiet()

    def put_flush() -> None:
        window.Put(message, pe, 0)
        window.Flush(pe)

    where = (job.runtime, address(dest), address(source), source.nbytes, pe)
    small = source.nbytes <= 8
    return {
        "put": repeat(lambda: railshmem.shmem_put(dest, source, pe), railshmem.shmem_quiet),
        "put mpi": repeat(lambda: window.Put(message, pe, 0), partial(window.Flush, pe)),
        "put_quiet": repeat(put_quiet),
        "put_quiet mpi": repeat(put_flush),
        "put_core": partial(_core.bench.put, *where),
        "put_quiet_core": partial(_core.bench.put_quiet, *where),
        "call": repeat(lambda: _core.bench.empty_call(dest, source, pe)),
        "copy": partial(_core.bench.store_fence, job.runtime, address(dest), pe)
        if small
        else partial(_core.bench.copy, *where),
        "ring": _core.bench.ring,
        "line": _core.bench.pass_line_between_threads,
        **shmem.one_sided(SHMEM, source.nbytes),
    }


def _results(transport: str, size: int, figures: dict[str, Figure]) -> list[Result]:
    call, copy = figures["call"].median_us, figures["copy"].median_us
    batched = completed = copy
    if transport == "PROXY":
        batched = max(copy, figures["ring"].median_us)
        completed = copy + 2 * figures["line"].median_us
    extra = {"empty_call_us": call}
    row = partial(result_of, figures, transport=transport, nbytes=size, moves=True)
    return [
        row("put", limit_us=call + batched, mpi="Win.Put", extra=extra),
        row("put_quiet", limit_us=call + completed, mpi="Win.Put+Flush", extra=extra),
        row("put_core", limit_us=batched),
        row("put_quiet_core", limit_us=completed),
    ]
