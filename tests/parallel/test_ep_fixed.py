"""Shapes that do not depend on the routing, and tokens that dispatch rounds to fp8."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from mpi4py import MPI

import ep_reference as reference
from ep_device import make_exchange
from ep_layer import NODES, SHAPES, Layer, same_bits, settings_of
from ep_reference import SCALE_BLOCK, Batch
from jobs import job
from railshmem.ep import Dispatched

pytestmark = pytest.mark.mpi(min_size=2)

FP8 = ml_dtypes.float8_e4m3fn


def rounded(tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of fp8 and their scales, as ExpertParallel documents them."""
    values = tokens.astype(np.float32).reshape(len(tokens), -1, SCALE_BLOCK)
    amax = np.abs(values).max(axis=2)
    none = amax < np.float32(2.0**-100)
    divisor = np.where(none, np.float32(1), amax)
    scales = np.where(none, np.float32(0), amax / np.float32(448))
    factors = np.where(none, np.float32(0), np.float32(448) / divisor)
    return (values * factors[:, :, None]).astype(FP8).reshape(tokens.shape), scales


def check_slots(layer: Layer, got: Dispatched, batches: list[Batch]) -> np.ndarray:
    """What the experts make of the rows that came; the others are nonsense."""
    shape, n_pes, me = layer.shape, layer.rt.n_pes, layer.rt.my_pe
    assert got.counts.tolist() == [len(batch.tokens) for batch in batches]
    assert len(got.tokens) == n_pes * shape.max_tokens
    used = (got.indices >= 0).any(axis=1)
    rows, _ = reference.arriving(shape, n_pes, me, batches)
    assert same_bits(got.tokens[used], rows.tokens)
    assert same_bits(got.indices[used], rows.indices)
    assert same_bits(got.weights[used], rows.weights)
    if got.scales is not None:
        assert same_bits(got.scales[used], rows.scales)
    results = np.full((len(got.tokens), shape.hidden), np.nan, shape.combine_dtype)
    results[used] = reference.expert_results(shape, n_pes, me, rows)
    return results


@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize("kind", SHAPES)
def test_by_slot_every_token_has_its_place(comm: MPI.Intracomm, nodes: str, kind: str) -> None:
    with job(comm, settings_of(nodes, comm.size)) as rt:
        layer = Layer(rt, SHAPES[kind], "slots")
        for number in range(8):
            batches = layer.batches(number)
            got = layer.exchange.dispatch(*batches[rt.my_pe].arrays)
            results = check_slots(layer, got, batches)
            if number % 2:
                got.handle.expert_buffer()[...] = results
                results = got.handle.expert_buffer()
            layer.combine(got, results, batches[rt.my_pe])
        layer.exchange.free()


@pytest.mark.parametrize("nodes", NODES)
def test_with_fixed_shapes_counts_say_how_many_rows_count(comm: MPI.Intracomm, nodes: str) -> None:
    with job(comm, settings_of(nodes, comm.size)) as rt:
        shape = SHAPES["bf16"]
        layer = Layer(rt, shape, fixed_shapes=True)
        for number in range(4):
            batches = layer.batches(number)
            got = layer.exchange.dispatch(*batches[rt.my_pe].arrays)
            rows, counts = reference.arriving(shape, rt.n_pes, rt.my_pe, batches)
            assert got.row_count is not None
            n = int(got.row_count[0])
            assert n == len(rows.tokens)
            assert got.counts.tolist() == counts.tolist()
            assert len(got.tokens) == got.handle.rows == rt.n_pes * shape.max_tokens
            assert same_bits(got.tokens[:n], rows.tokens)
            results = np.zeros((len(got.tokens), shape.hidden), shape.combine_dtype)
            results[:n] = reference.expert_results(shape, rt.n_pes, rt.my_pe, rows)
            layer.combine(got, results, batches[rt.my_pe])
        layer.exchange.free()


@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize("given", [ml_dtypes.bfloat16, np.float16])
def test_dispatch_rounds_tokens_to_fp8_bit_for_bit(
    comm: MPI.Intracomm, nodes: str, given: type
) -> None:
    with job(comm, settings_of(nodes, comm.size)) as rt:
        shape = SHAPES["fp8 + scales"]
        exchange = make_exchange(rt, **shape.arguments(rt.n_pes), quantise_from=given)
        for number in range(4):
            drawn = [reference.draw(shape, rt.n_pes, pe, number) for pe in range(rt.n_pes)]
            tokens = [values_for(batch, number, pe, given) for pe, batch in enumerate(drawn)]
            sent = [
                Batch(*rounded(values)[:1], batch.indices, batch.weights, rounded(values)[1])
                for values, batch in zip(tokens, drawn, strict=True)
            ]
            mine = drawn[rt.my_pe]
            got = exchange.dispatch(tokens[rt.my_pe], mine.indices, mine.weights)
            rows, _ = reference.arriving(shape, rt.n_pes, rt.my_pe, sent)
            assert same_bits(got.tokens, rows.tokens)
            assert same_bits(got.scales, rows.scales)
        exchange.free()


def values_for(batch: Batch, number: int, pe: int, given: type) -> np.ndarray:
    """Groups of very different size, and one of zeros."""
    rng = np.random.default_rng((pe, number, 1))
    values = rng.standard_normal(batch.tokens.shape, np.float32)
    groups = values.reshape(len(values), -1, SCALE_BLOCK)
    groups *= np.exp2(rng.integers(-10, 10, groups.shape[:2])).astype(np.float32)[:, :, None]
    groups[::5, 0] = 0
    return values.astype(given)
