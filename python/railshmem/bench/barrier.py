"""`railshmem bench barrier`: shmem_barrier_all beside MPI's and OpenSHMEM's barriers.

The limit is what any barrier of n PEs costs: ceil(log2 n) times a cache line that travels one way.
It is measured between PE 0 and the first PE it shares memory with, else between two threads.
"""

from __future__ import annotations

from functools import partial
from math import ceil, log2

import numpy as np

import railshmem
from railshmem import _core
from railshmem.bench.job import Job
from railshmem.bench.measure import Figure, Phases, repeat, take_turns_together
from railshmem.bench.report import Result, result_of

CALLS = 20  # per sample
PASSES = 500  # of the cache line per sample


def run(job: Job, rounds: int) -> list[Result]:
    """Collective: results on PE 0, nothing on the others."""
    core = job.runtime
    words = job.heap_array(2 * 16, np.uint64)  # two words on cache lines of their own
    python = repeat(railshmem.shmem_barrier_all)
    rival = repeat(job.comm.Barrier)

    contestants: dict[str, Phases] = {
        "barrier": lambda: {"barrier": python(CALLS) / CALLS},
        "barrier_core": lambda: {"barrier_core": _core.bench.barrier(core, CALLS) / CALLS},
        "barrier mpi": lambda: {"barrier mpi": rival(CALLS) / CALLS},
        "line": lambda: {"line": job.pass_line(words, PASSES) / PASSES},
    }
    with job.openshmem_for(64) as shmem, job.on_own_cores():
        contestants |= shmem.together("barrier_core shmem", "barrier", 8, CALLS)
        figures = take_turns_together(job.comm, contestants, rounds, what="barrier")
    return _results(job, figures) if job.me == 0 else []


def _results(job: Job, figures: dict[str, Figure]) -> list[Result]:
    steps = ceil(log2(job.n_pes))
    line = figures["line"].median_us
    row = partial(
        result_of,
        figures,
        transport="+".join(sorted(job.peers_of_pe_0())),
        limit_us=line * steps if steps else None,
        extra={"cache_line_us": line},
    )
    return [row("barrier", mpi="comm.Barrier"), row("barrier_core")]
