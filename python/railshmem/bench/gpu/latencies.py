"""`railshmem bench atomic|signal|barrier --device cuda`: how soon kernels hear of each
other.

fetch_add   one thread adds to a word of the peer and waits for the old value
signal      a warp sets a signal in the peer, whose warp waits for it and answers: a round trip
put_signal  the same with data before each signal
barrier     barrier_all by one thread of each PE
limit       the same by hand: an atomic; a flag, or data, release and flag; half a flag's round trip
            for each of the log2 n steps of a barrier
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import ceil, log2

import numpy as np

from railshmem.bench.gpu.device import I32, U32, U64, Argument
from railshmem.bench.gpu.job import GpuJob, Seconds, at
from railshmem.bench.gpu.nvshmem import Nvshmem, beside
from railshmem.bench.gpu.transfers import latency
from railshmem.bench.report import Result, size_text

CALLS = 1000
TRIPS = 2000
WARP = 32
DATA = (8, 1024)


def run_atomic(job: GpuJob, rounds: int) -> list[Result]:
    """Collective: results on PE 0, nothing on the others."""
    pe = job.mapped_peer()
    word = job.heap_array(1, np.uint64)
    old, count = U64(job.gpu.memory(8)), U32(CALLS)
    far = U64(job.there(word, pe))
    ours = _timed(
        job, CALLS, 1, "bench:rsh_bench_atomic", job.context, at(word), I32(pe), count, old
    )
    limit = _timed(job, CALLS, 1, "bench_limits:rsh_limit_atomic", far, count, old)
    with Nvshmem(job, heap_bytes=1 << 20) as rival:
        figures = job.take_turns(
            job.alone("ours", ours)
            | job.alone("limit", limit)
            | rival.against("fetch_add", 8, 1, CALLS),
            rounds,
            what="atomic",
        )
    return [latency("fetch_add", figures, nbytes=8)] if job.me == 0 else []


def run_signal(job: GpuJob, rounds: int) -> list[Result]:
    """Collective: results on PE 0, nothing on the others."""
    results: list[Result] = []
    with Nvshmem(job, heap_bytes=1 << 20) as rival:
        for nbytes in (0, *DATA):
            results += _ping(job, nbytes, rounds, rival)
    return results


def _ping(job: GpuJob, nbytes: int, rounds: int, rival: Nvshmem) -> list[Result]:
    pe = job.mapped_peer()
    bench = "put_signal" if nbytes else "signal"
    count = job.trips(TRIPS)
    ours, limit = (_Players(job, pe, nbytes, count, by_hand) for by_hand in (False, True))
    figures = job.take_turns(
        job.pair("ours", pe, ours.seconds)
        | job.pair("limit", pe, limit.seconds)
        | rival.against(bench, nbytes, 1, count),
        rounds,
        what=f"{bench} {size_text(nbytes)}",
    )
    return [latency(bench, figures, nbytes=nbytes or None)] if job.me == 0 else []


def run_barrier(job: GpuJob, rounds: int) -> list[Result]:
    """Collective: results on PE 0, nothing on the others."""
    count = job.trips(TRIPS)
    pe = job.mapped_peer()
    ours = _timed(job, count, 1, "bench:rsh_bench_barrier", job.context, U32(count))
    flags = _Players(job, pe, 0, count, by_hand=True)
    with Nvshmem(job, heap_bytes=1 << 20) as rival:
        figures = job.take_turns(
            job.together("ours", ours)
            | job.pair("flags", pe, flags.seconds)
            | rival.against("barrier", 0, 1, count),
            rounds,
            what="barrier",
        )
    if job.me != 0:
        return []
    steps = ceil(log2(job.n_pes))
    return [
        Result(
            "barrier",
            figures["ours"].median_us,
            figures["ours"].p99_us,
            transport="+".join(sorted(job.peers_of_pe_0())),
            limit_us=figures["flags"].median_us / 2 * steps or None,
            **beside(figures),
        )
    ]


class _Players:
    """PE 0 and its peer, each with one warp, and words of their own that count up."""

    def __init__(self, job: GpuJob, other: int, nbytes: int, count: int, by_hand: bool) -> None:
        self._job, self._count = job, count
        self._signal = job.heap_array(16, np.uint64)
        self._data, self._source = (job.heap_array(max(nbytes, 16)) for _ in range(2))
        self._nbytes = nbytes
        self._first = job.me == 0
        self._pe = other if self._first else 0
        self._by_hand = by_hand
        self._trips = 0

    def seconds(self) -> float:
        """Of one round trip."""
        turn = U64(self._trips), U32(self._count), U32(self._first)
        self._trips += self._count
        start, count, first = turn
        if self._by_hand:
            far_data, far_signal = (
                U64(self._job.there(each, self._pe)) for each in (self._data, self._signal)
            )
            name = "bench_limits:rsh_limit_ping"
            words = U64(self._nbytes // 8)
            arguments: Sequence[Argument] = (
                *(far_data, words, far_signal),
                *(at(self._signal), start, count, first),
            )
        else:
            name = "bench:rsh_bench_ping"
            arguments = (
                *(self._job.context, at(self._data), at(self._source), U64(self._nbytes)),
                *(at(self._signal), start, I32(self._pe), count, first),
            )
        work = partial(self._job.gpu.launch, name, 1, WARP, *arguments)
        return self._job.gpu.seconds(work) / self._count


def _timed(job: GpuJob, count: int, threads: int, name: str, *arguments: Argument) -> Seconds:
    work = partial(job.gpu.launch, name, 1, threads, *arguments)
    return lambda: job.gpu.seconds(work) / count
