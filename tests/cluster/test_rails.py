"""Who used which rail, by the counters of the wires."""

from __future__ import annotations

import pytest

from cluster import HERE, Cluster

MIB = 1 << 20
STREAMS = str(HERE / "programs/streams.py")
# MPI's start, barriers and acknowledgements.
NOISE = MIB


def carries(seen: int, payload: int) -> bool:
    """What a wire that carries the payload has seen: headers and barriers come on top."""
    return payload <= seen <= 1.1 * payload + NOISE


def nothing_crossed(cluster: Cluster) -> bool:
    """No host met a packet that came over another rail than its sender's."""
    for host in range(len(cluster.hosts)):
        names, values = (
            line.split()
            for line in cluster.on(host, "cat", "/proc/net/netstat").splitlines()
            if line.startswith("TcpExt:")
        )
        if dict(zip(names, values, strict=True))["IPReversePathFilter"] != "0":
            return False
    return True


def test_each_local_index_has_its_rail(cluster: Cluster) -> None:
    of_index = {"rail0": 24 * MIB, "rail1": 8 * MIB}
    cluster.run(STREAMS, "1", "24", "8").well()
    wires = cluster.wires()
    for host in (0, 1):
        for rail, payload in of_index.items():
            assert carries(wires[host, rail].sent, payload), wires
            assert carries(wires[host, rail].received, payload), wires
        assert wires[host, "ctl0"].sent < NOISE, wires
        assert wires[host, "ctl0"].received < NOISE, wires
    assert nothing_crossed(cluster)


@pytest.mark.parametrize("lanes", [1, 2])
def test_two_lanes_are_two_rails(cluster: Cluster, lanes: int) -> None:
    done = cluster.run(STREAMS, "2", "32", per_host=1, RAILSHMEM_LANES=str(lanes)).well()
    assert done.out.count("index 0") == 2
    wires = cluster.wires()
    payload = 32 * MIB // lanes
    for host in (0, 1):
        assert carries(wires[host, "rail0"].sent, payload), wires
        assert carries(wires[host, "rail1"].sent, payload if lanes == 2 else 0), wires
    assert nothing_crossed(cluster)


@pytest.mark.hosts("4x2")
def test_four_hosts(cluster: Cluster) -> None:
    cluster.run(STREAMS, "1", "8", per_host=1).well()
    wires = cluster.wires()
    for host in range(4):
        assert carries(wires[host, "rail0"].sent, 8 * MIB), wires
        assert carries(wires[host, "rail1"].sent, 0), wires
