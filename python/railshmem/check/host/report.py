"""The findings of one host, or of all hosts of a job side by side."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from railshmem.check.findings import NOTE, OK, WRONG, Finding
from railshmem.check.host.gpus import gpus
from railshmem.check.host.limits import limits
from railshmem.check.host.networks import interfaces
from railshmem.check.host.rdma import rdma
from railshmem.check.host.tree import Tree


class Host(NamedTuple):
    """What one process found."""

    name: str
    boot_id: str
    findings: list[Finding]


def look_at(tree: Tree) -> Host:
    """Everything that can be known without communicating."""
    name = tree.text("/proc/sys/kernel/hostname") or "this host"
    boot = tree.text("/proc/sys/kernel/random/boot_id") or ""
    found = [*rdma(tree, name), *interfaces(tree, name), *limits(tree, name), *gpus(tree, name)]
    return Host(name, boot, found)


def host_findings(hosts: Sequence[Host]) -> list[Finding]:
    """Of all processes: what hosts tell alike is one line, so that differences stand out."""
    different = list({(host.name, host.boot_id): host for host in hosts}.values())
    everyone = {host.name for host in different}
    tellers: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for host in hosts:
        for finding in host.findings:
            names = tellers[(finding.check, finding.status, finding.text)]
            if host.name not in names:
                names.append(host.name)
    alike = [
        Finding(_where(names, everyone), check, status, text)
        for (check, status, text), names in tellers.items()
    ]
    return [*_identity(different), *sorted(alike, key=lambda f: not f.where.startswith("all "))]


def _where(names: Sequence[str], everyone: set[str]) -> str:
    if len(everyone) > 1 and set(names) == everyone:
        return f"all {len(everyone)} hosts"
    return ", ".join(sorted(names)[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _identity(hosts: Sequence[Host]) -> list[Finding]:
    """Names play no part in who shares memory, but reports use them."""
    by_name: dict[str, set[str]] = defaultdict(set)
    by_boot: dict[str, set[str]] = defaultdict(set)
    for host in hosts:
        by_name[host.name].add(host.boot_id)
        by_boot[host.boot_id].add(host.name)
    out = [
        Finding(name, "host name", NOTE, f"{len(boots)} machines have it: reports cannot tell them")
        for name, boots in by_name.items()
        if len(boots) > 1
    ]
    for boot, names in by_boot.items():
        if not boot:
            text = "no boot id: PEs of this host cannot see that they share it"
            out += [Finding(name, "boot id", WRONG, text) for name in sorted(names)]
        elif len(names) > 1:
            text = f"{', '.join(sorted(names))} run under one kernel, as containers do"
            out.append(Finding(min(names), "boot id", OK, text))
    return out
