"""Tests that start jobs on several hosts, from outside of MPI. Each has hosts of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster import Cluster, cluster_of


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """2 hosts with 2 rails, or what @pytest.mark.hosts("SHAPE") says."""
    mark = request.node.get_closest_marker("hosts")
    with cluster_of(mark.args[0] if mark else "2x2") as made:
        yield made
