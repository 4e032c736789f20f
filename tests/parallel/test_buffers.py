"""Users' own arrays: registered for NICs, and made symmetric where they are."""

from __future__ import annotations

import mmap

import numpy as np
import pytest
from mpi4py import MPI

import railshmem
from jobs import SHAPES, job, settings_of
from railshmem import symmetric_array

pytestmark = pytest.mark.mpi(min_size=2)


@pytest.mark.parametrize("shape", SHAPES)
def test_registered_arrays_are_sources_and_destinations(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        right = (rt.my_pe + 1) % rt.n_pes
        left = (rt.my_pe - 1) % rt.n_pes
        inbox = symmetric_array(rt, 50_000, np.float64)
        whole = np.arange(50_002, dtype=np.float64) + rt.my_pe
        source = whole[1:-1]  # inside a larger allocation
        rt.register_buffer(source)
        rt.barrier_all()
        rt.put_nbi(inbox, source, right)
        rt.barrier_all()
        np.testing.assert_array_equal(inbox, np.arange(1, 50_001) + left)
        landing = np.zeros(50_000)
        rt.register_buffer(landing)
        rt.get_nbi(landing, inbox, right)
        rt.quiet()
        np.testing.assert_array_equal(landing, np.arange(1, 50_001) + rt.my_pe)
        rt.barrier_all()
        for array in (source, landing):
            rt.unregister_buffer(array)
            with pytest.raises(railshmem.ArgumentError, match="nothing registered starts there"):
                rt.unregister_buffer(array)


@pytest.mark.parametrize("shape", SHAPES)
def test_an_adopted_array_is_symmetric_and_stays_where_it_is(
    comm: MPI.Intracomm, shape: str
) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        own = np.frombuffer(mmap.mmap(-1, 4 * mmap.PAGESIZE), np.int32).reshape(4, -1)
        own[:] = rt.my_pe
        symmetric = rt.register_symmetric(own)
        assert symmetric.shape == own.shape
        assert symmetric.dtype == own.dtype
        right = (rt.my_pe + 1) % rt.n_pes
        rt.barrier_all()
        rt.put(symmetric[2], np.full(own.shape[1], 100 + rt.my_pe, np.int32), right)
        rt.barrier_all()
        left = (rt.my_pe - 1) % rt.n_pes
        assert (own[2] == 100 + left).all()
        assert (own[[0, 1, 3]] == rt.my_pe).all()
        rt.fcollect(
            rt.world, symmetric_array(rt, rt.n_pes * own.size, np.int32), symmetric
        )  # a source of collectives, too
        rt.unregister_symmetric(symmetric)
        assert (own[2] == 100 + left).all()
        own[:] = 0
        rt.barrier_all()


def test_a_buffer_that_is_no_whole_pages_is_refused_on_every_pe(comm: MPI.Intracomm) -> None:
    with (
        job(comm, settings_of("one node", comm.size)) as rt,
        pytest.raises(railshmem.ArgumentError, match="multiples of the page size"),
    ):
        rt.register_symmetric(np.zeros(100))
