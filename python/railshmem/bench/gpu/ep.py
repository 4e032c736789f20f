"""`railshmem bench ep --device cuda`: dispatch and combine of one layer, on GPUs.

ep_dispatch, ep_combine  each alone, started on all GPUs at once, with cold caches
ep                       one behind the other
limit                    for two PEs that map each other: a kernel of as many blocks that reads
                         every token once and writes it to a local and to a remote place; for
                         combine one that reads both and writes their sum. No routing, no agreement

The shapes are fixed (the host waits for nothing), the layout is what the option says. Before
anything is timed the layer is checked with experts that change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

import railshmem
from railshmem.bench.ep import Shape, check_shape
from railshmem.bench.gpu.device import U32, U64, Work
from railshmem.bench.gpu.job import GpuJob, at
from railshmem.bench.job import BenchError
from railshmem.bench.measure import Figure, Phases
from railshmem.bench.report import Result
from railshmem.bench.token_types import quantise
from railshmem.ep import ExpertParallel

THREADS, WARP = 1024, 32
# Other data than the layer's passes through the caches before each sample.
FLUSH_BYTES = 128 << 20
# Tokens repeat after so many: to make and to check more takes the CPU long.
DIFFERENT_TOKENS = 256
VECTOR = 16


def run(job: GpuJob, shape: Shape, sms: int, bulk: bool, rounds: int) -> list[Result]:
    """Collective: results on PE 0, nothing on the others."""
    layer = _Layer(job, shape, sms, bulk)
    layer.check()
    contestants: dict[str, Phases] = {
        "apart": layer.apart,
        **job.together("round", partial(layer.seconds, layer.round)),
        **_Floors(job, shape, sms, layer).contestants(),
    }
    figures = job.take_turns(contestants, rounds, f"ep, {shape.tokens} tokens {shape.dtype}")
    rows = job.comm.allreduce(layer.rows)
    return _results(job, shape, layer.how, figures, rows) if job.me == 0 else []


class _Layer:
    """Tokens, routing and an ExpertParallel, in GPU memory."""

    def __init__(self, job: GpuJob, shape: Shape, sms: int, bulk: bool) -> None:
        check_shape(job, shape)
        self._job, self._shape = job, shape
        self.how: dict[str, int | bool] = {"sms": sms, "bulk": bulk}
        kind, tokens = shape.kind, shape.tokens
        rng = np.random.default_rng(job.me)
        few = rng.standard_normal((min(tokens, DIFFERENT_TOKENS), shape.hidden), np.float32)
        places = np.arange(tokens) % max(len(few), 1)
        rows, scales = quantise(few, kind)
        scores = rng.random((tokens, shape.experts), np.float32)
        indices = np.argpartition(-scores, shape.topk - 1, axis=1)[:, : shape.topk]
        self._host_tokens = rows[places]
        self._tokens = _on_gpu(self._host_tokens)
        self._scales = None if scales is None else _on_gpu(scales[places])
        self._indices = _on_gpu(indices.astype(np.int64))
        self._weights = _on_gpu(rng.random((tokens, shape.topk), np.float32))
        whole: Any = railshmem.shmem_array((max(tokens, 1), shape.hidden), kind.combine)
        self._out = whole[:tokens]
        owners = indices // (shape.experts // job.n_pes)
        self._copies = np.array([len(np.unique(row)) for row in owners], np.float32)
        self.rows = int(indices.size if shape.by_expert else self._copies.sum())
        made_for: dict[str, Any] = {
            "hidden": shape.hidden,
            "experts": shape.experts,
            "topk": shape.topk,
            "max_tokens": max(tokens, 1),
            "dtype": kind.dispatch,
            "combine_dtype": kind.combine,
            "layout": shape.layout,
            "alignment": shape.alignment if shape.by_expert else 1,
            "blocks": sms,
            "bulk": bulk,
            "fixed_shapes": True,
            "runtime": job.runtime,
        }
        self._exchange: Any = ExpertParallel(**made_for)
        self._flushed = job.gpu.memory(FLUSH_BYTES)
        self._dispatched: Any = None

    def dispatch(self) -> None:
        self._dispatched = self._exchange.dispatch(
            self._tokens,
            self._indices,
            self._weights,
            self._scales,
            stream=self._job.gpu.stream.value,
        )

    def combine(self) -> None:
        """Of the last dispatch."""
        handle = self._dispatched.handle
        self._exchange.combine(
            handle.expert_buffer(), handle, out=self._out, stream=self._job.gpu.stream.value
        )

    def round(self) -> None:
        self.dispatch()
        self.combine()

    def apart(self) -> dict[str, float]:
        """Dispatch and combine, with everybody waiting for everybody in between."""
        dispatch = self.seconds(self.dispatch)
        self._job.comm.Barrier()
        return {"dispatch": dispatch, "combine": self.seconds(self.combine)}

    def seconds(self, work: Work) -> float:
        """Of work that starts on all GPUs at once, on cold caches."""
        return self._job.gpu.seconds(work, self._begin)

    def _begin(self) -> None:
        self._job.gpu.fill(self._flushed, 0, FLUSH_BYTES)
        self._job.start_together()

    def check(self) -> None:
        """Experts that return what they get: a token comes back once from every PE it went to."""
        self.dispatch()
        self._job.gpu.sync()
        received = self._dispatched.tokens
        contiguous = self._shape.layout == "contiguous"
        same = contiguous and received.dtype == self._shape.kind.combine
        if same:
            self._dispatched.handle.expert_buffer()[...] = received
        self._job.runtime.barrier_all()
        self.combine()
        self._job.gpu.sync()
        right = True
        if same:  # other types and layouts are the tests' business
            sums = self._host_tokens.astype(np.float32) * self._copies[:, None]
            right = np.array_equal(self._out.numpy(), sums.astype(self._shape.kind.combine))
        if not self._job.comm.allreduce(bool(right), op=MPI.LAND):
            raise BenchError("combine did not return what dispatch had sent")


class _Floors:
    """The bytes of the layer's rows, moved by kernels that do nothing else."""

    def __init__(self, job: GpuJob, shape: Shape, sms: int, layer: _Layer) -> None:
        self._job, self._sms, self._layer = job, sms, layer
        self._tokens = shape.tokens
        kind = shape.kind
        out_bytes = shape.hidden * kind.dispatch.itemsize + 4 * shape.n_scales
        back_bytes = shape.hidden * kind.combine.itemsize
        self._vectors = {
            "limit dispatch": out_bytes // VECTOR,
            "limit combine": back_bytes // VECTOR,
        }
        # Several warps share a row where there are more warps than rows.
        self._parts = max(1, sms * (THREADS // WARP) // max(self._tokens, 1))
        self.possible = (
            job.n_pes == 2 and job.n_nodes == 1 and not shape.by_expert and shape.tokens > 0
        )

    def contestants(self) -> dict[str, Phases]:
        """None where a token does not have one local and one remote place."""
        if not self.possible:
            return {}
        largest = self._tokens * max(self._vectors.values()) * VECTOR
        job = self._job
        near, far = (job.heap_array(largest) for _ in range(2))
        remote = U64(job.there(far, 1 - job.me))
        rng = np.random.default_rng(job.me)
        shuffled = [_on_gpu(rng.permutation(self._tokens).astype(np.int32)) for _ in range(2)]
        own = U64(job.gpu.memory(largest))

        def kernel(name: str, phase: str) -> dict[str, Phases]:
            work = partial(
                job.gpu.launch,
                *(name, self._sms, THREADS),
                *((at(near), remote, own) if "scatter" in name else (own, at(near), remote)),
                *(at(shuffled[0]), at(shuffled[1]), U32(self._tokens), U32(self._parts)),
                U32(self._vectors[phase]),
            )
            return job.together(phase, partial(self._layer.seconds, work))

        return kernel("bench_limits_ep:rsh_limit_scatter", "limit dispatch") | kernel(
            "bench_limits_ep:rsh_limit_gather", "limit combine"
        )


def _on_gpu(values: np.ndarray) -> Any:
    """Collective: a copy in the symmetric heap."""
    array = railshmem.shmem_array(values.shape, values.dtype)
    array[...] = values
    return array


def _results(
    job: GpuJob,
    shape: Shape,
    how: Mapping[str, int | bool],
    figures: dict[str, Figure],
    rows: int,
) -> list[Result]:
    kind = shape.kind
    out = rows * shape.hidden * kind.dispatch.itemsize
    back = rows * shape.hidden * kind.combine.itemsize
    dispatch, combine = (figures.get(f"limit {phase}") for phase in ("dispatch", "combine"))
    both = dispatch.median_us + combine.median_us if dispatch and combine else None
    extra: dict[str, float | int | str | bool] = {
        "tokens": shape.tokens,
        "hidden": shape.hidden,
        "experts": shape.experts,
        "topk": shape.topk,
        "dtype": shape.dtype,
        "layout": shape.layout,
        **how,
        **job.shape,
    }
    found = (
        ("ep_dispatch", "dispatch", out, dispatch.median_us if dispatch else None),
        ("ep_combine", "combine", back, combine.median_us if combine else None),
        ("ep", "round", out + back, both),
    )
    return [
        Result(
            bench,
            figures[phase].median_us,
            figures[phase].p99_us,
            transport="+".join(sorted(job.peers_of_pe_0())),
            bytes=nbytes,
            gbs=figures[phase].gbs(nbytes),
            limit_us=limit_us,
            limit_gbs=nbytes / limit_us / 1e3 if limit_us else None,
            extra=extra,
        )
        for bench, phase, nbytes, limit_us in found
    ]
