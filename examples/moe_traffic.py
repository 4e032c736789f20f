"""Who sends how much to whom in one round, over which transport and rail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Flow:
    """What one PE sends to another in dispatch, and how."""

    source: int
    target: int
    transport: str
    rail: int | None
    rows: int
    bytes: int  # dispatch and combine together
    commands: int | None


def flows(
    info: Mapping[str, Any],
    goes: np.ndarray,
    source: np.ndarray,
    round_trip_bytes: int,
    posted: Sequence[Sequence[Mapping[str, int]]],
) -> list[Flow]:
    """The flows of one round, other than a PE's to itself.

    `goes` [T, n_pes] says where each token has experts, `source` [T] whose token it is. P2P traffic
    is counted from the routing; `posted` [pe] is what that PE's NICs were asked to do, as measured.
    """
    node = [pe["node"] for pe in info["pes"]]
    members = {n: [pe for pe, own in enumerate(node) if own == n] for n in set(node)}
    out = []
    for a in range(len(node)):
        # A PE writes to its node's PEs its own tokens and those it forwards from other nodes.
        through = np.array([_entry(node, members, pe, node[a]) == a for pe in range(len(node))])
        for b in members[node[a]]:
            if a != b:
                rows = int((goes[:, b] & through[source]).sum())
                out.append(Flow(a, b, "P2P", None, rows, rows * round_trip_bytes, None))
        for entry in posted[a]:
            if entry["bytes"] or entry["commands"]:
                b = entry["pe"]
                there = goes[:, members[node[b]]].any(axis=1)
                rows = int((there & (source == a)).sum())
                out.append(
                    Flow(a, b, "PROXY", entry["rail"], rows, entry["bytes"], entry["commands"])
                )
    return out


def _entry(node: Sequence[int], members: Mapping[int, Sequence[int]], pe: int, into: int) -> int:
    """The PE of node `into` that takes in what `pe` sends there; `pe` itself in its own node."""
    if node[pe] == into:
        return pe
    ours, theirs = members[node[pe]], members[into]
    return theirs[ours.index(pe) % min(len(ours), len(theirs))]
