"""Collectives on teams (OpenSHMEM 1.5, section 9.9)."""

from __future__ import annotations

from functools import reduce

import ml_dtypes
import numpy as np
import pytest
from mpi4py import MPI

import railshmem
from jobs import SHAPES, job, settings_of
from railshmem import SHMEM_TEAM_SHARED, SHMEM_TEAM_WORLD, symmetric_array
from spec_arrays import COMPLEX, FLOATS, RMA_TYPES, SIGNED, UNSIGNED, after, before, sample, zeros

pytestmark = [pytest.mark.mpi(min_size=2), pytest.mark.parametrize("shape", SHAPES)]

NARROW = [np.float16, ml_dtypes.bfloat16]
# Elements: one exchange, a few, and what crosses nodes in slices.
COUNTS = [1, 37, 30_000]


def sources_of(pes: list[int], dtype: object, count: int) -> list[np.ndarray]:
    return [sample(dtype, count, pe) for pe in pes]


def test_barrier_all_completes_puts(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        data = zeros(rt, 5000, np.int32)
        for turn in range(1, 20):
            rt.put_nbi(data, np.full(5000, turn * 100 + rt.my_pe, np.int32), after(rt))
            rt.barrier_all()
            assert (data == turn * 100 + before(rt)).all()
            rt.barrier_all()


def test_sync_all_waits_for_every_pe(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        arrived = zeros(rt, rt.n_pes, np.int32)
        for turn in range(1, 20):
            for pe in range(rt.n_pes):
                rt.p(arrived[rt.my_pe :], turn, pe)
            rt.quiet()  # sync does not do that
            rt.sync_all()
            assert (arrived >= turn).all()


@pytest.mark.parametrize("call", ["sync", "team_sync"])
def test_sync_waits_for_the_members_and_nobody_else(
    comm: MPI.Intracomm, shape: str, call: str
) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        arrived = zeros(rt, rt.n_pes, np.int32)
        team = rt.team_split_strided(SHMEM_TEAM_WORLD, 1, 1, rt.n_pes - 1)
        sync = rt.sync if call == "sync" else rt.team_sync
        if team is not None:  # PE 0 takes no part
            for turn in range(1, 20):
                for pe in team.pes:
                    rt.p(arrived[rt.my_pe :], turn, pe)
                rt.quiet()
                sync(team)
                assert (arrived[team.pes] >= turn).all()
        sync(SHMEM_TEAM_WORLD)
        sync(SHMEM_TEAM_SHARED)
        with pytest.raises(railshmem.ArgumentError, match="SHMEM_TEAM_INVALID"):
            sync(railshmem.SHMEM_TEAM_INVALID)


def test_broadcast_reaches_every_member_and_the_root(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        for count in COUNTS:
            source = symmetric_array(rt, count + 1, np.int64)
            dest = zeros(rt, count + 1, np.int64)
            source[:] = sample(np.int64, count + 1, rt.my_pe)
            for root in range(rt.n_pes):
                rt.broadcast(SHMEM_TEAM_WORLD, dest, source, root, nelems=count)
                np.testing.assert_array_equal(dest[:count], sample(np.int64, count, root))
                assert dest[count] == 0
            # In place at the root, too.
            rt.broadcast(SHMEM_TEAM_WORLD, source, source, rt.n_pes - 1)
            np.testing.assert_array_equal(source, sample(np.int64, count + 1, rt.n_pes - 1))
            rt.free(dest)
            rt.free(source)
        word = zeros(rt, 2, np.int32)
        with pytest.raises(railshmem.ArgumentError, match=f"PE {rt.n_pes}"):
            rt.broadcast(SHMEM_TEAM_WORLD, word, word[1:], rt.n_pes, nelems=1)


def test_collect_joins_pieces_of_any_length(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        for base in COUNTS:
            # PE 0 gives nothing, then everybody does.
            for sizes in ([base * pe for pe in range(rt.n_pes)], [0] * rt.n_pes):
                total = sum(sizes)
                source = symmetric_array(rt, base * rt.n_pes, np.int32)
                dest = zeros(rt, total + 2, np.int32)
                mine = sizes[rt.my_pe]
                source[:mine] = sample(np.int32, mine, rt.my_pe)
                rt.collect(SHMEM_TEAM_WORLD, dest, source, nelems=mine)
                expected = [sample(np.int32, size, pe) for pe, size in enumerate(sizes)]
                np.testing.assert_array_equal(dest[:total], np.concatenate(expected))
                assert not dest[total:].any()
                rt.free(dest)
                rt.free(source)
        source = zeros(rt, 4, np.int32)
        dest = zeros(rt, 4 * rt.n_pes - 1, np.int32)
        with pytest.raises(railshmem.ArgumentError, match="dest has only"):
            rt.collect(SHMEM_TEAM_WORLD, dest, source)
        assert not dest.any()


def test_fcollect_joins_pieces_of_one_length(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        for count in [0, *COUNTS]:
            source = symmetric_array(rt, count + 1, np.float32)
            dest = zeros(rt, rt.n_pes * count + 2, np.float32)
            source[:] = sample(np.float32, count + 1, rt.my_pe)
            rt.fcollect(SHMEM_TEAM_WORLD, dest, source, nelems=count)
            expected = [sample(np.float32, count, pe) for pe in range(rt.n_pes)]
            np.testing.assert_array_equal(dest[: count * rt.n_pes], np.concatenate(expected))
            assert not dest[count * rt.n_pes :].any()
            rt.free(dest)
            rt.free(source)


def test_alltoall_exchanges_blocks(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        n = rt.n_pes
        for count in [0, *COUNTS]:
            source = symmetric_array(rt, n * count + 1, np.int64)
            dest = zeros(rt, n * count + 1, np.int64)
            source[:] = sample(np.int64, n * count + 1, rt.my_pe)
            rt.alltoall(SHMEM_TEAM_WORLD, dest, source, nelems=count)
            for pe in range(n):
                theirs = sample(np.int64, n * count, pe).reshape(n, count)
                np.testing.assert_array_equal(dest[pe * count : (pe + 1) * count], theirs[rt.my_pe])
            assert dest[n * count] == 0
            rt.free(dest)
            rt.free(source)


def test_alltoalls_exchanges_elements_apart(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        n = rt.n_pes
        for dst, sst, count in ((1, 1, 5), (2, 1, 5), (1, 3, 4), (3, 2, 7), (2, 2, 0)):
            source = symmetric_array(rt, n * max(count, 1) * sst, np.int32)
            dest = zeros(rt, n * max(count, 1) * dst, np.int32)
            source[:] = sample(np.int32, source.size, rt.my_pe)
            rt.alltoalls(SHMEM_TEAM_WORLD, dest, source, dst, sst, count)
            expected = np.zeros_like(dest)
            for pe in range(n):
                theirs = sample(np.int32, source.size, pe)[rt.my_pe * count * sst :][::sst][:count]
                expected[pe * count * dst :][: count * dst : dst] = theirs
            np.testing.assert_array_equal(dest, expected)
            rt.free(dest)
            rt.free(source)
        words = zeros(rt, 4 * n, np.int32)
        for dst, sst in ((0, 1), (1, -1)):
            with pytest.raises(railshmem.ArgumentError, match="strides"):
                rt.alltoalls(SHMEM_TEAM_WORLD, words, words[2 * n :], dst, sst, 1)


def test_data_collectives_move_every_type(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        n = rt.n_pes
        for dtype in RMA_TYPES:
            source = symmetric_array(rt, n, dtype)
            dest = symmetric_array(rt, n * n, dtype)
            source[:] = sample(dtype, n, rt.my_pe)
            everything = np.concatenate(sources_of(list(range(n)), dtype, n))
            rt.broadcast(SHMEM_TEAM_WORLD, dest, source, 1)
            np.testing.assert_array_equal(dest[:n], sample(dtype, n, 1))
            rt.collect(SHMEM_TEAM_WORLD, dest, source)
            np.testing.assert_array_equal(dest, everything)
            dest.view(np.uint8)[:] = 0
            rt.fcollect(SHMEM_TEAM_WORLD, dest, source)
            np.testing.assert_array_equal(dest, everything)
            rt.alltoall(SHMEM_TEAM_WORLD, dest, source)
            np.testing.assert_array_equal(dest[:n], everything.reshape(n, n)[:, rt.my_pe])
            rt.free(dest)
            rt.free(source)


# ---- reductions ----

BITS = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
ORDER = {"max": np.maximum, "min": np.minimum}
ARITHMETIC = {"sum": np.add, "prod": np.multiply}


def call_of(rt: railshmem.Runtime, op: str) -> object:
    return {
        "and": rt.and_reduce,
        "or": rt.or_reduce,
        "xor": rt.xor_reduce,
        "max": rt.max_reduce,
        "min": rt.min_reduce,
        "sum": rt.sum_reduce,
        "prod": rt.prod_reduce,
    }[op]


def operands(dtype: object, count: int, pe: int) -> np.ndarray:
    """Small numbers of both signs where there are two: exact in every type, whatever the order."""
    kind = np.dtype(dtype)
    values = (np.arange(count) * (pe + 3) + pe) % 7 + 1
    if kind.kind == "c":
        return (values % 3 + 1j * (values % 2)).astype(kind)
    signs = np.where(values % 2, 1, -1) if kind.kind != "u" else 1
    return (values * signs).astype(kind)


def check_reduction(rt: railshmem.Runtime, op: str, dtype: object, count: int) -> None:
    """Collective: out of place and in place, and nothing beyond `count` elements changes."""
    numpy_op = {**BITS, **ORDER, **ARITHMETIC}[op]
    source = symmetric_array(rt, count + 1, dtype)
    dest = zeros(rt, count + 1, dtype)
    source[:] = operands(dtype, count + 1, rt.my_pe)
    expected = reduce(numpy_op, [operands(dtype, count, pe) for pe in range(rt.n_pes)])
    call = call_of(rt, op)
    call(SHMEM_TEAM_WORLD, dest, source, nreduce=count)
    np.testing.assert_array_equal(dest[:count], expected)
    assert not dest[count]
    np.testing.assert_array_equal(source, operands(dtype, count + 1, rt.my_pe))
    call(SHMEM_TEAM_WORLD, source, source, nreduce=count)  # in place
    np.testing.assert_array_equal(source[:count], expected)
    assert source[count] == operands(dtype, count + 1, rt.my_pe)[count]
    rt.free(dest)
    rt.free(source)


@pytest.mark.parametrize("op", BITS)
def test_and_or_xor_reduce(comm: MPI.Intracomm, shape: str, op: str) -> None:
    """and_reduce, or_reduce, xor_reduce."""
    with job(comm, settings_of(shape, comm.size)) as rt:
        for dtype in [*SIGNED, *UNSIGNED]:
            for count in (1, 50):
                check_reduction(rt, op, dtype, count)
        word = zeros(rt, 2, np.float64)
        with pytest.raises(railshmem.ArgumentError, match="float64"):
            call_of(rt, op)(SHMEM_TEAM_WORLD, word, word)


@pytest.mark.parametrize("op", ORDER)
def test_max_min_reduce(comm: MPI.Intracomm, shape: str, op: str) -> None:
    """max_reduce, min_reduce."""
    with job(comm, settings_of(shape, comm.size)) as rt:
        for dtype in [*SIGNED, *UNSIGNED, *FLOATS, *NARROW]:
            for count in (1, 50):
                check_reduction(rt, op, dtype, count)
        values = zeros(rt, 1, np.float32)
        values[0] = np.nan if rt.my_pe == 1 else rt.my_pe
        call_of(rt, op)(SHMEM_TEAM_WORLD, values, values)
        assert np.isnan(values[0])
        word = zeros(rt, 2, np.complex64)
        with pytest.raises(railshmem.ArgumentError, match="complex64"):
            call_of(rt, op)(SHMEM_TEAM_WORLD, word, word)


@pytest.mark.parametrize("op", ARITHMETIC)
def test_sum_prod_reduce(comm: MPI.Intracomm, shape: str, op: str) -> None:
    """sum_reduce, prod_reduce."""
    with job(comm, settings_of(shape, comm.size)) as rt:
        for dtype in [*SIGNED, *UNSIGNED, *FLOATS, *COMPLEX, *NARROW]:
            for count in (1, 50):
                check_reduction(rt, op, dtype, count)
        word = zeros(rt, 2, np.bool_)
        with pytest.raises(railshmem.ArgumentError, match="bool"):
            call_of(rt, op)(SHMEM_TEAM_WORLD, word, word)


def test_large_reductions_and_none(comm: MPI.Intracomm, shape: str) -> None:
    """sum_reduce, max_reduce and xor_reduce of what is cut into slices, and of nothing."""
    with job(comm, settings_of(shape, comm.size)) as rt:
        for count in (0, 30_000):
            check_reduction(rt, "sum", np.float64, count)
            check_reduction(rt, "max", np.int16, count)
            check_reduction(rt, "xor", np.uint8, count)


def test_collectives_of_a_part_of_the_job(comm: MPI.Intracomm, shape: str) -> None:
    """Members are numbered by the team, here in reverse; PE 0 takes no part and sees nothing."""
    with job(comm, settings_of(shape, comm.size)) as rt:
        n = rt.n_pes - 1
        pes = list(range(n, 0, -1))
        team = rt.team_split_strided(SHMEM_TEAM_WORLD, n, -1, n)
        source = symmetric_array(rt, n, np.int64)
        dest = zeros(rt, n * n, np.int64)
        source[:] = sample(np.int64, n, rt.my_pe)
        rt.barrier_all()
        if team is not None:
            assert team.pes == pes
            everything = np.concatenate(sources_of(pes, np.int64, n))
            rt.fcollect(team, dest, source)
            np.testing.assert_array_equal(dest, everything)
            rt.alltoall(team, dest, source)
            np.testing.assert_array_equal(dest[:n], everything.reshape(n, n)[:, team.my_pe])
            rt.broadcast(team, dest, source, n - 1)
            np.testing.assert_array_equal(dest[:n], sample(np.int64, n, pes[n - 1]))
            rt.collect(team, dest, source, nelems=team.my_pe)
            expected = [sample(np.int64, i, pe) for i, pe in enumerate(pes)]
            np.testing.assert_array_equal(dest[: sum(range(n))], np.concatenate(expected))
            rt.sum_reduce(team, source, source)
            np.testing.assert_array_equal(source, sum(sources_of(pes, np.int64, n)))
        else:
            assert not dest.any()
        rt.barrier_all()
