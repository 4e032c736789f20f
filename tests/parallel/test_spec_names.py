"""The names of the specification, on the default runtime: each is called once and its result seen.

What the calls do is tested on runtimes of every shape (test_spec_rma.py and its neighbours); here
it is that the right call answers to the name, with a context and without.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
from mpi4py import MPI

import railshmem as rs
from jobs import settings_of
from railshmem import (
    SHMEM_CMP_EQ,
    SHMEM_CMP_GE,
    SHMEM_CMP_NE,
    SHMEM_CTX_DEFAULT,
    SHMEM_CTX_INVALID,
    SHMEM_SIGNAL_ADD,
    SHMEM_SIGNAL_SET,
    SHMEM_TEAM_WORLD,
)
from spec_arrays import default_job, elements_of

pytestmark = [
    pytest.mark.mpi(min_size=2),
    pytest.mark.parametrize("shape", ["one node", "2 nodes, no atomics"]),
]


def zeros(count: int, dtype: type) -> np.ndarray:
    """Collective: a symmetric array that is 0 on every PE when it returns."""
    array = rs.shmem_array(count, dtype)
    array[:] = 0
    rs.shmem_barrier_all()
    return array


@contextmanager
def contexts() -> Iterator[list[object]]:
    """The default context by its handle, one of the world and one of a team numbered alike."""
    team = rs.shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, rs.shmem_n_pes())
    made = [rs.shmem_ctx_create(), rs.shmem_team_create_ctx(team)]
    yield [SHMEM_CTX_DEFAULT, *made]
    for ctx in made:
        rs.shmem_ctx_destroy(ctx)
    rs.shmem_team_destroy(team)


def neighbours() -> tuple[int, int]:
    me, n = rs.shmem_my_pe(), rs.shmem_n_pes()
    return (me + 1) % n, (me - 1) % n


# ---- 9.5 ----


def test_context_names(comm: MPI.Intracomm, shape: str) -> None:
    with default_job(comm, shape):
        team = rs.shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, comm.size)
        plain = rs.shmem_ctx_create(rs.SHMEM_CTX_PRIVATE)
        of_team = rs.shmem_team_create_ctx(team, rs.SHMEM_CTX_SERIALIZED)
        assert rs.shmem_ctx_get_team(plain).pes == team.pes
        assert rs.shmem_ctx_get_team(of_team) is team
        assert rs.shmem_ctx_get_team(SHMEM_CTX_DEFAULT).pes == team.pes
        assert rs.shmem_ctx_get_team(SHMEM_CTX_INVALID) is None
        for ctx in (plain, of_team):
            rs.shmem_ctx_destroy(ctx)
            for call in (rs.shmem_ctx_quiet, rs.shmem_ctx_get_team, rs.shmem_ctx_destroy):
                with pytest.raises(rs.ArgumentError, match="destroyed"):
                    call(ctx)
        rs.shmem_team_destroy(team)


# ---- 9.6 ----


def test_rma_names(comm: MPI.Intracomm, shape: str) -> None:
    with default_job(comm, shape):
        to, before = neighbours()
        me = rs.shmem_my_pe() + 1
        a = zeros(8, np.int32)
        rs.shmem_put(a, np.array([me], np.int32), to)
        rs.shmem_put_nbi(a[1:], np.array([me * 2], np.int32), to)
        rs.shmem_p(a[2:], me * 3, to)
        rs.shmem_iput(a[3:], np.array([me * 4, 0, me * 5], np.int32), 2, 2, 2, to)
        rs.shmem_barrier_all()
        theirs = before + 1
        expected = [theirs, theirs * 2, theirs * 3, theirs * 4, 0, theirs * 5, 0, 0]
        assert a.tolist() == expected
        got = np.zeros(4, np.int32)
        rs.shmem_get(got[:1], a, to)
        rs.shmem_get_nbi(got[1:2], a[1:], to)
        rs.shmem_iget(got[2:], a[3:], 1, 2, 2, to)
        rs.shmem_quiet()
        assert got.tolist() == [me, me * 2, me * 4, me * 5]
        assert rs.shmem_g(a[2:], to) == me * 3
        rs.shmem_barrier_all()


def test_ctx_rma_names(comm: MPI.Intracomm, shape: str) -> None:
    with default_job(comm, shape), contexts() as every:
        to, before = neighbours()
        a = zeros(8, np.int64)
        for turn, ctx in enumerate(every, 1):
            me = (rs.shmem_my_pe() + 1) * turn
            rs.shmem_ctx_put(ctx, a, np.array([me]), to)
            rs.shmem_ctx_put_nbi(ctx, a[1:], np.array([me * 2]), to)
            rs.shmem_ctx_p(ctx, a[2:], me * 3, to)
            rs.shmem_ctx_iput(ctx, a[3:], np.array([me * 4, 0, me * 5]), 2, 2, 2, to)
            rs.shmem_ctx_fence(ctx)
            rs.shmem_ctx_quiet(ctx)
            rs.shmem_barrier_all()
            theirs = (before + 1) * turn
            assert a.tolist() == [theirs, theirs * 2, theirs * 3, theirs * 4, 0, theirs * 5, 0, 0]
            got = np.zeros(4, np.int64)
            rs.shmem_ctx_get(ctx, got[:1], a, to)
            rs.shmem_ctx_get_nbi(ctx, got[1:2], a[1:], to)
            rs.shmem_ctx_iget(ctx, got[2:], a[3:], 1, 2, 2, to)
            rs.shmem_ctx_quiet(ctx)
            assert got.tolist() == [me, me * 2, me * 4, me * 5]
            assert rs.shmem_ctx_g(ctx, a[2:], to) == me * 3
            rs.shmem_barrier_all()
        for wrong in (SHMEM_CTX_INVALID, 5):
            with pytest.raises(rs.ArgumentError, match="is no context"):
                rs.shmem_ctx_put(wrong, a, a, to)


# ---- 9.7 ----


def test_atomic_names(comm: MPI.Intracomm, shape: str) -> None:
    with default_job(comm, shape):
        to, _ = neighbours()
        a = zeros(1, np.int64)
        rs.shmem_atomic_set(a, 5, to)
        rs.shmem_fence()
        rs.shmem_atomic_add(a, -12, to)
        rs.shmem_atomic_inc(a, to)
        rs.shmem_quiet()
        assert rs.shmem_atomic_fetch(a, to) == -6
        assert rs.shmem_atomic_swap(a, 12, to) == -6
        assert rs.shmem_atomic_compare_swap(a, 12, 20, to) == 12
        assert rs.shmem_atomic_fetch_add(a, 2, to) == 20
        assert rs.shmem_atomic_fetch_inc(a, to) == 22
        assert rs.shmem_atomic_fetch_and(a, 7, to) == 23
        assert rs.shmem_atomic_fetch_or(a, 8, to) == 7
        assert rs.shmem_atomic_fetch_xor(a, 1, to) == 15
        rs.shmem_atomic_and(a, 6, to)
        rs.shmem_quiet()
        rs.shmem_atomic_or(a, 17, to)
        rs.shmem_quiet()
        rs.shmem_atomic_xor(a, 3, to)
        rs.shmem_barrier_all()
        assert a[0] == 20


def test_atomic_nbi_names(comm: MPI.Intracomm, shape: str) -> None:
    with default_job(comm, shape):
        to, _ = neighbours()
        a = zeros(1, np.uint32)
        old = np.zeros(8, np.uint32)
        rs.shmem_atomic_swap_nbi(old, a, 3, to)
        rs.shmem_quiet()
        rs.shmem_atomic_compare_swap_nbi(old[1:], a, 3, 4, to)
        rs.shmem_quiet()
        rs.shmem_atomic_fetch_add_nbi(old[2:], a, 10, to)
        rs.shmem_quiet()
        rs.shmem_atomic_fetch_inc_nbi(old[3:], a, to)
        rs.shmem_quiet()
        rs.shmem_atomic_fetch_and_nbi(old[4:], a, 7, to)
        rs.shmem_quiet()
        rs.shmem_atomic_fetch_or_nbi(old[5:], a, 16, to)
        rs.shmem_quiet()
        rs.shmem_atomic_fetch_xor_nbi(old[6:], a, 1, to)
        rs.shmem_quiet()
        rs.shmem_atomic_fetch_nbi(old[7:], a, to)
        rs.shmem_quiet()
        assert old.tolist() == [0, 3, 4, 14, 15, 7, 23, 22]
        rs.shmem_barrier_all()


def test_ctx_atomic_names(comm: MPI.Intracomm, shape: str) -> None:
    with default_job(comm, shape), contexts() as every:
        to, _ = neighbours()
        a = zeros(1, np.int64)
        for ctx in every:
            rs.shmem_ctx_atomic_set(ctx, a, 5, to)
            rs.shmem_ctx_fence(ctx)
            rs.shmem_ctx_atomic_add(ctx, a, -12, to)
            rs.shmem_ctx_atomic_inc(ctx, a, to)
            rs.shmem_ctx_quiet(ctx)
            assert rs.shmem_ctx_atomic_fetch(ctx, a, to) == -6
            assert rs.shmem_ctx_atomic_swap(ctx, a, 12, to) == -6
            assert rs.shmem_ctx_atomic_compare_swap(ctx, a, 12, 20, to) == 12
            assert rs.shmem_ctx_atomic_fetch_add(ctx, a, 2, to) == 20
            assert rs.shmem_ctx_atomic_fetch_inc(ctx, a, to) == 22
            assert rs.shmem_ctx_atomic_fetch_and(ctx, a, 7, to) == 23
            assert rs.shmem_ctx_atomic_fetch_or(ctx, a, 8, to) == 7
            assert rs.shmem_ctx_atomic_fetch_xor(ctx, a, 1, to) == 15
            rs.shmem_ctx_atomic_and(ctx, a, 6, to)
            rs.shmem_ctx_quiet(ctx)
            rs.shmem_ctx_atomic_or(ctx, a, 17, to)
            rs.shmem_ctx_quiet(ctx)
            rs.shmem_ctx_atomic_xor(ctx, a, 3, to)
            rs.shmem_ctx_quiet(ctx)
            rs.shmem_sync_all()
            assert a[0] == 20
            rs.shmem_sync_all()


def test_ctx_atomic_nbi_names(comm: MPI.Intracomm, shape: str) -> None:
    with default_job(comm, shape), contexts() as every:
        to, _ = neighbours()
        a = zeros(1, np.uint32)
        for ctx in every:
            old = np.zeros(9, np.uint32)
            rs.shmem_ctx_atomic_swap_nbi(ctx, old, a, 3, to)
            rs.shmem_ctx_quiet(ctx)
            rs.shmem_ctx_atomic_compare_swap_nbi(ctx, old[1:], a, 3, 4, to)
            rs.shmem_ctx_quiet(ctx)
            rs.shmem_ctx_atomic_fetch_add_nbi(ctx, old[2:], a, 10, to)
            rs.shmem_ctx_quiet(ctx)
            rs.shmem_ctx_atomic_fetch_inc_nbi(ctx, old[3:], a, to)
            rs.shmem_ctx_quiet(ctx)
            rs.shmem_ctx_atomic_fetch_and_nbi(ctx, old[4:], a, 7, to)
            rs.shmem_ctx_quiet(ctx)
            rs.shmem_ctx_atomic_fetch_or_nbi(ctx, old[5:], a, 16, to)
            rs.shmem_ctx_quiet(ctx)
            rs.shmem_ctx_atomic_fetch_xor_nbi(ctx, old[6:], a, 1, to)
            rs.shmem_ctx_quiet(ctx)
            rs.shmem_ctx_atomic_fetch_nbi(ctx, old[7:], a, to)
            rs.shmem_ctx_quiet(ctx)
            rs.shmem_ctx_atomic_swap_nbi(ctx, old[8:], a, 0, to)  # as the next one expects it
            rs.shmem_ctx_quiet(ctx)
            assert old.tolist() == [0, 3, 4, 14, 15, 7, 23, 22, 22]


# ---- 9.8 ----


def test_signal_names(comm: MPI.Intracomm, shape: str) -> None:
    with default_job(comm, shape), contexts() as every:
        to, before = neighbours()
        me = rs.shmem_my_pe() + 1
        a = zeros(1, np.int32)
        signal = zeros(1, np.uint64)
        source = np.array([me], np.int32)
        rs.shmem_put_signal(a, source, signal, 10, SHMEM_SIGNAL_SET, to)
        assert rs.shmem_signal_wait_until(signal, SHMEM_CMP_EQ, 10) == 10
        assert a[0] == before + 1
        rs.shmem_barrier_all()
        rs.shmem_put_signal_nbi(a, source * 2, signal, 1, SHMEM_SIGNAL_ADD, to)
        rs.shmem_quiet()
        rs.shmem_signal_wait_until(signal, SHMEM_CMP_GE, 11)
        assert a[0] == 2 * (before + 1)
        assert rs.shmem_signal_fetch(signal) == 11
        rs.shmem_barrier_all()
        for turn, ctx in enumerate(every):
            rs.shmem_ctx_put_signal(ctx, a, source * 3, signal, 20 + turn, SHMEM_SIGNAL_SET, to)
            assert rs.shmem_signal_wait_until(signal, SHMEM_CMP_EQ, 20 + turn) == 20 + turn
            assert a[0] == 3 * (before + 1)
            rs.shmem_barrier_all()
            rs.shmem_ctx_put_signal_nbi(ctx, a, source * 4, signal, 100, SHMEM_SIGNAL_ADD, to)
            rs.shmem_ctx_quiet(ctx)
            assert rs.shmem_signal_wait_until(signal, SHMEM_CMP_GE, 100) == 120 + turn
            assert a[0] == 4 * (before + 1)
            rs.shmem_barrier_all()


# ---- 9.4, 9.9 ----


def test_team_names(comm: MPI.Intracomm, shape: str) -> None:
    with default_job(comm, shape):
        n, me = rs.shmem_n_pes(), rs.shmem_my_pe()
        assert (n, me) == (comm.size, comm.rank)
        config = rs.TeamConfig(num_contexts=1)
        team = rs.shmem_team_split_strided(SHMEM_TEAM_WORLD, n - 1, -1, n, config=config)
        assert rs.shmem_team_my_pe(team) == n - 1 - me
        assert rs.shmem_team_n_pes(team) == n
        assert rs.shmem_team_get_config(team).num_contexts == 1
        assert rs.shmem_team_translate_pe(team, 0, SHMEM_TEAM_WORLD) == n - 1
        row, column = rs.shmem_team_split_2d(team, 1)
        assert (rs.shmem_team_n_pes(row), rs.shmem_team_n_pes(column)) == (1, n)
        rs.shmem_team_sync(team)
        rs.shmem_sync(team)
        for made in (row, column, team):
            rs.shmem_team_destroy(made)


def test_collective_names(comm: MPI.Intracomm, shape: str) -> None:
    with default_job(comm, shape):
        n, me = rs.shmem_n_pes(), rs.shmem_my_pe()
        source, dest = zeros(n, np.int32), zeros(n * n, np.int32)
        source[:] = me + 1
        rs.shmem_sync_all()
        rs.shmem_broadcast(SHMEM_TEAM_WORLD, dest, source, 1)
        assert dest[:n].tolist() == [2] * n
        rs.shmem_fcollect(SHMEM_TEAM_WORLD, dest, source, nelems=1)
        assert dest[:n].tolist() == list(range(1, n + 1))
        rs.shmem_collect(SHMEM_TEAM_WORLD, dest, source, nelems=me)
        assert dest[: n * (n - 1) // 2].tolist() == [pe + 1 for pe in range(n) for _ in range(pe)]
        rs.shmem_alltoall(SHMEM_TEAM_WORLD, dest, source)
        assert dest[:n].tolist() == list(range(1, n + 1))
        dest[:] = 0
        rs.shmem_alltoalls(SHMEM_TEAM_WORLD, dest, source, 2, 1, 1)
        assert dest[: 2 * n : 2].tolist() == list(range(1, n + 1))
        assert not dest[1 : 2 * n : 2].any()


def test_reduction_names(comm: MPI.Intracomm, shape: str) -> None:
    with default_job(comm, shape):
        n, me = rs.shmem_n_pes(), rs.shmem_my_pe()
        source, dest = zeros(1, np.int32), zeros(1, np.int32)
        source[0] = me + 2
        everybodys = np.arange(2, n + 2)
        for call, expected in (
            (rs.shmem_and_reduce, np.bitwise_and),
            (rs.shmem_or_reduce, np.bitwise_or),
            (rs.shmem_xor_reduce, np.bitwise_xor),
            (rs.shmem_max_reduce, np.maximum),
            (rs.shmem_min_reduce, np.minimum),
            (rs.shmem_sum_reduce, np.add),
            (rs.shmem_prod_reduce, np.multiply),
        ):
            call(SHMEM_TEAM_WORLD, dest, source)
            assert dest[0] == expected.reduce(everybodys)


# ---- 9.10, 9.12 ----


def test_wait_names(comm: MPI.Intracomm, shape: str) -> None:
    with default_job(comm, shape):
        to, _ = neighbours()
        a = zeros(3, np.int32)
        assert not rs.shmem_test(a, SHMEM_CMP_NE, 0)
        rs.shmem_sync_all()
        for index, value in enumerate((7, 8, 9)):
            rs.shmem_p(a[index:], value, to)
        assert rs.shmem_wait_until(a, SHMEM_CMP_NE, 0) == 7
        rs.shmem_wait_until_all(a, None, SHMEM_CMP_NE, 0)
        rs.shmem_wait_until_all_vector(a, None, SHMEM_CMP_EQ, [7, 8, 9])
        assert rs.shmem_wait_until_any(a, None, SHMEM_CMP_EQ, 8) == 1
        assert rs.shmem_wait_until_any_vector(a, [1, 0, 1], SHMEM_CMP_EQ, [7, 8, 9]) == 1
        assert rs.shmem_wait_until_some(a, None, SHMEM_CMP_GE, 8).tolist() == [1, 2]
        some = rs.shmem_wait_until_some_vector(a, [0, 1, 0], SHMEM_CMP_EQ, [7, 8, 9])
        assert some.tolist() == [0, 2]
        assert rs.shmem_test(a, SHMEM_CMP_EQ, 7)
        assert rs.shmem_test_all(a, None, SHMEM_CMP_GE, 7)
        assert not rs.shmem_test_all_vector(a, None, SHMEM_CMP_EQ, [7, 8, 8])
        assert rs.shmem_test_any(a, None, SHMEM_CMP_EQ, 1) is None
        assert rs.shmem_test_any_vector(a, None, SHMEM_CMP_EQ, [0, 0, 9]) == 2
        assert rs.shmem_test_some(a, None, SHMEM_CMP_NE, 8).tolist() == [0, 2]
        assert rs.shmem_test_some_vector(a, None, SHMEM_CMP_EQ, [7, 7, 7]).tolist() == [0]
        rs.shmem_barrier_all()


def test_lock_names(comm: MPI.Intracomm, shape: str) -> None:
    with default_job(comm, shape):
        lock, count = zeros(1, np.int64), zeros(1, np.int64)
        for _ in range(5):
            rs.shmem_set_lock(lock)
            rs.shmem_p(count, int(rs.shmem_g(count, 0)) + 1, 0)
            rs.shmem_clear_lock(lock)
        rs.shmem_barrier_all()
        assert rs.shmem_g(count, 0) == 5 * rs.shmem_n_pes()
        took = rs.shmem_test_lock(lock) == 0
        assert sum(comm.allgather(took)) == 1
        if took:
            rs.shmem_clear_lock(lock)


# ---- 9.1, 9.3 ----


def test_memory_names(comm: MPI.Intracomm, shape: str) -> None:
    with default_job(comm, shape):
        block = rs.shmem_malloc(100)
        assert rs.shmem_align(256, 100).ptr % 256 == 0
        assert not elements_of(rs.shmem_calloc(10, 8)).any()
        block = rs.shmem_realloc(block, 200)
        assert block.nbytes == 200
        hinted = rs.shmem_malloc_with_hints(8, rs.SHMEM_MALLOC_SIGNAL_REMOTE)
        rs.shmem_free(hinted)
        assert rs.shmem_malloc(8).ptr == hinted.ptr
        words = zeros(3, np.int32)
        assert rs.shmem_ptr(words, rs.shmem_my_pe()).shape == (3,)


def test_setup_names(comm: MPI.Intracomm, shape: str) -> None:
    with pytest.raises(rs.ArgumentError, match=r"has not been called|finalized"):
        rs.shmem_barrier_all()
    with default_job(comm, shape):
        assert rs.shmem_my_pe() == comm.rank
        assert rs.shmem_n_pes() == comm.size
        with pytest.raises(rs.ArgumentError, match="already initialised"):
            rs.shmem_init(comm)
        words = zeros(2, np.int32)
        for pe in range(-1, comm.size + 1):
            exists = pe in range(comm.size)
            assert rs.shmem_pe_accessible(pe) is exists
            assert rs.shmem_addr_accessible(words, pe) is exists
            assert not rs.shmem_addr_accessible(np.zeros(2), pe)
        assert rs.shmem_info_get_version() == (1, 5)
        assert rs.shmem_info_get_name().startswith("RailSHMEM")
    rs.shmem_finalize()  # again: nothing
    with pytest.raises(rs.ArgumentError, match="finalized"):
        rs.shmem_fence()


def test_thread_names(comm: MPI.Intracomm, shape: str) -> None:
    levels = (
        rs.SHMEM_THREAD_SINGLE,
        rs.SHMEM_THREAD_FUNNELED,
        rs.SHMEM_THREAD_SERIALIZED,
        rs.SHMEM_THREAD_MULTIPLE,
    )
    assert levels == (0, 1, 2, 3)
    for level in levels:
        settings = settings_of(shape, comm.size)
        assert rs.shmem_init_thread(level, comm, settings=settings) == rs.SHMEM_THREAD_MULTIPLE
        assert rs.shmem_query_thread() == rs.SHMEM_THREAD_MULTIPLE
        # What the level allows: several threads put at once.
        words = zeros(4, np.int64)
        to, before = neighbours()
        me = rs.shmem_my_pe()
        with ThreadPoolExecutor(4) as pool:
            puts = [pool.submit(rs.shmem_p, words[i:], 10 * me + i, to) for i in range(4)]
        assert [put.result() for put in puts] == [None] * 4
        rs.shmem_barrier_all()
        assert words.tolist() == [10 * before + i for i in range(4)]
        rs.shmem_finalize()
    with pytest.raises(rs.ArgumentError, match="level 4"):
        rs.shmem_init_thread(4, comm)
