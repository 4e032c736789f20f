"""railshmem.stats(): what this PE has sent, by transport, kind and rail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from railshmem._core import Runtime
from railshmem.errors import ArgumentError
from railshmem.shmem import runtime


def stats(*, since: Mapping[str, Any] | None = None, of: Runtime | None = None) -> dict[str, Any]:
    """What this PE's threads have done since init, or since an earlier result of this function.

    Returns plain data, {"pe": this PE, "transports": ..., "rails": ..., "proxy": ...}:

    - "transports" maps "P2P" and "PROXY" to {"put", "get", "atomic", "signal", "collective"}, each
      {"operations": host calls, "bytes": of their payload}. A put with a signal counts as one of
      each. Atomics and collectives count as PROXY as soon as one peer of the job needs a NIC.
    - "rails" maps each rail to {"requests": work requests posted, "bytes": that they carry,
      "completions", "errors": of those, "doorbells"}: of host calls, of the library's own
      protocols and of kernels alike, so that it is more than "transports" says.
    - "proxy" is what the progress thread met: {"commands": taken from the ring, "replayed":
      requests posted once more on another rail, "failovers": queue pairs given up for another
      rail, "ring_full": posts that waited for room, "stalls": rounds in which a command waited,
      "credit_waits", "atomic_retries", "polls", "sleeps"}.

    What kernels copy through mapped memory is not counted. Counters only grow: there is no reset,
    so that two observers cannot spoil each other's figures; `since` subtracts. `of` is the runtime,
    by default the one that shmem_init made. Any thread may call it at any time; an operation of
    another thread is counted when it starts.
    """
    source = runtime() if of is None else of
    now = {"transports": source.operation_counts(), **source.proxy_statistics()}
    if since is not None:
        if since.get("pe") != source.my_pe:
            raise ArgumentError(
                f"stats: since is of PE {since.get('pe')}, this is PE {source.my_pe}"
            )
        now = _difference(now, since)
    return {"pe": source.my_pe, **now}


def _difference(now: Mapping[Any, Any], before: Mapping[Any, Any]) -> dict[Any, Any]:
    return {
        key: _difference(value, before.get(key, {}))
        if isinstance(value, Mapping)
        else value - before.get(key, 0)
        for key, value in now.items()
    }
