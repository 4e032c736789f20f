"""`railshmem bench put|get --device cuda`: one kernel of PE 0 moves its heap from or to a peer's.

put        puts by block scope, back to back; the blocks share the bytes
put_quiet  the same with a quiet behind each
get        gets by block scope
p_quiet    one thread stores a word of 8 bytes and completes it, again and again
limit      a copy kernel of the same grid without the library, vectors of 16 bytes; a fence behind
           each where there is a quiet
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product

from railshmem.bench.gpu.device import I32, U32, U64, Argument
from railshmem.bench.gpu.job import GpuJob, at
from railshmem.bench.gpu.nvshmem import Nvshmem, beside
from railshmem.bench.measure import Figure
from railshmem.bench.report import Result, size_text

THREADS = 1024
P_CALLS = 1000
# A sample moves so much per block, at most so much in all, and at least once what is asked for.
BYTES_PER_BLOCK, BYTES = 16 << 20, 256 << 20


def run_put(job: GpuJob, sizes: Sequence[int], blocks: Sequence[int], rounds: int) -> list[Result]:
    """Collective: results on PE 0, nothing on the others."""
    with Nvshmem(job, heap_bytes=2 * max(sizes)) as rival:
        results = _transfers(job, rival, ("put", "put_quiet"), sizes, blocks, rounds)
        return results + _words(job, rival, rounds)


def run_get(job: GpuJob, sizes: Sequence[int], blocks: Sequence[int], rounds: int) -> list[Result]:
    """Collective: results on PE 0, nothing on the others."""
    with Nvshmem(job, heap_bytes=2 * max(sizes)) as rival:
        return _transfers(job, rival, ("get",), sizes, blocks, rounds)


def times_in_sample(nbytes: int, blocks: int) -> int:
    """So often a kernel of so many blocks moves `nbytes` bytes while it is timed."""
    return max(1, min(BYTES, BYTES_PER_BLOCK * blocks) // nbytes)


def _transfers(
    job: GpuJob,
    rival: Nvshmem,
    benches: Sequence[str],
    sizes: Sequence[int],
    blocks: Sequence[int],
    rounds: int,
) -> list[Result]:
    pe = job.mapped_peer()
    dest, source = (job.heap_array(max(sizes)) for _ in range(2))
    far_dest, far_source = U64(job.there(dest, pe)), U64(job.there(source, pe))
    results: list[Result] = []

    def kernel(name: str, grid: int, count: int, *arguments: Argument) -> float:
        work = partial(job.gpu.launch, name, grid, THREADS, *arguments)
        return job.gpu.seconds(work) / count

    def ours(bench: str, size: int, grid: int, count: int) -> float:
        what = (job.context, at(dest), at(source), U64(size), I32(pe), U32(count))
        if bench == "get":
            return kernel("bench:rsh_bench_get", grid, count, *what)
        return kernel("bench:rsh_bench_put", grid, count, *what, U32(bench == "put_quiet"))

    def limit(bench: str, size: int, grid: int, count: int) -> float:
        ends = (at(dest), far_source) if bench == "get" else (far_dest, at(source))
        fence = U32(bench == "put_quiet")
        return kernel(
            "bench_limits:rsh_limit_copy", grid, count, *ends, U64(size), U32(count), fence
        )

    for bench, size, grid in product(benches, sizes, blocks):
        sample = (bench, size, grid, times_in_sample(size, grid))
        figures = job.take_turns(
            job.alone("ours", partial(ours, *sample))
            | job.alone("limit", partial(limit, *sample))
            | rival.against(*sample),
            rounds,
            what=f"{bench} {size_text(size)} by {grid} blocks",
        )
        if job.me == 0:
            results.append(_transfer(bench, size, grid, figures))
    return results


def _transfer(bench: str, size: int, blocks: int, figures: dict[str, Figure]) -> Result:
    ours, limit = figures["ours"], figures["limit"]
    return Result(
        bench,
        ours.median_us,
        ours.p99_us,
        transport="P2P",
        bytes=size,
        gbs=ours.gbs(size),
        limit_us=limit.median_us,
        limit_gbs=limit.gbs(size),
        extra={"blocks": blocks},
        **beside(figures),
    )


def _words(job: GpuJob, rival: Nvshmem, rounds: int) -> list[Result]:
    pe = job.mapped_peer()
    word = job.heap_array(8)

    def timed(name: str, *arguments: Argument) -> Callable[[], float]:
        work = partial(job.gpu.launch, name, 1, 1, *arguments)
        return lambda: job.gpu.seconds(work) / P_CALLS

    count, far = U32(P_CALLS), U64(job.there(word, pe))
    ours = timed("bench:rsh_bench_p", job.context, at(word), I32(pe), count)
    figures = job.take_turns(
        job.alone("ours", ours)
        | job.alone("limit", timed("bench_limits:rsh_limit_p", far, count))
        | rival.against("p_quiet", 8, 1, P_CALLS),
        rounds,
        what="p",
    )
    return [latency("p_quiet", figures, nbytes=8)] if job.me == 0 else []


def latency(bench: str, figures: dict[str, Figure], nbytes: int | None = None) -> Result:
    """A row of times."""
    ours = figures["ours"]
    return Result(
        bench,
        ours.median_us,
        ours.p99_us,
        transport="P2P",
        bytes=nbytes,
        limit_us=figures["limit"].median_us,
        **beside(figures),
    )
