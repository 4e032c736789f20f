"""`railshmem bench ep`: one round of dispatch + combine, and each alone, beside MPI_Alltoallv.

The limit is a memcpy, on every PE at once, of the rows that its tokens become: each moved once per
destination PE, in the expert-major layout once per expert. The exchanges are checked against each
other before anything is timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from mpi4py import MPI

from railshmem import _core
from railshmem.bench.alltoallv import AlltoallvExchange, ExpertMajorExchange
from railshmem.bench.job import BenchError, Job, address
from railshmem.bench.measure import Figure, take_turns_together
from railshmem.bench.report import Result
from railshmem.bench.token_types import SCALE_BLOCK, TOKEN_TYPES, TokenType, quantise
from railshmem.ep import ExpertParallel, Layout

Outcome = TypeVar("Outcome")


@dataclass(frozen=True)
class Shape:
    """What a layer looks like; `tokens` are per PE."""

    tokens: int
    hidden: int
    experts: int
    topk: int
    dtype: str
    layout: Layout
    alignment: int  # expert-major: rows of a block are a multiple of it

    @property
    def by_expert(self) -> bool:
        """Whether rows are grouped by expert."""
        return self.layout == "expert-major"

    @cached_property
    def kind(self) -> TokenType:
        """The element types that `dtype` names."""
        return TOKEN_TYPES[self.dtype]

    @property
    def n_scales(self) -> int:
        """Scales of one row."""
        return self.hidden // SCALE_BLOCK if self.kind.scaled else 0


class Contest:
    """The same tokens and routing through our exchange and through the rival's."""

    def __init__(self, job: Job, shape: Shape) -> None:
        self._job, self._shape = job, shape
        check_shape(job, shape)
        rng = np.random.default_rng(job.me)
        values = rng.standard_normal((shape.tokens, shape.hidden), np.float32)
        self._tokens, self._scales = quantise(values, shape.kind)
        scores = rng.random((shape.tokens, shape.experts), np.float32)
        self._indices = np.argsort(-scores, axis=1)[:, : shape.topk].astype(np.int32)
        self._weights = rng.random((shape.tokens, shape.topk), np.float32)
        kind = shape.kind
        both: dict[str, Any] = {
            "hidden": shape.hidden,
            "experts": shape.experts,
            "topk": shape.topk,
            "max_tokens": max(shape.tokens, 1),
            "dtype": kind.dispatch,
            "combine_dtype": kind.combine,
        }
        if shape.by_expert:
            both["alignment"] = shape.alignment
        self._ours = ExpertParallel(**both, layout=shape.layout, runtime=job.runtime)
        rival = ExpertMajorExchange if shape.by_expert else AlltoallvExchange
        self._rival = rival(job.comm, **both, n_scales=shape.n_scales)
        self._combined = np.zeros((shape.tokens, shape.hidden), kind.combine)
        self.rows = self._check_data()
        self._copy_out = np.ones((self.rows, shape.hidden), kind.combine)
        self._copy_in = np.zeros_like(self._copy_out)

    @property
    def dispatch_bytes(self) -> int:
        """What this PE's tokens put into other rows, scales left aside."""
        return self.rows * self._shape.hidden * self._shape.kind.dispatch.itemsize

    @property
    def combine_bytes(self) -> int:
        """What comes back."""
        return self.rows * self._shape.hidden * self._shape.kind.combine.itemsize

    def _check_data(self) -> int:
        """Both exchanges must deliver the same bytes. Returns the rows this PE sends."""
        routing = (self._tokens, self._indices, self._weights, self._scales)
        ours, rival = self._ours.dispatch(*routing), self._rival.dispatch(*routing)
        same = np.array_equal(ours.tokens.view(np.uint8), rival.tokens.view(np.uint8))
        same = same and np.array_equal(ours.indices, rival.indices)
        same = same and np.array_equal(ours.weights, rival.weights)
        results = ours.tokens.astype(np.float32).astype(self._shape.kind.combine)
        ours.handle.expert_buffer()[...] = results
        back = self._ours.combine(ours.handle.expert_buffer(), ours.handle)
        expected = self._rival.combine(results)
        self._rival_results = results
        # Both sum in float32, in an order of their own: they agree to one rounding of the result.
        close = np.allclose(
            back.astype(np.float32), expected.astype(np.float32), rtol=0.02, atol=0.05
        )
        if not self._job.comm.allreduce(bool(same and close), op=MPI.LAND):
            raise BenchError("the exchanges of RailSHMEM and of MPI delivered different data")
        if self._shape.by_expert:
            return self._indices.size  # all differ, and all are somewhere
        owners = self._indices // (self._shape.experts // self._job.n_pes)
        return sum(len(np.unique(row)) for row in owners)

    def ours_apart(self) -> dict[str, float]:
        """Dispatch and combine, with everybody waiting for everybody in between."""
        routing = (self._tokens, self._indices, self._weights, self._scales)
        dispatched, first = _timed(lambda: self._ours.dispatch(*routing))
        self._job.comm.Barrier()
        buffer = dispatched.handle.expert_buffer()
        out = self._combined  # as the rival has one
        _, second = _timed(lambda: self._ours.combine(buffer, dispatched.handle, out=out))
        return {"dispatch": first, "combine": second}

    def ours_round(self) -> dict[str, float]:
        """Dispatch, then combine."""

        def one_round() -> None:
            dispatched = self._ours.dispatch(
                self._tokens, self._indices, self._weights, self._scales
            )
            buffer = dispatched.handle.expert_buffer()
            self._ours.combine(buffer, dispatched.handle, out=self._combined)

        return {"round": _timed(one_round)[1]}

    def rival_apart(self) -> dict[str, float]:
        """As ours_apart."""
        routing = (self._tokens, self._indices, self._weights, self._scales)
        received, first = _timed(lambda: self._rival.dispatch(*routing))
        self._job.comm.Barrier()
        results = self._rival_results[: len(received.tokens)]
        _, second = _timed(lambda: self._rival.combine(results))
        return {"rival dispatch": first, "rival combine": second}

    def rival_round(self) -> dict[str, float]:
        """As ours_round."""

        def one_round() -> None:
            received = self._rival.dispatch(
                self._tokens, self._indices, self._weights, self._scales
            )
            self._rival.combine(self._rival_results[: len(received.tokens)])

        return {"rival round": _timed(one_round)[1]}

    def limit(self) -> dict[str, float]:
        """The same bytes by memcpy."""
        where = (self._job.runtime, address(self._copy_in), address(self._copy_out))
        me = self._job.me
        return {
            "limit dispatch": _core.bench.copy(*where, self.dispatch_bytes, me, 1),
            "limit combine": _core.bench.copy(*where, self.combine_bytes, me, 1),
        }


def run(job: Job, shape: Shape, rounds: int) -> list[Result]:
    """Collective: results on PE 0, nothing on the others."""
    contest = Contest(job, shape)
    figures = take_turns_together(
        job.comm,
        {
            "ours": contest.ours_apart,
            "rival": contest.rival_apart,
            "our round": contest.ours_round,
            "rival round": contest.rival_round,
            "limit": contest.limit,
        },
        rounds,
    )
    moved = job.comm.allreduce(np.array([contest.dispatch_bytes, contest.combine_bytes]))
    return _results(job, shape, figures, *moved.tolist()) if job.me == 0 else []


def check_shape(job: Job, shape: Shape) -> None:
    """Raises BenchError where the job cannot have such a layer."""
    if shape.experts % job.n_pes:
        raise BenchError(f"--experts {shape.experts} cannot be split evenly over {job.n_pes} PEs")
    if not 0 < shape.topk <= shape.experts:
        raise BenchError(f"--topk {shape.topk} must be from 1 to --experts {shape.experts}")
    if shape.kind.scaled and shape.hidden % SCALE_BLOCK:
        raise BenchError(
            f"--hidden {shape.hidden} must be a multiple of {SCALE_BLOCK} for --dtype fp8"
        )


def _timed(operation: Callable[[], Outcome]) -> tuple[Outcome, float]:
    start = time.perf_counter()
    result = operation()
    return result, time.perf_counter() - start


def _results(
    job: Job, shape: Shape, figures: dict[str, Figure], dispatch_bytes: int, combine_bytes: int
) -> list[Result]:
    dispatch_limit = figures["limit dispatch"].median_us
    combine_limit = figures["limit combine"].median_us
    rows = {
        "round": ("ep", dispatch_bytes + combine_bytes, dispatch_limit + combine_limit),
        "dispatch": ("ep_dispatch", dispatch_bytes, dispatch_limit),
        "combine": ("ep_combine", combine_bytes, combine_limit),
    }
    extra: dict[str, float | int | str | bool] = {
        "tokens": shape.tokens,
        "hidden": shape.hidden,
        "experts": shape.experts,
        "topk": shape.topk,
        "dtype": shape.dtype,
        "layout": shape.layout,
        **job.shape,
        "checked": True,
    }
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
            rival="Alltoallv",
            rival_us=figures[f"rival {phase}"].median_us,
            extra=extra,
        )
        for phase, (bench, nbytes, limit_us) in rows.items()
    ]
