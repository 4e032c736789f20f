"""The demo and the suites of tests/parallel on 2 hosts x 2 PEs x 2 isolated rails, as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster import ROOT, Cluster

LIMIT_S = 400
# What only emulated NICs can show, and what needs a GPU's stand-in.
EXPECTED_SKIPS = "of emulated nodes and NICs"


def test_the_demo(cluster: Cluster) -> None:
    done = cluster.run(str(ROOT / "examples/moe_layer.py"), "--rounds", "3").well()
    assert "4 PEs, 2 nodes, 2 rails" in done.out


@pytest.mark.timeout(LIMIT_S + 30)
@pytest.mark.parametrize("suite", ["ep", "shmem"])
def test_a_suite(cluster: Cluster, suite: str, tmp_path: Path) -> None:
    everything = sorted(str(path) for path in (ROOT / "tests/parallel").glob("test_*.py"))
    files = [path for path in everything if ("test_ep" in path) == (suite == "ep")]
    counts = tmp_path / "counts"
    done = cluster.run(
        *("-m", "pytest", "--no-header", "--with-mpi", "-p", "no:cacheprovider", *files),
        *("--expect-skips", EXPECTED_SKIPS, "--counts", str(counts)),
        limit_s=LIMIT_S,
        RAILSHMEM_TEST_SHAPE="hosts",
    ).well()
    print(done.out)
    passed, failed, _ = map(int, counts.read_text().split())
    assert failed == 0
    assert passed > 30
