"""Teams and contexts (OpenSHMEM 1.5, sections 9.4 and 9.5)."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

import railshmem
from jobs import SHAPES, job, settings_of
from railshmem import (
    SHMEM_CMP_EQ,
    SHMEM_CTX_INVALID,
    SHMEM_CTX_NOSTORE,
    SHMEM_CTX_PRIVATE,
    SHMEM_CTX_SERIALIZED,
    SHMEM_SIGNAL_ADD,
    SHMEM_TEAM_INVALID,
    SHMEM_TEAM_NODE,
    SHMEM_TEAM_SHARED,
    SHMEM_TEAM_WORLD,
    TeamConfig,
)
from spec_arrays import after, before, zeros

pytestmark = [pytest.mark.mpi(min_size=2), pytest.mark.parametrize("shape", SHAPES)]


def test_predefined_teams(comm: MPI.Intracomm, shape: str) -> None:
    """team_my_pe, team_n_pes and team_translate_pe of the teams that are always there."""
    with job(comm, settings_of(shape, comm.size)) as rt:
        assert rt.team_my_pe(SHMEM_TEAM_WORLD) == rt.my_pe
        assert rt.team_n_pes(SHMEM_TEAM_WORLD) == rt.n_pes
        assert rt.world.pes == list(range(rt.n_pes))
        word = zeros(rt, 1, np.int32)
        mapped = [pe for pe in range(rt.n_pes) if rt.ptr(word, pe) is not None]
        for team in (SHMEM_TEAM_SHARED, SHMEM_TEAM_NODE):
            assert rt.team_n_pes(team) == len(mapped)
            assert rt.team_my_pe(team) == mapped.index(rt.my_pe)
            there = [rt.team_translate_pe(team, i, SHMEM_TEAM_WORLD) for i in range(len(mapped))]
            assert there == mapped
            for pe in range(rt.n_pes):
                index = rt.team_translate_pe(SHMEM_TEAM_WORLD, pe, team)
                assert index == (mapped.index(pe) if pe in mapped else -1)


def test_calls_on_no_team_answer_minus_one(comm: MPI.Intracomm, shape: str) -> None:
    """team_my_pe, team_n_pes, team_translate_pe; team_get_config has no answer and raises."""
    with job(comm, settings_of(shape, comm.size)) as rt:
        assert rt.team_my_pe(SHMEM_TEAM_INVALID) == -1
        assert rt.team_n_pes(SHMEM_TEAM_INVALID) == -1
        for teams in (
            (SHMEM_TEAM_INVALID, 0, SHMEM_TEAM_WORLD),
            (SHMEM_TEAM_WORLD, 0, SHMEM_TEAM_INVALID),
            (SHMEM_TEAM_WORLD, rt.n_pes, SHMEM_TEAM_WORLD),
            (SHMEM_TEAM_WORLD, -1, SHMEM_TEAM_WORLD),
        ):
            assert rt.team_translate_pe(*teams) == -1
        for call in (rt.team_get_config, rt.team_destroy):
            with pytest.raises(railshmem.ArgumentError, match="SHMEM_TEAM_INVALID"):
                call(SHMEM_TEAM_INVALID)
        with pytest.raises(railshmem.ArgumentError, match="predefined"):
            rt.team_destroy(SHMEM_TEAM_WORLD)


def test_split_strided_takes_every_triplet(comm: MPI.Intracomm, shape: str) -> None:
    """team_split_strided with strides of both signs, and 0 for a team of one."""
    with job(comm, settings_of(shape, comm.size)) as rt:
        n = rt.n_pes
        triplets = [(0, 1, n), (0, 2, (n + 1) // 2), (n - 1, -1, n), (1, 1, n - 1), (n - 1, 0, 1)]
        for start, stride, size in triplets:
            pes = [start + stride * i for i in range(size)]
            team = rt.team_split_strided(SHMEM_TEAM_WORLD, start, stride, size)
            assert (team is SHMEM_TEAM_INVALID) == (rt.my_pe not in pes)
            if team is not None:
                assert team.pes == pes
                assert rt.team_n_pes(team) == size
                assert rt.team_my_pe(team) == pes.index(rt.my_pe)
                for pe in range(n):
                    there = rt.team_translate_pe(SHMEM_TEAM_WORLD, pe, team)
                    assert there == (pes.index(pe) if pe in pes else -1)
                rt.team_sync(team)
                rt.team_destroy(team)
        rt.barrier_all()


def test_split_strided_of_a_split_numbers_by_the_parent(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        n = rt.n_pes
        reverse = rt.team_split_strided(SHMEM_TEAM_WORLD, n - 1, -1, n)
        last = rt.team_split_strided(reverse, 0, 1, n - 1)  # all but PE 0
        assert (last is SHMEM_TEAM_INVALID) == (rt.my_pe == 0)
        if last is not None:
            assert last.pes == list(range(n - 1, 0, -1))
            assert rt.team_translate_pe(last, 0, reverse) == 0
            assert rt.team_translate_pe(reverse, n - 1, last) == -1
            rt.team_destroy(last)
        rt.team_destroy(reverse)


def test_bad_triplets_are_refused_on_every_member(comm: MPI.Intracomm, shape: str) -> None:
    """team_split_strided and team_split_2d raise everywhere, and the parent stays usable."""
    with job(comm, settings_of(shape, comm.size)) as rt:
        n = rt.n_pes
        for triplet in ((-1, 1, 1), (0, 1, n + 1), (n, 1, 1), (0, 0, 2), (0, 1, 0), (0, -1, 2)):
            with pytest.raises(railshmem.ArgumentError, match="shmem_team_split_strided"):
                rt.team_split_strided(SHMEM_TEAM_WORLD, *triplet)
        with pytest.raises(railshmem.ArgumentError, match="xrange 0"):
            rt.team_split_2d(SHMEM_TEAM_WORLD, 0)
        with pytest.raises(railshmem.ArgumentError, match=rf"PE {n - 1}: shmem_team_split_strided"):
            rt.team_split_strided(SHMEM_TEAM_WORLD, 0, 1, 1 + (rt.my_pe == n - 1))
        rt.team_sync(SHMEM_TEAM_WORLD)


def test_split_2d_leaves_the_last_row_short(comm: MPI.Intracomm, shape: str) -> None:
    """team_split_2d with every xrange: rows, columns, and what remains."""
    with job(comm, settings_of(shape, comm.size)) as rt:
        n = rt.n_pes
        for xrange in range(1, n + 2):
            row, column = rt.team_split_2d(SHMEM_TEAM_WORLD, xrange)
            width = min(xrange, n)
            x, y = rt.my_pe % width, rt.my_pe // width
            assert row.pes == list(range(y * width, min((y + 1) * width, n)))
            assert column.pes == list(range(x, n, width))
            assert (row.my_pe, column.my_pe) == (x, y)
            # Rows are independent of each other, and so are columns.
            total = zeros(rt, 2, np.int64)
            total[:] = rt.my_pe
            rt.sum_reduce(row, total, total, nreduce=1)
            rt.sum_reduce(column, total[1:], total[1:])
            assert total.tolist() == [sum(row.pes), sum(column.pes)]
            rt.barrier_all()
            rt.free(total)
            rt.team_destroy(row)
            rt.team_destroy(column)


def test_config_is_kept(comm: MPI.Intracomm, shape: str) -> None:
    """team_get_config of a split with a config, without, and of both axes."""
    with job(comm, settings_of(shape, comm.size)) as rt:
        n = rt.n_pes
        assert rt.team_get_config(SHMEM_TEAM_WORLD).num_contexts == 0
        plain = rt.team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n)
        assert rt.team_get_config(plain).num_contexts == 0
        team = rt.team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n, config=TeamConfig(num_contexts=3))
        assert rt.team_get_config(team).num_contexts == 3
        row, column = rt.team_split_2d(
            team, 2, xaxis_config=TeamConfig(1), yaxis_config=TeamConfig(2)
        )
        assert rt.team_get_config(row).num_contexts == 1
        assert rt.team_get_config(column).num_contexts == 2
        with pytest.raises(railshmem.ArgumentError, match="negative"):
            TeamConfig(-1)


def test_a_destroyed_team_is_refused_and_its_place_is_free(comm: MPI.Intracomm, shape: str) -> None:
    """team_destroy gives back what team_split_strided took: more splits than there are places."""
    settings = settings_of(shape, comm.size, RAILSHMEM_TEAMS="5")
    with job(comm, settings) as rt:
        n = rt.n_pes
        for _ in range(6):
            first = rt.team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n)
            second = rt.team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n)
            with pytest.raises(railshmem.ArgumentError, match="RAILSHMEM_TEAMS"):
                rt.team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n)
            rt.team_destroy(first)
            rt.team_destroy(second)
            for call in (rt.team_sync, rt.team_destroy):
                with pytest.raises(railshmem.ArgumentError, match="destroyed"):
                    call(first)
        rt.barrier_all()


# ---- contexts ----


def exercise(rt: railshmem.Runtime, ctx: railshmem.Context, to: int, word: np.ndarray) -> None:
    """Every kind of operation of a context, to its PE `to`, which sees a total of 10."""
    ctx.put(word, np.array([3], np.uint64), to)
    ctx.quiet()
    ctx.atomic_add(word, 4, to)
    ctx.quiet()
    ctx.put_signal(word[1:], np.empty(0, np.uint64), word, 3, SHMEM_SIGNAL_ADD, to)
    ctx.fence()
    ctx.quiet()
    assert ctx.g(word, to) == 10
    assert ctx.atomic_fetch(word, to) == 10


def test_ctx_create_makes_independent_streams(comm: MPI.Intracomm, shape: str) -> None:
    """ctx_create with every option; get_team and ctx_destroy."""
    with job(comm, settings_of(shape, comm.size)) as rt:
        word = zeros(rt, 2, np.uint64)
        options = [
            0,
            SHMEM_CTX_SERIALIZED,
            SHMEM_CTX_PRIVATE,
            SHMEM_CTX_NOSTORE,
            SHMEM_CTX_SERIALIZED | SHMEM_CTX_NOSTORE,
        ]
        for option in options:
            ctx = rt.ctx_create(option)
            assert ctx.get_team().pes == list(range(rt.n_pes))
            exercise(rt, ctx, after(rt), word)
            rt.barrier_all()
            word[:] = 0
            ctx.destroy()
            rt.barrier_all()
        with pytest.raises(railshmem.ArgumentError, match="options 8"):
            rt.ctx_create(8)


def test_team_create_ctx_numbers_by_the_team(comm: MPI.Intracomm, shape: str) -> None:
    """team_create_ctx; on SHMEM_TEAM_INVALID it raises, where C answers with a status."""
    with job(comm, settings_of(shape, comm.size)) as rt:
        n = rt.n_pes
        word = zeros(rt, 2, np.uint64)
        reverse = rt.team_split_strided(SHMEM_TEAM_WORLD, n - 1, -1, n)
        ctx = rt.team_create_ctx(reverse, SHMEM_CTX_PRIVATE)
        assert ctx.get_team() is reverse
        to = (reverse.my_pe + 1) % n  # in the team; the PE before this one in the job
        exercise(rt, ctx, to, word)
        ctx.p(word[1:], rt.my_pe + 1, to)
        ctx.quiet()
        rt.barrier_all()
        assert word.tolist() == [10, after(rt) + 1]
        assert ctx.g(word[1:], to) == rt.my_pe + 1
        assert rt.g(word[1:], before(rt)) == rt.my_pe + 1
        with pytest.raises(railshmem.ArgumentError, match=f"PE {n}"):
            ctx.p(word, 1, n)
        ctx.destroy()
        rt.team_destroy(reverse)
        with pytest.raises(railshmem.ArgumentError, match="SHMEM_TEAM_INVALID"):
            rt.team_create_ctx(SHMEM_TEAM_INVALID)


def test_a_context_is_completed_apart_and_refused_after_its_end(
    comm: MPI.Intracomm, shape: str
) -> None:
    """ctx_create, quiet of one context, and every call on one that was destroyed."""
    with job(comm, settings_of(shape, comm.size)) as rt:
        data = zeros(rt, (2, 4000), np.int32)
        flag = zeros(rt, 1, np.int32)
        first, second = rt.ctx_create(), rt.ctx_create()
        first.put_nbi(data[0], np.full(4000, 1, np.int32), after(rt))
        second.put_nbi(data[1], np.full(4000, 2, np.int32), after(rt))
        second.quiet()
        rt.p(flag, 1, after(rt))
        rt.wait_until(flag, SHMEM_CMP_EQ, 1)
        assert (data[1] == 2).all()
        first.destroy()  # completes what was posted on it
        comm.Barrier()
        assert (data[0] == 1).all()
        for call in (
            first.destroy,
            first.quiet,
            first.fence,
            first.get_team,
            lambda: first.put(data[0], data[0], 0),
            lambda: first.atomic_inc(flag, 0),
        ):
            with pytest.raises(railshmem.ArgumentError, match="destroyed"):
                call()
        second.destroy()
        assert SHMEM_CTX_INVALID is None
        rt.barrier_all()
