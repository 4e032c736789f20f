"""Hosts whose NICs differ in number, name and order."""

from __future__ import annotations

import json

import pytest

from cluster import HERE, Cluster, lines_of

UNLIKE = "rail0=0,rail1=1/b1=1,a0=0/rail0=0"
STREAMS = str(HERE / "programs/streams.py")
ROUNDS = str(HERE / "programs/rounds.py")
INFO = ("-m", "railshmem.cli", "info")


@pytest.mark.hosts(UNLIKE)
def test_rails_are_found_by_what_they_reach(cluster: Cluster) -> None:
    info = json.loads(cluster.run(*INFO, "--json", "-").well().out)
    rails = [{nic["name"]: nic["rail"] for nic in pe["nics"]} for pe in info["pes"]]
    same_rail = {rails[0]["rail0"], rails[2]["a0"], rails[4]["rail0"]}
    other_rail = {rails[0]["rail1"], rails[2]["b1"]}
    assert len(same_rail) == len(other_rail) == 1
    assert same_rail != other_rail
    # Only one rail joins the last host to the others.
    assert {pair["rail"] for row in info["pairs"][:4] for pair in row[4:]} == same_rail


@pytest.mark.hosts(UNLIKE)
def test_the_job_runs(cluster: Cluster) -> None:
    cluster.run(STREAMS, "1", "4", "4").well()
    done = cluster.run(ROUNDS, "nothing", per_host=1).well()
    assert done.out.count(": exact") == 3


@pytest.mark.hosts(UNLIKE)
def test_info_says_which_nics_cannot_reach_each_other(cluster: Cluster) -> None:
    shown = cluster.run(*INFO, per_host=1).well().out
    table = shown[shown.index("other rail: cannot reach") :]
    rows = {line.split()[1]: line for line in lines_of(table, "0: ") + lines_of(table, "1: ")}
    assert rows["rail1"].count("other rail") == 2  # a0 of host 1, rail0 of host 2
    assert rows["b1"].count("other rail") == 2  # rail0 of hosts 0 and 2


# Prints what init raises on each PE.
INIT = """
import railshmem
try:
    railshmem.shmem_init()
except railshmem.InitError as error:
    print(f"raised: {error}\\n", end="", flush=True)
"""


@pytest.mark.hosts("rail0=0/rail1=1")
def test_hosts_that_no_rail_joins_are_named_on_every_pe(cluster: Cluster) -> None:
    done = cluster.run("-c", INIT, per_host=1).well()
    assert len(lines_of(done.out, "raised: ")) == 2
    assert done.out.count("PE 0 cannot reach PE 1: other host; PE 0 has no NIC that answers") == 2


def test_without_a_nic_every_pe_says_why(cluster: Cluster) -> None:
    done = cluster.run("-c", INIT, RAILSHMEM_PROVIDER="auto", RAILSHMEM_NICS="absent0").well()
    assert len(lines_of(done.out, "raised: ")) == 4
    assert done.out.count("absent0") >= 4
