"""Several dispatches in flight, halves of calls, known routing, and the caller's own arrays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from mpi4py import MPI

import ep_reference as reference
from ep_device import address_of, placed
from ep_layer import NODES, SHAPES, Layer, every_layout, same_bits, settings_of
from ep_reference import Batch, Shape
from jobs import job
from railshmem import ArgumentError, Runtime, symmetric_array
from railshmem.ep import Outputs

pytestmark = pytest.mark.mpi(min_size=2)


def other_tokens(layer: Layer, batches: list[Batch], number: int) -> list[Batch]:
    """The same routing for tokens (and scales) of another draw."""
    counts = {pe: len(batch.tokens) for pe, batch in enumerate(batches)}
    drawn = layer.batches(number, counts)
    return [
        replace(batch, tokens=new.tokens, scales=new.scales)
        for batch, new in zip(batches, drawn, strict=True)
    ]


# ---- several handles ---------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", NODES)
def test_two_dispatches_before_their_combines(comm: MPI.Intracomm, nodes: str) -> None:
    with job(comm, settings_of(nodes, comm.size, "ordered=off")) as rt:
        for layer in every_layout(rt, SHAPES["fp8 + scales"], handles=2):
            for number in range(0, 12, 2):
                a, b = layer.batches(number), layer.batches(number + 1)
                got_a, results_a = layer.dispatch(a)
                got_b, results_b = layer.dispatch(b)
                # The second left the first's rows alone.
                assert same_bits(layer.results(got_a, a), results_a)
                layer.combine(got_a, results_a, a[rt.my_pe])
                layer.combine(got_b, results_b, b[rt.my_pe])
            layer.exchange.free()


@pytest.mark.parametrize("nodes", NODES)
def test_layers_there_and_back_in_reverse_order(comm: MPI.Intracomm, nodes: str) -> None:
    """A forward pass through three layers keeps their routing for the backward pass."""
    with job(comm, settings_of(nodes, comm.size)) as rt:
        me = rt.my_pe
        layer = Layer(rt, SHAPES["bf16"], "expert-major", alignment=8, handles=3)
        for step in range(3):
            forward = []
            for number in range(3):
                batches = layer.batches(3 * step + number)
                got, results = layer.dispatch(batches)
                layer.combine(got, results, batches[me])
                forward.append((got.handle, batches))
            for handle, batches in reversed(forward):
                gradients = other_tokens(layer, batches, 100 + step)
                back = layer.exchange.dispatch(gradients[me].tokens, handle=handle)
                results = layer.results(back, gradients)
                layer.combine(back, results, gradients[me])


@pytest.mark.parametrize("nodes", NODES)
def test_received_rows_go_on_to_the_next_layer(comm: MPI.Intracomm, nodes: str) -> None:
    """They may be sent as they lie in the buffers of one handle into those of the other."""
    with job(comm, settings_of(nodes, comm.size)) as rt:
        me, n_pes = rt.my_pe, rt.n_pes
        layer = Layer(rt, SHAPES["bf16"]._replace(max_tokens=24 * n_pes), handles=2)
        batches = layer.batches(1, dict.fromkeys(range(n_pes), 20))
        got, _ = layer.dispatch(batches)
        arrived = [reference.arriving(layer.shape, n_pes, pe, batches)[0] for pe in range(n_pes)]
        counts = {pe: len(batch.tokens) for pe, batch in enumerate(arrived)}
        onward = [
            replace(routed, tokens=rows.tokens)
            for routed, rows in zip(layer.batches(2, counts), arrived, strict=True)
        ]
        mine = replace(onward[me], tokens=got.tokens)
        layer.results(layer.exchange.dispatch(*mine.arrays), onward)
        if len(got.tokens):
            with pytest.raises(
                ArgumentError, match="lie in the buffers that this dispatch delivers"
            ):
                layer.exchange.dispatch(*mine.arrays)
        rt.barrier_all()


@pytest.mark.parametrize("handles", [1, 2, 3])
def test_a_handle_whose_buffers_were_taken_says_so(comm: MPI.Intracomm, handles: int) -> None:
    with job(comm, settings_of("2 nodes", comm.size)) as rt:
        layer = Layer(rt, SHAPES["bf16"], handles=handles)
        batches = layer.batches(0)
        first, results = layer.dispatch(batches)
        for _ in range(handles - 1):
            layer.dispatch(batches)
        assert first.handle.expert_buffer().shape == results.shape  # still there
        layer.dispatch(batches)
        message = rf"is of dispatch 1, but dispatch {handles + 1} has overwritten its buffers"
        with pytest.raises(ArgumentError, match=message):
            layer.exchange.combine(results, first.handle)
        with pytest.raises(ArgumentError, match=message):
            layer.exchange.dispatch(batches[rt.my_pe].tokens, handle=first.handle)
        with pytest.raises(ArgumentError, match=message):
            first.handle.expert_buffer()


# ---- known routing -----------------------------------------------------------------------------


@pytest.mark.parametrize("ordered", ["ordered=on", "ordered=off"])
@pytest.mark.parametrize("nodes", NODES)
def test_dispatch_again_by_a_handle(comm: MPI.Intracomm, nodes: str, ordered: str) -> None:
    with job(comm, settings_of(nodes, comm.size, ordered)) as rt:
        me = rt.my_pe
        for shape in SHAPES.values():
            for layer in every_layout(rt, shape):
                for number in range(3):
                    batches = layer.batches(number)
                    got, results = layer.dispatch(batches)
                    if number:  # before or after its combine
                        layer.combine(got, results, batches[me])
                    for again in range(3):
                        batches = other_tokens(layer, batches, 10 * number + again)
                        mine = batches[me]
                        got = layer.exchange.dispatch(
                            mine.tokens, scales=mine.scales, handle=got.handle
                        )
                        results = layer.results(got, batches)
                        if again != 1:
                            layer.combine(got, results, mine)
                layer.exchange.free()


def test_what_a_known_routing_refuses(comm: MPI.Intracomm) -> None:
    with job(comm, settings_of("2 nodes", comm.size)) as rt:
        layer, other = Layer(rt, SHAPES["bf16"]), Layer(rt, SHAPES["bf16"])
        batches = layer.batches(0, dict.fromkeys(range(rt.n_pes), 8))
        mine = batches[rt.my_pe]
        got, _ = layer.dispatch(batches)
        send = layer.exchange.dispatch
        with pytest.raises(ArgumentError, match="7 tokens, but the handle is of 8"):
            send(mine.tokens[:7], handle=got.handle)
        with pytest.raises(ArgumentError, match=r"tokens has shape \[8, 256\] of float32"):
            send(mine.tokens.astype(np.float32), handle=got.handle)
        with pytest.raises(ArgumentError, match="no indices and no weights with it"):
            send(*mine.arrays, handle=got.handle)
        with pytest.raises(ArgumentError, match="needed where no handle is given"):
            send(mine.tokens)
        with pytest.raises(ArgumentError, match="belongs to another ExpertParallel"):
            other.exchange.dispatch(mine.tokens, handle=got.handle)
        with pytest.raises(ArgumentError, match="handle of type int is not what dispatch returned"):
            send(mine.tokens, handle=3)  # type: ignore[arg-type]
        again = send(mine.tokens, handle=got.handle)
        with pytest.raises(ArgumentError, match="is of dispatch 1, but dispatch 2 has overwritten"):
            layer.exchange.combine(got.tokens, got.handle)
        layer.combine(again, layer.results(again, batches), mine)


@pytest.mark.parametrize("nodes", ["2 nodes", "a node per PE"])
def test_a_routing_that_another_node_refused_is_known_to_be_refused(
    comm: MPI.Intracomm, nodes: str
) -> None:
    """The PEs of the full node raised in dispatch and have no handle: nobody may wait for them."""
    with job(comm, settings_of(nodes, comm.size)) as rt:
        layer = Layer(rt, SHAPES["bf16"], max_received=24)
        batch = reference.draw(layer.shape, rt.n_pes, rt.my_pe, 0, 24)
        batch.indices[...] = 0

        def twice() -> None:
            got = layer.exchange.dispatch(*batch.arrays)
            layer.exchange.dispatch(batch.tokens, handle=got.handle)

        with pytest.raises(ArgumentError, match="PE 0 would receive"):
            twice()
        batch.indices[...] = layer.shape.local(rt.n_pes, rt.my_pe).start
        got = layer.exchange.dispatch(*batch.arrays)
        assert same_bits(layer.exchange.combine(got.tokens, got.handle), batch.tokens)


# ---- halves ------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", NODES)
def test_other_calls_between_the_halves(comm: MPI.Intracomm, nodes: str) -> None:
    with job(comm, settings_of(nodes, comm.size, "ordered=off")) as rt:
        me = rt.my_pe
        for layer, other in zip(
            every_layout(rt, SHAPES["fp8 + scales"]), every_layout(rt, SHAPES["fp32"]), strict=True
        ):
            for number in range(4):
                batches = layer.batches(number)
                pending = layer.exchange.dispatch_send(*batches[me].arrays)
                rows = pending.rows
                other.round(number)
                got = layer.exchange.dispatch_recv(pending)
                assert len(got.tokens) == rows
                combining = layer.exchange.combine_send(layer.results(got, batches), got.handle)
                other.round(number + 1)
                layer.check(layer.exchange.combine_recv(combining), batches[me])
            layer.exchange.free()


@pytest.mark.parametrize("nodes", NODES)
def test_halves_of_two_layers_interleave(comm: MPI.Intracomm, nodes: str) -> None:
    with job(comm, settings_of(nodes, comm.size)) as rt:
        me = rt.my_pe
        layer = Layer(rt, SHAPES["bf16"], "expert-major", alignment=4, handles=2)
        exchange = layer.exchange
        for number in range(0, 10, 2):
            a, b = layer.batches(number), layer.batches(number + 1)
            sent_a = exchange.dispatch_send(*a[me].arrays)
            sent_b = exchange.dispatch_send(*b[me].arrays)
            got_b = exchange.dispatch_recv(sent_b)
            got_a = exchange.dispatch_recv(sent_a)
            combining_a = exchange.combine_send(layer.results(got_a, a), got_a.handle)
            combining_b = exchange.combine_send(layer.results(got_b, b), got_b.handle)
            layer.check(exchange.combine_recv(combining_a), a[me])
            out = np.empty((len(b[me].tokens), 256), ml_dtypes.bfloat16)
            assert exchange.combine_recv(combining_b, out=out) is out
            layer.check(out, b[me])


def test_halves_in_the_wrong_order(comm: MPI.Intracomm) -> None:
    with job(comm, settings_of("2 nodes", comm.size)) as rt:
        layer = Layer(rt, SHAPES["bf16"])
        exchange, batches = layer.exchange, layer.batches(0, dict.fromkeys(range(rt.n_pes), 8))
        mine = batches[rt.my_pe]
        first, _ = layer.dispatch(batches)
        pending = exchange.dispatch_send(*mine.arrays)
        with pytest.raises(
            ArgumentError, match="handles=1 are all in use: dispatch 2 has been sent"
        ):
            exchange.dispatch(*mine.arrays)
        with pytest.raises(ArgumentError, match="dispatch 2 has overwritten"):
            exchange.combine(first.tokens, first.handle)
        got = exchange.dispatch_recv(pending)
        results = layer.results(got, batches)
        with pytest.raises(ArgumentError, match="dispatch 2 was received already"):
            exchange.dispatch_recv(pending)
        combining = exchange.combine_send(results, got.handle)
        for call in (
            lambda: exchange.combine(results, got.handle),
            lambda: exchange.dispatch(mine.tokens, handle=got.handle),
            lambda: exchange.dispatch(*mine.arrays),
            got.handle.expert_buffer,
        ):
            with pytest.raises(ArgumentError, match="dispatch 2 is being combined"):
                call()
        with pytest.raises(ArgumentError, match=r"out has shape \[7, 256\]"):
            exchange.combine_recv(combining, out=np.empty((7, 256), results.dtype))
        layer.check(exchange.combine_recv(combining), mine)  # a mistake costs nothing
        with pytest.raises(ArgumentError, match="dispatch 2 was combined already"):
            exchange.combine_recv(combining)


# ---- the caller's arrays -----------------------------------------------------------------------


def arrays_for(rt: Runtime, layer: Layer, rows: int, in_heap: bool) -> Outputs:
    """Room for `rows`, full of ones."""

    def array(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        made = symmetric_array(rt, shape, dtype) if in_heap else placed(rt, np.empty(shape, dtype))
        made[...] = 1
        return made

    shape = layer.shape
    routing = (rows, shape.topk) if layer.layout == "contiguous" else (rows,)
    return Outputs(
        array((rows, shape.hidden), shape.dtype),
        array(routing, np.float32),
        array(routing, np.int64),
        array((rows, shape.hidden // 128), np.float32) if shape.scaled else None,
    )


@pytest.mark.parametrize("in_heap", [True, False])
@pytest.mark.parametrize("nodes", NODES)
def test_dispatch_into_the_callers_arrays(comm: MPI.Intracomm, nodes: str, in_heap: bool) -> None:
    shape = Shape(ml_dtypes.float8_e4m3fn, hidden=128, topk=3, max_tokens=12)
    with job(comm, settings_of(nodes, comm.size)) as rt:
        for layer in every_layout(rt, shape):
            out = arrays_for(rt, layer, rt.n_pes * 36 + 15 * 4, in_heap)
            for number in range(4):
                batches = layer.batches(number)
                got, results = layer.dispatch(batches, out)
                assert not len(got.tokens) or address_of(got.tokens) == address_of(out.tokens)
                beyond = out.tokens[got.handle.rows :]
                assert np.all(beyond.astype(np.float32) == 1) or number
                layer.combine(got, results, batches[rt.my_pe])
                # They stay when the next dispatch takes the buffers.
                kept = np.array(got.tokens)
                layer.dispatch(layer.batches(number + 7))
                assert same_bits(got.tokens, kept)


@pytest.mark.parametrize("nodes", NODES)
def test_too_little_room_in_out_is_an_error_on_every_pe(comm: MPI.Intracomm, nodes: str) -> None:
    with job(comm, settings_of(nodes, comm.size)) as rt:
        layer = Layer(rt, SHAPES["bf16"])
        batches = layer.batches(0, dict.fromkeys(range(rt.n_pes), 8))
        for batch in batches:
            batch.indices[...] = 0
        out = Outputs(tokens=np.empty((9 if rt.my_pe == 0 else 99, 256), ml_dtypes.bfloat16))
        message = rf"PE 0 would receive {8 * rt.n_pes} rows, more than the 9 of its out"

        def there_and_back() -> None:
            got = layer.exchange.dispatch(*batches[rt.my_pe].arrays, out=out)
            layer.exchange.combine(got.tokens, got.handle)

        with pytest.raises(ArgumentError, match=message):
            there_and_back()
        got, results = layer.dispatch(batches)
        layer.combine(got, results, batches[rt.my_pe])
        if rt.my_pe == 0:
            with pytest.raises(ArgumentError, match=r"out has room for 9 rows, but \d+ come"):
                layer.exchange.dispatch(batches[0].tokens, handle=got.handle, out=out)


def test_arrays_that_out_refuses(comm: MPI.Intracomm) -> None:
    with job(comm, settings_of("2 nodes", comm.size)) as rt:
        layer = Layer(rt, SHAPES["bf16"])
        batches = layer.batches(0, dict.fromkeys(range(rt.n_pes), 8))
        arrays = batches[rt.my_pe].arrays
        rows = np.empty((400, 256), ml_dtypes.bfloat16)
        frozen = rows.copy()
        frozen.flags.writeable = False
        got, results = layer.dispatch(batches)
        refused = {
            r"out.tokens has shape \[400, 255\]": Outputs(tokens=rows[:, :255].copy()),
            r"out.tokens has shape .* of float16": Outputs(tokens=rows.astype(np.float16)),
            r"out.tokens of shape .* is not contiguous": Outputs(tokens=rows[::2]),
            r"out.tokens is a read-only array": Outputs(tokens=frozen),
            r"out.weights has shape \[400, 1\]": Outputs(weights=np.empty(400, np.float32)),
            r"out.indices has shape \[400, 5\] of int32": Outputs(
                indices=np.empty((400, 5), np.int32)
            ),
            r"out.scales is given, but dtype=bfloat16": Outputs(scales=np.empty((4, 2), "f4")),
            r"out lies in this ExpertParallel's own": Outputs(tokens=got.tokens),
        }
        for message, out in refused.items():
            with pytest.raises(ArgumentError, match=message):
                layer.exchange.dispatch(*arrays, out=out)
        buffer = got.handle.expert_buffer()
        with pytest.raises(ArgumentError, match="out lies in this ExpertParallel's own"):
            layer.exchange.combine(results, got.handle, out=buffer[:8])
        with pytest.raises(ArgumentError, match="out is a read-only array"):
            layer.exchange.combine(results, got.handle, out=frozen[:8])
        layer.combine(got, results, batches[rt.my_pe])  # as if nothing had happened
