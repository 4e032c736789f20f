"""`railshmem bench proxy`: how fast kernels hand commands to the progress thread.

proxy             immediate puts posted back to back, one quiet at the end of a batch
proxy_xN          the same by N producers at once, each a block of one kernel
proxy_round_trip  one immediate put, posted and completed
limit             64-byte commands through the same ring between two threads that do nothing else;
                  for the round trip, a cache line that travels to another thread and back
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from mpi4py import MPI

from railshmem import _core
from railshmem.bench.job import BenchError, Job, Rival, address
from railshmem.bench.measure import Batch, Figure, repeat, take_turns
from railshmem.bench.report import Extra, Result, result_of

# Large enough that waking the progress thread, and starting producers, does not dominate a sample.
BATCH = 500
BATCH_OF_SEVERAL = 16384

SHMEM = {"proxy shmem": "put", "proxy_round_trip shmem": "put_quiet"}


def run(job: Job, producers: Sequence[int], rounds: int) -> list[Result]:
    """Collective: results on PE 0, nothing on the others."""
    pe = job.peers_of_pe_0().get("PROXY")
    if pe is None:
        raise BenchError(
            f"no PE of this job reaches another through a proxy: {job.n_pes} PEs on one node; "
            "run at least 2 PEs and set RAILSHMEM_NODES=2"
        )
    words = job.heap_array(max(producers), np.uint64)
    results: list[Result] = []
    with job.openshmem_for(64) as shmem, job.window(64) as window:
        if job.me == 0:
            contestants = _contestants(job, window, shmem, words, pe, producers)
            smallest = {name: BATCH_OF_SEVERAL if "_x" in name else BATCH for name in contestants}
            results = _results(take_turns(contestants, rounds, smallest, "proxy"), producers)
    return results


def _contestants(
    job: Job, window: MPI.Win, shmem: Rival, words: np.ndarray, pe: int, producers: Sequence[int]
) -> dict[str, Batch]:
    message = [np.zeros(1, np.uint64), 8, MPI.BYTE]

    def put_flush() -> None:
        window.Put(message, pe, 0)
        window.Flush(pe)

    where = (job.runtime, address(words), pe)
    return {
        **{_name(n): partial(_core.bench.commands, *where, n) for n in producers},
        "proxy_round_trip": partial(_core.bench.round_trips, *where),
        "ring": _core.bench.ring,
        "line": _core.bench.pass_line_between_threads,
        "proxy mpi": repeat(lambda: window.Put(message, pe, 0), partial(window.Flush, pe)),
        "proxy_round_trip mpi": repeat(put_flush),
        **shmem.one_sided(SHMEM),
    }


def _name(producers: int) -> str:
    return "proxy" if producers == 1 else f"proxy_x{producers}"


def _results(figures: dict[str, Figure], producers: Sequence[int]) -> list[Result]:
    ring, round_trip = figures["ring"].median_us, figures["proxy_round_trip"].median_us
    row = partial(result_of, figures, transport="PROXY", nbytes=8)

    def extra(producers: int) -> Extra:
        return {
            "producers": producers,
            "commands_per_s": round(1e6 / figures[_name(producers)].median_us),
            "round_trip_us": round_trip,
            "limit_commands_per_s": round(1e6 / ring),
        }

    several = [n for n in producers if n > 1]
    return [
        row("proxy", limit_us=ring, mpi="Win.Put", extra=extra(1)),
        *(row(_name(n), limit_us=ring, extra=extra(n)) for n in several),
        row(
            "proxy_round_trip",
            limit_us=2 * figures["line"].median_us,
            mpi="Win.Put+Flush",
            extra=extra(1),
        ),
    ]
