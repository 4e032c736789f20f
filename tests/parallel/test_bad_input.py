"""Bad input gets an error that names the values, before any data moves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from mpi4py import MPI

import railshmem
from jobs import job, settings_of
from railshmem import SHMEM_CMP_EQ, SHMEM_SIGNAL_SET, symmetric_array

pytestmark = pytest.mark.mpi(min_size=2)

Case = Callable[[railshmem.Runtime, np.ndarray], object]

ONES = np.ones(8, np.float32)
CASES: dict[str, tuple[str, Case]] = {
    "wrong PE": (
        r"PE 99 does not exist: the job has PEs 0 to \d",
        lambda rt, a: rt.put(a, ONES, 99),
    ),
    "negative PE": (r"PE -1 does not exist", lambda rt, a: rt.get(ONES.copy(), a, -1)),
    "PE beyond 32 bits": (r"PE -1 does not exist", lambda rt, a: rt.put(a, ONES, 2**40)),
    "dest outside the heap": (
        r"dest 0x[0-9a-f]+ with 32 bytes is not inside the symmetric heap",
        lambda rt, a: rt.put(ONES.copy(), ONES, 0),
    ),
    "source outside the heap": (
        r"source 0x[0-9a-f]+ with 32 bytes is not inside the symmetric heap",
        lambda rt, a: rt.get(ONES.copy(), ONES, 0),
    ),
    "more than dest has": (
        r"9 elements of 4 bytes do not fit dest, which has 8 elements of float32",
        lambda rt, a: rt.put(a, np.ones(9, np.float32), 0),
    ),
    "more than source has": (
        r"3 elements of 4 bytes do not fit source, which has 2 elements",
        lambda rt, a: rt.put(a, ONES[:2], 0, nelems=3),
    ),
    "negative count": (r"nelems -1 is negative", lambda rt, a: rt.put(a, ONES, 0, nelems=-1)),
    "a count that would wrap": (
        r"nelems 4611686018427387905 of 4 bytes",
        lambda rt, a: rt.put(a, ONES, 0, nelems=2**62 + 1),
    ),
    "strided source": (
        r"source of shape \(4,\) and strides \(8,\) is not contiguous",
        lambda rt, a: rt.put(a, ONES[::2], 0),
    ),
    "strided dest": (
        r"dest of shape \(4,\) and strides \(8,\) is not contiguous",
        lambda rt, a: rt.get(ONES.copy()[::2], a, 0, nelems=2),
    ),
    "another dtype": (
        r"dest has float32, source has float64",
        lambda rt, a: rt.put(a, np.ones(8), 0),
    ),
    "Python objects": (
        r"source of object holds Python objects",
        lambda rt, a: rt.put(a, np.array([1, 2], object), 0),
    ),
    "a word of the other byte order": (
        r"dest of >i4 is not in this machine's byte order",
        lambda rt, a: rt.atomic_add(a.view(">i4"), 1, 0),
    ),
    "no array": (r"source of type list", lambda rt, a: rt.put(a, [1.0], 0)),
    "read-only dest": (r"dest is a read-only array", lambda rt, a: rt.get(read_only(), a, 0)),
    "an atomic on floats": (r"integer", lambda rt, a: rt.atomic_add(a, 1, 0)),
    "a value too large": (
        r"value 4294967296 does not fit an? ?unsigned integer of 32 bits",
        lambda rt, a: rt.atomic_add(a.view(np.uint32), 2**32, 0),
    ),
    "a signal that is not uint64": (
        r"expected uint64",
        lambda rt, a: rt.put_signal(a[:2], ONES[:2], a.view(np.int64), 1, SHMEM_SIGNAL_SET, 0),
    ),
    "waiting outside the heap": (
        r"not inside the symmetric heap",
        lambda rt, a: rt.wait_until(np.zeros(1, np.int64), SHMEM_CMP_EQ, 0),
    ),
    "a misaligned word": (
        r"is not aligned to its 8 bytes",
        lambda rt, a: rt.atomic_add(a.view(np.uint8)[4:12].view(np.int64), 1, 0),
    ),
    "freeing what was not allocated": (
        r"nothing allocated starts there",
        lambda rt, a: rt.free(a[1:]),
    ),
    "negative size": (r"-5 bytes", lambda rt, a: rt.malloc(-5)),
    "a size beyond 64 bits": (r"bytes is beyond 64 bits", lambda rt, a: rt.malloc(2**70)),
    "alignment that is no power of two": (r"alignment 48", lambda rt, a: rt.malloc(64, 48)),
}


def read_only() -> np.ndarray:
    array = np.zeros(8, np.float32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("shape", ["one node", "2 nodes"])
def test_bad_calls_name_the_values_and_move_nothing(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        array = symmetric_array(rt, 8, np.float32)
        array[:] = 5
        rt.barrier_all()
        free = rt.heap_free
        for name, (message, call) in CASES.items():
            print(name)  # shown when the next line fails
            with pytest.raises(railshmem.ArgumentError, match=message):
                call(rt, array)
        rt.barrier_all()
        assert (array == 5).all()
        assert rt.heap_free == free


@pytest.mark.parametrize("shape", ["one node", "2 nodes"])
def test_sizes_that_differ_between_pes_are_named_on_all(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        free = rt.heap_free
        nbytes = 128 if rt.my_pe == 1 else 64
        with pytest.raises(
            railshmem.ArgumentError, match=r"PE 0: .*of 64 bytes.*PE 1: .*of 128 bytes"
        ):
            rt.malloc(nbytes)
        assert rt.heap_free == free
        assert rt.malloc(64).nbytes == 64  # and the job goes on


def test_different_collectives_at_once_are_named(comm: MPI.Intracomm) -> None:
    with job(comm, settings_of("2 nodes", comm.size)) as rt:
        call = (lambda: rt.malloc(64)) if rt.my_pe == 1 else rt.barrier_all
        with pytest.raises(railshmem.ArgumentError, match="PE 0: barrier or sync; PE 1: shmem_mal"):
            call()


def test_an_exhausted_heap_names_what_is_free_and_the_setting(comm: MPI.Intracomm) -> None:
    with job(comm, settings_of("one node", comm.size, RAILSHMEM_HEAP_SIZE="1M")) as rt:
        blocks = [rt.malloc(64 << 10) for _ in range(12)]
        for block in blocks[::2]:
            rt.free(block)
        with pytest.raises(railshmem.HeapExhausted) as caught:
            rt.malloc(512 << 10)
        text = str(caught.value)
        for part in ("asked 512 KiB", "free 640 KiB", "up to 256 KiB", "RAILSHMEM_HEAP_SIZE"):
            assert part in text
        assert isinstance(caught.value, MemoryError)


def test_a_wait_that_nothing_ends_says_what_it_waited_for(comm: MPI.Intracomm) -> None:
    with job(comm, settings_of("2 nodes", comm.size, RAILSHMEM_TIMEOUT_S="0.2")) as rt:
        word = symmetric_array(rt, 1, np.int32)
        word[0] = 4
        with pytest.raises(railshmem.WaitTimeout, match=r"expected 9, seen 4"):
            rt.wait_until(word, SHMEM_CMP_EQ, 9)
        comm.Barrier()
        rt.barrier_all()  # one call ended; the runtime did not


def test_bad_settings_are_refused_on_every_pe(comm: MPI.Intracomm) -> None:
    for name, value in {"RAILSHMEM_NODES": "99", "RAILSHMEM_RING": "100"}.items():
        with (
            pytest.raises(railshmem.InitError, match=f"{name}={value}"),
            job(comm, {**settings_of("one node", comm.size), name: value}),
        ):
            pytest.fail("the runtime was made")
