"""The default runtime of a script: shmem_init in its forms, and memory as numpy arrays."""

from __future__ import annotations

import importlib.metadata
import math
import os
import signal
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import DTypeLike, NDArray

from railshmem import _core, job_end
from railshmem._core import Runtime, SymmetricMemory
from railshmem.device_array import DeviceArray
from railshmem.errors import ArgumentError

if TYPE_CHECKING:
    from mpi4py import MPI

SHMEM_THREAD_SINGLE, SHMEM_THREAD_FUNNELED, SHMEM_THREAD_SERIALIZED, SHMEM_THREAD_MULTIPLE = range(
    4
)

SHMEM_MALLOC_ATOMICS_REMOTE = 1
SHMEM_MALLOC_SIGNAL_REMOTE = 2

# The meeting points of the ids made here, by id. One whose job was finalized here goes; the others
# stay while the process lives, as nobody tells it that a job elsewhere is over.
_hubs: dict[str, _core.TcpHub] = {}
os.register_at_fork(after_in_child=_hubs.clear)  # a forked process is not where they are
_joined_by: str | None = None  # the id of the current job


def shmem_get_unique_id(*, settings: Mapping[str, str] | None = None) -> str:
    """A new id for one job, to be given to its processes by whatever means: printable text.

    This process becomes the job's meeting point, whether it joins the job itself or only starts the
    others, and must live as long as the job. RAILSHMEM_INTERFACE chooses the network interface.
    Whoever knows the id can join: treat it like a password of the job. Raises InitError.
    """
    hub = _core.TcpHub(dict(settings or {}))
    _hubs[hub.id] = hub
    return hub.id


def shmem_init(
    comm: MPI.Intracomm | None = None,
    *,
    uid: str | None = None,
    rank: int | None = None,
    n_pes: int | None = None,
    group: Any = None,
    settings: Mapping[str, str] | None = None,
) -> Runtime:
    """Collective: joins a job and returns this PE's runtime.

    One of three says who is in the job: `uid`, `rank` and `n_pes` (an id from shmem_get_unique_id,
    and this process's place); `group`, a torch.distributed.ProcessGroup; or `comm`, a communicator
    of mpi4py, by default MPI.COMM_WORLD. PEs are numbered as the ranks there. `settings` maps names
    such as RAILSHMEM_NODES to values and goes before the environment.

    From here on an exception that nobody catches and sys.exit with a status end the whole job, and
    so does the end of another PE's process. With `comm` that is MPI_Abort, which ends all of
    MPI.COMM_WORLD, and SIGUSR1, by which MPICH tells of a process's end, is ignored where nobody
    handles it. Raises InitError on every PE when one of them cannot take part, ArgumentError where
    ranks and sizes do not fit, WaitTimeout naming the ranks that did not come. OpenSHMEM 1.5,
    section 9.1.1.
    """
    global _joined_by
    current = _core.get_default()
    if current is not None and not current.finalized:
        raise ArgumentError("shmem_init: already initialised; call shmem_finalize first")
    given = [
        name
        for name, value in (("comm", comm), ("uid", uid), ("group", group))
        if value is not None
    ]
    if len(given) > 1:
        raise ArgumentError(f"shmem_init: {' and '.join(given)} given: expected one of them")
    if (uid is None) != (rank is None) or (uid is None) != (n_pes is None):
        raise ArgumentError(
            f"shmem_init: uid={uid!r}, rank={rank}, n_pes={n_pes}: expected all three or none"
        )
    chosen = dict(settings or {})
    timeout_s = _timeout_s(chosen)
    if group is not None:
        from railshmem.torch_group import share_id

        uid, rank, n_pes = share_id(group, lambda: shmem_get_unique_id(settings=chosen), timeout_s)
    if uid is not None and rank is not None and n_pes is not None:
        bootstrap: _core.Bootstrap = _core.TcpBootstrap(
            uid, rank, n_pes, timeout_s, holds_hub=uid in _hubs
        )
        job_end.begin(job_end.Ending(rank, bootstrap.abort, news=bootstrap.news), shmem_finalize)
    else:
        bootstrap = _join_mpi(comm, timeout_s)
    _joined_by = uid
    made = Runtime(bootstrap, chosen)
    _core.set_default(made)
    job_end.watch(made)
    return made


def _join_mpi(comm: MPI.Intracomm | None, timeout_s: float) -> _core.Bootstrap:
    from mpi4py import MPI

    from railshmem.bootstrap import MpiBootstrap

    of_job = MPI.COMM_WORLD if comm is None else comm

    def abort(code: int, why: str) -> None:
        of_job.Abort(code)

    job_end.begin(job_end.Ending(of_job.rank, abort, output_s=0.3), shmem_finalize)
    # MPICH's launcher tells the survivors of a killed rank by this signal, whose default is to die
    # before they could say why.
    in_main_thread = threading.current_thread() is threading.main_thread()
    if signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL and in_main_thread:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    return MpiBootstrap(of_job, timeout_s)


def shmem_init_thread(requested: int, comm: MPI.Intracomm | None = None, **how: Any) -> int:
    """Collective: shmem_init, and the thread level provided: always SHMEM_THREAD_MULTIPLE.

    Any thread may call one-sided operations at any time; collectives are called by one thread at a
    time, in the same order on every PE. OpenSHMEM 1.5, section 9.2.1.
    """
    if requested not in range(4):
        raise ArgumentError(
            f"shmem_init_thread: level {requested}: expected SHMEM_THREAD_SINGLE to "
            "SHMEM_THREAD_MULTIPLE, 0 to 3"
        )
    shmem_init(comm, **how)
    return shmem_query_thread()


def shmem_query_thread() -> int:
    """The thread level provided: SHMEM_THREAD_MULTIPLE. OpenSHMEM 1.5, section 9.2.2."""
    runtime()
    return SHMEM_THREAD_MULTIPLE


def shmem_global_exit(status: int) -> NoReturn:
    """Ends every process of the job with this status, 0 to 255, whatever the others are doing.

    Nothing is completed first and no exit handler runs. With MPI it is MPI_Abort, and the launcher
    decides what of the status its own caller sees. OpenSHMEM 1.5, section 9.1.5.
    """
    if not isinstance(status, int) or not 0 <= status <= 255:
        raise ArgumentError(f"shmem_global_exit: status {status!r}: expected 0 to 255")
    runtime()
    job_end.end(status, "", f"shmem_global_exit({status})")


def shmem_info_get_version() -> tuple[int, int]:
    """(1, 5): the version of the OpenSHMEM specification. OpenSHMEM 1.5, section 9.1.9."""
    return 1, 5


def shmem_info_get_name() -> str:
    """The name and version of this library. OpenSHMEM 1.5, section 9.1.10."""
    return f"RailSHMEM {importlib.metadata.version('railshmem')}"


def shmem_pe_accessible(pe: int) -> bool:
    """Whether operations can reach this PE: every PE of the job. OpenSHMEM 1.5, section 9.1.6."""
    return 0 <= pe < runtime().n_pes


def shmem_addr_accessible(addr: SymmetricMemory | NDArray[Any] | DeviceArray, pe: int) -> bool:
    """Whether operations can reach `addr` on this PE: it lies whole in the symmetric heap.

    OpenSHMEM 1.5, section 9.1.7.
    """
    return shmem_pe_accessible(pe) and runtime().in_heap(addr)


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
        job_end.watch_ended()
        if _joined_by is not None:
            _hubs.pop(_joined_by, None)


def shmem_my_pe() -> int:
    """This PE's number, 0 to shmem_n_pes() - 1. OpenSHMEM 1.5, section 9.1.2."""
    return runtime().my_pe


def shmem_n_pes() -> int:
    """The number of PEs in the job. OpenSHMEM 1.5, section 9.1.3."""
    return runtime().n_pes


def shmem_malloc(nbytes: int, *, alignment: int = 64) -> SymmetricMemory | DeviceArray:
    """Collective, same arguments on every PE: `nbytes` bytes of symmetric memory.

    The result has .ptr and .nbytes, the buffer protocol and DLPack; where the job runs on GPUs it
    is a DeviceArray of bytes. It is not freed when it is forgotten: shmem_free is collective.
    Raises ArgumentError on every PE when the arguments differ, and HeapExhausted naming what is
    free. OpenSHMEM 1.5, section 9.3.1.
    """
    return runtime().malloc(nbytes, alignment)


def shmem_align(alignment: int, nbytes: int) -> SymmetricMemory | DeviceArray:
    """Collective: shmem_malloc aligned to `alignment` bytes, a power of two up to 4096.

    OpenSHMEM 1.5, section 9.3.1.
    """
    return runtime().malloc(nbytes, alignment)


def shmem_calloc(count: int, size: int) -> SymmetricMemory | DeviceArray:
    """Collective: `count` elements of `size` bytes, all 0 on every PE when it returns.

    OpenSHMEM 1.5, section 9.3.3.
    """
    return runtime().calloc(count, size)


def shmem_malloc_with_hints(nbytes: int, hints: int) -> SymmetricMemory | DeviceArray:
    """Collective: shmem_malloc; `hints` is a sum of SHMEM_MALLOC_ATOMICS_REMOTE and
    SHMEM_MALLOC_SIGNAL_REMOTE and changes nothing: every heap serves all uses alike.

    OpenSHMEM 1.5, section 9.3.2.
    """
    if hints & ~(SHMEM_MALLOC_ATOMICS_REMOTE | SHMEM_MALLOC_SIGNAL_REMOTE):
        raise ArgumentError(f"shmem_malloc_with_hints: unknown hints {hints}")
    return runtime().malloc(nbytes)


def shmem_realloc(
    ptr: SymmetricMemory | NDArray[Any] | DeviceArray | None, nbytes: int
) -> SymmetricMemory | DeviceArray:
    """Collective: a block of `nbytes` bytes that begins with what `ptr` held; `ptr` is freed.

    None allocates, 0 bytes free. Raises HeapExhausted, and `ptr` stays, where there is no room.
    OpenSHMEM 1.5, section 9.3.1.
    """
    return runtime().realloc(ptr, nbytes)


def shmem_ptr(dest: NDArray[Any] | DeviceArray, pe: int) -> NDArray[Any] | DeviceArray | None:
    """PE `pe`'s copy of the symmetric array `dest`, to load from and store to; None where its
    memory is not mapped here.

    OpenSHMEM 1.5, section 9.1.8.
    """
    return runtime().ptr(dest, pe)


def shmemx_buffer_register(buffer: Any) -> None:
    """Lets the NICs of this PE use `buffer`, an array outside of the heap: non-blocking and large
    puts leave from it, and gets land in it, without a copy. It is kept alive until
    shmemx_buffer_unregister. The same array may be registered again, and is then counted. An array
    or tensor of this PE's GPU may be registered, too.

    Raises ArgumentError for heap memory and for memory that overlaps another registered buffer.
    """
    runtime().register_buffer(buffer)


def shmemx_buffer_unregister(buffer: Any) -> None:
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


def shmem_array(shape: int | tuple[int, ...], dtype: DTypeLike = np.float32) -> Any:
    """Collective: an uninitialised array in the symmetric heap, of any dtype (also ml_dtypes).

    A numpy array, or a DeviceArray where the job runs on GPUs.
    """
    return symmetric_array(runtime(), shape, dtype)


def symmetric_array(
    owner: Runtime, shape: int | tuple[int, ...], dtype: DTypeLike = np.float32
) -> Any:
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
    if isinstance(memory, DeviceArray):
        return memory.view(kind).reshape(sizes)
    if memory.nbytes == 0:
        return np.empty(sizes, kind)
    return np.frombuffer(memoryview(memory), np.uint8).view(kind).reshape(sizes)


def device_context() -> int:
    """The address of what kernels on this PE's GPU receive (railshmem/device.hpp), for shmem_init's
    runtime. Valid until shmem_finalize. Raises ArgumentError where the job runs on CPUs.
    """
    return runtime().device_context()


def shmem_free(ptr: SymmetricMemory | NDArray[Any] | DeviceArray | None) -> None:
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
