"""The experts: small SwiGLU networks, each with weights of its own.

They compute in float64, so that every difference from the reference comes from the exchange.
"""

from __future__ import annotations

import numpy as np

INNER = 4  # width between the two layers: cheap enough for a CPU at hidden 7168


class Experts:
    """Experts `first` .. `first + count - 1` of the layer."""

    def __init__(self, first: int, count: int, hidden: int, seed: int) -> None:
        self._weights = [_random_expert(first + i, hidden, seed) for i in range(count)]

    def weighted_sum(
        self, tokens: np.ndarray, indices: np.ndarray, weights: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """[R, H] float64: each row's sum of weight * expert(token), and of its absolute values.

        `indices` [R, K] count from `first`; -1 stands for experts that live elsewhere.
        """
        total, magnitude = np.zeros_like(tokens), np.zeros_like(tokens)
        for expert in np.unique(indices[indices >= 0]):
            rows, places = np.nonzero(indices == expert)
            part = self._apply(int(expert), tokens[rows])
            part *= weights[rows, places].astype(np.float64)[:, None]
            total[rows] += part  # a gate names an expert once per token, so no row comes twice
            magnitude[rows] += np.abs(part)
        return total, magnitude

    def _apply(self, expert: int, tokens: np.ndarray) -> np.ndarray:
        gate, up, down = self._weights[expert]
        opened = tokens @ gate
        inner: np.ndarray = opened / (1 + np.exp(-opened)) * (tokens @ up)
        return inner @ down


def _random_expert(expert: int, hidden: int, seed: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng([seed, expert])
    shapes = ((hidden, INNER), (hidden, INNER), (INNER, hidden))
    return tuple(rng.standard_normal(shape) / shape[0] ** 0.5 for shape in shapes)
