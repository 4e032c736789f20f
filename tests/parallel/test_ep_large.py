"""Token counts beyond the sizes where others' counters and offsets ended."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from mpi4py import MPI

import ep_reference as reference
from ep_layer import NODES, Layer, settings_of
from ep_reference import Batch, Shape
from jobs import job
from railshmem import ArgumentError
from railshmem.ep import ExpertParallel

pytestmark = pytest.mark.mpi(min_size=2)


def one_round(layer: Layer, n_tokens: int) -> None:
    """A full round; a batch serves every PE, so that drawing and checking stay cheap."""
    n_pes, me = layer.rt.n_pes, layer.rt.my_pe
    drawn = reference.draw(layer.shape, n_pes, 0, 0, n_tokens)

    def of(pe: int) -> Batch:
        indices = (drawn.indices + pe) % layer.shape.experts(n_pes)
        return Batch(drawn.tokens, indices, drawn.weights, drawn.scales)

    batches = [of(pe) for pe in range(n_pes)]
    got, results = layer.dispatch(batches)
    layer.combine(got, results, batches[me])
    layer.exchange.free()


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["contiguous", "expert-major"])
@pytest.mark.parametrize("nodes", NODES)
def test_26000_tokens(comm: MPI.Intracomm, nodes: str, layout: str) -> None:
    """Other systems stalled or lost tokens from some thousands on."""
    shape = Shape(ml_dtypes.bfloat16, hidden=16, topk=2, max_tokens=26_000)
    with job(comm, settings_of(nodes, comm.size, RAILSHMEM_HEAP_SIZE="512M")) as rt:
        one_round(Layer(rt, shape, layout), 26_000)


@pytest.mark.slow
@pytest.mark.parametrize("nodes", ["one node", "2 nodes"])
def test_65536_tokens(comm: MPI.Intracomm, nodes: str) -> None:
    """65,536 tokens overflowed 16-bit row numbers, and one more their count."""
    shape = Shape(ml_dtypes.float8_e4m3fn, hidden=128, topk=1, max_tokens=65_537)
    with job(comm, settings_of(nodes, comm.size, RAILSHMEM_HEAP_SIZE="2G")) as rt:
        for n_tokens in (65_536, 65_537):
            one_round(Layer(rt, shape), n_tokens)


def test_a_token_more_than_declared(comm: MPI.Intracomm) -> None:
    """129 tokens where 128 were declared; 128 on one rank and 256 on another: both are named."""
    shape = Shape(np.float32, hidden=16, max_tokens=128)
    with job(comm, settings_of("2 nodes", comm.size)) as rt:
        layer = Layer(rt, shape)
        batch = reference.draw(shape, rt.n_pes, rt.my_pe, 0, 129)
        with pytest.raises(ArgumentError, match="129 tokens are more than max_tokens=128"):
            layer.exchange.dispatch(*batch.arrays)
        layer.round(0, {0: 128})
        mine = shape._replace(max_tokens=256 if rt.my_pe == 1 else 128)
        with pytest.raises(ArgumentError, match=r"max_tokens 128[\s\S]*max_tokens 256"):
            ExpertParallel(**mine.arguments(rt.n_pes), runtime=rt)
