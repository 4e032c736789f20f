"""What the system lets a process have: locked memory, shared memory, pages, clocks, settings."""

from __future__ import annotations

import os
import re
import resource

from railshmem import _core
from railshmem.bench.report import size_text
from railshmem.check.findings import NOTE, OK, WRONG, Finding
from railshmem.check.host.rdma import ports
from railshmem.check.host.tree import Tree
from railshmem.errors import InitError

LEAST_SHM = 64 << 20


def limits(tree: Tree, host: str) -> list[Finding]:
    """All of this file."""
    found = [
        memory_lock(tree, host),
        _shared_memory(tree, host),
        _pages(tree, host),
        _governor(tree, host),
        *_settings(tree, host),
    ]
    return [finding for finding in found if finding is not None]


def memory_lock(tree: Tree, host: str) -> Finding:
    """Real NICs pin the memory they register; emulated ones and TCP do not."""
    limit = _lock_limit(tree)
    if limit is None:
        return Finding(host, "ulimit -l", OK, "memory may be locked without limit")
    said = f"{size_text(limit)} may be locked"
    if not ports(tree):
        return Finding(host, "ulimit -l", NOTE, f"{said}: enough here; RDMA NICs need the heap's")
    hint = (
        f"{said}, and RDMA NICs need the heap's size: `* - memlock unlimited` in "
        "/etc/security/limits.conf, LimitMEMLOCK=infinity for the scheduler's service, "
        "--ulimit memlock=-1 for containers"
    )
    return Finding(host, "ulimit -l", WRONG, hint)


def _lock_limit(tree: Tree) -> int | None:
    told = re.search(r"^Max locked memory\s+(\S+)", tree.text("/proc/self/limits") or "", re.M)
    if told is not None:
        return None if told.group(1) == "unlimited" else int(told.group(1))
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _shared_memory(tree: Tree, host: str) -> Finding | None:
    try:
        found = os.statvfs(tree.path("/dev/shm"))
    except OSError:
        text = "missing: MPI libraries keep their own shared memory there; heaps need none of it"
        return Finding(host, "/dev/shm", NOTE, text)
    size = found.f_blocks * found.f_frsize
    if size > LEAST_SHM:
        return Finding(host, "/dev/shm", OK, f"{size_text(size)}; heaps need none of it")
    text = f"{size_text(size)}: heaps need none of it, but MPI may: --shm-size for containers"
    return Finding(host, "/dev/shm", NOTE, text)


def _pages(tree: Tree, host: str) -> Finding | None:
    chosen = re.search(r"\[(\w+)\]", tree.text("/sys/kernel/mm/transparent_hugepage/enabled") or "")
    shmem = re.search(
        r"\[(\w+)\]", tree.text("/sys/kernel/mm/transparent_hugepage/shmem_enabled") or ""
    )
    if chosen is None:
        return None
    reserved = re.search(r"^HugePages_Total:\s+(\d+)", tree.text("/proc/meminfo") or "", re.M)
    text = (
        f"transparent: {chosen.group(1)}, for shared memory: {shmem.group(1) if shmem else '?'}; "
        f"reserved: {reserved.group(1) if reserved else '?'}, which heaps do not take"
    )
    return Finding(host, "huge pages", OK, text)


def _governor(tree: Tree, host: str) -> Finding | None:
    found = {
        tree.text(name)
        for name in tree.found("/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor")
    }
    names = sorted(name for name in found if name)
    if not names:
        return None
    if names == ["performance"]:
        return Finding(host, "CPU governor", OK, "performance")
    text = (
        f"{', '.join(names)}: short waits find slow cores; `cpupower frequency-set -g performance`"
    )
    return Finding(host, "CPU governor", NOTE, text)


def _settings(tree: Tree, host: str) -> list[Finding]:
    known = {row[0] for row in _core.settings_table()}
    given = sorted(name for name in tree.environment if name.startswith("RAILSHMEM_"))
    unknown = [name for name in given if name not in known]
    out = []
    if unknown:
        text = f"{', '.join(unknown)}: no such setting; `railshmem env` lists them"
        out.append(Finding(host, "settings", WRONG, text))
    try:
        _core.check_settings()
    except InitError as error:
        out.append(Finding(host, "settings", WRONG, str(error)))
    if not out:
        said = ", ".join(f"{name}={tree.environment[name]}" for name in given)
        out.append(Finding(host, "settings", OK, said or "all as by default"))
    return out
