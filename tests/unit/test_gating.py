"""Routing facts of the Mixture-of-Experts example: DeepSeek-V3 style gating."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

from moe_gating import (
    GROUPS_PER_TOKEN,
    N_GROUPS,
    ROUTED_SCALING_FACTOR,
    TOPK,
    Gate,
    embed,
    words_of,
)

EXPERTS = 256
TEXT = "The rail carries the token; the token visits the experts, and the rail brings it home. "


@pytest.fixture(scope="module")
def gate() -> Gate:
    return Gate.random(EXPERTS, hidden=64, seed=1)


@pytest.fixture(scope="module")
def tokens() -> np.ndarray:
    return embed(words_of(TEXT * 20), 64)


def test_each_token_gets_k_different_experts(gate: Gate, tokens: np.ndarray) -> None:
    indices = gate.route(tokens).indices
    assert indices.shape == (len(tokens), TOPK)
    assert all(len(set(row)) == TOPK for row in indices.tolist())
    assert indices.min() >= 0
    assert indices.max() < EXPERTS


def test_experts_come_from_the_best_groups(gate: Gate, tokens: np.ndarray) -> None:
    """Groups are ranked by the sum of their two best biased scores."""
    indices = gate.route(tokens).indices
    biased = 1 / (1 + np.exp(-(tokens @ gate.weight.T).astype(np.float64))) + gate.bias
    groups = biased.reshape(len(tokens), N_GROUPS, -1)
    best_two = np.sort(groups, axis=2)[:, :, -2:].sum(axis=2)
    for chosen, scores in zip(indices // (EXPERTS // N_GROUPS), best_two, strict=True):
        assert len(set(chosen)) <= GROUPS_PER_TOKEN
        allowed = np.argsort(-scores)[:GROUPS_PER_TOKEN]
        assert set(chosen) <= set(allowed)


def test_no_better_expert_was_left_in_the_chosen_groups(gate: Gate, tokens: np.ndarray) -> None:
    indices = gate.route(tokens).indices
    biased = 1 / (1 + np.exp(-(tokens @ gate.weight.T).astype(np.float64))) + gate.bias
    members = EXPERTS // N_GROUPS
    for row, scores in zip(indices, biased, strict=True):
        of_chosen_groups = np.isin(np.arange(EXPERTS) // members, row // members)
        left = np.setdiff1d(np.nonzero(of_chosen_groups)[0], row)
        assert scores[row].min() >= scores[left].max() - 1e-6


def test_weights_are_the_unbiased_scores_normalised(gate: Gate, tokens: np.ndarray) -> None:
    routing = gate.route(tokens)
    scores = 1 / (1 + np.exp(-(tokens @ gate.weight.T).astype(np.float64)))
    chosen = np.take_along_axis(scores, routing.indices.astype(np.int64), axis=1)
    expected = chosen / chosen.sum(axis=1, keepdims=True) * ROUTED_SCALING_FACTOR
    np.testing.assert_allclose(routing.weights, expected, rtol=1e-5)
    np.testing.assert_allclose(routing.weights.sum(axis=1), ROUTED_SCALING_FACTOR, rtol=1e-5)


def test_the_bias_moves_the_choice(gate: Gate, tokens: np.ndarray) -> None:
    favourite = 77
    bias = gate.bias.copy()
    bias[favourite] += 5
    indices = Gate(gate.weight, bias).route(tokens).indices
    assert (indices == favourite).any(axis=1).all()


def test_equal_scores_are_broken_by_expert_number() -> None:
    gate = Gate(np.zeros((EXPERTS, 4), np.float32), np.zeros(EXPERTS, np.float32))
    assert gate.route(np.ones((1, 4), np.float32)).indices.tolist() == [list(range(TOPK))]


def test_embedding_depends_on_the_word_and_its_left_neighbour() -> None:
    embedded = embed(["the", "rail", "the", "rail", "a", "rail"], 32)
    np.testing.assert_array_equal(embedded[1], embedded[3])
    assert not np.array_equal(embedded[3], embedded[5])
    # A piece that knows its left neighbour embeds as the whole does.
    np.testing.assert_array_equal(embed(["rail", "a", "rail"], 32)[1:], embedded[4:])


def test_no_words_no_tokens(gate: Gate) -> None:
    routing = gate.route(embed(words_of("  \n"), 64))
    assert routing.indices.shape == routing.weights.shape == (0, TOPK)


def test_experts_must_form_equal_groups() -> None:
    with pytest.raises(ValueError, match="100 experts cannot form 8 equal groups"):
        Gate.random(100, hidden=8, seed=1)
