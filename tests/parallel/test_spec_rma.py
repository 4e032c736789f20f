"""Puts and gets, blocking and not (OpenSHMEM 1.5, section 9.6)."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

import railshmem
from jobs import SHAPES, job, settings_of
from railshmem import symmetric_array
from spec_arrays import RMA_TYPES, after, before, sample, zeros

pytestmark = [pytest.mark.mpi(min_size=2), pytest.mark.parametrize("shape", SHAPES)]


def check_arrived(dest: np.ndarray, pe: int) -> None:
    """Elements 2 to 9 of `dest` are PE `pe`'s sample, and the others still 0."""
    np.testing.assert_array_equal(dest[2:10], sample(dest.dtype, 8, pe))
    assert not dest[:2].any()
    assert not dest[10:].any()


def test_put_moves_every_type_and_touches_nothing_else(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        for dtype in RMA_TYPES:
            dest = zeros(rt, 12, dtype)
            source = sample(dtype, 8, rt.my_pe)
            rt.put(dest[2:], source, after(rt))
            source[:] = 0  # may be used again at once
            rt.barrier_all()
            check_arrived(dest, before(rt))
            rt.free(dest)


def test_put_nbi_is_complete_after_quiet(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        for dtype in RMA_TYPES:
            dest = zeros(rt, 12, dtype)
            in_heap = symmetric_array(rt, 8, dtype)
            in_heap[:] = sample(dtype, 8, rt.my_pe)
            for source in (sample(dtype, 8, rt.my_pe), in_heap):
                rt.put_nbi(dest[2:], source, after(rt))
                rt.quiet()
                comm.Barrier()  # no call of the library helps the data along
                check_arrived(dest, before(rt))
                dest[:] = 0
                comm.Barrier()
            rt.free(in_heap)
            rt.free(dest)


def test_get_brings_every_type_and_touches_nothing_else(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        for dtype in RMA_TYPES:
            source = symmetric_array(rt, 10, dtype)
            source[:] = sample(dtype, 10, rt.my_pe)
            in_heap = zeros(rt, 12, dtype)
            for dest in (np.zeros(12, dtype), in_heap):
                rt.get(dest[2:], source, after(rt), nelems=8)
                check_arrived(dest, after(rt))
            rt.barrier_all()
            rt.free(in_heap)
            rt.free(source)


def test_get_nbi_is_complete_after_quiet(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        for dtype in RMA_TYPES:
            source = symmetric_array(rt, 10, dtype)
            source[:] = sample(dtype, 10, rt.my_pe)
            in_heap = zeros(rt, 12, dtype)
            for dest in (np.zeros(12, dtype), in_heap):
                rt.get_nbi(dest[2:], source, after(rt), nelems=8)
                rt.quiet()
                check_arrived(dest, after(rt))
            rt.barrier_all()
            rt.free(in_heap)
            rt.free(source)


def test_p_and_g_move_one_element(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        for dtype in RMA_TYPES:
            dest = zeros(rt, 4, dtype)
            value = sample(dtype, 1, rt.my_pe)[0]
            rt.p(dest[1:], value, after(rt))
            rt.barrier_all()
            assert dest[1] == sample(dtype, 1, before(rt))[0]
            assert not dest[[0, 2, 3]].any()
            got = rt.g(dest[1:], after(rt))
            assert got == value
            assert type(got) is type(value)
            rt.barrier_all()
            rt.free(dest)


def test_p_takes_the_numbers_that_dest_holds(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        words = zeros(rt, 2, np.int16)
        rt.p(words, -7, after(rt))
        with pytest.raises(OverflowError):
            rt.p(words, 1 << 20, after(rt))
        rt.barrier_all()
        assert words.tolist() == [-7, 0]
        assert rt.g(words, after(rt)) == -7


STRIDES = [(1, 1, 9), (2, 1, 9), (1, 3, 7), (3, 2, 6), (5, 4, 1), (2, 2, 0)]


def test_iput_places_elements_apart(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        for dtype in RMA_TYPES:
            dest = zeros(rt, 20, dtype)
            for dst, sst, nelems in STRIDES:
                rt.iput(dest, sample(dtype, 20, rt.my_pe), dst, sst, nelems, after(rt))
                rt.barrier_all()
                expected = np.zeros(20, dtype)
                theirs = sample(dtype, 20, before(rt))
                expected[: dst * nelems : dst] = theirs[: sst * nelems : sst]
                np.testing.assert_array_equal(dest, expected)
                dest[:] = 0
                rt.barrier_all()
            rt.free(dest)


def test_iget_takes_elements_apart(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        for dtype in RMA_TYPES:
            source = symmetric_array(rt, 20, dtype)
            source[:] = sample(dtype, 20, rt.my_pe)
            rt.barrier_all()
            for dst, sst, nelems in STRIDES:
                dest = np.zeros(20, dtype)
                rt.iget(dest, source, dst, sst, nelems, after(rt))
                expected = np.zeros(20, dtype)
                theirs = sample(dtype, 20, after(rt))
                expected[: dst * nelems : dst] = theirs[: sst * nelems : sst]
                np.testing.assert_array_equal(dest, expected)
            rt.barrier_all()
            rt.free(source)


def test_strides_below_one_and_arrays_too_short_are_refused(
    comm: MPI.Intracomm, shape: str
) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        dest = zeros(rt, 8, np.int32)
        source = np.ones(8, np.int32)
        for dst, sst, nelems in ((0, 1, 2), (1, -1, 2), (2, 1, 5), (1, 4, 3), (1, 1, -1)):
            for call in (rt.iput, rt.iget):
                with pytest.raises(railshmem.ArgumentError, match=r"shmem_i(put|get)"):
                    call(dest, source, dst, sst, nelems, after(rt))
        rt.barrier_all()
        assert not dest.any()


def test_moves_to_oneself_and_of_nothing_are_allowed(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        words = zeros(rt, 4, np.int64)
        rt.put(words, np.array([5, 6], np.int64), rt.my_pe)
        rt.quiet()
        assert words.tolist() == [5, 6, 0, 0]
        nothing = np.empty(0, np.int64)
        rt.put(words, nothing, after(rt))
        rt.put_nbi(words, nothing, after(rt))
        rt.get(nothing, words, after(rt))
        rt.get_nbi(nothing, words, after(rt))
        rt.barrier_all()
        assert words.tolist() == [5, 6, 0, 0]
