"""From text to routed tokens: hashed word embeddings and DeepSeek-V3 style gating.

Everything here depends only on its arguments, so that every PE and the reference compute the same.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

N_GROUPS = 8  # of experts
GROUPS_PER_TOKEN = 4
TOPK = 8
ROUTED_SCALING_FACTOR = 2.5

WORD = re.compile(r"\w+|[^\w\s]")


def words_of(text: str) -> list[str]:
    """Words and punctuation marks, in order."""
    return WORD.findall(text.lower())


def embed(words: list[str], hidden: int) -> np.ndarray:
    """[T, hidden] float32: a word's own vector plus half of its left neighbour's.

    Common words come often, so the routing is as skewed as text is; the neighbour makes the same
    word take different ways in different places.
    """
    vectors = {word: _word_vector(word, hidden) for word in sorted(set(words))}
    if not words:
        return np.zeros((0, hidden), np.float32)
    own = np.stack([vectors[word] for word in words])
    out = own.copy()
    out[1:] += np.float32(0.5) * own[:-1]
    return out


def _word_vector(word: str, hidden: int) -> np.ndarray:
    digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
    rng = np.random.default_rng(int.from_bytes(digest, "little"))
    return rng.standard_normal(hidden, np.float32)


class Routing(NamedTuple):
    """For each token its experts, best first, and their weights."""

    indices: np.ndarray  # [T, TOPK] int32
    weights: np.ndarray  # [T, TOPK] float32


@dataclass(frozen=True)
class Gate:
    """The router of one layer: score = sigmoid(x . w), chosen by score + bias."""

    weight: np.ndarray  # [experts, hidden]
    bias: np.ndarray  # [experts]

    @classmethod
    def random(cls, experts: int, hidden: int, seed: int) -> Gate:
        """A deterministic gate; `experts` must be a multiple of N_GROUPS."""
        if experts % N_GROUPS:
            raise ValueError(f"{experts} experts cannot form {N_GROUPS} equal groups")
        rng = np.random.default_rng(seed)
        weight = rng.standard_normal((experts, hidden), np.float32) / np.float32(hidden**0.5)
        return cls(weight, rng.uniform(-0.1, 0.1, experts).astype(np.float32))

    def route(self, tokens: np.ndarray) -> Routing:
        """The bias takes part in the choice only, never in the weights."""
        scores = (1 / (1 + np.exp(-(tokens.astype(np.float32) @ self.weight.T)))).astype(np.float32)
        biased = scores + self.bias
        indices = _best(np.where(_allowed(biased), biased, -np.inf), TOPK)
        chosen = np.take_along_axis(scores, indices, axis=1)
        weights = chosen / chosen.sum(axis=1, keepdims=True) * np.float32(ROUTED_SCALING_FACTOR)
        return Routing(indices.astype(np.int32), weights.astype(np.float32))


def _allowed(biased: np.ndarray) -> np.ndarray:
    """[T, experts] bool: experts of the groups whose two best members score highest together."""
    n_tokens, experts = biased.shape
    grouped = biased.reshape(n_tokens, N_GROUPS, experts // N_GROUPS)
    group_scores = np.sort(grouped, axis=2)[:, :, -2:].sum(axis=2)
    open_groups = np.zeros((n_tokens, N_GROUPS), bool)
    np.put_along_axis(open_groups, _best(group_scores, GROUPS_PER_TOKEN), True, axis=1)
    return np.repeat(open_groups, experts // N_GROUPS, axis=1)


def _best(scores: np.ndarray, count: int) -> np.ndarray:
    """Columns of the `count` highest scores; equal scores go to the lower column."""
    return np.argsort(-scores, axis=1, kind="stable")[:, :count]
