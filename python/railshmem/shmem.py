"""The default runtime of a script: shmem_init, memory as numpy arrays, and the end of the job."""

from __future__ import annotations

import atexit
import math
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from railshmem import _core
from railshmem._core import Runtime, SymmetricMemory
from railshmem.errors import ArgumentError, RailshmemError

if TYPE_CHECKING:
    from mpi4py import MPI

_comm: MPI.Intracomm | None = None  # of the current job, from before its first exchange
_loss_watch: threading.Thread | None = None

SHMEM_MALLOC_ATOMICS_REMOTE = 1
SHMEM_MALLOC_SIGNAL_REMOTE = 2

# For an operation to report that a PE is gone, before the job is ended without it.
LOSS_GRACE_S = 2.0


def shmem_init(
    comm: MPI.Intracomm | None = None, *, settings: Mapping[str, str] | None = None
) -> Runtime:
    """Collective: joins the job of `comm` (default: MPI.COMM_WORLD) and returns this PE's runtime.

    `settings` maps names such as RAILSHMEM_NODES to values and goes before the environment. From
    here on an exception that nobody catches ends the whole job, and so does the end of another PE's
    process; SIGUSR1, by which MPICH tells of the latter, is ignored where nobody handles it. Raises
    InitError on every PE when one of them cannot take part. OpenSHMEM 1.5, section 9.1.1.
    """
    global _comm, _loss_watch
    current = _core.get_default()
    if current is not None and not current.finalized:
        raise ArgumentError("shmem_init: already initialised; call shmem_finalize first")
    from mpi4py import MPI

    from railshmem.bootstrap import MpiBootstrap

    if _comm is None:
        sys.excepthook = _end_job
        atexit.register(_finalize_at_exit)
    _comm = MPI.COMM_WORLD if comm is None else comm
    # MPICH's launcher tells the survivors of a killed rank by this signal, whose default is to die
    # before they could say why.
    if signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL and _in_main_thread():
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    chosen = dict(settings or {})
    made = Runtime(MpiBootstrap(_comm, _timeout_s(chosen)), chosen)
    _core.set_default(made)
    _loss_watch = threading.Thread(target=_end_job_at_loss, args=[made], daemon=True)
    _loss_watch.start()
    return made


def runtime() -> Runtime:
    """The runtime that shmem_init made."""
    found = _core.get_default()
    if found is None:
        raise ArgumentError("shmem_init has not been called")
    return found


def shmem_finalize() -> None:
    """Collective: completes all communication and leaves the job. Calling it again does nothing.

    Arrays in the heap stay readable; operations raise ArgumentError. OpenSHMEM 1.5, section 9.1.4.
    """
    found = _core.get_default()
    if found is not None:
        found.finalize()
        if _loss_watch is not None:
            _loss_watch.join()  # ended by finalize; it must not outlive the interpreter


def shmem_my_pe() -> int:
    """This PE's number, 0 to shmem_n_pes() - 1. OpenSHMEM 1.5, section 9.1.2."""
    return runtime().my_pe


def shmem_n_pes() -> int:
    """The number of PEs in the job. OpenSHMEM 1.5, section 9.1.3."""
    return runtime().n_pes


def shmem_malloc(nbytes: int, *, alignment: int = 64) -> SymmetricMemory:
    """Collective, same arguments on every PE: `nbytes` bytes of symmetric memory.

    The result has .ptr and .nbytes, the buffer protocol and DLPack. It is not freed when it is
    forgotten: shmem_free is collective. Raises ArgumentError on every PE when the arguments differ,
    and HeapExhausted naming what is free. OpenSHMEM 1.5, section 9.3.1.
    """
    return runtime().malloc(nbytes, alignment)


def shmem_align(alignment: int, nbytes: int) -> SymmetricMemory:
    """Collective: shmem_malloc aligned to `alignment` bytes, a power of two up to 4096.

    OpenSHMEM 1.5, section 9.3.1.
    """
    return runtime().malloc(nbytes, alignment)


def shmem_calloc(count: int, size: int) -> SymmetricMemory:
    """Collective: `count` elements of `size` bytes, all 0 on every PE when it returns.

    OpenSHMEM 1.5, section 9.3.3.
    """
    return runtime().calloc(count, size)


def shmem_malloc_with_hints(nbytes: int, hints: int) -> SymmetricMemory:
    """Collective: shmem_malloc; `hints` is a sum of SHMEM_MALLOC_ATOMICS_REMOTE and
    SHMEM_MALLOC_SIGNAL_REMOTE and changes nothing: every heap serves all uses alike.

    OpenSHMEM 1.5, section 9.3.2.
    """
    if hints & ~(SHMEM_MALLOC_ATOMICS_REMOTE | SHMEM_MALLOC_SIGNAL_REMOTE):
        raise ArgumentError(f"shmem_malloc_with_hints: unknown hints {hints}")
    return runtime().malloc(nbytes)


def shmem_realloc(ptr: SymmetricMemory | NDArray[Any] | None, nbytes: int) -> SymmetricMemory:
    """Collective: a block of `nbytes` bytes that begins with what `ptr` held; `ptr` is freed.

    None allocates, 0 bytes free. Raises HeapExhausted, and `ptr` stays, where there is no room.
    OpenSHMEM 1.5, section 9.3.1.
    """
    return runtime().realloc(ptr, nbytes)


def shmem_ptr(dest: NDArray[Any], pe: int) -> NDArray[Any] | None:
    """PE `pe`'s copy of the symmetric array `dest`, to load from and store to; None where its
    memory is not mapped here.

    OpenSHMEM 1.5, section 9.1.8.
    """
    return runtime().ptr(dest, pe)


def shmemx_buffer_register(buffer: NDArray[Any]) -> None:
    """Lets the NICs of this PE use `buffer`, an array outside of the heap: non-blocking and large
    puts leave from it, and gets land in it, without a copy. It is kept alive until
    shmemx_buffer_unregister. The same array may be registered again, and is then counted.

    Raises ArgumentError for heap memory and for memory that overlaps another registered buffer.
    """
    runtime().register_buffer(buffer)


def shmemx_buffer_unregister(buffer: NDArray[Any]) -> None:
    """Completes what was posted, then ends a registration. Raises ArgumentError for others."""
    runtime().unregister_buffer(buffer)


def shmemx_buffer_register_symmetric(buffer: NDArray[Any]) -> NDArray[Any]:
    """Collective, same size everywhere: makes `buffer` symmetric where it is, without a copy later.

    Returns an array of the same memory, dtype and shape whose address is symmetric: use that one
    in calls. Address and size are multiples of the page size (mmap.PAGESIZE); nobody may touch the
    memory during the call. It takes as much of the heap. Raises ArgumentError and HeapExhausted.
    """
    return runtime().register_symmetric(buffer)


def shmemx_buffer_unregister_symmetric(symmetric: NDArray[Any]) -> None:
    """Collective: the buffer is the caller's own again, with what it holds; `symmetric` is gone."""
    runtime().unregister_symmetric(symmetric)


def shmem_array(shape: int | tuple[int, ...], dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """Collective: an uninitialised array in the symmetric heap, of any dtype (also ml_dtypes)."""
    return symmetric_array(runtime(), shape, dtype)


def symmetric_array(
    owner: Runtime, shape: int | tuple[int, ...], dtype: DTypeLike = np.float32
) -> NDArray[Any]:
    """shmem_array for a given runtime."""
    kind = np.dtype(dtype)
    if kind.hasobject:
        raise ArgumentError(
            f"shmem_array: dtype {kind} holds Python objects, which cannot be shared"
        )
    sizes = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    if any(size < 0 for size in sizes):
        raise ArgumentError(f"shmem_array: shape {shape} has a negative size")
    count = 1
    for size in sizes:
        count *= int(size)
    memory = owner.malloc(count * kind.itemsize, 64)
    if memory.nbytes == 0:
        return np.empty(sizes, kind)
    return np.frombuffer(memoryview(memory), np.uint8).view(kind).reshape(sizes)


def shmem_free(ptr: SymmetricMemory | NDArray[Any] | None) -> None:
    """Collective: frees what shmem_malloc or shmem_array returned; None is allowed.

    OpenSHMEM 1.5, section 9.3.1.
    """
    runtime().free(ptr)


def _timeout_s(settings: Mapping[str, str]) -> float:
    name = "RAILSHMEM_TIMEOUT_S"
    try:
        seconds = float(settings.get(name) or os.environ.get(name) or 60)
    except ValueError:
        seconds = math.nan
    # The runtime refuses what is no time, and names it.
    return seconds if 0 < seconds < math.inf else 60


def _end_job(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
    """MPI leaves the other PEs waiting for ever when one raises: print why, and end them all."""
    lines = traceback.format_exception(kind, value, trace)
    found = _core.get_default()
    if _comm is None or (found is not None and found.finalized):
        sys.stderr.write("".join(lines))
        return
    text = "".join(f"PE {_comm.rank}: {line}\n" for line in "".join(lines).splitlines())
    _abort(f"{text}PE {_comm.rank}: {kind.__name__} was not caught: ending the job\n")


def _abort(text: str) -> None:
    sys.stdout.flush()
    sys.stderr.write(text)  # one write: PEs do not tear each other's lines
    sys.stderr.flush()
    # A launcher that is told to abort drops the output it has not passed on yet, and nothing says
    # when it has: give it the time, or the reason is lost.
    time.sleep(0.3)
    if _comm is not None:
        _comm.Abort(1)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _end_job_at_loss(watched: Runtime) -> None:
    """Ends a job that lost a PE while this one is outside of this library, say in an MPI call."""
    lost = watched.wait_for_loss()
    if lost < 0:
        return
    time.sleep(LOSS_GRACE_S)
    if not watched.loss_reported:
        _abort(
            f"PE {watched.my_pe}: the process of PE {lost} has ended, and no operation of this PE "
            "noticed: ending the job\n"
        )


def _finalize_at_exit() -> None:
    try:
        shmem_finalize()
    except RailshmemError as error:
        _abort(f"PE {_comm.rank if _comm else '?'}: at exit: {type(error).__name__}: {error}\n")
    finally:
        # The runtime holds Python objects: it must go while there is an interpreter.
        _core.set_default(None)
