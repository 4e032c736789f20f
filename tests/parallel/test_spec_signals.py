"""Signals, order and locks (OpenSHMEM 1.5, sections 9.8, 9.11 and 9.12)."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

import railshmem
from jobs import SHAPES, job, settings_of
from railshmem import (
    SHMEM_CMP_EQ,
    SHMEM_CMP_GE,
    SHMEM_CMP_GT,
    SHMEM_CMP_LE,
    SHMEM_CMP_LT,
    SHMEM_CMP_NE,
    SHMEM_SIGNAL_ADD,
    SHMEM_SIGNAL_SET,
    symmetric_array,
)
from spec_arrays import after, before, sample, zeros

pytestmark = [pytest.mark.mpi(min_size=2), pytest.mark.parametrize("shape", SHAPES)]

HUGE = (1 << 63) + 5  # negative, were signals signed


def test_put_signal_announces_its_data(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        dest = zeros(rt, 20, np.int32)
        signals = zeros(rt, 3, np.uint64)
        signal = signals[1:]
        rounds = [
            (SHMEM_SIGNAL_SET, 7, 7),
            (SHMEM_SIGNAL_ADD, 5, 12),
            (SHMEM_SIGNAL_SET, HUGE, HUGE),
        ]
        for seed, (op, value, seen) in enumerate(rounds):
            source = sample(np.int32, 16, rt.my_pe + 10 * seed)
            rt.put_signal(dest[2:], source, signal, value, op, after(rt))
            source[:] = 0
            assert rt.signal_wait_until(signal, SHMEM_CMP_EQ, seen) == seen
            np.testing.assert_array_equal(dest[2:18], sample(np.int32, 16, before(rt) + 10 * seed))
            assert not dest[[0, 1, 18, 19]].any()
            assert signals.tolist() == [0, seen, 0]
            rt.barrier_all()


def test_put_signal_nbi_announces_its_data(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        dest = zeros(rt, 20, np.float64)
        signals = zeros(rt, 2, np.uint64)
        in_heap = symmetric_array(rt, 16, np.float64)
        in_heap[:] = sample(np.float64, 16, rt.my_pe)
        for turn, op in enumerate((SHMEM_SIGNAL_SET, SHMEM_SIGNAL_ADD), 1):
            value = turn if op is SHMEM_SIGNAL_SET else 1
            for source in (in_heap, sample(np.float64, 16, rt.my_pe)):
                rt.put_signal_nbi(dest, source, signals, value, op, after(rt), nelems=10)
                rt.signal_wait_until(signals, SHMEM_CMP_GE, turn)
                np.testing.assert_array_equal(dest[:10], sample(np.float64, 10, before(rt)))
                assert not dest[10:].any()
                rt.quiet()
                rt.barrier_all()
                dest[:] = 0
                signals[0] = turn if op is SHMEM_SIGNAL_SET and source is not in_heap else turn - 1
                rt.barrier_all()


def test_a_signal_may_come_without_data(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        dest = zeros(rt, 2, np.int64)
        signal = zeros(rt, 1, np.uint64)
        for pe in range(rt.n_pes):
            rt.put_signal(dest, np.empty(0, np.int64), signal, 1, SHMEM_SIGNAL_ADD, pe)
        assert rt.signal_wait_until(signal, SHMEM_CMP_GE, rt.n_pes) == rt.n_pes
        assert rt.signal_fetch(signal) == rt.n_pes
        assert not dest.any()
        rt.barrier_all()


def test_signal_fetch_and_wait_compare_unsigned(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        dest = zeros(rt, 1, np.int64)
        signal = zeros(rt, 1, np.uint64)
        rt.put_signal(dest, np.array([1]), signal, HUGE, SHMEM_SIGNAL_SET, after(rt))
        for compare, value in (
            (SHMEM_CMP_GT, 1),
            (SHMEM_CMP_GE, HUGE),
            (SHMEM_CMP_EQ, HUGE),
            (SHMEM_CMP_NE, 0),
            (SHMEM_CMP_LE, HUGE),
            (SHMEM_CMP_LT, HUGE + 1),
        ):
            assert rt.signal_wait_until(signal, compare, value) == HUGE
        assert rt.signal_fetch(signal) == HUGE
        with pytest.raises(railshmem.ArgumentError, match="expected uint64"):
            rt.signal_fetch(dest)
        rt.barrier_all()


# ---- order ----


def test_after_fence_flags_follow_data(comm: MPI.Intracomm, shape: str) -> None:
    """A flag stored straight into a mapped heap once overtook an atomic that a thread carried out:
    the fence between them held back commands, but no stores."""
    with job(comm, settings_of(shape, comm.size)) as rt:
        data = zeros(rt, 500, np.int64)
        flag = zeros(rt, 1, np.int64)
        sum_of = zeros(rt, 1, np.int64)
        for turn in range(1, 40):
            rt.put_nbi(data, np.full(500, turn), after(rt))
            rt.atomic_add(sum_of, turn, after(rt))
            rt.fence()
            rt.p(flag, turn, after(rt))
            rt.wait_until(flag, SHMEM_CMP_GE, turn)
            assert (data == turn).all()
            assert sum_of[0] == turn * (turn + 1) // 2
            rt.barrier_all()


def test_after_quiet_everything_is_in_place(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        data = zeros(rt, (rt.n_pes, 3000), np.int32)
        counts = zeros(rt, 2, np.uint64)
        back = np.zeros(3000, np.int32)
        for pe in range(rt.n_pes):
            rt.put_nbi(data[rt.my_pe], np.full(3000, rt.my_pe + 1, np.int32), pe)
            rt.put_signal_nbi(data, data[:0], counts, 1, SHMEM_SIGNAL_ADD, pe)
            rt.atomic_inc(counts[1:], pe)
        rt.quiet()
        rt.get_nbi(back, data[rt.my_pe], after(rt))
        rt.quiet()
        comm.Barrier()
        assert (data == np.arange(1, rt.n_pes + 1)[:, None]).all()
        assert counts.tolist() == [rt.n_pes, rt.n_pes]
        assert (back == rt.my_pe + 1).all()
        comm.Barrier()


# ---- locks ----


def test_set_lock_and_clear_lock_keep_others_out(comm: MPI.Intracomm, shape: str) -> None:
    """What the holder writes without atomics, the next one reads: nothing is lost."""
    with job(comm, settings_of(shape, comm.size)) as rt:
        lock = zeros(rt, 1, np.int64)
        total = zeros(rt, 1, np.int64)
        holders = zeros(rt, 30 * rt.n_pes, np.int32)
        for _ in range(30):
            rt.set_lock(lock)
            turn = int(rt.g(total, 0))
            rt.p(holders[turn:], rt.my_pe + 1, 0)
            rt.p(total, turn + 1, 0)
            rt.clear_lock(lock)  # completes the puts
        rt.barrier_all()
        if rt.my_pe == 0:
            assert total[0] == 30 * rt.n_pes
            assert np.bincount(holders, minlength=rt.n_pes + 1).tolist() == [0] + [30] * rt.n_pes


def test_test_lock_takes_only_a_free_lock(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        lock = zeros(rt, 1, np.int64)
        answers = comm.allgather(rt.test_lock(lock))
        assert sorted(answers) == [0] + [1] * (rt.n_pes - 1)
        if answers[rt.my_pe] == 0:
            rt.clear_lock(lock)
        comm.Barrier()
        if rt.my_pe == rt.n_pes - 1:
            rt.set_lock(lock)
        comm.Barrier()
        assert rt.my_pe == rt.n_pes - 1 or rt.test_lock(lock) == 1
        comm.Barrier()
        if rt.my_pe == rt.n_pes - 1:
            rt.clear_lock(lock)
        rt.barrier_all()


def test_a_lock_is_cleared_by_its_holder_and_set_once(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        lock = zeros(rt, 1, np.int64)
        with pytest.raises(railshmem.ArgumentError, match="shmem_clear_lock"):
            rt.clear_lock(lock)
        rt.barrier_all()
        if rt.my_pe == 1:
            rt.set_lock(lock)
            with pytest.raises(railshmem.ArgumentError, match="shmem_set_lock"):
                rt.set_lock(lock)
            rt.clear_lock(lock)
        rt.barrier_all()
        with pytest.raises(railshmem.ArgumentError, match="64"):
            rt.set_lock(zeros(rt, 1, np.int32))
