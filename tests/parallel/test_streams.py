"""What streams carry out, in their order. Where the job runs on CPUs the calls are the host's."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

import railshmem as rs
from jobs import SHAPES, job, on_cpus, settings_of
from railshmem import (
    SHMEM_CMP_EQ,
    SHMEM_CMP_GE,
    SHMEM_CMP_GT,
    SHMEM_CMP_LT,
    SHMEM_SIGNAL_ADD,
    SHMEM_SIGNAL_SET,
    symmetric_array,
)
from spec_arrays import after, before, default_job, sample, zeros

pytestmark = [pytest.mark.mpi(min_size=2), pytest.mark.parametrize("shape", SHAPES)]

# Of one block, of two launches, of many blocks, and no whole number of anything.
COUNTS = [1, 1000, 20_003, 300_001]


@pytest.mark.parametrize("count", COUNTS)
def test_a_put_and_its_signal_and_the_wait_for_it(
    comm: MPI.Intracomm, shape: str, count: int
) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        inbox = zeros(rt, count + 2, np.int32)
        mine, copy = symmetric_array(rt, count, np.int32), zeros(rt, count, np.int32)
        signals = zeros(rt, 2, np.uint64)
        for turn, (op, value) in enumerate(((SHMEM_SIGNAL_SET, 1), (SHMEM_SIGNAL_ADD, 1)), 1):
            mine[:] = sample(np.int32, count, rt.my_pe + 10 * turn)
            rt.put_signal_on_stream(inbox[1:], mine, signals, value, op, after(rt))
            rt.signal_wait_until_on_stream(signals, SHMEM_CMP_EQ, turn)
            rt.get_on_stream(copy, inbox[1:-1], rt.my_pe)  # sees what was put
            rt.barrier_all_on_stream()
            expected = sample(np.int32, count, before(rt) + 10 * turn)
            np.testing.assert_array_equal(copy, expected)
            np.testing.assert_array_equal(inbox[1:-1], expected)
            assert (inbox[0], inbox[-1]) == (0, 0)
            assert signals.tolist() == [turn, 0]
            rt.barrier_all()


@pytest.mark.parametrize("count", COUNTS)
def test_puts_are_complete_after_quiet_and_sync(
    comm: MPI.Intracomm, shape: str, count: int
) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        inbox = zeros(rt, (rt.n_pes, count), np.float64)
        mine = symmetric_array(rt, count, np.float64)
        mine[:] = sample(np.float64, count, rt.my_pe)
        for pe in range(rt.n_pes):
            rt.put_on_stream(inbox[rt.my_pe], mine, pe)
        rt.quiet_on_stream()
        rt.sync_all_on_stream()
        for pe in range(rt.n_pes):
            np.testing.assert_array_equal(inbox[pe], sample(np.float64, count, pe))
        back = zeros(rt, count, np.float64)
        rt.get_on_stream(back, mine, after(rt))
        np.testing.assert_array_equal(back, sample(np.float64, count, after(rt)))
        rt.barrier_all()


def test_signals_alone_and_words_of_every_kind(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        signal = zeros(rt, 1, np.uint64)
        rt.signal_op_on_stream(signal, 5, SHMEM_SIGNAL_SET, after(rt))
        rt.signal_wait_until_on_stream(signal, SHMEM_CMP_GE, 5)  # more may have come
        rt.fence_on_stream()  # after the one that sets
        rt.signal_op_on_stream(signal, 2, SHMEM_SIGNAL_ADD, after(rt))
        rt.signal_wait_until_on_stream(signal, SHMEM_CMP_GE, 7)
        for dtype, value, compare, operand in (
            (np.int32, -3, SHMEM_CMP_LT, -2),
            (np.int64, -3, SHMEM_CMP_LT, -2),
            (np.uint32, 2**32 - 3, SHMEM_CMP_GT, 5),
            (np.uint64, 2**64 - 3, SHMEM_CMP_GT, 5),
        ):
            word = zeros(rt, 1, dtype)
            value_of = symmetric_array(rt, 1, dtype)
            value_of[0] = value
            rt.put_on_stream(word, value_of, after(rt))
            rt.wait_until_on_stream(word, compare, operand)
            rt.barrier_all_on_stream()
            assert word[0] == value
        rt.barrier_all()


def test_moves_of_nothing_are_allowed(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        words = zeros(rt, 4, np.int64)
        signal = zeros(rt, 1, np.uint64)
        nothing = words[:0]
        rt.put_on_stream(words, nothing, after(rt))
        rt.get_on_stream(nothing, words, after(rt))
        rt.put_signal_on_stream(words, nothing, signal, 1, SHMEM_SIGNAL_ADD, after(rt))
        rt.signal_wait_until_on_stream(signal, SHMEM_CMP_EQ, 1)
        rt.put_on_stream(words, words, after(rt), nelems=0)
        rt.barrier_all_on_stream()
        assert words.tolist() == [0, 0, 0, 0]
        rt.barrier_all()


def test_stream_names(comm: MPI.Intracomm, shape: str) -> None:
    with default_job(comm, shape):
        me, n = rs.shmem_my_pe(), rs.shmem_n_pes()
        to, left = (me + 1) % n, (me - 1) % n
        words, signal = rs.shmem_array(4, np.int64), rs.shmem_array(1, np.uint64)
        words[:] = me
        signal[:] = 0
        rs.shmem_barrier_all()
        rs.shmemx_put_on_stream(words[1:], words[:1], to)
        rs.shmemx_fence_on_stream()
        rs.shmemx_put_signal_on_stream(words[2:], words[:1], signal, 9, SHMEM_SIGNAL_SET, to)
        rs.shmemx_signal_wait_until_on_stream(signal, SHMEM_CMP_GE, 9, stream=None)
        rs.shmemx_fence_on_stream()  # after the one that sets
        rs.shmemx_signal_op_on_stream(signal, 1, SHMEM_SIGNAL_ADD, to)
        rs.shmemx_wait_until_on_stream(signal, SHMEM_CMP_EQ, 10)
        rs.shmemx_get_on_stream(words[3:], words, to)
        rs.shmemx_quiet_on_stream()
        rs.shmemx_barrier_all_on_stream()
        rs.shmemx_sync_all_on_stream()
        assert words.tolist() == [me, left, left, to]
        rs.shmem_barrier_all()


@on_cpus
def test_jobs_on_cpus_have_no_stream_but_none(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        words = zeros(rt, 4, np.int64)
        for call in (
            lambda: rt.put_on_stream(words, words, 0, stream=4096),
            lambda: rt.quiet_on_stream(stream=4096),
            lambda: rt.barrier_all_on_stream(stream=4096),
        ):
            with pytest.raises(rs.ArgumentError, match=r"stream 0x1000 where the job runs on CPUs"):
                call()
        with pytest.raises(rs.ArgumentError, match=r"device_context: the job runs on CPUs"):
            rt.device_context()
