"""`railshmem bench get`: PE 0 reads from the first peer of each transport.

get       shmem_get from Python; MPI: Win.Get + Flush
get_core  the C++ get in a loop
limit     a memcpy from the same mapped memory. PROXY: a cache line to the thread that moves the
          data and back, and a memcpy. From Python an empty call comes on top.
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


def run(job: Job, sizes: Sequence[int], rounds: int) -> list[Result]:
    """Collective: results on PE 0, nothing on the others."""
    largest = max(sizes)
    source = job.heap_array(largest)
    dest = job.heap_array(largest)
    results: list[Result] = []
    with job.openshmem_for(largest) as shmem, job.window(largest) as window:
        for transport, pe in job.contests_of_pe_0():
            for size in sizes:
                figures = take_turns(
                    _contestants(job, window, shmem, dest[:size], source[:size], pe),
                    rounds,
                    HAND_OVERS,
                    what=f"get {size_text(size)} {transport}",
                )
                results += _results(transport, size, figures)
    return results


def _contestants(
    job: Job, window: MPI.Win, shmem: Rival, dest: np.ndarray, source: np.ndarray, pe: int
) -> dict[str, Batch]:
    message = [np.empty_like(dest), dest.nbytes, MPI.BYTE]

    def get_flush() -> None:
        window.Get(message, pe, 0)
        window.Flush(pe)

    where = (job.runtime, address(dest), address(source), dest.nbytes, pe)
    return {
        "get": repeat(lambda: railshmem.shmem_get(dest, source, pe)),
        "get mpi": repeat(get_flush),
        "get_core": partial(_core.bench.get, *where),
        "call": repeat(lambda: _core.bench.empty_call(dest, source, pe)),
        "copy": partial(_core.bench.copy_from, *where),
        "line": _core.bench.pass_line_between_threads,
        **shmem.one_sided({"get_core shmem": "get"}, dest.nbytes),
    }


def _results(transport: str, size: int, figures: dict[str, Figure]) -> list[Result]:
    call, limit = figures["call"].median_us, figures["copy"].median_us
    if transport == "PROXY":
        limit += 2 * figures["line"].median_us
    row = partial(result_of, figures, transport=transport, nbytes=size, moves=True)
    return [
        row("get", limit_us=call + limit, mpi="Win.Get+Flush", extra={"empty_call_us": call}),
        row("get_core", limit_us=limit),
    ]
