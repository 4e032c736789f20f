"""The operations on numpy arrays, on every shape of job."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from mpi4py import MPI

import railshmem
from jobs import SHAPES, job, on_cpus, settings_of
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
from railshmem.bootstrap import MpiBootstrap

pytestmark = pytest.mark.mpi(min_size=2)

DTYPES = [
    np.uint8,
    np.int16,
    np.float32,
    np.complex128,
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
    np.dtype([("key", "<i4"), ("value", "<f8")]),
]


def zeros(rt: railshmem.Runtime, shape: int | tuple[int, ...], dtype: object) -> np.ndarray:
    array = symmetric_array(rt, shape, dtype)
    array.view(np.uint8)[...] = 0
    rt.barrier_all()
    return array


@pytest.mark.parametrize("shape", SHAPES)
def test_put_and_get_move_any_dtype(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        for dtype in DTYPES:
            mine = np.random.default_rng(rt.my_pe).integers(0, 256, 500, np.uint8)
            source = np.resize(mine, 33 * np.dtype(dtype).itemsize).view(dtype)
            dest = zeros(rt, (rt.n_pes, 33), dtype)
            for pe in range(rt.n_pes):
                rt.put(dest[rt.my_pe], source, pe)
            rt.barrier_all()
            for pe in range(rt.n_pes):
                theirs = np.random.default_rng(pe).integers(0, 256, 500, np.uint8)
                expected = np.resize(theirs, source.nbytes)
                np.testing.assert_array_equal(dest[pe].view(np.uint8), expected)
                back = np.empty_like(source)
                rt.get(back, dest[rt.my_pe], pe)
                np.testing.assert_array_equal(back.view(np.uint8), source.view(np.uint8))
            rt.barrier_all()
            rt.free(dest)


@pytest.mark.parametrize("shape", SHAPES)
def test_nelems_moves_that_many_and_no_more(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        dest = zeros(rt, 8, np.int32)
        to = (rt.my_pe + 1) % rt.n_pes
        rt.put(dest, np.arange(1, 9, dtype=np.int32), to, nelems=3)
        rt.barrier_all()
        assert dest.tolist() == [1, 2, 3, 0, 0, 0, 0, 0]
        back = np.full(8, -1, np.int32)
        rt.get(back, dest, to, nelems=2)
        assert back.tolist() == [1, 2, -1, -1, -1, -1, -1, -1]
        rt.put(dest, np.empty(0, np.int32), to)  # nothing is something one may send


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("op", [SHMEM_SIGNAL_SET, SHMEM_SIGNAL_ADD])
def test_large_put_signal_announces_all_of_its_data(
    comm: MPI.Intracomm, shape: str, op: object
) -> None:
    with job(comm, settings_of(shape, comm.size, RAILSHMEM_CHUNK="64K")) as rt:
        count = 300_000
        dest = zeros(rt, count, np.float32)
        signal = zeros(rt, 1, np.uint64)
        to = (rt.my_pe + 1) % rt.n_pes
        for source in (np.full(count, 1.0, np.float32), np.full(count, 2.0, np.float32)):
            value = int(source[0]) if op is SHMEM_SIGNAL_SET else 1
            rt.put_signal(dest, source, signal, value, op, to)
            rt.signal_wait_until(signal, SHMEM_CMP_GE, int(source[0]))
            assert (dest == source[0]).all()
            rt.barrier_all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64])
def test_integer_atomics(comm: MPI.Intracomm, shape: str, dtype: type) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        counter = zeros(rt, 1, dtype)
        mine = zeros(rt, 1, dtype)
        seen = [rt.atomic_fetch_inc(counter, 0) for _ in range(50)]
        assert seen == sorted(set(seen))
        everyone = sorted(value for values in comm.allgather(seen) for value in values)
        assert everyone == list(range(50 * rt.n_pes))
        to = (rt.my_pe + 1) % rt.n_pes
        top = int(np.iinfo(dtype).max)
        rt.atomic_set(mine, top, to)
        rt.quiet()
        assert rt.atomic_fetch(mine, to) == top
        assert rt.atomic_swap(mine, 5, to) == top
        assert rt.atomic_compare_swap(mine, 4, 9, to) == 5
        assert rt.atomic_compare_swap(mine, 5, 12, to) == 5
        assert rt.atomic_fetch_and(mine, 10, to) == 12
        assert rt.atomic_fetch_or(mine, 3, to) == 8
        assert rt.atomic_fetch_xor(mine, 1, to) == 11
        rt.atomic_add(mine, 5, to)
        rt.atomic_inc(mine, to)
        rt.barrier_all()
        assert mine[0] == 16


@pytest.mark.parametrize("shape", SHAPES)
def test_float_atomics_set_swap_and_fetch(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        for dtype in (np.float32, np.float64):
            word = zeros(rt, 1, dtype)
            to = (rt.my_pe + 1) % rt.n_pes
            rt.atomic_set(word, -1.5, to)
            rt.quiet()
            assert rt.atomic_swap(word, 0.25, to) == -1.5
            assert rt.atomic_fetch(word, to) == 0.25
            with pytest.raises(railshmem.ArgumentError, match="integer"):
                rt.atomic_add(word, 1, to)
            rt.barrier_all()


@pytest.mark.parametrize("shape", SHAPES)
def test_wait_until_takes_six_comparisons(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        word = zeros(rt, 1, np.int64)
        word[0] = 7
        rt.barrier_all()
        to = (rt.my_pe + 1) % rt.n_pes
        rt.put(word, np.array([-3], np.int64), to)
        assert rt.wait_until(word, SHMEM_CMP_LT, 0) == -3
        assert rt.wait_until(word, SHMEM_CMP_LE, -3) == -3
        assert rt.wait_until(word, SHMEM_CMP_EQ, -3) == -3
        assert rt.wait_until(word, SHMEM_CMP_NE, 7) == -3
        assert rt.wait_until(word, SHMEM_CMP_GT, -4) == -3
        assert rt.wait_until(word, SHMEM_CMP_GE, -3) == -3
        rt.barrier_all()


@on_cpus
def test_symmetric_memory_is_a_buffer_for_numpy_and_dlpack(comm: MPI.Intracomm) -> None:
    with job(comm, settings_of("one node", comm.size)) as rt:
        memory = rt.malloc(256)
        assert memory.nbytes == len(memory) == 256
        view = np.frombuffer(memory, np.uint8)
        assert view.ctypes.data == memory.ptr
        view[:] = rt.my_pe
        shared = np.from_dlpack(memory)
        assert shared.ctypes.data == memory.ptr
        rt.barrier_all()
        rt.put(memory, np.full(64, 9, np.int32), (rt.my_pe + 1) % rt.n_pes)
        rt.barrier_all()
        assert (view.view(np.int32) == 9).all()
        assert "256 bytes" in repr(memory)
        rt.free(memory)
        assert rt.malloc(0).ptr == 0
        rt.free(None)


def test_an_array_outlives_its_runtime(comm: MPI.Intracomm) -> None:
    with job(comm, settings_of("2 nodes", comm.size)) as rt:
        array = zeros(rt, 16, np.int32)
        array[:] = 3
    del rt
    assert array.sum() == 48  # the heap stays mapped while something refers to it


class CountingBootstrap(MpiBootstrap):
    """Counts the collectives that init and others ask for."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        super().__init__(comm, 30)
        self.collectives = 0

    def allgather(self, data: bytes) -> bytes:
        self.collectives += 1
        return super().allgather(data)

    def alltoall(self, data: bytes) -> bytes:
        self.collectives += 1
        return super().alltoall(data)


def test_thousands_of_mallocs_exchange_no_keys(comm: MPI.Intracomm) -> None:
    """1,900 allocations took 15 minutes: each did 8 barriers and 8 allgathers of keys."""
    bootstrap = CountingBootstrap(comm)
    rt = railshmem.Runtime(bootstrap, settings_of("2 nodes", comm.size))
    of_init = bootstrap.collectives
    assert of_init > 0
    before = sum(row["bytes"] for row in rt.proxy_traffic())
    blocks = [rt.malloc(4096) for _ in range(2000)]
    after = sum(row["bytes"] for row in rt.proxy_traffic())
    assert len({block.ptr for block in blocks}) == 2000
    # A barrier sends one word per round and remote peer; nothing else may travel.
    assert after - before <= 2000 * 8 * 8
    for block in blocks:
        rt.free(block)
    assert rt.heap_free == 64 << 20
    assert bootstrap.collectives == of_init
    rt.finalize()


def test_allocations_are_symmetric(comm: MPI.Intracomm) -> None:
    with job(comm, settings_of("one node", comm.size)) as rt:
        blocks = [rt.malloc(100 * (i + 1)) for i in range(20)]
        for block in blocks[::3]:
            rt.free(block)
        offsets = [rt.malloc(64 * i + 1).ptr - blocks[1].ptr for i in range(10)]
        assert all(other == offsets for other in comm.allgather(offsets))


def test_the_default_runtime_serves_scripts(comm: MPI.Intracomm) -> None:
    railshmem.shmem_init(comm, settings=settings_of("2 nodes", comm.size))
    assert railshmem.shmem_my_pe() == comm.rank
    assert railshmem.shmem_n_pes() == comm.size
    with pytest.raises(railshmem.ArgumentError, match="already initialised"):
        railshmem.shmem_init(comm)
    array = railshmem.shmem_array((2, 3), ml_dtypes.bfloat16)
    array[:] = comm.rank
    railshmem.shmem_barrier_all()
    back = np.empty((2, 3), ml_dtypes.bfloat16)
    to = (comm.rank + 1) % comm.size
    railshmem.shmem_get(back, array, to)
    assert (back == to).all()
    railshmem.shmem_barrier_all()
    railshmem.shmem_free(array)
    railshmem.shmem_finalize()
    railshmem.shmem_finalize()
    with pytest.raises(railshmem.ArgumentError, match="finalized"):
        railshmem.shmem_barrier_all()
