"""`railshmem bench atomic`: PE 0 adds to a 64-bit word of the first peer of each transport.

fetch_add       shmem_atomic_fetch_add from Python; MPI: Fetch_and_op + Flush
add             shmem_atomic_add from Python, one quiet at the end of a batch; MPI: Accumulate
..._core        the same in C++
limit           the core's own fetch-and-add on the same mapped word. PROXY: a cache line to the
                thread that does it and back (fetch_add), a command handed over (add).
                From Python an empty call comes on top.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from mpi4py import MPI

import railshmem
from railshmem import _core
from railshmem.bench.job import Job, Rival, address
from railshmem.bench.measure import HAND_OVERS, Batch, Figure, repeat, take_turns
from railshmem.bench.report import Result, result_of

SHMEM = {"fetch_add_core shmem": "fetch_add", "add_core shmem": "add"}


def run(job: Job, rounds: int) -> list[Result]:
    """Collective: results on PE 0, nothing on the others."""
    word = job.heap_array(8, np.int64)
    results: list[Result] = []
    with job.openshmem_for(64) as shmem, job.window(64) as window:
        for transport, pe in job.contests_of_pe_0():
            contestants = _contestants(job, window, shmem, word, pe)
            figures = take_turns(contestants, rounds, HAND_OVERS, what=f"atomic {transport}")
            results += _results(transport, figures)
    return results


def _contestants(
    job: Job, window: MPI.Win, shmem: Rival, word: np.ndarray, pe: int
) -> dict[str, Batch]:
    one, old = np.ones(1, np.int64), np.zeros(1, np.int64)

    def fetch_and_op() -> None:
        window.Fetch_and_op(one, old, pe, 0, MPI.SUM)
        window.Flush(pe)

    where = (job.runtime, address(word), pe)
    accumulate = repeat(lambda: window.Accumulate(one, pe, op=MPI.SUM), partial(window.Flush, pe))
    return {
        "fetch_add": repeat(lambda: railshmem.shmem_atomic_fetch_add(word, 1, pe)),
        "fetch_add mpi": repeat(fetch_and_op),
        "fetch_add_core": partial(_core.bench.fetch_add, *where),
        "add": repeat(lambda: railshmem.shmem_atomic_add(word, 1, pe), railshmem.shmem_quiet),
        "add mpi": accumulate,
        "add_core": partial(_core.bench.add, *where),
        "call": repeat(lambda: _core.bench.empty_call(word, 1, pe)),
        "bare": partial(_core.bench.fetch_add_bare, *where),
        "ring": _core.bench.ring,
        "line": _core.bench.pass_line_between_threads,
        **shmem.one_sided(SHMEM),
    }


def _results(transport: str, figures: dict[str, Figure]) -> list[Result]:
    call, bare = figures["call"].median_us, figures["bare"].median_us
    answered = posted = bare
    if transport == "PROXY":
        answered = bare + 2 * figures["line"].median_us
        posted = max(bare, figures["ring"].median_us)
    extra = {"empty_call_us": call}
    row = partial(result_of, figures, transport=transport, nbytes=8)
    return [
        row("fetch_add", limit_us=call + answered, mpi="Fetch_and_op+Flush", extra=extra),
        row("fetch_add_core", limit_us=answered),
        row("add", limit_us=call + posted, mpi="Accumulate", extra=extra),
        row("add_core", limit_us=posted),
    ]
