"""From what moves to how long it takes: every resource has a time, and one or more of them bind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import log2

import numpy as np

from railshmem import _core
from railshmem.model.cluster import Cluster, Layer
from railshmem.model.network import Network
from railshmem.model.routing import Routing
from railshmem.model.traffic import MOST_DRAWS, Load, Rows, combine_load, count_rows, dispatch_load

EXCHANGES = 3  # of init: cards, who mapped whom, queue pairs
SEND_DEPTH = 256  # RAILSHMEM_QUEUE_DEPTH


@dataclass(frozen=True)
class Phase:
    """How long a dispatch or a combine takes, and what of it is whose."""

    us: float
    parts: Mapping[str, float]  # µs, by resource

    @property
    def bound(self) -> str:
        """What takes longest."""
        return max(self.parts, key=lambda name: self.parts[name])


@dataclass(frozen=True)
class Round:
    """A layer's exchange on a cluster."""

    cluster: Cluster
    layer: Layer
    rows: Rows
    dispatch: Load
    combine: Load

    @classmethod
    def of(
        cls, cluster: Cluster, layer: Layer, routing: Routing, most_draws: int = MOST_DRAWS
    ) -> Round:
        """Draws the tokens' experts."""
        rows = count_rows(cluster, layer, routing, most_draws)
        return cls(
            cluster,
            layer,
            rows,
            dispatch_load(cluster, layer, rows),
            combine_load(cluster, layer, rows),
        )

    def times(self, network: Network) -> dict[str, Phase]:
        """By phase."""
        # A header goes before the rows, and counts before both; results only need a word.
        return {
            "dispatch": _phase(self.cluster, self.dispatch, network, headers=1),
            "combine": _phase(self.cluster, self.combine, network, headers=0),
        }


def crowding(cluster: Cluster, network: Network) -> float:
    """How many PEs share a core."""
    if not network.host_cores:
        return 1.0
    return max(1.0, cluster.pes_of_host / network.host_cores)


def _phase(cluster: Cluster, load: Load, network: Network, headers: int) -> Phase:
    crowd = crowding(cluster, network)
    nic = load.by_nic / (network.nic_gbs * 1e3) + load.messages * network.nic_message_us
    moved = np.maximum(load.writes, load.takes)
    local = crowd * float(moved.max()) / (network.local_gbs * 1e3)
    if network.host_gbs:
        hosts = cluster.hosts or cluster.nodes
        everything = float(load.writes.sum()) / hosts
        local = max(local, everything / (network.host_gbs * 1e3))
    busy = {
        "NICs": float(nic.max()),
        "posting": crowd * float(load.posted.max()) * network.pe_message_us,
        "inside nodes": local,
    }
    # Every PE tells its members how many rows each source whose rows it places has for them.
    words = cluster.pes * (1 + headers * cluster.nodes)
    trips = 1 + headers if cluster.nodes > 1 else 0
    waiting = (
        crowd * (network.pe_round_us + words * network.local_word_us)
        + trips * network.nic_latency_us
    )
    longest = max(busy.values())
    us = waiting + longest + (1 - network.overlap) * (sum(busy.values()) - longest)
    return Phase(us, {**busy, "latency": waiting})


@dataclass(frozen=True)
class Startup:
    """What init makes and takes, on the PE that has most."""

    us: float
    queue_pairs: int
    queue_bytes: int  # entries, completions and what the progress thread keeps of them
    heap_bytes: int  # receive buffers, in the heap


def startup(cluster: Cluster, network: Network, depth: int = SEND_DEPTH) -> Startup:
    """Init of a job whose PEs connect to all others."""
    pairs, queue_bytes = queue_pairs(cluster, depth)
    several = cluster.nodes > 1
    own = (
        (cluster.rails * network.init_register_us if several else 0.0)
        + (cluster.pes - 1) * network.init_map_us
        + pairs * network.init_connect_us
    )
    us = (
        network.init_us
        + EXCHANGES * log2(cluster.n_pes) * network.init_exchange_us
        + (cluster.n_pes - 1) * network.init_card_us
        + crowding(cluster, network) * own
    )
    heap = _core.model.receive_area(cluster.n_pes, cluster.lanes) if several else 0
    return Startup(us, pairs, queue_bytes, heap)


@cache
def queue_pairs(cluster: Cluster, depth: int = SEND_DEPTH) -> tuple[int, int]:
    """(queue pairs, bytes of their queues) of the PE of node 0 that has most.

    A job of one node needs none; nodes are alike, so node 0 stands for all.
    """
    if cluster.nodes == 1:
        return 0, 0
    of_slot = np.asarray(_core.model.queue_bytes(cluster.lanes, depth))
    most = (0, 0)
    for pe in range(cluster.pes):
        exist = cluster.topology.channel_rails(pe, cluster.lanes) >= 0
        most = max(most, (int(exist.sum()), int((exist * of_slot).sum())))
    return most
