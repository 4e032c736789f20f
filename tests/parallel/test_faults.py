"""Rails that go down, requests that fail and requests held up, between real processes."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

import railshmem
from jobs import emulated_only, job, settings_of
from railshmem import SHMEM_CMP_GE, SHMEM_SIGNAL_SET, symmetric_array

pytestmark = [pytest.mark.mpi(min_size=2), emulated_only]

SHAPES = ["2 nodes", "2 nodes, unordered", "2 nodes, no atomics", "a node per PE"]
OUTAGES = {
    "with a request of every NIC": "rail=0@80",
    "on one PE only": "pe=0,rail=0@60",
    "by time, with delays": "rail=0@30ms,delay=0.02:200us,reorder=on",
}


def stream(rt: railshmem.Runtime, rounds: int) -> None:
    """Data and its signal to the PE half way round, on rail 0 for the first of each node; whoever
    sees a signal sees its data."""
    data = symmetric_array(rt, 700, np.uint64)
    words = symmetric_array(rt, 2, np.uint64)
    words[:] = 0
    rt.barrier_all()
    arrived, taken = words[:1], words[1:]
    half = rt.n_pes // 2
    to, back_to = (rt.my_pe + half) % rt.n_pes, (rt.my_pe - half) % rt.n_pes
    for number in range(1, rounds + 1):
        source = np.full(700, number, np.uint64)
        rt.put_signal(data, source, arrived, number, SHMEM_SIGNAL_SET, to)
        assert rt.signal_wait_until(arrived, SHMEM_CMP_GE, number) == number
        assert (data == number).all()
        rt.put_signal(data[:0], source[:0], taken, number, SHMEM_SIGNAL_SET, back_to)
        rt.signal_wait_until(taken, SHMEM_CMP_GE, number)
    read = np.empty(700, np.uint64)
    rt.get(read, data, to)
    assert (read == rounds).all()
    rt.barrier_all()


@pytest.mark.parametrize("outage", OUTAGES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_dead_rail_is_nothing_that_its_users_see(
    comm: MPI.Intracomm, shape: str, outage: str
) -> None:
    settings = settings_of(shape, comm.size, RAILSHMEM_FAULTS=OUTAGES[outage])
    with job(comm, settings) as rt:
        before = {(row["pe"], row["rail"]) for row in rt.proxy_traffic()}
        stream(rt, 120)
        moved = {(row["pe"], row["rail"]) for row in rt.proxy_traffic()} != before
        assert any(comm.allgather(moved)) or "ms" in OUTAGES[outage]


def test_without_another_rail_the_error_names_both(comm: MPI.Intracomm) -> None:
    settings = settings_of("a node per PE", comm.size, RAILSHMEM_RAILS="1")
    settings["RAILSHMEM_FAULTS"] = "pe=0,rail=0@60"
    settings["RAILSHMEM_TIMEOUT_S"] = "3"
    errors = (railshmem.NetworkError, railshmem.WaitTimeout, railshmem.JobAborted)
    rt = railshmem.Runtime(railshmem.bootstrap.MpiBootstrap(comm, 30), settings)
    with pytest.raises(errors) as caught:
        stream(rt, 1000)
    if comm.rank == 0:
        assert caught.type is railshmem.NetworkError
        assert "peer unreachable" in str(caught.value)
        assert "no other rail joins PE 0 and PE" in str(caught.value)
    comm.barrier()  # nobody takes its memory away while another still uses it


@pytest.mark.parametrize("shape", SHAPES)
def test_delays_and_reordered_completions_cost_time_only(comm: MPI.Intracomm, shape: str) -> None:
    faults = "delay=0.05:100us,reorder=on"
    with job(comm, settings_of(shape, comm.size, RAILSHMEM_FAULTS=faults)) as rt:
        stream(rt, 50)
