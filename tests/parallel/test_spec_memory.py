"""Symmetric memory (OpenSHMEM 1.5, sections 9.1.8 and 9.3)."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

import railshmem
from jobs import SHAPES, job, settings_of
from railshmem import symmetric_array
from spec_arrays import after, before, default_job, elements_of, zeros

pytestmark = [pytest.mark.mpi(min_size=2), pytest.mark.parametrize("shape", SHAPES)]


def test_malloc_and_free(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        free = rt.heap_free
        block = rt.malloc(1000)
        assert block.nbytes == 1000
        assert block.ptr % 64 == 0
        rt.put(block, np.full(1000, rt.my_pe, np.uint8), after(rt))
        rt.barrier_all()
        assert (elements_of(block) == before(rt)).all()
        rt.free(block)
        assert rt.heap_free == free
        assert rt.malloc(0).ptr == 0
        rt.free(None)
        with pytest.raises(railshmem.ArgumentError, match="nothing allocated starts there"):
            rt.free(block)


def test_align_takes_powers_of_two(comm: MPI.Intracomm, shape: str) -> None:
    with default_job(comm, shape):
        for alignment in (8, 64, 256, 4096):
            railshmem.shmem_malloc(40)
            assert railshmem.shmem_align(alignment, 100).ptr % alignment == 0
        assert railshmem.shmem_align(64, 0).ptr == 0
        for alignment in (3, 8192, -8):
            with pytest.raises(railshmem.ArgumentError, match="alignment"):
                railshmem.shmem_align(alignment, 100)


def test_calloc_clears_what_others_left(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        dirty = rt.malloc(4000)
        elements_of(dirty)[:] = 255
        rt.free(dirty)
        clear = rt.calloc(500, 8)
        assert clear.ptr == dirty.ptr
        assert clear.nbytes == 4000
        assert not elements_of(clear).any()
        rt.free(clear)
        # Whoever is first to leave may put at once: nobody clears it again.
        clear = rt.calloc(500, 8)
        rt.put(clear, np.full(4000, 7, np.uint8), after(rt))
        rt.barrier_all()
        assert (elements_of(clear) == 7).all()
        assert rt.calloc(0, 8).ptr == rt.calloc(8, 0).ptr == 0
        with pytest.raises(railshmem.ArgumentError, match="shmem_calloc"):
            rt.calloc(1 << 62, 1 << 62)


def test_realloc_keeps_what_fits(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        free = rt.heap_free
        block = rt.realloc(None, 100)  # like malloc
        content = (np.arange(100) + rt.my_pe).astype(np.uint8)
        elements_of(block)[:] = content
        rt.malloc(64)  # it cannot grow in place
        for size in (100, 5000, 60):
            block = rt.realloc(block, size)
            assert block.nbytes == size
            kept = min(size, 100)
            np.testing.assert_array_equal(elements_of(block)[:kept], content[:kept])
        offsets = comm.allgather(block.ptr - rt.malloc(64).ptr)
        assert len(set(offsets)) == 1
        with pytest.raises(railshmem.HeapExhausted):
            rt.realloc(block, 1 << 30)
        np.testing.assert_array_equal(elements_of(block), content[:60])
        assert rt.realloc(block, 0).ptr == 0  # like free
        assert rt.heap_free == free - 2 * 64


def test_realloc_takes_arrays_and_completes_puts(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        array = symmetric_array(rt, 3000, np.int32)
        rt.put_nbi(array, np.full(3000, rt.my_pe, np.int32), after(rt))
        grown = elements_of(rt.realloc(array, 20_000), np.int32)
        assert (grown[:3000] == before(rt)).all()


def test_heap_offsets_are_the_same_everywhere(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        array = symmetric_array(rt, (4, 5), np.int32)
        offsets = [rt.heap_offset(part) for part in (array, array[2], array[3:])]
        assert comm.allgather(offsets) == [offsets] * comm.size
        assert [offset - offsets[0] for offset in offsets] == [0, 40, 60]
        with pytest.raises(railshmem.ArgumentError, match="not inside the symmetric heap"):
            rt.heap_offset(np.zeros(5))


def test_malloc_with_hints_takes_the_hints_of_the_specification(
    comm: MPI.Intracomm, shape: str
) -> None:
    with default_job(comm, shape):
        remote = railshmem.SHMEM_MALLOC_ATOMICS_REMOTE
        signal = railshmem.SHMEM_MALLOC_SIGNAL_REMOTE
        for hints in (0, remote, signal, remote | signal):
            word = elements_of(railshmem.shmem_malloc_with_hints(8, hints), np.uint64)
            word[0] = 0
            railshmem.shmem_barrier_all()
            railshmem.shmem_atomic_inc(word, (comm.rank + 1) % comm.size)
            railshmem.shmem_barrier_all()
            assert word[0] == 1
        assert railshmem.shmem_malloc_with_hints(0, remote).ptr == 0
        with pytest.raises(railshmem.ArgumentError, match="unknown hints 4"):
            railshmem.shmem_malloc_with_hints(8, 4)


def test_ptr_is_the_peers_array_or_none(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        words = zeros(rt, (2, 3), np.int32)
        words[:] = rt.my_pe
        rt.barrier_all()
        pairs = rt.info()["pairs"][rt.my_pe]
        for pe in range(rt.n_pes):
            theirs = rt.ptr(words, pe)
            if pairs[pe]["path"] != "P2P" and pe != rt.my_pe:
                assert theirs is None  # nothing of another node is mapped here
                continue
            assert theirs.shape == (2, 3)
            assert theirs.dtype == np.int32
            assert (theirs == pe).all()
        rt.barrier_all()
        mapped = [pe for pe in range(rt.n_pes) if rt.ptr(words, pe) is not None]
        neighbour = mapped[(mapped.index(rt.my_pe) + 1) % len(mapped)]
        rt.ptr(words, neighbour)[1, 2] = 99
        rt.barrier_all()
        assert words[1, 2] == 99
        assert (words.reshape(-1)[:5] == rt.my_pe).all()
        assert rt.ptr(np.zeros(3), rt.my_pe) is None  # not symmetric
        assert rt.ptr(words, rt.n_pes) is None
