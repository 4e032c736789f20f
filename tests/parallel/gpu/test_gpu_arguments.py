"""Arguments in GPU memory that are not the library's, and what calls refuse."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from gpu_memory import GpuArray, Tensor, gpu_count
from mpi4py import MPI

import railshmem
from jobs import job, settings_of
from railshmem import SHMEM_SIGNAL_SET, symmetric_array
from spec_arrays import after, before, sample, zeros

ONE_NODE = "one node"


def mine(rt: railshmem.Runtime) -> int:
    assert rt.device_index is not None
    return rt.device_index


def test_arrays_of_this_gpu_are_sources_and_destinations(comm: MPI.Intracomm) -> None:
    with job(comm, settings_of(ONE_NODE, comm.size)) as rt:
        for dtype in (np.float32, np.uint8, np.complex64):
            dest = zeros(rt, 10, dtype)
            source = GpuArray(sample(dtype, 10, rt.my_pe), mine(rt))
            rt.put(dest, source, after(rt))
            rt.barrier_all()
            np.testing.assert_array_equal(dest, sample(dtype, 10, before(rt)))
            back = GpuArray(np.zeros(10, dtype), mine(rt))
            rt.get(back, dest, after(rt))
            np.testing.assert_array_equal(back.numpy(), sample(dtype, 10, rt.my_pe))
            rt.barrier_all()


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float8_e4m3fn", "bool", "int64"])
@pytest.mark.parametrize("where", ["gpu", "cpu"])
def test_tensors_of_torch_are_taken_by_their_types(
    comm: MPI.Intracomm, name: str, where: str
) -> None:
    with job(comm, settings_of(ONE_NODE, comm.size)) as rt:
        dtype = np.dtype(name)
        values = sample(dtype, 6, rt.my_pe).reshape(2, 3)
        memory = GpuArray(values.view(np.uint8), mine(rt)) if where == "gpu" else values
        device = f"cuda:{rt.device_index}" if where == "gpu" else "cpu"
        tensor = Tensor(memory, name, device)
        tensor.shape = (2, 3)
        dest = zeros(rt, (2, 3), dtype)
        rt.put(dest, tensor, after(rt))
        rt.barrier_all()
        np.testing.assert_array_equal(
            dest.view(np.uint8), sample(dtype, 6, before(rt)).reshape(2, 3).view(np.uint8)
        )
        with pytest.raises(railshmem.ArgumentError, match=f"source has {name}"):
            rt.put(zeros(rt, 6, np.uint16), tensor, 0)


def test_a_registered_array_of_the_gpu_is_kept_alive(comm: MPI.Intracomm) -> None:
    with job(comm, settings_of(ONE_NODE, comm.size)) as rt:
        dest = zeros(rt, 4000, np.int32)
        source = GpuArray(sample(np.int32, 4000, rt.my_pe), mine(rt))
        rt.register_buffer(source)
        at = source.__cuda_array_interface__
        del source
        held = type("Held", (), {"__cuda_array_interface__": at})()
        rt.put_nbi(dest, held, after(rt))
        rt.barrier_all()
        np.testing.assert_array_equal(dest, sample(np.int32, 4000, before(rt)))
        rt.unregister_buffer(held)


def test_an_atomic_may_answer_into_the_gpu(comm: MPI.Intracomm) -> None:
    with job(comm, settings_of(ONE_NODE, comm.size)) as rt:
        word = zeros(rt, 1, np.uint64)
        word[0] = 40 + rt.my_pe
        rt.barrier_all()
        answer = GpuArray(np.zeros(1, np.uint64), mine(rt))
        rt.atomic_fetch_add_nbi(answer, word, 100, after(rt))
        rt.quiet()
        assert answer.numpy()[0] == 40 + after(rt)


Case = Callable[[railshmem.Runtime, railshmem.DeviceArray], object]


def apart(rt: railshmem.Runtime) -> GpuArray:
    return GpuArray(np.zeros(8, np.float32), mine(rt), strides=(8,), shape=(4,))


def lazy(rt: railshmem.Runtime) -> Tensor:
    tensor = Tensor(GpuArray(np.zeros(8, np.complex64), mine(rt)), "complex64", "cuda")
    tensor.conjugated = True
    return tensor


def transposed(rt: railshmem.Runtime) -> Tensor:
    tensor = Tensor(GpuArray(np.zeros((2, 4), np.float32), mine(rt)), "float32", "cuda")
    tensor.shape, tensor.steps, tensor.contiguous = (4, 2), [1, 4], False
    return tensor


CASES: dict[str, tuple[str, Case]] = {
    "strided array": (
        r"source of shape \(4,\) and strides \(8,\) is not contiguous",
        lambda rt, a: rt.put(a, apart(rt), 0),
    ),
    "strided symmetric array": (
        r"source of shape \(4,\) and strides \(8,\) is not contiguous",
        lambda rt, a: rt.put(a, a[::2], 0),
    ),
    "strided tensor": (
        r"source of shape \(4, 2\) and strides \(1, 4\) is not contiguous",
        lambda rt, a: rt.put(a, transposed(rt), 0),
    ),
    "read-only array": (
        r"dest is a read-only array",
        lambda rt, a: rt.get(GpuArray(np.zeros(8, np.float32), mine(rt), data=(4096, True)), a, 0),
    ),
    "a tensor to be conjugated": (
        r"resolve_conj",
        lambda rt, a: rt.put(a, lazy(rt), 0),
    ),
    "a tensor elsewhere": (
        r"source is a tensor on meta; expected one on cpu or cuda",
        lambda rt, a: rt.put(a, Tensor(np.zeros(8, np.float32), "float32", "meta"), 0),
    ),
    "a type that numpy lacks": (
        r"tensor of torch.quint8",
        lambda rt, a: rt.put(a, Tensor(np.zeros(8, np.float32), "quint8", "cpu"), 0),
    ),
    "memory of no GPU": (
        r"source 0x1000 is in no GPU's memory; PE \d uses GPU \d",
        lambda rt, a: rt.put(a, GpuArray(np.zeros(8, np.float32), mine(rt), data=(4096, False)), 0),
    ),
    "dest outside the heap": (
        r"dest 0x[0-9a-f]+ with 32 bytes is not inside the symmetric heap",
        lambda rt, a: rt.put(GpuArray(np.zeros(8, np.float32), mine(rt)), a, 0),
    ),
    "adopting memory": (
        r"the heap is in GPU memory",
        lambda rt, a: rt.register_symmetric(pages()),
    ),
    "an array of fields elsewhere": (r"source of type list", lambda rt, a: rt.put(a, [1.0], 0)),
    # Of the forms in the order of a stream.
    "a source in host memory": (
        r"shmemx_put_on_stream: source 0x[0-9a-f]+ is in no GPU's memory",
        lambda rt, a: rt.put_on_stream(a, np.zeros(8, np.float32), 0),
    ),
    "a dest in host memory": (
        r"shmemx_get_on_stream: dest 0x[0-9a-f]+ is in no GPU's memory",
        lambda rt, a: rt.get_on_stream(np.zeros(8, np.float32), a, 0),
    ),
    "wrong PE": (r"PE 99 does not exist", lambda rt, a: rt.put_on_stream(a, a, 99)),
    "negative PE": (r"PE -1 does not exist", lambda rt, a: rt.get_on_stream(a, a, -1)),
    "beyond the heap": (
        r"shmemx_get_on_stream: source 0x[0-9a-f]+ with 32 bytes is not inside",
        lambda rt, a: rt.get_on_stream(a, GpuArray(np.zeros(8, np.float32), mine(rt)), 0),
    ),
    "a signal of another type": (
        r"expected uint64",
        lambda rt, a: rt.put_signal_on_stream(a, a, a.view(np.int64), 1, SHMEM_SIGNAL_SET, 0),
    ),
    "no stream": (
        r"stream of type str is neither",
        lambda rt, a: rt.put_on_stream(a, a, 0, stream="fast"),
    ),
}


def pages() -> np.ndarray:
    import mmap

    return np.frombuffer(mmap.mmap(-1, mmap.PAGESIZE), np.uint8)


def test_bad_calls_name_the_values_and_move_nothing(comm: MPI.Intracomm) -> None:
    with job(comm, settings_of(ONE_NODE, comm.size)) as rt:
        array = symmetric_array(rt, 8, np.float32)
        array[:] = 5
        rt.barrier_all()
        for name, (message, call) in CASES.items():
            print(name)  # shown when the next line fails
            with pytest.raises(railshmem.ArgumentError, match=message):
                call(rt, array)
        rt.barrier_all()
        assert (array == 5).all()


def test_memory_of_another_gpu_is_refused(comm: MPI.Intracomm) -> None:
    if gpu_count() < 2:
        pytest.skip("needs two GPUs")
    with job(comm, settings_of(ONE_NODE, comm.size)) as rt:
        array = zeros(rt, 8, np.float32)
        other = (mine(rt) + 1) % gpu_count()
        elsewhere = GpuArray(np.zeros(8, np.float32), other)
        message = rf"is in the memory of GPU {other}; PE \d uses GPU {mine(rt)} \("
        for call in (
            lambda: rt.put(array, elsewhere, 0),
            lambda: rt.get(elsewhere, array, 0),
            lambda: rt.put_on_stream(array, elsewhere, 0),
            lambda: rt.register_buffer(elsewhere),
        ):
            with pytest.raises(railshmem.ArgumentError, match=message):
                call()


def test_a_job_on_cpus_refuses_gpu_memory(comm: MPI.Intracomm) -> None:
    with job(comm, settings_of(ONE_NODE, comm.size, RAILSHMEM_DEVICE="cpu")) as rt:
        assert (rt.device, rt.device_index) == ("cpu", None)
        array = symmetric_array(rt, 8, np.float32)
        there = GpuArray(np.zeros(8, np.float32), 0)
        message = r"is GPU memory, but the job runs on CPUs: RAILSHMEM_DEVICE=cpu"
        for call in (
            lambda: rt.put(array, there, 0),
            lambda: rt.get(there, array, 0),
            lambda: rt.put(array, Tensor(there, "float32", "cuda"), 0),
            lambda: rt.iput(array, there, 1, 1, 2, 0),
            lambda: rt.register_buffer(there),
        ):
            with pytest.raises(railshmem.ArgumentError, match=message):
                call()


def test_after_finalize_nothing_is_launched(comm: MPI.Intracomm) -> None:
    with job(comm, settings_of(ONE_NODE, comm.size)) as rt:
        array = zeros(rt, 8, np.uint64)
        array[:] = 3
    for call in (
        lambda: rt.put_on_stream(array, array, 0),
        lambda: rt.signal_op_on_stream(array, 1, SHMEM_SIGNAL_SET, 0),
        rt.quiet_on_stream,
        rt.barrier_all_on_stream,
        rt.device_context,
    ):
        with pytest.raises(railshmem.ArgumentError, match="finalized"):
            call()
    assert (array == 3).all()  # still readable
