"""Ways into a job and what init checks, with the faults that others had there."""

from __future__ import annotations

import os

import numpy as np
import pytest
from mpi4py import MPI

import railshmem
from jobs import SHAPES, emulated_only, emulation, job, settings_of
from railshmem import shmem
from railshmem.bootstrap import MpiBootstrap
from railshmem.errors import ArgumentError, InitError, RailshmemError
from spec_arrays import elements_of

SMALL = {"RAILSHMEM_HEAP_SIZE": "4M", "RAILSHMEM_TIMEOUT_S": "30"}


def ring(comm: MPI.Intracomm) -> None:
    """Every PE of the default runtime, which are the ranks of `comm`, gets its neighbour's rank."""
    me, n = railshmem.shmem_my_pe(), railshmem.shmem_n_pes()
    assert (me, n) == (comm.rank, comm.size)
    mine = railshmem.shmem_array(4, np.int64)
    mine[:] = MPI.COMM_WORLD.rank
    railshmem.shmem_barrier_all()
    seen = np.zeros(4, np.int64)
    railshmem.shmem_get(seen, mine, (me + 1) % n)
    assert seen.tolist() == [comm.allgather(MPI.COMM_WORLD.rank)[(me + 1) % n]] * 4
    railshmem.shmem_barrier_all()


@pytest.mark.mpi(min_size=2)
def test_two_disjoint_jobs_at_once_in_another_order(comm: MPI.Intracomm) -> None:
    part = comm.Split(comm.rank % 2, key=-comm.rank)
    nodes = min(2, part.size) if part.size > 1 else 0
    for settings in (SMALL, {**SMALL, **emulation(nodes, "")}):
        railshmem.shmem_init(part, settings=settings)
        ring(part)
        railshmem.shmem_finalize()
    part.Free()


@pytest.mark.mpi(min_size=2)
def test_a_job_of_some_ranks_leaves_the_others_alone(comm: MPI.Intracomm) -> None:
    even = comm.rank % 2 == 0
    part = comm.Split(0 if even else MPI.UNDEFINED, key=comm.rank)
    if even:
        railshmem.shmem_init(part, settings=SMALL)
        ring(part)
        railshmem.shmem_finalize()
        part.Free()
    else:
        with pytest.raises(ArgumentError, match=r"finalized|not been called"):
            railshmem.shmem_barrier_all()


def test_an_id_that_mpi_carried(comm: MPI.Intracomm) -> None:
    for maker in {0, comm.size - 1}:
        uid = comm.bcast(shmem.shmem_get_unique_id() if comm.rank == maker else None, maker)
        shmem.shmem_init(uid=uid, rank=comm.rank, n_pes=comm.size, settings=SMALL)
        ring(comm)
        railshmem.shmem_finalize()


def test_settings_that_differ_are_named_on_every_pe(comm: MPI.Intracomm) -> None:
    """An environment that differed between ranks changed the behaviour of some of them."""
    lanes = "2" if comm.rank == comm.size - 1 else "1"
    if comm.size == 1:
        pytest.skip("Test requires 2 MPI processes")
    with pytest.raises(InitError, match="RAILSHMEM_LANES=1 against RAILSHMEM_LANES=2"):
        railshmem.Runtime(MpiBootstrap(comm, 30), {**SMALL, "RAILSHMEM_LANES": lanes})


def test_the_network_interface_may_differ(comm: MPI.Intracomm) -> None:
    interface = "lo" if comm.rank == 0 else ""
    with job(comm, {**SMALL, "RAILSHMEM_INTERFACE": interface}) as runtime:
        assert runtime.n_pes == comm.size


def test_the_environment_is_read_once(comm: MPI.Intracomm, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment changed after init, and some ranks behaved differently from then on."""
    with job(comm, SMALL) as runtime:
        before = runtime.info()["settings"]
        free = runtime.heap_free
        for name in before:
            monkeypatch.setenv(name, "nonsense")
        assert runtime.info()["settings"] == before
        runtime.free(runtime.malloc(4096))
        assert runtime.heap_free == free
    assert os.environ["RAILSHMEM_LANES"] == "nonsense"


@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_and_twice_have_defined_answers(comm: MPI.Intracomm, shape: str) -> None:
    """malloc(0), free(NULL), realloc to less, finalize twice and use after finalize crashed."""
    runtime = railshmem.Runtime(MpiBootstrap(comm, 30), settings_of(shape, comm.size))
    free = runtime.heap_free
    nothing = runtime.malloc(0)
    assert (nothing.ptr, nothing.nbytes) == (0, 0)
    runtime.free(nothing)
    runtime.free(None)
    assert runtime.heap_free == free
    kept = runtime.malloc(256)
    elements_of(kept)[:] = 7
    kept = runtime.realloc(kept, 64)
    assert bytes(kept) == b"\7" * 64
    assert runtime.heap_free == free - 64
    runtime.finalize()
    runtime.finalize()
    for use in (
        lambda: runtime.malloc(8),
        lambda: runtime.free(kept),
        lambda: runtime.require_same("a", "b"),
    ):
        with pytest.raises(ArgumentError, match="was finalized"):
            use()
    assert len(bytes(kept)) == 64  # its memory stays


def test_an_exhausted_heap_names_sizes_and_setting(comm: MPI.Intracomm) -> None:
    """A null pointer came back and failed far from the cause."""
    with job(comm, SMALL) as runtime:
        with pytest.raises(
            railshmem.HeapExhausted, match=r"asked 5 MiB, free .* up to .*RAILSHMEM_HEAP_SIZE"
        ):
            runtime.malloc(5 << 20)
        runtime.free(runtime.malloc(1 << 20))


@emulated_only
def test_no_nic_is_needed_where_all_share_a_node(comm: MPI.Intracomm) -> None:
    """On a machine without any NIC init crashed, though all peers could map each other."""
    with job(comm, settings_of("one node", comm.size, RAILSHMEM_RAILS="0")) as runtime:
        info = runtime.info()
        assert [pe["nics"] for pe in info["pes"]] == [[]] * comm.size
        assert info["queue_pairs"] == 0
        assert not info["progress_thread"]


def test_thread_levels(comm: MPI.Intracomm) -> None:
    for level in (shmem.SHMEM_THREAD_SINGLE, shmem.SHMEM_THREAD_MULTIPLE):
        provided = shmem.shmem_init_thread(level, comm, settings=SMALL)
        assert provided == shmem.shmem_query_thread() == shmem.SHMEM_THREAD_MULTIPLE == 3
        railshmem.shmem_finalize()
    with pytest.raises(ArgumentError, match="level 4"):
        shmem.shmem_init_thread(4, comm)


def test_questions_about_the_job(comm: MPI.Intracomm) -> None:
    shmem.shmem_init(comm, settings=SMALL)
    assert shmem.shmem_info_get_version() == (1, 5)
    assert shmem.shmem_info_get_name().startswith("RailSHMEM ")
    inside, outside = railshmem.shmem_array(4), np.zeros(4)
    for pe in range(comm.size):
        assert shmem.shmem_pe_accessible(pe)
        assert shmem.shmem_addr_accessible(inside, pe)
        assert not shmem.shmem_addr_accessible(outside, pe)
    for pe in (-1, comm.size):
        assert not shmem.shmem_pe_accessible(pe)
        assert not shmem.shmem_addr_accessible(inside, pe)
    with pytest.raises(ArgumentError, match="status 256: expected 0 to 255"):
        shmem.shmem_global_exit(256)
    railshmem.shmem_finalize()


def test_every_pe_gets_what_is_meant_for_it(comm: MPI.Intracomm) -> None:
    bootstrap = MpiBootstrap(comm, 30)
    for nbytes in (1, 5, 1000):
        mine = b"".join(bytes([comm.rank, to]) * nbytes for to in range(comm.size))
        expected = b"".join(bytes([of, comm.rank]) * nbytes for of in range(comm.size))
        assert bootstrap.alltoall(mine) == expected


def test_a_failed_init_can_be_tried_again(comm: MPI.Intracomm) -> None:
    bad = {**SMALL, "RAILSHMEM_NODES": str(comm.size + 1)}
    with pytest.raises(RailshmemError, match="RAILSHMEM_NODES"):
        shmem.shmem_init(comm, settings=bad)
    shmem.shmem_init(comm, settings=SMALL)
    ring(comm)
    railshmem.shmem_finalize()
