"""Predictions as tables: time by size, bytes by rail, and which rail is hot and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from railshmem.bench.report import number_text, plain_table, plain_text, size_text
from railshmem.job_info import ranges
from railshmem.model.cluster import Cluster
from railshmem.model.network import Network
from railshmem.model.routing import Routing
from railshmem.model.times import Round, Startup
from railshmem.model.traffic import Counts

# Loads that differ by less are called equal.
EVEN = 1.05


def nic_bytes(round_: Round) -> Counts:
    """[nodes, rails] What the busier direction of each NIC carries in a round."""
    out: Counts = round_.dispatch.by_nic + round_.combine.by_nic
    return out


def hot_text(round_: Round) -> str:
    """Which rail is hot, and why."""
    cluster = round_.cluster
    load = nic_bytes(round_)
    mean = float(load.mean())
    if cluster.nodes == 1 or mean == 0:
        return "no NIC carries anything"
    node, rail = (int(i) for i in np.unravel_index(load.argmax(), load.shape))
    times = load[node, rail] / mean
    if times < EVEN:
        return f"no rail is hot: all NICs carry the same, within {100 * (times - 1):.1f} %"
    reasons = _rail_reasons(cluster, load, rail) + _node_reasons(round_, load, node)
    why = "; ".join(reasons) or "tokens happen to fall so; more of them even it out"
    return f"rail {rail} is hot on node {node}: its NIC carries {times:.2f}x the mean: {why}"


def _rail_reasons(cluster: Cluster, load: Counts, rail: int) -> list[str]:
    of_rail = load.mean(axis=0)
    times = of_rail[rail] / of_rail.mean()
    if times < EVEN:
        return []
    home = np.asarray(cluster.topology.home_rails())
    local = [int(i) for i in cluster.local_index[(home == rail) & (cluster.node == 0)]]
    idle = [int(i) for i in np.flatnonzero(of_rail == 0)]
    text = (
        f"rail {rail} has {times:.2f}x the mean of the rails, because "
        f"{cluster.pes} PEs of a node share {cluster.rails} rails and those of local index "
        f"{ranges(local)} are on this one"
    )
    return [text + (f", while rail {ranges(idle)} is idle" if idle else "")]


def _node_reasons(round_: Round, load: Counts, node: int) -> list[str]:
    of_node = load.mean(axis=1)
    times = of_node[node] / of_node.mean()
    if times < EVEN:
        return []
    rows = round_.rows.crossing.sum(axis=0)
    share = rows[node] / rows.sum()
    return [
        f"node {node} has {times:.2f}x the mean of the nodes, because its experts get "
        f"{100 * share:.1f} % of the rows that cross nodes, where {100 / rows.size:.1f} % is even"
    ]


def prediction_text(
    network: Network, routing: Routing, rounds: Sequence[Round], start: Startup
) -> str:
    """All tables."""
    cluster, layer = rounds[0].cluster, rounds[0].layer
    title = (
        f"{cluster.text} ({cluster.n_pes} PEs), {network.name}: predicted, not measured\n"
        f"rows of {layer.hidden} {layer.dtype}, {layer.experts} experts, top {layer.topk}, "
        f"{routing.text}, seed {routing.seed}"
    )
    largest = rounds[-1]
    return plain_text(
        title,
        "",
        _times(network, rounds),
        "",
        f"rails, {largest.layer.tokens} tokens",
        _rails(largest),
        width=118,
    ) + "\n".join(["", hot_text(largest), "", _startup_text(cluster, start), ""])


def _times(network: Network, rounds: Sequence[Round]) -> Any:
    table = plain_table()
    parts = ("NICs", "posting", "in nodes", "latency")
    for name in ("tokens", "drawn", "phase", "us", "most", *parts):
        table.add_column(name, justify="left" if name in ("phase", "most") else "right")
    table.add_column("a NIC's GB/s", justify="right")
    for round_ in rounds:
        loads = {"dispatch": round_.dispatch, "combine": round_.combine}
        for name, phase in round_.times(network).items():
            busiest = float(loads[name].by_nic.max())
            table.add_row(
                str(round_.layer.tokens),
                str(round_.rows.sampled),
                name,
                number_text(phase.us),
                phase.bound,
                *(number_text(part) for part in phase.parts.values()),
                number_text(busiest / phase.us / 1e3) if phase.us else "",
            )
    return table


def _rails(round_: Round) -> Any:
    table = plain_table()
    for name in ("rail", "dispatch", "combine", "of all", "busiest NIC", "on node", "x mean"):
        table.add_column(name, justify="right")
    dispatch, combine = round_.dispatch.by_rail, round_.combine.by_rail
    total = float(dispatch.sum() + combine.sum())
    load = nic_bytes(round_)
    for rail in range(round_.cluster.rails):
        node = int(load[:, rail].argmax())
        table.add_row(
            str(rail),
            size_text(int(dispatch[rail])),
            size_text(int(combine[rail])),
            f"{100 * (dispatch[rail] + combine[rail]) / total:.1f} %" if total else "",
            size_text(int(load[node, rail])),
            str(node),
            f"{load[node, rail] / load.mean():.2f}" if total else "",
        )
    return table


def _startup_text(cluster: Cluster, start: Startup) -> str:
    text = f"init: {number_text(start.us / 1e3)} ms"
    if cluster.nodes == 1:
        return f"{text}, no queue pairs"
    return (
        f"{text}; of each PE {start.queue_pairs} queue pairs "
        f"({start.queue_pairs * cluster.pes} on a host) with {size_text(start.queue_bytes)} of "
        f"queues, and {size_text(start.heap_bytes)} of receive buffers in its heap"
    )


def prediction_objects(
    network: Network, routing: Routing, rounds: Sequence[Round], start: Startup
) -> list[dict[str, Any]]:
    """The same for programs."""
    cluster = rounds[0].cluster
    origin: dict[str, Any] = {
        "network": network.name,
        "nodes": cluster.nodes,
        "pes_per_node": cluster.pes,
        "rails": cluster.rails,
        "lanes": cluster.lanes,
        "routing": routing.text,
        "seed": routing.seed,
    }
    out: list[dict[str, Any]] = []
    for round_ in rounds:
        layer = vars(round_.layer)
        loads = {"dispatch": round_.dispatch, "combine": round_.combine}
        for name, phase in round_.times(network).items():
            out.append(
                {
                    "model": f"ep_{name}",
                    "us": round(phase.us, 3),
                    "parts_us": {k: round(v, 3) for k, v in phase.parts.items()},
                    "rail_bytes": [int(b) for b in loads[name].by_rail],
                    "busiest_nic_bytes": int(loads[name].by_nic.max()),
                    "sampled": round_.rows.sampled,
                    **layer,
                    **origin,
                }
            )
        out[-1]["hot"] = hot_text(round_)
    out.append({"model": "init", **_rounded(vars(start)), **origin})
    return out


def _rounded(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: round(v, 3) if isinstance(v, float) else v for k, v in values.items()}
