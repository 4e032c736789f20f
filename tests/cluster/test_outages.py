"""A rail goes down, a host dies, in the middle of 100 rounds of expert parallelism."""

from __future__ import annotations

import re

import pytest

from cluster import HERE, Cluster, lines_of

ROUNDS = str(HERE / "programs/rounds.py")
TIMEOUT_S = 10


def test_nothing_happens(cluster: Cluster) -> None:
    done = cluster.run(ROUNDS, "nothing").well()
    assert lines_of(done.out, "PE ") == [f"PE {pe}: exact" for pe in range(4)]


@pytest.mark.parametrize("rail", ["rail0", "rail1"])
@pytest.mark.parametrize("how", ["unplug", "pull"])
def test_a_rail_goes_down(cluster: Cluster, how: str, rail: str) -> None:
    """Either nobody notices, or everybody raises in time and the text names rail and peer."""
    job = cluster.start(ROUNDS, how, rail, alone=True, RAILSHMEM_TIMEOUT_S=str(TIMEOUT_S))
    done = job.finish()
    said = lines_of(done.out, "PE ")
    assert len(said) == 4, done
    if said == [f"PE {pe}: exact" for pe in range(4)]:
        return
    print(done.out)
    for line in said:
        assert re.match(r"PE \d: (NetworkError|WaitTimeout|JobAborted) after", line), done
        assert re.search(r"(peer|to) PE \d", line), done
    assert any(re.search(r"rail \d", line) for line in said), done


def test_a_host_dies(cluster: Cluster) -> None:
    """Whoever waits for the dead host says so; a PE may wait for one that does."""
    job = cluster.start(ROUNDS, "kill", "host1", alone=True, RAILSHMEM_TIMEOUT_S=str(TIMEOUT_S))
    done = job.finish()
    said = lines_of(done.out, "PE ")
    assert [line[:5] for line in said] == ["PE 0:", "PE 1:"], done
    for line in said:
        assert re.match(r"PE \d: (NetworkError|WaitTimeout|PeerLost) after", line), done
    assert any(re.search(r"(peer|to) PE [23]", line) for line in said), done
