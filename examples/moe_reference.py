"""The whole layer in one process and in float64: what every PE's results are compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from moe_experts import Experts
from moe_gating import TOPK, Routing

PIECE = 512  # tokens compared at a time, to keep memory small


@dataclass(frozen=True)
class Delivered:
    """What dispatch brought to one PE."""

    tokens: np.ndarray
    scales: np.ndarray | None
    indices: np.ndarray
    weights: np.ndarray

    @classmethod
    def copy_of(cls, got: Any) -> Delivered:
        """What a dispatch returned, kept beyond the next one."""
        return cls(
            np.array(got.tokens),
            np.array(got.scales) if got.scales is not None and got.scales.size else None,
            np.array(got.indices, np.int32),
            np.array(got.weights),
        )

    def differs_from(self, other: Delivered) -> str | None:
        """The first field that is not the same, bit by bit."""
        ours, theirs = vars(self), vars(other)
        for name in ("tokens", "scales", "indices"):
            if not _same_bits(ours[name], theirs[name]):
                return name
        # Weights of experts that live elsewhere mean nothing.
        here = self.indices >= 0
        return None if _same_bits(self.weights[here], other.weights[here]) else "weights"


def expected_at(
    pe: int,
    n_pes: int,
    experts: int,
    tokens: np.ndarray,
    scales: np.ndarray | None,
    routing: Routing,
) -> Delivered:
    """The rows that PE must receive: tokens with an expert there, in the order of the text.

    The PEs hold the text in consecutive pieces, so that is the order (source PE, source token).
    """
    local = experts // n_pes
    indices = routing.indices - pe * local
    indices[(indices < 0) | (indices >= local)] = -1
    rows = np.nonzero((indices >= 0).any(axis=1))[0]
    return Delivered(
        tokens[rows],
        None if scales is None else scales[rows],
        indices[rows],
        routing.weights[rows],
    )


@dataclass(frozen=True)
class Comparison:
    """How far the combined tokens are from the reference."""

    worst_error: float
    worst_share: float  # of what the bound allows; above 1 is wrong

    @property
    def good(self) -> bool:
        """Whether every element is within its bound."""
        return self.worst_share <= 1


def compare_combined(
    combined: np.ndarray, values: np.ndarray, routing: Routing, layer: Experts
) -> Comparison:
    """`values`: the tokens as they travelled, in float64; `layer` holds all experts.

    Bound, for each element: (K + 2) * eps * sum of |weight * expert(token)|.
    """
    eps = float(ml_dtypes.finfo(combined.dtype).eps)
    worst_error = worst_share = 0.0
    for start in range(0, len(combined), PIECE):
        piece = slice(start, start + PIECE)
        exact, magnitude = layer.weighted_sum(
            values[piece], routing.indices[piece], routing.weights[piece]
        )
        error = np.abs(combined[piece].astype(np.float64) - exact)
        error[np.isnan(error)] = np.inf
        bound = (TOPK + 2) * eps * magnitude
        # Where the bound is 0 only an error of 0 is right.
        share = error / np.maximum(bound, np.finfo(np.float64).tiny)
        worst_error = max(worst_error, float(error.max()))
        worst_share = max(worst_share, float(share.max()))
    return Comparison(worst_error, worst_share)


def _same_bits(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    if a is None or b is None:
        return a is None and b is None
    return a.shape == b.shape and np.ascontiguousarray(a).tobytes() == (
        np.ascontiguousarray(b).tobytes()
    )
