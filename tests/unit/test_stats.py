"""railshmem.stats(): counts by transport and kind, and the difference of two looks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import railshmem
from railshmem import Runtime, ThreadBootstrap, ThreadJob


@pytest.fixture
def alone() -> Any:
    made = Runtime(ThreadBootstrap(ThreadJob(1, 10.0), 0), {"RAILSHMEM_HEAP_SIZE": "4M"})
    yield made
    made.finalize()


def test_host_operations_are_counted_by_kind(alone: Runtime) -> None:
    words = railshmem.symmetric_array(alone, 16, np.uint64)
    words[:] = 0
    before = railshmem.stats(of=alone)
    alone.put(words, np.ones(4, np.uint64), 0)
    alone.put(words, np.ones(1, np.uint64), 0)
    alone.get(np.zeros(2, np.uint64), words, 0)
    alone.put_signal(words, words[8:10], words[15:], 1, railshmem.SHMEM_SIGNAL_SET, 0)
    alone.atomic_add(words, 1, 0)
    alone.barrier_all()
    seen = railshmem.stats(since=before, of=alone)
    assert seen["pe"] == 0
    assert seen["rails"] == {}  # no NIC: no rail
    assert set(seen["proxy"].values()) == {0}
    assert seen["transports"]["P2P"] == {
        "put": {"operations": 3, "bytes": 56},
        "get": {"operations": 1, "bytes": 16},
        "atomic": {"operations": 1, "bytes": 8},
        "signal": {"operations": 1, "bytes": 8},
        "collective": {"operations": 1, "bytes": 0},
    }
    nothing = seen["transports"]["PROXY"].values()
    assert all(count == {"operations": 0, "bytes": 0} for count in nothing)
    # The look itself changed nothing: another observer sees the whole.
    total = railshmem.stats(of=alone)["transports"]["P2P"]["put"]["operations"]
    assert total == before["transports"]["P2P"]["put"]["operations"] + 3


def test_a_look_of_another_pe_cannot_be_subtracted(alone: Runtime) -> None:
    with pytest.raises(railshmem.ArgumentError, match="PE 5"):
        railshmem.stats(since={"pe": 5}, of=alone)
