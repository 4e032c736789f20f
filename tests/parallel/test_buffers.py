"""Users' own arrays: registered for NICs, and made symmetric where they are."""

from __future__ import annotations

import mmap

import numpy as np
import pytest
from mpi4py import MPI

import railshmem
from jobs import DEVICE, SHAPES, job, on_cpus, settings_of
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


def content(pe: int) -> np.ndarray:
    return ((np.arange(1 << 20) + 31 * pe) % 251).astype(np.uint8)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_region_inside_a_larger_allocation_keeps_its_place(
    comm: MPI.Intracomm, shape: str
) -> None:
    """Wrong bytes moved from a tensor inside an allocation, as if it began where that begins.

    The allocation has 1 MiB and the tensor its bytes [4160, 8192): on either side, put and got.
    """
    first, end = 4160, 8192
    with job(comm, settings_of(shape, comm.size)) as rt:
        right, left = (rt.my_pe + 1) % rt.n_pes, (rt.my_pe - 1) % rt.n_pes
        there = symmetric_array(rt, 1 << 20, np.uint8)
        registered = np.empty(1 << 20, np.uint8)
        rt.register_buffer(registered[first:end])
        for here in (symmetric_array(rt, 1 << 20, np.uint8), registered, np.empty_like(registered)):
            for start, stop in ((first, end), (first, first + 1), (end - 1, end)):
                here[:] = content(rt.my_pe)
                there[:] = 255
                rt.barrier_all()
                rt.put_nbi(there[start:stop], here[start:stop], right)
                rt.barrier_all()
                expected = np.full_like(there, 255)
                expected[start:stop] = content(left)[start:stop]
                np.testing.assert_array_equal(there, expected)
                here[:] = 254
                rt.get_nbi(here[start:stop], there[start:stop], right)
                rt.quiet()
                expected = np.full_like(here, 254)
                expected[start:stop] = content(rt.my_pe)[start:stop]
                np.testing.assert_array_equal(here, expected)
                rt.barrier_all()
        rt.unregister_buffer(registered[first:end])


@pytest.mark.parametrize("shape", SHAPES)
def test_no_piece_of_the_heap_has_keys_of_its_own(comm: MPI.Intracomm, shape: str) -> None:
    """Keys of a piece inside the heap overwrote those of the heap: the rest was out of reach."""
    with job(comm, settings_of(shape, comm.size)) as rt:
        right, left = (rt.my_pe + 1) % rt.n_pes, (rt.my_pe - 1) % rt.n_pes
        pieces = [symmetric_array(rt, 1000 * (number + 1), np.uint8) for number in range(40)]
        own = [np.full(5000, number, np.uint8) for number in range(40)]
        for array in own:
            rt.register_buffer(array)
        adopted = []
        if DEVICE == "cpu":  # a GPU's memory cannot take the place of other memory
            pages = np.frombuffer(mmap.mmap(-1, mmap.PAGESIZE), np.uint8)
            adopted.append(rt.register_symmetric(pages))
        with pytest.raises(railshmem.ArgumentError, match="registered already"):
            rt.register_buffer(pieces[7])
        for array in own[::2]:
            rt.unregister_buffer(array)
        everywhere = [*pieces, *adopted]
        for piece in everywhere:
            piece[:] = 255
        rt.barrier_all()
        for number, piece in enumerate(everywhere):
            rt.put(piece[:1], np.full(1, number + rt.my_pe, np.uint8), right)
            rt.put(piece[-1:], np.full(1, number + 100 + rt.my_pe, np.uint8), right)
        rt.barrier_all()
        for number, piece in enumerate(everywhere):
            assert (piece[0], piece[-1]) == (number + left, number + 100 + left)
            assert (piece[1:-1] == 255).all()
        rt.barrier_all()
        for array in adopted:
            rt.unregister_symmetric(array)
        for array in own[1::2]:
            rt.unregister_buffer(array)


@on_cpus
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


@on_cpus
def test_a_buffer_that_is_no_whole_pages_is_refused_on_every_pe(comm: MPI.Intracomm) -> None:
    with (
        job(comm, settings_of("one node", comm.size)) as rt,
        pytest.raises(railshmem.ArgumentError, match="multiples of the page size"),
    ):
        rt.register_symmetric(np.zeros(100))
