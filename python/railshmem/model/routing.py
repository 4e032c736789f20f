"""Which experts tokens go to: every expert alike, or a few more than others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from railshmem.errors import ArgumentError

# Tokens whose next expert is one they have are drawn again so often; what is left then is drawn
# among the experts that they do not have, which costs more.
TRIES = 8


@dataclass(frozen=True)
class Routing:
    """Chances of experts: 1 / rank^exponent, in an order that the seed decides; 0 is uniform."""

    exponent: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.exponent <= 10:
            raise ArgumentError(f"zipf exponent {self.exponent}: expected from 0 to 10")
        if self.seed < 0:
            raise ArgumentError(f"seed {self.seed}: expected at least 0")

    @property
    def text(self) -> str:
        """For people."""
        return f"zipf {self.exponent:g}" if self.exponent else "uniform"

    def chances(self, experts: int) -> NDArray[np.float64]:
        """[experts] Their sum is 1."""
        weights = np.arange(1, experts + 1, dtype=np.float64) ** -self.exponent
        order = np.random.default_rng([self.seed, experts]).permutation(experts)
        out: NDArray[np.float64] = (weights / weights.sum())[order]
        return out

    def draw(
        self, chances: NDArray[np.float64], topk: int, tokens: int, pe: int
    ) -> NDArray[np.int32]:
        """[tokens, topk] Experts of a PE's tokens, all different within a token."""
        rng = np.random.default_rng([self.seed, pe])
        sums = np.cumsum(chances)
        last = chances.size - 1
        out = np.empty((tokens, topk), np.int32)
        for column in range(topk):
            left = np.arange(tokens)
            for _ in range(TRIES):
                drawn = np.searchsorted(sums, rng.random(left.size), side="right")
                out[left, column] = np.minimum(drawn, last)  # the sum may round to less than 1
                again = (out[left, :column] == out[left, column, None]).any(axis=1)
                left = left[again]
                if left.size == 0:
                    break
            for token in left:
                out[token, column] = _another(rng, chances, out[token, :column])
        return out


def _another(
    rng: np.random.Generator, chances: NDArray[np.float64], taken: NDArray[np.int32]
) -> int:
    """The winner of a race in which each expert's time is exponential with its chance as rate."""
    times = rng.exponential(size=chances.size) / chances
    times[taken] = np.inf
    return int(np.argmin(times))
