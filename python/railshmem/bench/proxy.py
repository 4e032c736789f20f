"""`railshmem bench proxy`: how fast a kernel hands commands to the progress thread.

proxy             immediate puts posted back to back, one quiet at the end of a batch
proxy_round_trip  one immediate put, posted and completed
limit             64-byte commands through the same ring between two threads that do nothing else;
                  for the round trip, a cache line that travels to another thread and back
"""

from __future__ import annotations

from functools import partial

import numpy as np
from mpi4py import MPI

from railshmem import _core
from railshmem.bench.job import BenchError, Job, address
from railshmem.bench.measure import Figure, repeat, stand_by, take_turns
from railshmem.bench.report import Result

# Large enough that waking the progress thread does not dominate a sample.
BATCH = 500


def run(job: Job, rounds: int) -> list[Result]:
    """Collective: results on PE 0, nothing on the others."""
    pe = job.peers_of_pe_0().get("PROXY")
    if pe is None:
        raise BenchError(
            f"no PE of this job reaches another through a proxy: {job.n_pes} PEs on one node; "
            "run at least 2 PEs and set RAILSHMEM_NODES=2"
        )
    word = job.heap_array(8, np.uint64)
    window = MPI.Win.Allocate(64, 1, comm=job.comm)
    window.Lock_all(MPI.MODE_NOCHECK)
    stand_by(job.comm)
    figures = _measure(job, window, word, pe, rounds) if job.me == 0 else {}
    stand_by(job.comm)
    window.Unlock_all()
    window.Free()
    return _results(figures) if figures else []


def _measure(
    job: Job, window: MPI.Win, word: np.ndarray, pe: int, rounds: int
) -> dict[str, Figure]:
    core = job.runtime
    message = [np.zeros(1, np.uint64), 8, MPI.BYTE]

    def rival_put() -> None:
        window.Put(message, pe, 0)

    def rival_flush() -> None:
        window.Put(message, pe, 0)
        window.Flush(pe)

    where = (core, address(word), pe)
    contestants = {
        "command": partial(_core.bench.commands, *where),
        "round trip": partial(_core.bench.round_trips, *where),
        "ring": _core.bench.ring,
        "line": _core.bench.pass_line_between_threads,
        "put rival": repeat(rival_put, partial(window.Flush, pe)),
        "flush rival": repeat(rival_flush),
    }
    return take_turns(contestants, rounds, dict.fromkeys(contestants, BATCH))


def _results(figures: dict[str, Figure]) -> list[Result]:
    command, round_trip = figures["command"], figures["round trip"]
    extra: dict[str, float | int | str | bool] = {
        "commands_per_s": round(1e6 / command.median_us),
        "round_trip_us": round_trip.median_us,
        "limit_commands_per_s": round(1e6 / figures["ring"].median_us),
    }
    return [
        Result(
            "proxy",
            command.median_us,
            command.p99_us,
            transport="PROXY",
            bytes=8,
            limit_us=figures["ring"].median_us,
            rival="Win.Put",
            rival_us=figures["put rival"].median_us,
            extra=extra,
        ),
        Result(
            "proxy_round_trip",
            round_trip.median_us,
            round_trip.p99_us,
            transport="PROXY",
            bytes=8,
            limit_us=2 * figures["line"].median_us,
            rival="Win.Put+Flush",
            rival_us=figures["flush rival"].median_us,
            extra=extra,
        ),
    ]
