"""`railshmem bench barrier`: shmem_barrier_all beside MPI's barrier.

The limit is what any barrier of n PEs costs: ceil(log2 n) times a cache line that travels one way.
It is measured between PE 0 and the first PE it shares memory with, else between two threads.
"""

from __future__ import annotations

from math import ceil, log2

import numpy as np

import railshmem
from railshmem import _core
from railshmem.bench.job import Job, address
from railshmem.bench.measure import Figure, repeat, stand_by, take_turns_together
from railshmem.bench.report import Result

CALLS = 20  # per sample
PASSES = 500  # of the cache line per sample


def run(job: Job, rounds: int) -> list[Result]:
    """Collective: results on PE 0, nothing on the others."""
    core = job.runtime
    words = job.heap_array(2 * 16, np.uint64)  # two words on cache lines of their own
    partner = job.mapped_peer_of_pe_0()
    python = repeat(railshmem.shmem_barrier_all)
    rival = repeat(job.comm.Barrier)

    def pass_line() -> dict[str, float]:
        seconds = 0.0
        if partner is None and job.me == 0:
            seconds = _core.bench.pass_line_between_threads(PASSES)
        elif partner is not None and job.me in (0, partner):
            other = partner if job.me == 0 else 0
            seconds = _core.bench.pass_line(core, address(words), other, PASSES)
        stand_by(job.comm)  # the cores belong to the two that play
        return {"line": seconds / PASSES}

    figures = take_turns_together(
        job.comm,
        {
            "barrier": lambda: {"barrier": python(CALLS) / CALLS},
            "barrier_core": lambda: {"barrier_core": _core.bench.barrier(core, CALLS) / CALLS},
            "rival": lambda: {"rival": rival(CALLS) / CALLS},
            "line": pass_line,
        },
        rounds,
    )
    return _results(job, figures) if job.me == 0 else []


def _results(job: Job, figures: dict[str, Figure]) -> list[Result]:
    steps = ceil(log2(job.n_pes))
    paths = set(job.peers_of_pe_0())
    return [
        Result(
            bench,
            figures[bench].median_us,
            figures[bench].p99_us,
            transport="+".join(sorted(paths)),
            limit_us=figures["line"].median_us * steps if steps else None,
            rival=rival,
            rival_us=figures["rival"].median_us if rival else None,
            extra={"cache_line_us": figures["line"].median_us},
        )
        for bench, rival in (("barrier", "comm.Barrier"), ("barrier_core", None))
    ]
