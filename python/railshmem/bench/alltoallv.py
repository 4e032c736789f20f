"""The rival of expert parallelism: the same exchange through MPI_Alltoallv, done well.

One row per token and destination PE, buffers allocated once, rows packed by numpy's compiled take,
rows and their routing in two calls, results summed in compiled code. Rows arrive in the order in
which `railshmem.ep` delivers them, in either layout.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from railshmem import _core


class Received(NamedTuple):
    """What dispatch delivers: views of the exchange's buffers, valid until the next dispatch."""

    tokens: np.ndarray  # [R, hidden]
    indices: np.ndarray  # [R, topk], local expert ids, -1 for experts elsewhere; expert-major: [R]
    weights: np.ndarray  # as indices
    scales: np.ndarray | None  # [R, n_scales]


class AlltoallvExchange:
    """Dispatch and combine of one Mixture-of-Experts layer over an MPI communicator."""

    def __init__(
        self,
        comm: MPI.Comm,
        *,
        hidden: int,
        experts: int,
        topk: int,
        max_tokens: int,
        dtype: np.dtype[Any],
        combine_dtype: np.dtype[Any],
        n_scales: int = 0,
    ) -> None:
        self._comm = comm
        self._n_pes = comm.Get_size()
        self._hidden, self._topk, self._n_scales = hidden, topk, n_scales
        self._local_experts = experts // self._n_pes
        self._dtype, self._combine_dtype = dtype, combine_dtype
        sent = max_tokens * min(topk, self._n_pes)
        received = max_tokens * self._n_pes
        row, back = hidden * dtype.itemsize, hidden * combine_dtype.itemsize
        # Routing of a row: expert ids, weights, scales; 4 bytes each.
        routing = 2 * topk + n_scales
        self._rows_out = np.zeros((sent, row), np.uint8)
        self._rows_in = np.zeros((received + 1, row), np.uint8)  # the last stays zero
        self._routing = np.zeros((max_tokens, routing), np.int32)
        self._routing_out = np.zeros((sent, routing), np.int32)
        self._routing_in = np.zeros((received, routing), np.int32)
        self._local = np.zeros((received, topk), np.int32)
        self._results = np.zeros((sent, hidden), combine_dtype)
        self._combined = np.zeros((max_tokens, hidden), combine_dtype)
        # Whole rows as MPI types keep counts small: bytes would overflow int32.
        self._row_type = MPI.BYTE.Create_contiguous(row).Commit()
        self._back_type = MPI.BYTE.Create_contiguous(back).Commit()
        self._routing_type = MPI.INT32_T.Create_contiguous(routing).Commit()
        self._counts_out = np.zeros(self._n_pes, np.int32)
        self._counts_in = np.zeros(self._n_pes, np.int32)
        self._places = np.zeros((self._n_pes, max_tokens), np.int32)
        self._n_tokens = 0

    def free(self) -> None:
        """Gives the MPI types back."""
        for kind in (self._row_type, self._back_type, self._routing_type):
            kind.Free()

    def dispatch(
        self,
        tokens: np.ndarray,
        indices: np.ndarray,
        weights: np.ndarray,
        scales: np.ndarray | None = None,
    ) -> Received:
        """Collective: sends each token once to every PE that has one of its experts."""
        n_tokens = self._n_tokens = len(tokens)
        owner = np.where(indices >= 0, indices // self._local_experts, self._n_pes)
        goes = np.zeros((self._n_pes + 1, n_tokens), bool)  # one more row: "not routed"
        goes[owner, np.arange(n_tokens)[:, None]] = True
        pes, rows = np.nonzero(goes[:-1])  # ordered by PE, then token
        n_sent = len(rows)
        self._counts_out[:] = np.bincount(pes, minlength=self._n_pes)
        self._places[:, :n_tokens] = -1
        self._places[pes, rows] = np.arange(n_sent)

        topk = self._topk
        self._routing[:n_tokens, :topk] = indices
        self._routing[:n_tokens, topk : 2 * topk].view(np.float32)[...] = weights
        if scales is not None:
            self._routing[:n_tokens, 2 * topk :].view(np.float32)[...] = scales
        # mode="clip" lets take write straight into `out`; the rows are in range.
        np.take(tokens.view(np.uint8), rows, axis=0, out=self._rows_out[:n_sent], mode="clip")
        np.take(self._routing, rows, axis=0, out=self._routing_out[:n_sent], mode="clip")

        self._comm.Alltoall(self._counts_out, self._counts_in)
        sent, received = self._counts_out, self._counts_in
        self._exchange(self._rows_out, sent, self._rows_in, received, self._row_type)
        self._exchange(self._routing_out, sent, self._routing_in, received, self._routing_type)
        return self._view(int(received.sum()))

    def combine(self, expert_out: np.ndarray) -> np.ndarray:
        """Collective: returns the rows to their PEs and sums each token's in float32."""
        self._exchange(
            expert_out, self._counts_in, self._results, self._counts_out, self._back_type
        )
        combined = self._combined[: self._n_tokens]
        _core.bench.sum_rows(
            self._results.view(np.uint8), self._places, combined.view(np.uint8), self._kind
        )
        return combined

    @property
    def _kind(self) -> str:
        return {"float32": "fp32", "float16": "fp16"}.get(self._combine_dtype.name, "bf16")

    def _exchange(
        self,
        out: np.ndarray,
        counts_out: np.ndarray,
        into: np.ndarray,
        counts_in: np.ndarray,
        kind: MPI.Datatype,
    ) -> None:
        self._comm.Alltoallv(
            [out.view(np.uint8), (counts_out, _starts(counts_out)), kind],
            [into.view(np.uint8), (counts_in, _starts(counts_in)), kind],
        )

    def _view(self, n_rows: int) -> Received:
        topk = self._topk
        first = self._comm.Get_rank() * self._local_experts
        local = np.subtract(self._routing_in[:n_rows, :topk], first, out=self._local[:n_rows])
        local[(local < 0) | (local >= self._local_experts)] = -1
        floats = self._routing_in[:n_rows].view(np.float32)
        return Received(
            self._rows_in[:n_rows].view(self._dtype),
            local,
            floats[:, topk : 2 * topk],
            floats[:, 2 * topk :] if self._n_scales else None,
        )


class ExpertMajorExchange(AlltoallvExchange):
    """The same in the expert-major layout: rows are grouped and reduced where the experts are.

    A token must not name an expert twice.
    """

    def __init__(
        self, comm: MPI.Comm, *, topk: int, max_tokens: int, alignment: int, **shape: Any
    ) -> None:
        super().__init__(comm, topk=topk, max_tokens=max_tokens, **shape)
        arrivals = max_tokens * self._n_pes
        most = arrivals * min(topk, self._local_experts)
        most += self._local_experts * (alignment - 1)
        self._alignment = alignment
        self._grouped = np.zeros((most, self._rows_in.shape[1]), np.uint8)
        self._grouped_scales = np.zeros((most, self._n_scales), np.float32)
        self._pair_places = np.zeros((topk, arrivals), np.int32)
        self._pair_weights = np.zeros((topk, arrivals), np.float32)
        self._reduced = np.zeros((arrivals, self._hidden), self._combine_dtype)
        self._arrived = 0

    def dispatch(
        self,
        tokens: np.ndarray,
        indices: np.ndarray,
        weights: np.ndarray,
        scales: np.ndarray | None = None,
    ) -> Received:
        """Collective: as AlltoallvExchange, then copies the rows into their experts' blocks."""
        got = super().dispatch(tokens, indices, weights, scales)
        self._arrived = len(got.tokens)
        rows, columns = np.nonzero(got.indices >= 0)  # ordered by row
        experts = got.indices[rows, columns]
        order = np.argsort(experts, kind="stable")
        counts = np.bincount(experts, minlength=self._local_experts)
        padded = -(-counts // self._alignment) * self._alignment
        shifts = _starts(padded) - _starts(counts)  # of a block, by the filling of those before
        places = np.arange(len(order)) + shifts[experts[order]]
        rows, columns = rows[order], columns[order]
        self._pair_places[:, : self._arrived] = -1
        self._pair_places[columns, rows] = places
        self._pair_weights[:, : self._arrived] = got.weights.T
        n_rows = int(padded.sum())
        taken = np.full(n_rows, len(self._rows_in) - 1)
        taken[places] = rows
        np.take(self._rows_in, taken, axis=0, out=self._grouped[:n_rows], mode="clip")
        ids, row_weights = np.full(n_rows, -1), np.zeros(n_rows, np.float32)
        ids[places], row_weights[places] = experts[order], got.weights[rows, columns]
        if got.scales is not None:
            self._grouped_scales[:n_rows] = 0
            self._grouped_scales[places] = got.scales[rows]
        return Received(
            self._grouped[:n_rows].view(self._dtype),
            ids,
            row_weights,
            self._grouped_scales[:n_rows] if got.scales is not None else None,
        )

    def combine(self, expert_out: np.ndarray) -> np.ndarray:
        """Collective: forms the weighted sum of each arrived token, then as AlltoallvExchange."""
        reduced = self._reduced[: self._arrived]
        _core.bench.sum_rows(
            expert_out.view(np.uint8),
            self._pair_places[:, : self._arrived],
            reduced.view(np.uint8),
            self._kind,
            self._pair_weights[:, : self._arrived],
        )
        return super().combine(reduced)


def _starts(counts: np.ndarray) -> np.ndarray:
    starts = np.zeros_like(counts)
    np.cumsum(counts[:-1], out=starts[1:])
    return starts
