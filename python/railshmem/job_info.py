"""What `railshmem info` and `railshmem env` print: readable for 4 PEs, compact for 64."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rich.table import Table

from railshmem import _core
from railshmem.bench.report import plain_table, plain_text
from railshmem.errors import InitError

# Up to here every PE has a row and a column of its own; larger jobs are shown by node.
MANY_PES = 16


class Setting(NamedTuple):
    """A variable as init would read it now."""

    name: str
    value: str
    variable: str  # where the value comes from; empty: it is the default
    default: str
    meaning: str


def settings() -> list[Setting]:
    """Every setting of the library, by the one table in the code."""
    return [Setting(*row) for row in _core.settings_table()]


def settings_text() -> str:
    """The table of environment variables; values that are not the default are marked."""
    table = plain_table()
    table.add_column("variable", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("default", overflow="fold")
    table.add_column("meaning")
    for row in settings():
        mark = "" if row.variable in ("", row.name) else f" (from {row.variable})"
        value = f"{row.value} *{mark}" if row.variable else row.value
        table.add_row(row.name, value, row.default, row.meaning)
    title = "Settings, read once at init; all PEs must agree on them (*: set in the environment)"
    return plain_text(title, table)


def settings_json() -> str:
    """The same as a JSON list of objects with the fields of Setting."""
    return json.dumps([row._asdict() for row in settings()], indent=2) + "\n"


def settings_problem() -> str | None:
    """Why init would refuse this environment."""
    try:
        _core.check_settings()
    except InitError as error:
        return str(error)
    return None


def job_json(info: Mapping[str, Any]) -> str:
    """What Runtime.info returns as one JSON object; docs/info.md names its fields."""
    return json.dumps(info, indent=2) + "\n"


def job_text(info: Mapping[str, Any]) -> str:
    """Hosts, PEs, NICs, rails, and the transport of every pair with its reason."""
    pes: Sequence[Mapping[str, Any]] = info["pes"]
    few = len(pes) <= MANY_PES
    parts: list[Table | str] = [_summary(info)]
    parts += ["PEs", _pe_table(pes)] if few else ["Nodes", _node_table(pes)]
    parts += ["", "GPUs", _gpu_table(pes)] if info["device"] != "cpu" else []
    if any(pe["nics"] for pe in pes):
        parts += ["", f"NICs ({info['nic_provider']}: {info['nic_reason']})", _nic_table(pes)]
        parts += _reach_of_nics(pes)
    if few:
        parts += ["", "Transports, from row to column (rN: rail N)", _pair_matrix(info)]
    else:
        parts += ["", "Transports between the PEs of two nodes", _node_matrix(info)]
    if len(pes) > 1:
        parts += ["", "Reasons", _reason_table(info)]
    return plain_text(*parts)


def _summary(info: Mapping[str, Any]) -> str:
    pes = info["pes"]
    hosts = sorted({pe["host"] for pe in pes})
    machines = len({pe["boot_id"] for pe in pes})
    progress = "a progress thread" if info["progress_thread"] else "no progress thread"
    return (
        f"{_count(len(pes), 'PE')} on {_count(info['n_nodes'], 'node')}, "
        f"{_count(machines, 'machine')} ({', '.join(hosts[:4])}{', ...' if hosts[4:] else ''}); "
        f"per PE: {_count(info['queue_pairs'], 'queue pair')}, "
        f"{_count(info['lanes'], 'lane')} to a remote peer, {progress}\n"
        f"heaps in {_heaps(info)}\n"
    )


def _heaps(info: Mapping[str, Any]) -> str:
    if info["device"] != "cpu":
        return f"GPU memory ({info['device']})"
    return f"host memory: {info['pes'][0]['device_reason']}"


def _pe_table(pes: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("PE", "host", "pid", "node", "local index", "NICs (rail)", "home rail")
    for pe in pes:
        nics = ", ".join(f"{nic['name']} ({nic['rail']})" for nic in pe["nics"])
        home = pe["home_rail"]
        table.add_row(
            *(str(pe[key]) for key in ("pe", "host", "pid", "node", "local_index")),
            nics or "none",
            str(home) if home >= 0 else "-",
        )
    return table


def _node_table(pes: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("node", "host", "PEs", "pids", "NICs of each PE (rail)")
    for node, members in sorted(_grouped(pes, lambda pe: pe["node"]).items()):
        nics = {", ".join(f"{n['name']} ({n['rail']})" for n in pe["nics"]) for pe in members}
        table.add_row(
            str(node),
            ", ".join(sorted({pe["host"] for pe in members})),
            ranges(pe["pe"] for pe in members),
            ranges(pe["pid"] for pe in members),
            " | ".join(sorted(nics)) or "none",
        )
    return table


def _gpu_table(pes: Sequence[Mapping[str, Any]]) -> Table:
    """A row for each PE of a small job; else PEs of one kind of GPU share one."""
    table = _table("PEs", "GPU", "name", "memory", "bus", "why this one")
    if len(pes) <= MANY_PES:
        for pe in pes:
            gpu = pe["gpu"]
            index, name, memory = str(gpu["index"]), _gpu_name(gpu), _gib(gpu["memory_bytes"])
            table.add_row(str(pe["pe"]), index, name, memory, gpu["bus_id"], pe["device_reason"])
        return table
    kinds = _grouped(pes, lambda pe: (_gpu_name(pe["gpu"]), _gib(pe["gpu"]["memory_bytes"])))
    for (name, memory), members in sorted(kinds.items()):
        users = ranges(pe["pe"] for pe in members)
        table.add_row(users, ranges({pe["gpu"]["index"] for pe in members}), name, memory, "", "")
    return table


def _gpu_name(gpu: Mapping[str, Any]) -> str:
    return f"{gpu['name']} ({gpu['architecture']})"


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"


def _nic_table(pes: Sequence[Mapping[str, Any]]) -> Table:
    """NICs of the same PEs with the same capabilities share a row."""
    owners: dict[tuple[int, str, str], list[int]] = defaultdict(list)
    for pe in pes:
        for nic in pe["nics"]:
            can = _capabilities(nic["capabilities"]) + ("" if nic["answers"] else "; NO ANSWER")
            owners[(nic["rail"], nic["name"], can)].append(pe["pe"])
    alike: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for (rail, name, can), users in sorted(owners.items()):
        alike[(ranges(users), can)].append((rail, name))
    table = _table("NICs", "rails", "of PEs", "can")
    for (users_text, can), nics in alike.items():
        names = list(dict.fromkeys(name for _, name in nics))
        table.add_row(", ".join(names), ranges({rail for rail, _ in nics}), users_text, can)
    return table


def _capabilities(found: Mapping[str, Any]) -> str:
    words = []
    for name, value in found.items():
        label = name.replace("_", " ")
        if isinstance(value, bool):
            words.append(label if value else f"no {label}")
        else:
            words.append(f"{label} {value}")
    return ", ".join(words)


def _reach_of_nics(pes: Sequence[Mapping[str, Any]]) -> list[Table | str]:
    """Which NICs of different nodes reach each other; nothing for one node, or many NICs."""
    firsts = [members[0] for _, members in sorted(_grouped(pes, lambda pe: pe["node"]).items())]
    nics = [(pe["node"], nic) for pe in firsts for nic in pe["nics"]]
    if len(firsts) < 2 or len(nics) > MANY_PES:
        return []
    table = _table("node: NIC")
    for node, nic in nics:
        table.add_column(f"{node}: {nic['name']}")
    for node, nic in nics:
        cells = [_reach(node == other_node, nic, other) for other_node, other in nics]
        table.add_row(f"{node}: {nic['name']}", *cells)
    return ["", "From NIC to NIC (other rail: cannot reach)", table]


def _reach(same_node: bool, nic: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    if same_node:
        return "-"
    if nic["rail"] != other["rail"]:
        return "other rail"
    return f"rail {nic['rail']}" if nic["answers"] and other["answers"] else "no answer"


def _pair_matrix(info: Mapping[str, Any]) -> Table:
    pairs = info["pairs"]
    table = _table("PE")
    for pe in range(len(pairs)):
        table.add_column(str(pe))
    for pe, row in enumerate(pairs):
        cells = [
            "self" if to == pe else _pair_word(pair["path"], pair["rail"])
            for to, pair in enumerate(row)
        ]
        table.add_row(str(pe), *cells)
    return table


def _node_matrix(info: Mapping[str, Any]) -> Table:
    members = _grouped(info["pes"], lambda pe: pe["node"])
    nodes = sorted(members)
    table = _table("node")
    for node in nodes[:MANY_PES]:
        table.add_column(str(node))
    for node in nodes[:MANY_PES]:
        row = []
        for other in nodes[:MANY_PES]:
            paths = {
                info["pairs"][a["pe"]][b["pe"]]["path"]
                for a in members[node]
                for b in members[other]
                if a["pe"] != b["pe"]
            }
            row.append("+".join(sorted(paths)) or "self")
        table.add_row(str(node), *row)
    if len(nodes) > MANY_PES:
        table.caption = f"the first {MANY_PES} of {len(nodes)} nodes"
    return table


def _pair_word(path: str, rail: int) -> str:
    return f"{path} r{rail}" if rail >= 0 and path not in ("P2P", "none") else path


def _reason_table(info: Mapping[str, Any]) -> Table:
    """Pairs grouped by what was chosen and why; rails that differ are counted inside a group."""
    groups: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    rails: dict[tuple[str, str], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for a, row in enumerate(info["pairs"]):
        for b, pair in enumerate(row):
            if a == b:
                continue
            key = (pair["path"], re.sub(r"rail \d+", "rail N", pair["reason"]))
            groups[key].append((a, b))
            if pair["path"] not in ("P2P", "none"):
                rails[key][pair["rail"]] += 1
    table = _table("transport", "pairs", "rails (pairs)", "why", "for example")
    for (path, reason), pairs in sorted(groups.items()):
        used = rails[(path, reason)]
        table.add_row(
            path,
            str(len(pairs)),
            ", ".join(f"{rail} ({count})" for rail, count in sorted(used.items())) or "-",
            reason,
            ", ".join(f"{a}->{b}" for a, b in pairs[:3]),
        )
    return table


def _table(*columns: str) -> Table:
    table = plain_table()
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _grouped(pes: Iterable[Mapping[str, Any]], key: Any) -> dict[Any, list[Mapping[str, Any]]]:
    groups: dict[Any, list[Mapping[str, Any]]] = defaultdict(list)
    for pe in pes:
        groups[key(pe)].append(pe)
    return groups


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def ranges(numbers: Iterable[int]) -> str:
    """[0, 1, 2, 5] -> "0-2, 5"."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
