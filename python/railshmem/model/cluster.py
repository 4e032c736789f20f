"""A cluster and a layer of experts, as a job would see them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from railshmem import _core
from railshmem.bench.token_types import SCALE_BLOCK, TOKEN_TYPES
from railshmem.errors import ArgumentError

MOST_PES = 4096


@dataclass(frozen=True)
class Cluster:
    """`nodes` nodes of `pes` PEs in blocks of ranks, each with a NIC on each of `rails` rails.

    `hosts`: machines that the nodes are on, fewer than nodes where those are emulated.
    """

    nodes: int
    pes: int
    rails: int
    lanes: int = 1
    hosts: int = 0  # as many as nodes

    def __post_init__(self) -> None:
        least = min(self.nodes, self.pes, self.rails, self.lanes)
        if least < 1 or not 0 <= self.hosts <= self.nodes:
            raise ArgumentError(
                f"{self.text} and {self.lanes} lanes on {self.hosts} hosts: expected at least 1 of "
                "each, and no more hosts than nodes"
            )
        if self.n_pes > MOST_PES:
            raise ArgumentError(f"{self.text} are {self.n_pes} PEs: expected at most {MOST_PES}")

    @property
    def text(self) -> str:
        """For people."""
        return f"{self.nodes} nodes × {self.pes} PEs × {self.rails} rails"

    @property
    def n_pes(self) -> int:
        """Of the job."""
        return self.nodes * self.pes

    @property
    def pes_of_host(self) -> int:
        """On the fullest host."""
        return -(-self.nodes // (self.hosts or self.nodes)) * self.pes

    @cached_property
    def topology(self) -> Any:
        """The job's own answers."""
        return _core.model.Topology(self.nodes, self.pes, self.rails)

    @cached_property
    def node(self) -> NDArray[np.int32]:
        """[n_pes] Each PE's node."""
        return self.topology.nodes()

    @cached_property
    def local_index(self) -> NDArray[np.int32]:
        """[n_pes] Each PE's place in its node."""
        return self.topology.local_indices()

    @cached_property
    def forwarder(self) -> NDArray[np.int32]:
        """[n_pes, nodes] Who forwards a PE's rows in a node; -1 in its own."""
        return self._by_node(self.topology.forwarders)

    @cached_property
    def rail(self) -> NDArray[np.int32]:
        """[n_pes, nodes] The rail between a PE and its forwarder; -1 in its own node."""
        forwarder = self.forwarder
        return self._by_node(
            lambda pes, nodes: self.topology.rails(pes, forwarder[pes, nodes], lane=0)
        )

    def _by_node(self, answer: Any) -> NDArray[np.int32]:
        out = np.full((self.n_pes, self.nodes), -1, np.int32)
        remote = self.node[:, None] != np.arange(self.nodes)
        pes, nodes = np.nonzero(remote)
        out[remote] = answer(pes, nodes)
        return out


@dataclass(frozen=True)
class Layer:
    """What a layer looks like; `tokens` are per PE."""

    tokens: int
    hidden: int
    experts: int
    topk: int
    dtype: str

    def __post_init__(self) -> None:
        if self.dtype not in TOKEN_TYPES:
            raise ArgumentError(f"dtype {self.dtype} is none of {', '.join(TOKEN_TYPES)}")
        if self.tokens < 0 or self.hidden < 1 or self.experts < 1:
            raise ArgumentError(
                f"{self.tokens} tokens of {self.hidden} elements for {self.experts} experts: "
                "expected at least 0, 1 and 1"
            )
        if not 1 <= self.topk <= self.experts:
            raise ArgumentError(f"topk {self.topk}: expected from 1 to {self.experts} experts")
        if TOKEN_TYPES[self.dtype].scaled and self.hidden % SCALE_BLOCK:
            raise ArgumentError(
                f"hidden {self.hidden}: expected a multiple of {SCALE_BLOCK} for fp8"
            )
        if self.token_bytes % 16:
            raise ArgumentError(
                f"hidden {self.hidden}: a row of {self.token_bytes} bytes is no multiple of 16"
            )

    @property
    def token_bytes(self) -> int:
        """Of a row on its way to the experts."""
        return self.hidden * TOKEN_TYPES[self.dtype].dispatch.itemsize

    @property
    def result_bytes(self) -> int:
        """Of a row of an expert's results."""
        return self.hidden * TOKEN_TYPES[self.dtype].combine.itemsize

    @property
    def routing_bytes(self) -> int:
        """What goes with a row: expert ids, weights and scales."""
        scales = self.hidden // SCALE_BLOCK if TOKEN_TYPES[self.dtype].scaled else 0
        return 4 * (2 * self.topk + scales)

    @property
    def chunk_rows(self) -> int:
        """Rows that go to a NIC at once."""
        return max(1, _core.model.EP_CHUNK_BYTES // self.token_bytes)

    def partial_bytes(self, pes: int) -> int:
        """Of a row of combine between nodes of so many PEs: sums in fp32, if there is a sum."""
        return 4 * self.hidden if pes > 1 else self.result_bytes
