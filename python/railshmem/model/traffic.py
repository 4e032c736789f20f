"""What a round of dispatch and combine moves, counted token by token, by NIC and by PE.

A token goes once to every remote node that has one of its experts: to the PE there that forwards
for its source, which writes it once into every PE of its node that has one. In its own node its
source writes it. Results come back the same way, as one row per node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from railshmem import _core
from railshmem.model.cluster import Cluster, Layer
from railshmem.model.routing import Routing

Counts = NDArray[np.float64]
Numbers = NDArray[np.integer[Any]]

# Experts drawn for a whole job; what a PE has beyond its share is taken to be like its share.
MOST_DRAWS = 1 << 22
DRAWS_AT_ONCE = 1 << 20
HEADER_BYTES, SIGNAL_BYTES = 16, 8


@dataclass(frozen=True)
class Rows:
    """Where the rows of all PEs go."""

    sampled: int  # tokens of each PE that were drawn
    crossing: Counts  # [n_pes, nodes] a PE's rows to a remote node
    runs: Counts  # [n_pes, nodes] the pieces that they are sent in
    placed: Counts  # [n_pes] rows that a PE writes into the PEs of its node, its own among them
    arriving: Counts  # [n_pes] rows that a PE receives


@dataclass(frozen=True)
class Load:
    """What one phase asks of NICs and PEs."""

    sent: Counts  # [nodes, rails] bytes
    received: Counts  # [nodes, rails] bytes
    messages: Counts  # [nodes, rails] puts that a NIC sends
    posted: Counts  # [n_pes] puts that a PE posts
    writes: Counts  # [n_pes] bytes that it moves inside its node
    takes: Counts  # [n_pes] bytes that are moved from or to its memory

    @property
    def by_nic(self) -> Counts:
        """[nodes, rails] What its busier direction carries."""
        return np.maximum(self.sent, self.received)

    @property
    def by_rail(self) -> Counts:
        """[rails] All bytes."""
        total: Counts = self.sent.sum(axis=0)
        return total


def count_rows(
    cluster: Cluster, layer: Layer, routing: Routing, most_draws: int = MOST_DRAWS
) -> Rows:
    """Draws and counts; beyond `most_draws` a sample of each PE's tokens stands for all of them."""
    sampled = min(layer.tokens, max(1, most_draws // (cluster.n_pes * layer.topk)))
    scale = layer.tokens / sampled if sampled else 0.0
    chances = routing.chances(layer.experts)
    owners = np.asarray(_core.model.expert_owners(layer.experts, cluster.n_pes))
    counts = _Counts(cluster, layer.chunk_rows)
    step = max(1, DRAWS_AT_ONCE // max(1, sampled * layer.topk))
    for first in range(0, cluster.n_pes, step):
        pes = range(first, min(first + step, cluster.n_pes))
        drawn = [routing.draw(chances, layer.topk, sampled, pe) for pe in pes]
        counts.add(pes, owners[np.stack(drawn)])
    return Rows(
        sampled,
        counts.crossing * scale,
        counts.runs * scale,
        counts.placed * scale,
        counts.arriving * scale,
    )


class _Counts:
    """Sums over tokens."""

    def __init__(self, cluster: Cluster, chunk_rows: int) -> None:
        self._cluster, self._chunk_rows = cluster, chunk_rows
        self.crossing = np.zeros((cluster.n_pes, cluster.nodes))
        self.runs = np.zeros((cluster.n_pes, cluster.nodes))
        self.placed = np.zeros(cluster.n_pes)
        self.arriving = np.zeros(cluster.n_pes)

    def add(self, pes: range, targets: NDArray[np.int32]) -> None:
        """`targets` [pes, tokens, topk]: the PEs that the tokens' experts are on."""
        cluster = self._cluster
        source = np.broadcast_to(np.asarray(pes)[:, None, None], targets.shape)
        token = np.broadcast_to(np.arange(targets.shape[1])[:, None], targets.shape)
        once = _firsts(targets)
        source_once, target_once = source[once], targets[once]
        node = cluster.node[target_once]
        forwarder = cluster.forwarder[source_once, node]
        writer = np.where(forwarder < 0, source_once, forwarder)
        self.placed += np.bincount(writer, minlength=cluster.n_pes)
        self.arriving += np.bincount(target_once, minlength=cluster.n_pes)

        nodes = cluster.node[targets]
        once = _firsts(nodes) & (nodes != cluster.node[source])
        pair = source[once].astype(np.int64) * cluster.nodes + nodes[once]
        size = cluster.n_pes * cluster.nodes
        shape = (cluster.n_pes, cluster.nodes)
        self.crossing += np.bincount(pair, minlength=size).reshape(shape)
        begins = self._beginnings(pair, token[once], targets.shape[1])
        self.runs += np.bincount(pair[begins], minlength=size).reshape(shape)

    def _beginnings(
        self, pair: NDArray[np.int64], token: NDArray[np.int64], tokens: int
    ) -> NDArray[np.int64]:
        """Which rows begin a put: it has consecutive tokens of one chunk."""
        key = pair * (tokens + 1) + token
        order = np.argsort(key)
        key, token = key[order], token[order]
        follows = np.zeros(key.size, bool)
        follows[1:] = key[1:] == key[:-1] + 1
        begins: NDArray[np.int64] = order[~follows | (token % self._chunk_rows == 0)]
        return begins


def _firsts(values: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Marks each different value once in every row of the last axis."""
    order = np.argsort(values, axis=-1, kind="stable")
    ranked = np.take_along_axis(values, order, axis=-1)
    first = np.ones(values.shape, bool)
    first[..., 1:] = ranked[..., 1:] != ranked[..., :-1]
    out = np.empty_like(first)
    np.put_along_axis(out, order, first, axis=-1)
    return out


def dispatch_load(cluster: Cluster, layer: Layer, rows: Rows) -> Load:
    """Rows to the experts: a header for every remote node, then the rows; puts have signals."""
    remote = cluster.forwarder >= 0
    puts = np.where(remote, 1 + rows.runs, 0.0)
    nbytes = rows.crossing * (layer.token_bytes + layer.routing_bytes)
    nbytes += np.where(remote, HEADER_BYTES, 0) + puts * SIGNAL_BYTES
    row = layer.token_bytes + layer.routing_bytes
    sources = np.broadcast_to(np.arange(cluster.n_pes)[:, None], remote.shape)
    return _load(
        cluster,
        (sources[remote], cluster.forwarder[remote], cluster.rail[remote]),
        nbytes[remote],
        puts[remote],
        rows.placed * row,
        rows.arriving * row,
    )


def combine_load(cluster: Cluster, layer: Layer, rows: Rows) -> Load:
    """Results of every node back to the source, in chunks, each with a signal."""
    remote = cluster.forwarder >= 0
    puts = np.ceil(rows.crossing / layer.chunk_rows)
    partial = layer.partial_bytes(cluster.pes)
    nbytes = rows.crossing * partial + puts * SIGNAL_BYTES
    sources = np.broadcast_to(np.arange(cluster.n_pes)[:, None], remote.shape)
    # A forwarder reads its members' results; a source also what came from other nodes.
    reads = rows.placed * layer.result_bytes + rows.crossing.sum(axis=1) * partial
    return _load(
        cluster,
        (cluster.forwarder[remote], sources[remote], cluster.rail[remote]),
        nbytes[remote],
        puts[remote],
        reads,
        rows.arriving * layer.result_bytes,
    )


def _load(
    cluster: Cluster,
    ways: tuple[Numbers, Numbers, Numbers],
    nbytes: Counts,
    puts: Counts,
    writes: Counts,
    takes: Counts,
) -> Load:
    """`ways`: from whom, to whom and on which rail go so many bytes in so many puts."""
    source, target, rail = ways

    def by_nic(pe: Numbers, amount: Counts) -> Counts:
        at = cluster.node[pe] * cluster.rails + rail
        total = np.bincount(at, amount, cluster.nodes * cluster.rails)
        return total.reshape(cluster.nodes, cluster.rails).astype(np.float64)

    posted = np.bincount(source, puts, cluster.n_pes).astype(np.float64)

    return Load(
        sent=by_nic(source, nbytes),
        received=by_nic(target, nbytes),
        messages=by_nic(source, puts),
        posted=posted,
        writes=writes,
        takes=takes,
    )
