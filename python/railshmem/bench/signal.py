"""`railshmem bench signal`: 8 bytes from PE 0 to a peer, which sends them back when it sees them.

signal           shmem_put of one word and shmem_signal_wait_until, from Python;
                 MPI: Win.Put + Flush, and looking at the window until the word is there
put_signal       shmem_put_signal, 8 bytes of data before the word, from Python
..._core         the same in C++
limit            a cache line there and back; PROXY: four trips, because a thread moves each word.
                 From Python the four calls of a round trip, empty, come on top.

Every figure is a whole round trip.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from mpi4py import MPI

import railshmem
from railshmem import _core
from railshmem.bench.job import Job, address
from railshmem.bench.measure import Figure, Phases, repeat, stand_by, take_turns_together
from railshmem.bench.report import Result, result_of

TRIPS = 50  # per sample
PASSES = 500  # of the cache line per sample
LOOKS_BEFORE_YIELD = 200  # PEs may outnumber the cores
WORDS = 32  # of 8 bytes: what _core.bench.signals and pass_line ask for


class Player:
    """One of the two PEs, or one that waits until they have played."""

    def __init__(self, job: Job, other: int) -> None:
        self._job = job
        self.first = job.me == 0
        self.plays = job.me in (0, other)
        self.other = other if self.first else 0
        self._trips = 0

    def phase(self, name: str, trips: int, play: Callable[[], float]) -> Phases:
        """`play` takes the seconds of `trips` trips; called on the two players only."""

        def phases() -> dict[str, float]:
            seconds = play() if self.plays else 0.0
            stand_by(self._job.comm)  # the cores belong to the two that play
            return {name: seconds / trips}

        return phases

    def timed(self, send: Callable[[int], object], wait: Callable[[int], object]) -> float:
        """TRIPS round trips of growing values; the seconds they took."""
        start = time.perf_counter()
        for trip in range(self._trips + 1, self._trips + TRIPS + 1):
            if self.first:
                send(trip)
                wait(trip)
            else:
                wait(trip)
                send(trip)
        self._trips += TRIPS
        return time.perf_counter() - start


def run(job: Job, rounds: int) -> list[Result]:
    """Collective: results on PE 0, nothing on the others."""
    results: list[Result] = []
    with job.openshmem_for(64) as shmem, job.window(64) as window, job.on_own_cores():
        for transport, pe in job.peers_of_pe_0().items():
            contestants = _contestants(job, window, pe)
            for name, operation in (("signal", "signal"), ("put_signal", "put_signal")):
                contestants |= shmem.together(f"{name}_core shmem", operation, 8, TRIPS)
            figures = take_turns_together(job.comm, contestants, rounds, what=f"signal {transport}")
            if job.me == 0:
                results += _results(transport, figures)
    return results


def _contestants(job: Job, window: MPI.Win, pe: int) -> dict[str, Phases]:
    """Each with words, and counts of trips, of its own."""
    words = [job.heap_array(WORDS, np.uint64) for _ in range(5)]
    value = np.zeros(1, np.uint64)
    at = [address(each) for each in words]
    player = Player(job, pe)

    def wait(word: np.ndarray, trip: int) -> None:
        railshmem.shmem_signal_wait_until(word, railshmem.SHMEM_CMP_GE, trip)

    def send(trip: int) -> None:
        value[0] = trip
        railshmem.shmem_put(words[0], value, player.other, nelems=1)

    def send_with_data(trip: int) -> None:
        railshmem.shmem_put_signal(
            words[1][8:9], value, words[1], trip, railshmem.SHMEM_SIGNAL_SET, player.other
        )

    def core(which: int, with_data: bool) -> float:
        return _core.bench.signals(job.runtime, at[which], player.other, with_data, TRIPS)

    plain, with_data, mpi = (Player(job, pe) for _ in range(3))
    view = np.asarray(window.tomemory()).view(np.uint64)
    view[0] = 0
    job.comm.Barrier()
    send_mpi, wait_mpi = partial(_send_mpi, window, player.other), partial(_wait_mpi, window, view)
    call = repeat(lambda: _core.bench.empty_call(words[0], value, 0))
    contest = player.phase
    return {
        "signal": contest("signal", TRIPS, lambda: plain.timed(send, partial(wait, words[0]))),
        "signal mpi": contest("signal mpi", TRIPS, lambda: mpi.timed(send_mpi, wait_mpi)),
        "signal_core": contest("signal_core", TRIPS, lambda: core(2, False)),
        "put_signal": contest(
            "put_signal", TRIPS, lambda: with_data.timed(send_with_data, partial(wait, words[1]))
        ),
        "put_signal_core": contest("put_signal_core", TRIPS, lambda: core(3, True)),
        "line": lambda: {"line": job.pass_line(words[4], PASSES) / PASSES},
        "call": contest("call", TRIPS, lambda: call(TRIPS)),
    }


def _send_mpi(window: MPI.Win, other: int, trip: int) -> None:
    window.Put([np.array([trip], np.uint64), 8, MPI.BYTE], other, 0)
    window.Flush(other)


def _wait_mpi(window: MPI.Win, view: np.ndarray, trip: int) -> None:
    looks = 0
    while view[0] < trip:
        window.Sync()
        looks += 1
        if looks > LOOKS_BEFORE_YIELD:
            os.sched_yield()


def _results(transport: str, figures: dict[str, Figure]) -> list[Result]:
    call = figures["call"].median_us
    limit = figures["line"].median_us * (4 if transport == "PROXY" else 2)
    row = partial(result_of, figures, transport=transport, nbytes=8)
    extra = {"empty_call_us": call}
    return [
        row("signal", limit_us=limit + 4 * call, mpi="Win.Put+Flush", extra=extra),
        row("signal_core", limit_us=limit),
        row("put_signal", limit_us=limit + 4 * call, extra=extra),
        row("put_signal_core", limit_us=limit),
    ]
