"""Expert parallelism: tokens travel to the PEs that own their experts, results come back summed.

One layer, on every PE, in the contiguous layout:

- `got = exchange.dispatch(tokens, indices, weights)`
- fill `got.handle.expert_buffer()`: row i is the sum over the experts of `got.indices[i]` that are
  not -1 of `got.weights[i, k]` times what the expert makes of `got.tokens[i]`
- `out = exchange.combine(got.handle.expert_buffer(), got.handle)`

In the expert-major layout received rows are grouped: those of expert e of this PE are
`got.tokens[start : start + got.expert_counts[e]]`; start is the sum of `got.padded_counts[:e]`.
Row i of the expert buffer is what that expert makes of row i, and combine applies the weights.

In the layout by slots every token of every PE has its place in `got.tokens`, whether it comes or
not: token t of PE p is row p * max_tokens + t, with -1 in all of `got.indices[row]` where it did
not come. Nothing has to be agreed before rows move: for few tokens, where time counts. What a
dispatch delivered may be overwritten by the next one into its buffers once it has been combined.

On GPUs everything happens on a stream and calls return before it has happened, but dispatch waits
for the counts. With `fixed_shapes` it does not: arrays always have `max_received` rows and the
counts stay on the GPU. The layout by slots is always like that. Such calls can be captured in a
CUDA graph and replayed, with new tokens and another routing in the same arrays; dispatch and
combine of a handle belong in one graph. What stops a kernel is raised by a later call, or by
`finish`.

Both calls have halves (`dispatch_send` and `dispatch_recv`, `combine_send` and `combine_recv`)
between which the caller computes while NICs carry rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import ml_dtypes  # noqa: F401 - teaches numpy the names of its types
import numpy as np
from numpy.typing import DTypeLike

from railshmem import _core
from railshmem._core import Runtime
from railshmem.errors import ArgumentError

__all__ = [
    "Dispatched",
    "ExpertParallel",
    "Handle",
    "Layout",
    "Outputs",
    "PendingCombine",
    "PendingDispatch",
]

Layout = Literal["contiguous", "expert-major", "slots"]

# numpy's in jobs on CPUs; in jobs on GPUs a DeviceArray, and as an argument any array of the GPU.
Array: TypeAlias = Any


@dataclass(frozen=True)
class Handle:
    """The routing of one dispatch, for its combine and for further dispatches.

    Valid until another dispatch takes its buffers: that of so many dispatches later as the
    ExpertParallel has `handles`.
    """

    _exchange: Any
    _core: Any

    @property
    def rows(self) -> int:
        """Rows that this PE received."""
        return int(self._core.rows)

    def expert_buffer(self) -> Array:
        """[rows, hidden] of combine_dtype, in the heap: results written here need no copy.

        May be written until combine is called; peers read it from then on.
        """
        return self._exchange.expert_buffer(self._core)


@dataclass(frozen=True)
class Dispatched:
    """What one PE received: R rows.

    Contiguous layout: one row per token, ordered by (source PE, token there). Expert-major: one row
    per token and expert of this PE that it names, in a block per expert, each ordered in that way
    and filled up with rows of zeros to a multiple of the alignment.

    The arrays but the counts are views of the symmetric heap, valid as long as the handle, or the
    first rows of those given as `out`.
    """

    tokens: Array
    """[R, hidden], bit for bit what was sent."""
    weights: Array
    """Contiguous: [R, topk] of the whole token, also where the expert is another PE's.

    Expert-major: [R] of this expert for this token, the sum where the token names it twice.
    """
    indices: Array
    """Contiguous: [R, topk] experts of this PE, counted from 0; -1 for those of others.

    Expert-major: [R] the expert whose block it is, -1 for rows of zeros.
    """
    scales: Array | None
    """[R, hidden / 128] where dtype is fp8."""
    counts: Array
    """[n_pes] tokens from each PE; by slot: places that each PE uses, the first of its own."""
    expert_counts: Array | None
    """Expert-major: [experts of this PE] rows of each, without those of zeros."""
    padded_counts: Array | None
    """Expert-major: [experts of this PE] rows of each block."""
    row_count: Array | None
    """With fixed shapes: [1] how many of the rows are in use, from the first; by slot: all."""
    handle: Handle


@dataclass(frozen=True)
class Outputs:
    """The caller's arrays for what dispatch delivers, C-contiguous, with room for R rows or more.

    Shapes and types are those of Dispatched. They may lie in the symmetric heap or not. Rows arrive
    in the heap and are copied, and so outlive the handle; what is None stays a view.
    """

    tokens: Array | None = None
    weights: Array | None = None
    indices: Array | None = None
    scales: Array | None = None

    @property
    def _arrays(self) -> tuple[Array | None, ...]:
        return self.tokens, self.weights, self.indices, self.scales


@dataclass(frozen=True)
class PendingDispatch:
    """A dispatch between its halves. Keeps the arrays that must not change."""

    _core: Any
    _sent: tuple[Array | None, ...]
    _out: Outputs

    @property
    def rows(self) -> int:
        """Rows that dispatch_recv will deliver."""
        return int(self._core.rows)


@dataclass(frozen=True)
class PendingCombine:
    """A combine between its halves."""

    _core: Any
    _expert_out: Array


class ExpertParallel:
    """Dispatch and combine of layers of one shape.

    Use it from one thread at a time, and with the same calls in the same order on every PE.
    """

    def __init__(
        self,
        *,
        hidden: int,
        experts: int,
        topk: int,
        max_tokens: int,
        dtype: DTypeLike,
        combine_dtype: DTypeLike | None = None,
        max_received: int | None = None,
        layout: Layout = "contiguous",
        alignment: int = 1,
        handles: int = 1,
        blocks: int = 1,
        fixed_shapes: bool = False,
        quantise_from: DTypeLike | None = None,
        bulk: bool = False,
        runtime: Runtime | None = None,
    ) -> None:
        """Collective, same arguments on every PE (`blocks` apart): takes its symmetric memory.

        hidden: elements of a token; a row has to be a multiple of 16 bytes.
        experts: of the whole job; PE p of n owns [p * experts // n, (p + 1) * experts // n).
        topk: experts of a token, up to all. max_tokens: the most that one PE dispatches at once.
        dtype: of tokens: bfloat16, float16, float32, float8_e4m3fn or float8_e5m2 (with scales).
        combine_dtype: of results: bfloat16, float16 or float32; default dtype, bfloat16 for fp8.
        max_received: the most rows that one PE takes, in the expert-major layout with those of
            zeros; default what all PEs can send. Only pages that are used take memory, but the heap
            must have room for all.
        layout: "contiguous", "expert-major" or "slots"; see Dispatched.
        alignment: expert-major: an expert's block has a multiple of so many rows.
        handles: dispatches whose rows and routing are kept at the same time, each in buffers of its
            own. A dispatch takes the buffers of the oldest.
        blocks: threads that copy and sum; on a GPU processors, for the time of each half.
        fixed_shapes: the host waits for no counts; see above. Where more rows come than
            max_received, kernels stop the PEs of the node, and the next call raises.
        quantise_from: bfloat16 or float16: tokens are given in this type, and dispatch makes dtype
            float8_e4m3fn of them, with a scale per 128 elements: amax / 448, the elements rounded
            after times 448 / amax, in float32; zeros where amax is below 2**-100.
        bulk: on NVIDIA GPUs from compute capability 9.0 on, dispatch moves rows by bulk copies
            through shared memory; nothing elsewhere.
        runtime: default the one of shmem_init.

        Raises ArgumentError naming the values, on every PE where they differ, and HeapExhausted.
        """
        from railshmem.shmem import runtime as default_runtime

        self._by_expert = layout == "expert-major"
        self._scaled = np.dtype(dtype).itemsize == 1
        self._core = _core.ep.ExpertParallel(
            runtime if runtime is not None else default_runtime(),
            hidden=hidden,
            experts=experts,
            topk=topk,
            max_tokens=max_tokens,
            dtype=np.dtype(dtype).name,
            combine_dtype=None if combine_dtype is None else np.dtype(combine_dtype).name,
            max_received=max_received,
            layout=layout,
            alignment=alignment,
            handles=handles,
            blocks=blocks,
            fixed_shapes=fixed_shapes,
            bulk=bulk,
            quantise_from=None if quantise_from is None else np.dtype(quantise_from).name,
        )

    def dispatch(
        self,
        tokens: Array,
        indices: Array | None = None,
        weights: Array | None = None,
        scales: Array | None = None,
        *,
        handle: Handle | None = None,
        out: Outputs | None = None,
        stream: Any = None,
    ) -> Dispatched:
        """Collective: sends tokens [T, hidden] to the owners of their experts, indices [T, topk].

        indices are int32 or int64, weights float32. -1 stands for no expert; an expert named twice
        counts twice, and the row travels once. T may differ between PEs and be 0. scales
        [T, hidden / 128] belong to fp8 tokens. Tokens in the symmetric heap leave the node without
        a copy. Returns when the arrays may change; on a GPU, when the work is on the stream.

        With a `handle` in place of indices and weights the same number of other tokens goes the way
        of that dispatch, into its buffers, without another exchange of counts: gradients in a
        backward pass. The result has a new handle, which replaces it.

        Raises ArgumentError before anything is sent. Where a PE would receive more rows than
        max_received or its `out` has room for, the PEs of its node raise here and all others in
        combine; then all may dispatch again. After a wait that failed this object can only be
        thrown away. On a GPU an id that does not exist is found by the kernel, before it sends
        anything, and raised by a later call; then, too, every PE makes a new object.
        """
        if handle is not None:
            pending = self.dispatch_send(
                tokens, indices, weights, scales, handle=handle, out=out, stream=stream
            )
            return self.dispatch_recv(pending, stream=stream)
        into = Outputs() if out is None else out
        _require_routing(indices, weights)
        return self._dispatched(
            self._core.dispatch(tokens, indices, weights, scales, into._arrays, stream), into
        )

    def dispatch_send(
        self,
        tokens: Array,
        indices: Array | None = None,
        weights: Array | None = None,
        scales: Array | None = None,
        *,
        handle: Handle | None = None,
        out: Outputs | None = None,
        stream: Any = None,
    ) -> PendingDispatch:
        """Collective, as dispatch: returns when this PE's rows are on their way.

        Waits until every PE is here, writes the rows for PEs of the own node into their memory and
        hands those for other nodes to the NICs, which carry them without the caller. The arrays,
        `out` included, must stay as they are until dispatch_recv returns.
        """
        into = Outputs() if out is None else out
        if handle is not None:
            if indices is not None or weights is not None:
                raise ArgumentError(
                    "dispatch: a handle knows the routing: pass no indices and no weights with it"
                )
            core = self._core.dispatch_send_again(
                tokens, scales, _core_of("dispatch", handle), into._arrays, stream
            )
        else:
            _require_routing(indices, weights)
            core = self._core.dispatch_send(tokens, indices, weights, scales, into._arrays, stream)
        return PendingDispatch(core, (tokens, indices, weights, scales), into)

    def dispatch_recv(self, pending: PendingDispatch, *, stream: Any = None) -> Dispatched:
        """Collective: places what came from other nodes and returns when this PE's rows are there.

        Rows that a PE forwards inside its node, and the copies for a token's further experts in the
        expert-major layout, are its own work and happen here.
        """
        return self._dispatched(self._core.dispatch_recv(pending._core, stream), pending._out)

    def _dispatched(self, received: Any, out: Outputs) -> Dispatched:
        handle, arrays, (counts, expert_counts, padded_counts, row_count) = received
        views = list(arrays)
        if self._by_expert:
            views[1:3] = [view.reshape(-1) for view in views[1:3]]
        tokens, row_weights, row_indices, row_scales = (
            view if given is None else given[: handle.rows]
            for view, given in zip(views, out._arrays, strict=True)
        )
        return Dispatched(
            tokens,
            row_weights,
            row_indices,
            row_scales if self._scaled else None,
            counts,
            expert_counts if self._by_expert else None,
            padded_counts if self._by_expert else None,
            row_count,
            Handle(self._core, handle),
        )

    def combine(
        self, expert_out: Array, handle: Handle, *, out: Array | None = None, stream: Any = None
    ) -> Array:
        """Collective: returns [T, hidden] of combine_dtype: for each token the sum of its rows.

        expert_out [R, hidden], C-contiguous. Contiguous layout and by slot: row i is the caller's
        weighted sum over its experts of received row i; no weight is applied here. Expert-major:
        row i is what the expert makes of received row i; each PE forms the weighted sum of a
        token's rows in float32 and rounds it to combine_dtype; rows of zeros are not read.

        Sums over PEs are formed in float32, in a fixed order, and rounded once; a token that went
        nowhere gives zeros. `out` takes the result in place of a new array; on a GPU in place of
        one that belongs to the handle's buffers and is overwritten by their next combine.
        """
        return self._core.combine(expert_out, _core_of("combine", handle), out, stream)

    def combine_send(
        self, expert_out: Array, handle: Handle, *, stream: Any = None
    ) -> PendingCombine:
        """Collective, as combine: returns when the other PEs can go on without this one.

        In a job of one node it waits for nobody. With several it waits until the PEs of this node
        are here, sums what the tokens of other nodes are owed and hands it to the NICs. expert_out
        may change afterwards, unless it is the expert buffer: then when combine_recv has returned
        on the PEs of this node.
        """
        core = _core_of("combine", handle)
        self._core.combine_send(expert_out, core, stream)
        return PendingCombine(core, expert_out)

    def combine_recv(
        self, pending: PendingCombine, *, out: Array | None = None, stream: Any = None
    ) -> Array:
        """Collective: waits for the other PEs' results and sums them, as combine."""
        return self._core.combine_recv(pending._core, out, stream)

    def finish(self, stream: Any = None) -> None:
        """Waits for the work of the stream and raises what stopped a kernel. Nothing on a CPU."""
        self._core.finish(stream)

    def free(self) -> None:
        """Collective: gives the symmetric memory back, and with it what dispatch returned."""
        self._core.free()


def _require_routing(indices: Array | None, weights: Array | None) -> None:
    if indices is None or weights is None:
        raise ArgumentError("dispatch: indices and weights are needed where no handle is given")


def _core_of(call: str, handle: Handle) -> Any:
    if not isinstance(handle, Handle):
        raise ArgumentError(
            f"{call}: handle of type {type(handle).__name__} is not what dispatch returned"
        )
    return handle._core
