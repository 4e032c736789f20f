"""Expert parallelism: tokens travel to the PEs that own their experts, results come back summed.

One layer, on every PE:

- `got = exchange.dispatch(tokens, indices, weights)`
- fill `got.handle.expert_buffer()`: row i is the sum over the experts of `got.indices[i]` that are
  not -1 of `got.weights[i, k]` times what the expert makes of `got.tokens[i]`
- `out = exchange.combine(got.handle.expert_buffer(), got.handle)`
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes  # noqa: F401 - teaches numpy the names of its types
import numpy as np
from numpy.typing import DTypeLike, NDArray

from railshmem import _core
from railshmem._core import Runtime

__all__ = ["Dispatched", "ExpertParallel", "Handle"]


@dataclass(frozen=True)
class Handle:
    """The routing of one dispatch, for its combine. Valid until that or the next dispatch."""

    _exchange: Any
    _core: Any

    @property
    def rows(self) -> int:
        """Rows that this PE received."""
        return int(self._core.rows)

    def expert_buffer(self) -> NDArray[Any]:
        """[rows, hidden] of combine_dtype, in the heap: results written here need no copy.

        May be written until combine is called; peers read it from then on.
        """
        return self._exchange.expert_buffer(self._core)


@dataclass(frozen=True)
class Dispatched:
    """What one PE received, ordered by (source PE, token there).

    The arrays but counts are views of the symmetric heap that the next dispatch overwrites.
    """

    tokens: NDArray[Any]
    """[rows, hidden], bit for bit what was sent."""
    weights: NDArray[np.float32]
    """[rows, topk] of the whole token, also where the expert is another PE's."""
    indices: NDArray[np.int64]
    """[rows, topk] experts of this PE, counted from 0; -1 for those of others."""
    scales: NDArray[np.float32] | None
    """[rows, hidden / 128] where dtype is fp8."""
    counts: NDArray[np.int64]
    """[n_pes] rows from each PE."""
    handle: Handle


class ExpertParallel:
    """Dispatch and combine of layers of one shape. Use it from one thread at a time."""

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
        blocks: int = 1,
        runtime: Runtime | None = None,
    ) -> None:
        """Collective, same arguments on every PE (`blocks` apart): takes its symmetric memory.

        hidden: elements of a token; a row has to be a multiple of 16 bytes.
        experts: of the whole job; PE p of n owns [p * experts / n, (p + 1) * experts / n).
        topk: experts of a token. max_tokens: the most that one PE dispatches at once.
        dtype: of tokens: bfloat16, float16, float32, float8_e4m3fn or float8_e5m2 (with scales).
        combine_dtype: of results: bfloat16, float16 or float32; default dtype, bfloat16 for fp8.
        max_received: the most rows that one PE takes; default n_pes * max_tokens, which is always
            enough. Only pages that are used take memory, but the heap must have room for all.
        blocks: threads that copy and sum. runtime: default the one of shmem_init.

        Raises ArgumentError naming the values, on every PE where they differ, and HeapExhausted.
        """
        from railshmem.shmem import runtime as default_runtime

        self._core = _core.ep.ExpertParallel(
            runtime if runtime is not None else default_runtime(),
            hidden=hidden,
            experts=experts,
            topk=topk,
            max_tokens=max_tokens,
            dtype=np.dtype(dtype).name,
            combine_dtype=None if combine_dtype is None else np.dtype(combine_dtype).name,
            max_received=max_received,
            blocks=blocks,
        )

    def dispatch(
        self,
        tokens: NDArray[Any],
        indices: NDArray[np.int32] | NDArray[np.int64],
        weights: NDArray[np.float32],
        scales: NDArray[np.float32] | None = None,
    ) -> Dispatched:
        """Collective: sends tokens [T, hidden] to the owners of their experts, indices [T, topk].

        -1 stands for no expert; an expert named twice counts twice, and the row travels once. T may
        differ between PEs and be 0. scales [T, hidden / 128] belong to fp8 tokens. Tokens in the
        symmetric heap leave the node without a copy. Returns when the arrays may change.

        Raises ArgumentError before anything is sent. Where a PE would receive more rows than
        max_received, the PEs of its node raise here and all others in combine; then all may
        dispatch again. After a wait that failed this object can only be thrown away.
        """
        rows, row_weights, row_indices, row_scales, counts, handle = self._core.dispatch(
            tokens, indices, weights, scales
        )
        return Dispatched(
            rows, row_weights, row_indices, row_scales, counts, Handle(self._core, handle)
        )

    def combine(
        self, expert_out: NDArray[Any], handle: Handle, *, out: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """Collective: returns [T, hidden] of combine_dtype: for each token the sum of its rows.

        expert_out [rows, hidden]: row i is the caller's weighted sum over its experts of received
        row i; no weight is applied here. Sums are formed in float32, in a fixed order, and rounded
        once; a token that went nowhere gives zeros. `out` takes the result in place of a new array.
        """
        return self._core.combine(expert_out, handle._core, out)

    def free(self) -> None:
        """Collective: gives the symmetric memory back, and with it what dispatch returned."""
        self._core.free()
