"""Arrays, neighbours and types that the tests of the specification's calls share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import ml_dtypes
import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike

import railshmem
from jobs import settings_of
from railshmem import symmetric_array

SIGNED = [np.int8, np.int16, np.int32, np.int64]
UNSIGNED = [np.uint8, np.uint16, np.uint32, np.uint64]
FLOATS = [np.float32, np.float64, np.longdouble]
COMPLEX = [np.complex64, np.complex128]
# The standard RMA types (table 4), and what this library moves beyond them.
RMA_TYPES = [*SIGNED, *UNSIGNED, *FLOATS, *COMPLEX, np.bool_, np.float16, ml_dtypes.bfloat16]
# The types of atomics, waits and tests (table 5).
WORD_TYPES = [np.int32, np.uint32, np.int64, np.uint64]


def zeros(rt: railshmem.Runtime, shape: int | tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
    """Collective: a symmetric array that is 0 on every PE when it returns."""
    array = symmetric_array(rt, shape, dtype)
    array.view(np.uint8)[...] = 0
    rt.sync_all()
    return array


def elements_of(memory: object, dtype: DTypeLike = np.uint8) -> np.ndarray:
    """What malloc returned as an array, in whatever memory."""
    if isinstance(memory, railshmem.DeviceArray):
        return memory.view(dtype)
    return np.frombuffer(memory, dtype)


def sample(dtype: DTypeLike, count: int, seed: int) -> np.ndarray:
    """`count` elements; another seed gives others."""
    kind = np.dtype(dtype)
    if kind == np.bool_:
        return (np.arange(count) + seed) % 2 == 0
    values = np.arange(1, count + 1) + 17 * seed
    if kind.kind == "c":
        return (values - 1j * values).astype(kind)
    return values.astype(kind)


def after(rt: railshmem.Runtime) -> int:
    return (rt.my_pe + 1) % rt.n_pes


def before(rt: railshmem.Runtime) -> int:
    return (rt.my_pe - 1) % rt.n_pes


@contextmanager
def default_job(comm: MPI.Intracomm, shape: str = "2 nodes", **more: str) -> Iterator[None]:
    """The default runtime, that the functions of the module work on."""
    railshmem.shmem_init(comm, settings=settings_of(shape, comm.size, **more))
    yield
    railshmem.shmem_finalize()
