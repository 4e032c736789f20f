"""Taking times that can be compared.

Shared machines change speed by a factor of two within minutes, so contestants (ours, the rival, the
physical limit) take turns round by round, and every figure is a median over the same rounds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI
from rich.console import Console
from rich.progress import track

from railshmem.launcher import launched_rank

# A sample shorter than this would measure the clock.
SHORTEST_SAMPLE_S = 30e-6
LARGEST_BATCH = 1 << 14
WARM_CALLS = 3
# Smallest batches where starting the other thread must not count.
HAND_OVERS = {"ring": 200, "line": 200}

# Runs its operation `count` times and returns the seconds that took.
Batch = Callable[[int], float]
# Runs its operation once and returns the seconds of each of its phases on this PE.
Phases = Callable[[], Mapping[str, float]]


@dataclass(frozen=True)
class Figure:
    """Times of one operation in microseconds."""

    median_us: float
    p99_us: float

    def gbs(self, nbytes: int) -> float:
        """Gigabytes (1e9) per second when the median moves `nbytes`."""
        return nbytes / self.median_us / 1e3


def figure(seconds: Sequence[float] | np.ndarray) -> Figure:
    """Sums up samples given in seconds per operation."""
    us = np.asarray(seconds) * 1e6
    return Figure(float(np.median(us)), float(np.percentile(us, 99)))


def in_rounds(rounds: range, what: str) -> Iterable[int]:
    """The rounds, with a bar on PE 0's standard error when that is a terminal."""
    if launched_rank() != 0 or not sys.stderr.isatty():
        return rounds
    return track(rounds, what, console=Console(stderr=True), transient=True)


def repeat(operation: Callable[[], object], after: Callable[[], object] | None = None) -> Batch:
    """A batch of Python calls; `after` (a quiet, a flush) runs once at its end and counts."""

    def batch(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            operation()
        if after is not None:
            after()
        return time.perf_counter() - start

    return batch


def batch_size(batch: Batch, at_least: int) -> int:
    """How many operations make a sample long enough to trust."""
    count = at_least
    # The fastest of three: the first calls are cold.
    while count < LARGEST_BATCH and min(batch(count) for _ in range(3)) < SHORTEST_SAMPLE_S:
        count *= 2
    return count


def take_turns(
    contestants: Mapping[str, Batch],
    rounds: int,
    at_least: Mapping[str, int] | None = None,
    what: str = "measuring",
) -> dict[str, Figure]:
    """Times one-sided operations on the calling PE; the others should be in `stand_by`.

    A sample is the mean of a batch of operations, of at least so many where `at_least` says so.
    """
    smallest = at_least or {}
    # Finding the sizes warms everything up.
    sizes = {name: batch_size(batch, smallest.get(name, 1)) for name, batch in contestants.items()}
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in in_rounds(range(rounds), what):
        for name, batch in contestants.items():
            batch(WARM_CALLS)  # the one before it has left its own data in the caches
            samples[name].append(batch(sizes[name]) / sizes[name])
    return {name: figure(taken) for name, taken in samples.items()}


def stand_by(comm: MPI.Comm) -> None:
    """Collective: a barrier whose early callers sleep and leave the cores to the others."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(0.0002)


def take_turns_together(
    comm: MPI.Comm,
    contestants: Mapping[str, Phases],
    rounds: int,
    warm_up: int = 2,
    what: str = "measuring",
) -> dict[str, Figure]:
    """Collective: times operations in which every PE takes part.

    Each phase counts as long as the slowest PE needs for it. Returns one figure per phase.
    """
    taken: dict[str, list[float]] = {}
    for done in in_rounds(range(-warm_up, rounds), what):
        for phases in contestants.values():
            comm.Barrier()
            for phase, seconds in phases().items():
                if done >= 0:
                    taken.setdefault(phase, []).append(seconds)
    slowest = slowest_of(comm, np.array(list(taken.values())))
    return {phase: figure(samples) for phase, samples in zip(taken, slowest, strict=True)}


def slowest_of(comm: MPI.Comm, seconds: np.ndarray) -> np.ndarray:
    """Collective: for each sample the time of the PE that needed longest."""
    longest = np.empty_like(seconds)
    comm.Allreduce(seconds, longest, op=MPI.MAX)
    return longest
