"""A layer whose every round is compared with the reference: what the tests of railshmem.ep play."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import ep_reference as reference
import railshmem
from ep_device import make_exchange
from ep_reference import Batch, Shape
from jobs import DEVICE, emulation
from railshmem.ep import Dispatched, Outputs

SHAPES = {
    "bf16": Shape(ml_dtypes.bfloat16),
    "fp32": Shape(np.float32),
    "fp8 + scales": Shape(ml_dtypes.float8_e4m3fn),
}
# Nodes for n PEs.
NODES: dict[str, Callable[[int], int]] = {
    "one node": lambda n: 1,
    "2 nodes": lambda n: min(2, n),
    "a node per PE": lambda n: n,
}


def settings_of(nodes: str, n_pes: int, emulated: str = "", **more: str) -> dict[str, str]:
    return {
        "RAILSHMEM_DEVICE": DEVICE,
        **emulation(NODES[nodes](n_pes), emulated),
        "RAILSHMEM_HEAP_SIZE": "64M",
        "RAILSHMEM_TIMEOUT_S": "30",
        **more,
    }


def same_bits(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    if a is None or b is None:
        return a is b
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


class Layer:
    """An ExpertParallel whose every round is compared with the reference."""

    def __init__(
        self, rt: railshmem.Runtime, shape: Shape, layout: str = "contiguous", **more: Any
    ) -> None:
        self.rt, self.shape, self.layout = rt, shape, layout
        self.alignment = more.get("alignment", 1)
        arguments = {**shape.arguments(rt.n_pes), "layout": layout, **more}
        self.exchange = make_exchange(rt, **arguments)

    def batches(self, number: int, n_tokens: dict[int, int] | None = None) -> list[Batch]:
        """What every PE sends in this round."""
        given = n_tokens or {}
        n_pes = self.rt.n_pes
        return [reference.draw(self.shape, n_pes, pe, number, given.get(pe)) for pe in range(n_pes)]

    def dispatch(
        self, batches: list[Batch], out: Outputs | None = None
    ) -> tuple[Dispatched, np.ndarray]:
        """What arrived, after a look at every bit, and what the experts make of it."""
        got = self.exchange.dispatch(*batches[self.rt.my_pe].arrays, out=out)
        return got, self.results(got, batches)

    def results(self, got: Dispatched, batches: list[Batch]) -> np.ndarray:
        """What the experts make of what arrived, after a look at every bit of it."""
        shape, n_pes, me = self.shape, self.rt.n_pes, self.rt.my_pe
        rows, counts = reference.arriving(shape, n_pes, me, batches)
        assert got.counts.tolist() == counts.tolist()
        if self.layout == "contiguous":
            assert got.expert_counts is None
            results = reference.expert_results(shape, n_pes, me, rows)
        else:
            blocks = reference.in_blocks(shape, n_pes, me, rows, self.alignment)
            assert got.expert_counts is not None
            assert got.padded_counts is not None
            assert got.expert_counts.tolist() == blocks.expert_counts
            assert got.padded_counts.tolist() == blocks.padded_counts
            rows, results = blocks.rows, reference.block_results(shape, n_pes, me, blocks)
        assert got.handle.rows == len(rows.tokens)
        assert same_bits(got.tokens, rows.tokens)
        assert same_bits(got.indices, rows.indices)
        assert same_bits(got.weights, rows.weights)
        assert same_bits(got.scales, rows.scales)
        return results

    def combine(self, got: Dispatched, results: np.ndarray, batch: Batch) -> np.ndarray:
        return self.check(self.exchange.combine(results, got.handle), batch)

    def check(self, out: np.ndarray, batch: Batch) -> np.ndarray:
        """`out` is what combine must make of the batch."""
        exact, bound = reference.combined(self.shape, batch)
        assert out.dtype == self.shape.combine_dtype
        assert np.all(np.abs(out.astype(np.float32) - exact) <= bound)
        return out

    def round(self, number: int, n_tokens: dict[int, int] | None = None) -> np.ndarray:
        batches = self.batches(number, n_tokens)
        got, results = self.dispatch(batches)
        if number % 2:  # written in place, or copied by combine
            got.handle.expert_buffer()[...] = results
            results = got.handle.expert_buffer()
        return self.combine(got, results, batches[self.rt.my_pe])


def every_layout(rt: railshmem.Runtime, shape: Shape, **more: Any) -> list[Layer]:
    """A layer of each kind: contiguous, expert-major, with and without filled blocks."""
    return [
        Layer(rt, shape, **more),
        Layer(rt, shape, "expert-major", **more),
        Layer(rt, shape, "expert-major", alignment=16, **more),
    ]
