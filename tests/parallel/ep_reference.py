"""Expert parallelism without any communication, in float64: what must arrive and come back.

Batches are drawn from (PE, round), so that every PE knows those of all others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

SCALE_BLOCK = 128


class Shape(NamedTuple):
    dtype: Any
    hidden: int = 256
    experts_per_pe: int = 4
    topk: int = 5
    max_tokens: int = 24
    more_experts: int = 0  # that make the split uneven

    def experts(self, n_pes: int) -> int:
        return self.experts_per_pe * n_pes + self.more_experts

    def local(self, n_pes: int, pe: int) -> range:
        """The experts that `pe` owns."""
        experts = self.experts(n_pes)
        return range(pe * experts // n_pes, (pe + 1) * experts // n_pes)

    @property
    def scaled(self) -> bool:
        return np.dtype(self.dtype).itemsize == 1

    @property
    def combine_dtype(self) -> Any:
        return ml_dtypes.bfloat16 if self.scaled else self.dtype

    def arguments(self, n_pes: int) -> dict[str, Any]:
        """Of ExpertParallel."""
        return {
            "hidden": self.hidden,
            "experts": self.experts(n_pes),
            "topk": self.topk,
            "max_tokens": self.max_tokens,
            "dtype": self.dtype,
        }


@dataclass
class Batch:
    tokens: np.ndarray
    indices: np.ndarray
    weights: np.ndarray
    scales: np.ndarray | None

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
        """Arguments of dispatch."""
        return self.tokens, self.indices, self.weights, self.scales


def draw(shape: Shape, n_pes: int, pe: int, number: int, n_tokens: int | None = None) -> Batch:
    """Random tokens, ids with duplicates and -1, weights of either sign."""
    rng = np.random.default_rng((pe, number))
    n = int(rng.integers(0, shape.max_tokens + 1)) if n_tokens is None else n_tokens
    tokens = rng.standard_normal((n, shape.hidden), np.float32).astype(shape.dtype)
    indices = rng.integers(-1, shape.experts(n_pes), (n, shape.topk))
    indices[rng.random(n) < 0.1] = -1  # tokens that go nowhere
    scales = rng.random((n, shape.hidden // SCALE_BLOCK), np.float32) if shape.scaled else None
    weights = rng.standard_normal((n, shape.topk), np.float32)
    return Batch(tokens, indices.astype([np.int32, np.int64][number % 2]), weights, scales)


def values_of(tokens: np.ndarray, scales: np.ndarray | None) -> np.ndarray:
    values = tokens.astype(np.float32).astype(np.float64)
    return values if scales is None else values * np.repeat(scales, SCALE_BLOCK, axis=1)


def factor(expert: np.ndarray) -> np.ndarray:
    """What an expert does: it multiplies."""
    return (expert % 7 - 3.25) / 3


def arriving(shape: Shape, n_pes: int, pe: int, batches: list[Batch]) -> tuple[Batch, np.ndarray]:
    """(rows in order of source and token with local ids, counts per source)."""
    mine = shape.local(n_pes, pe)
    parts, counts = [], []
    for batch in batches:
        here = (batch.indices >= mine.start) & (batch.indices < mine.stop)
        rows = here.any(axis=1)
        local = np.where(here, batch.indices.astype(np.int64) - mine.start, -1)
        scales = None if batch.scales is None else batch.scales[rows]
        parts.append(Batch(batch.tokens[rows], local[rows], batch.weights[rows], scales))
        counts.append(int(rows.sum()))
    joined = Batch(
        np.concatenate([part.tokens for part in parts]),
        np.concatenate([part.indices for part in parts]),
        np.concatenate([part.weights for part in parts]),
        np.concatenate([part.scales for part in parts]) if shape.scaled else None,
    )
    return joined, np.array(counts)


class Blocks(NamedTuple):
    """What arrives in the expert-major layout."""

    rows: Batch  # indices and weights [R]
    expert_counts: list[int]
    padded_counts: list[int]


def in_blocks(shape: Shape, n_pes: int, pe: int, arrived: Batch, alignment: int) -> Blocks:
    """The rows of `arriving` as the experts of `pe` want them."""
    parts, counts, padded = [], [], []
    for expert in range(len(shape.local(n_pes, pe))):
        names = arrived.indices == expert
        rows = names.any(axis=1)
        n = int(rows.sum())
        fill = -n % alignment
        # Added one by one, as the weights of a token that names the expert twice are.
        weights = np.zeros(n, np.float32)
        for column in range(shape.topk):
            weights += np.where(names[rows, column], arrived.weights[rows, column], np.float32(0))
        scales = None if arrived.scales is None else _filled(arrived.scales[rows], fill)
        ids = np.array([expert] * n + [-1] * fill, np.int64)
        parts.append(
            Batch(_filled(arrived.tokens[rows], fill), ids, _filled(weights, fill), scales)
        )
        counts.append(n)
        padded.append(n + fill)
    empty = Batch(arrived.tokens[:0], np.zeros(0, np.int64), np.zeros(0, np.float32), None)
    parts = parts or [empty]
    rows = Batch(
        np.concatenate([part.tokens for part in parts]),
        np.concatenate([part.indices for part in parts]),
        np.concatenate([part.weights for part in parts]),
        np.concatenate([part.scales for part in parts]) if shape.scaled else None,
    )
    return Blocks(rows, counts, padded)


def _filled(rows: np.ndarray, fill: int) -> np.ndarray:
    return np.concatenate([rows, np.zeros((fill, *rows.shape[1:]), rows.dtype)])


def expert_results(shape: Shape, n_pes: int, pe: int, rows: Batch) -> np.ndarray:
    """What the experts of `pe` make of its rows: weighted sums, rounded once."""
    ids = rows.indices + shape.local(n_pes, pe).start
    share = np.where(rows.indices >= 0, rows.weights * factor(ids), 0).sum(axis=1)
    values = values_of(rows.tokens, rows.scales) * share[:, None]
    return values.astype(np.float32).astype(shape.combine_dtype)


def block_results(shape: Shape, n_pes: int, pe: int, blocks: Blocks) -> np.ndarray:
    """The same in the expert-major layout, unweighted; nonsense where a row only fills a block."""
    ids = blocks.rows.indices
    share = np.where(ids >= 0, factor(ids + shape.local(n_pes, pe).start), np.nan)
    values = values_of(blocks.rows.tokens, blocks.rows.scales) * share[:, None]
    return values.astype(np.float32).astype(shape.combine_dtype)


def combined(shape: Shape, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """(sum of w * y in float64, how far combine may be from it)."""
    values = values_of(batch.tokens, batch.scales)
    share = np.where(batch.indices >= 0, batch.weights * factor(batch.indices), 0)
    info = ml_dtypes.finfo(shape.combine_dtype)
    size = np.abs(values) * np.abs(share).sum(axis=1)[:, None]
    exact = values * share.sum(axis=1)[:, None]
    # Below the smallest normal number a type has a fixed step instead of a relative precision.
    step = float(info.smallest_subnormal)
    return exact, (shape.topk + 2) * np.maximum(float(info.eps) * size, step)
