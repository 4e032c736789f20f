"""`railshmem bench alltoall --device cuda`: every PE's kernel sends a row to every PE.

alltoall  put with a signal by every block to every PE, and a wait for those of all; MPI's place is
          NCCL's: all_to_all_single of torch.distributed
limit     a copy kernel of the same grid, once for each other PE, on all GPUs at once
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from railshmem.bench.gpu.device import U32, U64
from railshmem.bench.gpu.job import GpuJob, at
from railshmem.bench.gpu.nccl import Nccl
from railshmem.bench.gpu.nvshmem import beside
from railshmem.bench.measure import Figure
from railshmem.bench.report import Result, size_text

THREADS, BLOCKS = 1024, 32
CALLS = 10


def run(job: GpuJob, sizes: Sequence[int], rounds: int) -> list[Result]:
    """Collective: results on PE 0, nothing on the others."""
    exchange = _Exchange(job, max(sizes))
    results = []
    with Nccl(job) as nccl:
        for size in sizes:
            contestants = job.together("ours", partial(exchange.seconds, size))
            if exchange.all_mapped:
                contestants |= job.together("limit", partial(exchange.limit, size))
            if nccl.available:
                call = nccl.alltoall(size)
                contestants |= job.together("rival", partial(exchange.timed, call, CALLS))
            figures = job.take_turns(contestants, rounds, f"alltoall {size_text(size)}")
            if job.me == 0:
                results.append(_result(job, size, figures))
    return results


class _Exchange:
    def __init__(self, job: GpuJob, largest: int) -> None:
        self._job = job
        self._dest, self._source = (job.heap_array((job.n_pes, largest)) for _ in range(2))
        self._arrived = job.heap_array(1, np.uint64)
        self._count = 0
        self.all_mapped = set(job.peers_of_pe_0()) == {"P2P"}

    def timed(self, call: partial[None], count: int) -> float:
        """Seconds of one call, which starts on all GPUs at once."""

        def work() -> None:
            for _ in range(count):
                call()

        return self._job.gpu.seconds(work, self._job.start_together) / count

    def seconds(self, size: int) -> float:
        before = self._count
        self._count += CALLS * BLOCKS * self._job.n_pes
        work = partial(
            self._job.gpu.launch,
            *("bench:rsh_bench_alltoall", BLOCKS, THREADS, self._job.context, at(self._dest)),
            *(at(self._source), U64(size), at(self._arrived), U64(before), U32(CALLS)),
            together=True,
        )
        return self.timed(work, 1) / CALLS

    def limit(self, size: int) -> float:
        job = self._job
        others = [(job.me + step) % job.n_pes for step in range(1, job.n_pes)] or [0]
        places = [U64(job.there(self._dest, pe)) for pe in others]

        def work() -> None:
            for far in places:
                job.gpu.launch(
                    *("bench_limits:rsh_limit_copy", BLOCKS, THREADS, far, at(self._source)),
                    *(U64(size), U32(CALLS), U32(1)),
                )

        return self.timed(partial(work), 1) / CALLS


def _result(job: GpuJob, size: int, figures: dict[str, Figure]) -> Result:
    ours, limit = figures["ours"], figures.get("limit")
    moved = size * max(job.n_pes - 1, 1)
    return Result(
        "alltoall",
        ours.median_us,
        ours.p99_us,
        transport="+".join(sorted(job.peers_of_pe_0())),
        bytes=size,
        gbs=ours.gbs(moved),
        limit_us=limit.median_us if limit else None,
        limit_gbs=limit.gbs(moved) if limit else None,
        **beside(figures, "NCCL"),
    )
