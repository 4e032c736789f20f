"""Runs the checks on every shape of the job, and tells what all PEs found."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from mpi4py import MPI

import railshmem
from railshmem import RailshmemError, Runtime
from railshmem.bench.report import plain_table, plain_text
from railshmem.bootstrap import MpiBootstrap
from railshmem.check import atomics, traffic
from railshmem.check.fabric import Fabric
from railshmem.check.findings import NOT_RUN, OK, WRONG, Finding, json_text, judged
from railshmem.check.host.report import host_findings, look_at
from railshmem.check.host.tree import Tree
from railshmem.check.machine import copy_gbs, copying, machine

Check = Callable[[Fabric], list[str]]

# In the order in which they build on each other.
CHECKS: dict[str, Check] = {
    "heap": traffic.heap,
    "put": traffic.put_private,
    "put from heap": traffic.put_heap,
    "get": traffic.get,
    "signal SET": traffic.signal_set,
    "signal ADD": traffic.signal_add,
    "every lane": traffic.lanes,
    "order": traffic.order,
    "barrier": traffic.barrier,
    "atomics 32": atomics.atomics_32,
    "atomics 64": atomics.atomics_64,
    "contention": atomics.contention,
}
HEAP = "64M"


def check_hosts(comm: MPI.Comm, as_json: bool) -> bool:
    """Collective: looks at the hosts' networks, limits and settings, and prints the table on PE 0.

    Returns, on every PE alike, whether nothing is wrong.
    """
    findings = host_findings(comm.allgather(look_at(Tree())))
    return _told(comm, findings, as_json)


def check_machine(comm: MPI.Intracomm, timeout_s: float, as_json: bool) -> bool:
    """Collective, after shmem_init: runs every check and prints the table on PE 0.

    Returns, on every PE alike, whether nothing is wrong. A check that cannot go on ends after at
    most `timeout_s` seconds for each wait; the next one starts on fresh memory and queue pairs.
    """
    job = railshmem.runtime()
    info = job.info()
    told = comm.allgather(machine(info, comm.rank, job.heap_free))
    findings = host_findings(comm.allgather(look_at(Tree())))
    findings += _merged([finding for of_pe in told for finding in of_pe])
    findings.append(copying(min(comm.allgather(copy_gbs()))))
    for name, settings in shapes(info).items():
        findings += _Shape(comm, name, {**settings, **_own_settings(timeout_s)}).findings()
    return _told(comm, findings, as_json)


def _told(comm: MPI.Comm, findings: Sequence[Finding], as_json: bool) -> bool:
    if comm.rank == 0:
        sys.stdout.write(json_text(findings) if as_json else report(findings, comm.size))
        sys.stdout.flush()
    return all(finding.status != WRONG for finding in findings)


def shapes(info: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The job as it is and, where it is one node of one host, as emulated nodes and rails."""
    n_pes = len(info["pes"])
    rails = max(len(pe["nics"]) for pe in info["pes"])
    out = {"as started": _lanes(max(info["lanes"], rails))}
    if n_pes > 1 and len({pe["boot_id"] for pe in info["pes"]}) == 1 and info["n_nodes"] == 1:
        emulated = {"RAILSHMEM_RAILS": "2", **_lanes(2)}
        if n_pes > 2:
            out["2 emulated nodes"] = {"RAILSHMEM_NODES": "2", **emulated}
        out["a node per PE"] = {"RAILSHMEM_NODES": str(n_pes), **emulated}
    return out


def _lanes(count: int) -> dict[str, str]:
    """A lane for each rail, so that each is tried, and a context for each lane."""
    return {"RAILSHMEM_LANES": str(count), "RAILSHMEM_CONTEXTS": str(count)}


def report(findings: Sequence[Finding], n_pes: int) -> str:
    """The table, and the verdict as its last line."""
    table = plain_table()
    for name in ("on", "check"):
        table.add_column(name, no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("what was seen", overflow="fold")
    shown = ""
    for finding in findings:
        where = "" if finding.where == shown else finding.where
        shown = finding.where
        table.add_row(where, finding.check, finding.status, finding.text)
    wrong = [finding for finding in findings if finding.status == WRONG]
    places = sorted({f"{finding.check} ({finding.where})" for finding in wrong})
    verdict = f"WRONG: {', '.join(places)}" if wrong else "nothing is wrong"
    # Not folded: the last line is for those who read nothing else.
    return f"{plain_text(f'railshmem check, {n_pes} PEs', table)}\n{verdict}\n"


def _own_settings(timeout_s: float) -> dict[str, str]:
    return {
        "RAILSHMEM_HEAP_SIZE": HEAP,
        "RAILSHMEM_TIMEOUT_S": str(timeout_s),
        "RAILSHMEM_TRACE": "",  # the timeline is the job's own runtime's
    }


def _merged(findings: Sequence[Finding]) -> list[Finding]:
    """Lines that several PEs told alike become one."""
    return list(dict.fromkeys(sorted(findings, key=lambda finding: (finding.check, finding.text))))


class _Shape:
    """The checks on one shape of the job."""

    def __init__(self, comm: MPI.Intracomm, name: str, settings: Mapping[str, str]) -> None:
        self._comm = comm
        self._name = name
        self._settings = dict(settings)
        self._latest: Fabric | None = None

    def findings(self) -> list[Finding]:
        out: list[Finding] = []
        for number, (name, check) in enumerate(CHECKS.items(), 1):
            self._tell(f"{self._name}: {name} ({number} of {len(CHECKS)})")
            problems = self._agreed(self._start)
            if problems:
                out += judged(self._name, "init", problems, "")
                left = ", ".join(list(CHECKS)[number - 1 :])
                return [*out, Finding(self._name, left, NOT_RUN, "the runtime did not start")]
            if number == 1:
                out.append(self._paths())
            problems = self._agreed(partial(self._run, check))
            out += judged(self._name, name, problems, check.__doc__ or "")
        problems = self._agreed(self._finalize)
        return out + judged(self._name, "end", problems, "All PEs leave the job.")

    def _fabric(self) -> Fabric:
        """The runtime under test; a new one where there is none, or none any more."""
        if self._latest is None:
            timeout_s = float(self._settings["RAILSHMEM_TIMEOUT_S"])
            self._latest = Fabric(Runtime(MpiBootstrap(self._comm, timeout_s), self._settings))
        return self._latest

    def _start(self) -> list[str]:
        self._fabric()
        return []

    def _run(self, check: Check) -> list[str]:
        return check(self._fabric())

    def _finalize(self) -> list[str]:
        if self._latest is not None:
            self._latest.runtime.finalize()
        return []

    def _agreed(self, action: Callable[[], list[str]]) -> list[str]:
        """Collective: what all PEs found. After an error the runtime of every PE is given up."""
        problems: list[str] = []
        error = False
        try:
            problems = action()
        except RailshmemError as caught:
            error = True
            problems = [f"{caught} ({type(caught).__name__})"]
        everyone = self._comm.allgather((problems, error))
        if any(failed for _, failed in everyone):
            self._latest = None
        return list(dict.fromkeys(text for found, _ in everyone for text in found))

    def _paths(self) -> Finding:
        """Which transports and rails these checks try."""
        info = self._fabric().runtime.info()
        paths = sorted({p["path"] for a, row in enumerate(info["pairs"]) for p in row[:a]})
        rails = sorted({nic["rail"] for pe in info["pes"] for nic in pe["nics"]})
        text = f"transports {', '.join(paths) or 'none'}"
        if "PROXY" in paths:
            text += f"; rails {', '.join(map(str, rails))}"
        return Finding(self._name, "paths", OK, text)

    def _tell(self, text: str) -> None:
        """Progress, for those who wait."""
        if self._comm.rank == 0:
            sys.stderr.write(f"railshmem check: {text}\n")
            sys.stderr.flush()
