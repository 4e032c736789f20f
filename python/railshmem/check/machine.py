"""What the machine allows: limits, cores, memory and its speed. Nothing here communicates."""

from __future__ import annotations

import resource
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from railshmem.bench.report import size_text
from railshmem.check.findings import NOTE, OK, WRONG, Finding

HERE = "this machine"
# Per PE: queues and heaps of peers, their processes, files of Python and MPI.
FILES_OF_A_PE = 64
FILES_PER_PEER = 4
# Slower than any memory: something else is wrong, say a machine that swaps.
SLOWEST_COPY_GBS = 0.2
COPY_BYTES = 64 << 20


def machine(info: Mapping[str, Any], me: int, heap_bytes: int) -> list[Finding]:
    """The findings of one PE; `info` is Runtime.info(), `heap_bytes` what a heap holds."""
    return [
        open_files(len(info["pes"])),
        threads(info, me),
        memory(info, me, heap_bytes, _meminfo()),
    ]


def open_files(n_pes: int) -> Finding:
    """Descriptors that a PE may open, against what the job's size asks for."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    needed = FILES_OF_A_PE + FILES_PER_PEER * n_pes
    status = OK if limit == resource.RLIM_INFINITY or limit >= needed else WRONG
    said = "without limit" if limit == resource.RLIM_INFINITY else f"{limit} files"
    return Finding(HERE, "ulimit -n", status, f"{said}; {n_pes} PEs need about {needed} per PE")


def threads(info: Mapping[str, Any], me: int) -> Finding:
    """Threads that may be busy at once on this PE's host, against the cores it may use."""
    beside = [pe for pe in info["pes"] if pe["boot_id"] == info["pes"][me]["boot_id"]]
    per_pe = 2 if info["progress_thread"] else 1
    count = per_pe * len(beside)
    cores = max(pe["cores"] for pe in beside)
    said = f"{count} busy threads of {len(beside)} PEs on {cores} cores"
    if count <= cores:
        return Finding(HERE, "cores", OK, said)
    return Finding(HERE, "cores", NOTE, f"{said}: waits give their core away, which costs time")


def memory(
    info: Mapping[str, Any], me: int, heap_bytes: int, meminfo: Mapping[str, int]
) -> Finding:
    """The heaps of this host against its memory (bytes by the names of /proc/meminfo)."""
    beside = sum(pe["boot_id"] == info["pes"][me]["boot_id"] for pe in info["pes"])
    total, free = meminfo["MemTotal"], meminfo["MemAvailable"]
    said = (
        f"{beside} heaps of {size_text(heap_bytes)}; {size_text(free)} of {size_text(total)} "
        "are free, no limit of /dev/shm counts"
    )
    if beside * heap_bytes <= free:
        return Finding(HERE, "memory", OK, said)
    hint = f"{said}: filled heaps would not fit, see RAILSHMEM_HEAP_SIZE"
    return Finding(HERE, "memory", NOTE, hint)


def copy_gbs() -> float:
    """The speed of a plain copy, which is what a put into mapped memory comes down to."""
    source = np.ones(COPY_BYTES, np.uint8)
    target = np.zeros(COPY_BYTES, np.uint8)
    return COPY_BYTES / min(_seconds_of_copy(target, source) for _ in range(3)) / 1e9


def copying(slowest_gbs: float) -> Finding:
    """Judges the slowest PE's copy."""
    status = OK if slowest_gbs >= SLOWEST_COPY_GBS else WRONG
    return Finding(HERE, "copy", status, f"at least {slowest_gbs:.1f} GB/s while all PEs copy")


def _seconds_of_copy(target: np.ndarray, source: np.ndarray) -> float:
    started = time.perf_counter()
    np.copyto(target, source)
    return time.perf_counter() - started


def _meminfo() -> dict[str, int]:
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    parts = [line.split() for line in lines]
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in parts}
