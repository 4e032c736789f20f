"""Dispatch and combine captured in a CUDA graph, replayed with other tokens and another routing."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from mpi4py import MPI

import ep_reference as reference
from ep_layer import NODES, settings_of
from ep_reference import Batch, Shape
from jobs import job
from railshmem import Runtime, symmetric_array
from railshmem.ep import ExpertParallel

pytestmark = pytest.mark.mpi(min_size=2)

REPLAYS = 100
SHAPE = Shape(ml_dtypes.bfloat16, topk=4)
LAYOUTS: dict[str, dict[str, Any]] = {
    "contiguous": {"fixed_shapes": True},
    "slots": {"layout": "slots"},
}


def drawn(rt: Runtime, number: int) -> Batch:
    return reference.draw(SHAPE, rt.n_pes, rt.my_pe, number, SHAPE.max_tokens)


def expected(rt: Runtime, batch: Batch) -> np.ndarray:
    """Every PE that a token reaches gives it back times a power of two: exact, rounded once."""
    factors = np.zeros((len(batch.tokens), rt.n_pes), np.float32)
    for pe in range(rt.n_pes):
        mine = SHAPE.local(rt.n_pes, pe)
        here = (batch.indices >= mine.start) & (batch.indices < mine.stop)
        factors[:, pe] = np.where(here.any(axis=1), np.float32(2.0**pe), 0)
    sums = batch.tokens.astype(np.float32) * factors.sum(axis=1)[:, None] + np.float32(0)  # no -0
    return sums.astype(SHAPE.combine_dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("nodes", NODES)
def test_a_graph_is_replayed_with_new_routing(comm: MPI.Intracomm, nodes: str, layout: str) -> None:
    torch = pytest.importorskip("torch")
    with job(comm, settings_of(nodes, comm.size)) as rt, torch.cuda.device(rt.device_index):
        exchange = ExpertParallel(**SHAPE.arguments(rt.n_pes), **LAYOUTS[layout], runtime=rt)
        first = drawn(rt, 1)
        tokens, indices, weights, out = (
            symmetric_array(rt, array.shape, array.dtype)
            for array in (first.tokens, first.indices, first.weights, first.tokens)
        )
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        # Other threads of the process have work for the GPU meanwhile: the progress thread.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            stream = torch.cuda.current_stream()
            got = exchange.dispatch(tokens, indices, weights, stream=stream)
            results = got.handle.expert_buffer()
            torch.mul(got.tokens.torch(), 2.0**rt.my_pe, out=results.torch())
            exchange.combine(results, got.handle, out=out, stream=stream)
        for number in range(1, 2 * REPLAYS, 2):  # odd ones have ids of 8 bytes
            batch = drawn(rt, number)
            tokens[...], indices[...], weights[...] = batch.tokens, batch.indices, batch.weights
            graph.replay()
            torch.cuda.synchronize()
            exchange.finish()
            assert out.tobytes() == expected(rt, batch).tobytes(), number
        exchange.free()
