"""What the PEs hand to PE 0 at the end, and its comparison with the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from moe_experts import Experts
from moe_gating import Routing
from moe_reference import Comparison, Delivered, compare_combined, expected_at
from railshmem.bench.token_types import restore


class Share(NamedTuple):
    """What one PE did, for PE 0 to check."""

    inputs: Delivered
    delivered: Delivered
    combined: np.ndarray
    repeatable: bool
    rival_agrees: bool
    posted: list[dict[str, int]]


class Whole(NamedTuple):
    """The tokens of all PEs, in the order of the text."""

    tokens: np.ndarray
    scales: np.ndarray | None
    routing: Routing
    source: np.ndarray  # whose token it is


class Verdict(NamedTuple):
    """What the comparison found."""

    wrong: Mapping[int, str]  # PE -> what dispatch delivered wrong
    comparison: Comparison
    repeatable: bool
    rival_agrees: bool

    @property
    def good(self) -> bool:
        """Whether everything is right."""
        return not self.wrong and self.comparison.good and self.repeatable and self.rival_agrees


def put_together(shares: Sequence[Share]) -> Whole:
    """Joins the PEs' pieces."""
    inputs = [share.inputs for share in shares]
    scales = [given.scales for given in inputs if given.scales is not None]
    return Whole(
        np.concatenate([given.tokens for given in inputs]),
        np.concatenate(scales) if scales else None,
        Routing(
            np.concatenate([given.indices for given in inputs]),
            np.concatenate([given.weights for given in inputs]),
        ),
        np.repeat(np.arange(len(shares)), [len(given.tokens) for given in inputs]),
    )


def check(shares: Sequence[Share], whole: Whole, everything: Experts, experts: int) -> Verdict:
    """Compares what was delivered bit by bit, and what was combined with the float64 layer."""
    wrong = {}
    for pe, share in enumerate(shares):
        expected = expected_at(pe, len(shares), experts, whole.tokens, whole.scales, whole.routing)
        if what := expected.differs_from(share.delivered):
            wrong[pe] = what
    combined = np.concatenate([share.combined for share in shares])
    values = restore(whole.tokens, whole.scales)
    return Verdict(
        wrong,
        compare_combined(combined, values, whole.routing, everything),
        all(share.repeatable for share in shares),
        all(share.rival_agrees for share in shares),
    )
