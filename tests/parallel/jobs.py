"""Runtimes of many shapes inside one MPI job: what the parallel tests run their bodies on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from mpi4py import MPI

import railshmem
from railshmem.bootstrap import MpiBootstrap

# name -> (nodes for n PEs, emulated NICs)
SHAPES = {
    "one node": ("one", ""),
    "2 nodes": ("two", ""),
    "2 nodes, no atomics": ("two", "atomics=off"),
    "2 nodes, unordered": ("two", "ordered=off,region=1M"),
    "a node per PE": ("all", ""),
    "a node per PE, unordered, no atomics": ("all", "ordered=off,atomics=off,wakes=off"),
}


# The same bodies run on CPUs and on GPUs: tests/parallel/gpu holds what only GPUs have.
DEVICE = os.environ.get("RAILSHMEM_DEVICE", "cpu")
on_cpus = pytest.mark.skipif(DEVICE != "cpu", reason="of jobs on CPUs")

# The same bodies run over emulated NICs and, with "hosts", over those of the hosts that the job is
# on: every shape is then the job as it is, and tests/parallel/conftest.py keeps one of each test.
ON_HOSTS = os.environ.get("RAILSHMEM_TEST_SHAPE") == "hosts"
emulated_only = pytest.mark.skipif(ON_HOSTS, reason="of emulated nodes and NICs")
EMULATION_PARAMETERS = {"shape", "nodes", "ordered", "atomics"}


def emulation(nodes: int, nics: str) -> dict[str, str]:
    """The settings that make a job of so many nodes with such NICs, two on each."""
    if ON_HOSTS:
        return {}
    return {
        "RAILSHMEM_NODES": str(nodes),
        "RAILSHMEM_RAILS": "2",
        "RAILSHMEM_EMULATED": nics,
    }


def settings_of(shape: str, n_pes: int, **more: str) -> dict[str, str]:
    nodes, emulated = SHAPES[shape]
    count = {"one": 0, "two": min(2, n_pes), "all": n_pes}[nodes]
    return {
        "RAILSHMEM_DEVICE": DEVICE,
        **emulation(count, emulated),
        "RAILSHMEM_HEAP_SIZE": "64M",
        "RAILSHMEM_TIMEOUT_S": "30",
        **more,
    }


@contextmanager
def job(comm: MPI.Intracomm, settings: dict[str, str]) -> Iterator[railshmem.Runtime]:
    """A runtime of its own, finalized at the end unless the body failed."""
    runtime = railshmem.Runtime(MpiBootstrap(comm, 30), settings)
    yield runtime
    runtime.finalize()
