"""`railshmem bench proxy --device cuda`: kernels of PE 0 hand commands to the CPU.

proxy_post         signals, commands that carry all they say, into a ring that the CPU reads and
                   drops, by so many warps
proxy_post_fenced  puts of 8 bytes that the kernel has written, with one fence for each warp's 32
proxy_answer       a word posted to such a ring, and until it is complete
proxy              puts of 8 bytes through the progress thread and a NIC into the peer, and a quiet
proxy_round_trip   a word to the peer that way, and until it is complete
limit              the same number of 64-byte commands without fences by a bare kernel; there and
                   back: 16 bytes to the CPU, and its answer

The last two are measured where a PE is behind a NIC (RAILSHMEM_NODES=2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from railshmem import _core
from railshmem.bench.gpu.device import I32, U32, U64
from railshmem.bench.gpu.job import GpuJob, at
from railshmem.bench.measure import Figure, Phases
from railshmem.bench.report import Result

WARP = 32
RING_SHIFT = 16  # 65,536 commands: a burst is more
POSTS = 1 << 19  # a sample, of each warp at most
MOST_POSTS = 1 << 21
TRIPS = 1000
END_TO_END, END_TO_END_TRIPS = 1 << 14, 200
BYTES = 8


def run(job: GpuJob, warps: Sequence[int], rounds: int) -> list[Result]:
    """Collective: results on PE 0, nothing on the others."""
    with ThreadPoolExecutor(1) as reader:
        bench = _Bench(job, max(warps), reader)
        figures = {
            number: job.take_turns(bench.posting(number), rounds, f"proxy, {number} warps")
            for number in warps
        }
        trips = job.take_turns(bench.answers(), rounds, "proxy, answers")
    pe = job.peers_of_pe_0().get("PROXY")
    through = {} if pe is None else job.take_turns(bench.end_to_end(pe), rounds, "proxy")
    if job.me != 0:
        return []
    results = []
    for number, taken in figures.items():
        for name in ("proxy_post", "proxy_post_fenced"):
            results.append(_rate(name, taken[name], taken["ring"], number))
    results.append(_row("proxy_answer", trips["answer"], trips["trip"]))
    if through:
        ring = figures[warps[0]]["ring"]
        results.append(_rate("proxy", through["proxy"], ring, 1))
        results.append(_row("proxy_round_trip", through["round_trip"], trips["trip"]))
    return results


class _Bench:
    """Rings of PE 0, and the words and data that commands name."""

    def __init__(self, job: GpuJob, warps: int, reader: ThreadPoolExecutor) -> None:
        self._job, self._reader = job, reader
        self._dest, self._source = (job.heap_array(BYTES * WARP * warps) for _ in range(2))
        if job.me == 0:
            self._ours, self._bare = (
                _core.bench.SinkRing(job.runtime, RING_SHIFT) for _ in range(2)
            )
            self._words = job.gpu.pinned(32)  # on two lines

    def posting(self, warps: int) -> dict[str, Phases]:
        share = warps * WARP
        count = min(POSTS * warps, MOST_POSTS) // share * share
        return (
            self._job.alone("proxy_post", lambda: self._post(warps, count, fenced=False))
            | self._job.alone("proxy_post_fenced", lambda: self._post(warps, count, fenced=True))
            | self._job.alone("ring", lambda: self._write_bare(warps, count))
        )

    def _post(self, warps: int, count: int, *, fenced: bool) -> float:
        context, peer = U64(self._ours.context), I32(0)
        if fenced:
            work = partial(
                self._job.gpu.launch,
                *("bench:rsh_bench_post_fenced", warps, WARP, context),
                *(at(self._dest), at(self._source), U64(BYTES), peer, U32(count)),
            )
        else:
            work = partial(
                self._job.gpu.launch,
                *("bench:rsh_bench_post", warps, WARP, context, at(self._dest), peer, U32(count)),
            )
        return self._while_read(self._ours, count, work)

    def _write_bare(self, warps: int, count: int) -> float:
        ring = self._bare
        work = partial(
            self._job.gpu.launch,
            *("bench_limits:rsh_limit_ring", warps, WARP, U64(ring.slots), U32(ring.shift)),
            *(U64(ring.head), U64(ring.tail), U64(ring.head_seen), U32(count)),
        )
        return self._while_read(ring, count, work)

    def _while_read(
        self, ring: _core.bench.SinkRing, count: int, work: Callable[[], None]
    ) -> float:
        reading = self._reader.submit(ring.take, count)
        seconds = self._job.gpu.seconds(work)
        reading.result()
        return seconds / count

    def answers(self) -> dict[str, Phases]:
        return self._job.alone("answer", self._answer) | self._job.alone("trip", self._trip)

    def _answer(self) -> float:
        work = partial(
            self._job.gpu.launch,
            *("bench:rsh_bench_post_quiet", 1, 1, U64(self._ours.context)),
            *(at(self._dest), I32(0), U32(TRIPS)),
        )
        return self._while_read(self._ours, TRIPS, work)

    def _trip(self) -> float:
        self._words[:] = 0
        out, answer = self._words.ctypes.data, self._words.ctypes.data + 128
        answering = self._reader.submit(_core.bench.answer, out, answer, TRIPS)
        work = partial(
            self._job.gpu.launch,
            *("bench_limits:rsh_limit_host_trip", 1, 1, U64(out), U64(answer), U32(TRIPS)),
        )
        seconds = self._job.gpu.seconds(work)
        answering.result()
        return seconds / TRIPS

    def end_to_end(self, pe: int) -> dict[str, Phases]:
        context, gpu = self._job.context, self._job.gpu
        # Loaded now: loading waits for kernels that run, and the first one waits for a progress
        # thread whose work on this GPU waits for the load.
        gpu.kernel("core:rsh_quiet")

        def puts() -> float:
            def work() -> None:
                gpu.launch(
                    *("bench:rsh_bench_post_fenced", 1, WARP, context, at(self._dest)),
                    *(at(self._source), U64(BYTES), I32(pe), U32(END_TO_END)),
                )
                gpu.launch("core:rsh_quiet", 1, 1, context)

            return gpu.seconds(work) / END_TO_END

        def round_trips() -> float:
            work = partial(
                gpu.launch,
                *("bench:rsh_bench_post_quiet", 1, 1, context, at(self._dest)),
                *(I32(pe), U32(END_TO_END_TRIPS)),
            )
            return gpu.seconds(work) / END_TO_END_TRIPS

        return self._job.alone("proxy", puts) | self._job.alone("round_trip", round_trips)


def _row(bench: str, ours: Figure, limit: Figure) -> Result:
    return Result(
        bench,
        ours.median_us,
        ours.p99_us,
        transport="PROXY",
        bytes=BYTES,
        limit_us=limit.median_us,
    )


def _rate(bench: str, ours: Figure, limit: Figure, warps: int) -> Result:
    return Result(
        bench,
        ours.median_us,
        ours.p99_us,
        transport="PROXY",
        bytes=BYTES,
        limit_us=limit.median_us,
        extra={
            "warps": warps,
            "commands_per_s": round(1e6 / ours.median_us),
            "limit_commands_per_s": round(1e6 / limit.median_us),
        },
    )
