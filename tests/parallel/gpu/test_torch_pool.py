"""Symmetric memory for torch: what its allocator calls, and tensors where torch is there."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from mpi4py import MPI

import railshmem
from jobs import job, settings_of
from railshmem import _core, symmetric_array
from spec_arrays import after, before, default_job, sample, zeros

MIB = 1 << 20


def functions() -> tuple[ctypes._NamedFuncPointer, ctypes._NamedFuncPointer]:
    """As CUDAPluggableAllocator finds them: by their names in the library."""
    library = ctypes.CDLL(_core.__file__)
    allocate, free = library.railshmem_torch_alloc, library.railshmem_torch_free
    allocate.restype, allocate.argtypes = (
        ctypes.c_void_p,
        (ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p),
    )
    free.restype, free.argtypes = (
        None,
        (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p),
    )
    return allocate, free


def test_blocks_are_symmetric_and_return_together(comm: MPI.Intracomm) -> None:
    allocate, free = functions()
    with default_job(comm, "one node"):
        rt = railshmem.runtime()
        before_all = rt.heap_free
        first = symmetric_array(rt, 1, np.uint8)
        blocks = [allocate(size * MIB, rt.device_index, None) for size in (2, 5, 2)]
        assert all(at % 512 == 0 for at in blocks)
        offsets = [at - first.ptr for at in blocks]
        assert all(other == offsets for other in comm.allgather(offsets))
        taken = rt.heap_free
        assert before_all - taken >= 9 * MIB

        free(blocks[1], 5 * MIB, rt.device_index, None)
        assert rt.heap_free == taken  # others may not have come to it yet
        if rt.my_pe == 0:  # PEs free in an order of their own, or later
            for at in (blocks[2], blocks[0]):
                free(at, 2 * MIB, rt.device_index, None)
        if comm.size > 1:
            with pytest.raises(railshmem.ArgumentError, match="up to 2 blocks of a PE"):
                rt.free_torch_blocks()
        if rt.my_pe != 0:
            for at in (blocks[0], blocks[2]):
                free(at, 2 * MIB, rt.device_index, None)
        rt.free_torch_blocks()
        rt.free(first)
        assert rt.heap_free == before_all
        rt.free_torch_blocks()  # nothing left


def test_a_block_keeps_its_heap(comm: MPI.Intracomm) -> None:
    allocate, free = functions()
    with default_job(comm, "one node"):
        device = railshmem.runtime().device_index
        at = allocate(2 * MIB, device, None)
        held = type("Held", (), {})()
        held.__cuda_array_interface__ = {
            "version": 3,
            "shape": (4,),
            "typestr": "<i4",
            "data": (at, False),
        }
        railshmem.shmem_put(held, np.arange(4, dtype=np.int32), comm.rank)
    with default_job(comm, "one node"):  # another runtime is the default one
        inbox = zeros(railshmem.runtime(), 2, np.int32)
        free(at, 2 * MIB, device, None)
        assert not inbox.any()


# ---- with torch ----


def test_tensors_are_views_of_arrays(comm: MPI.Intracomm) -> None:
    torch = pytest.importorskip("torch")
    with job(comm, settings_of("one node", comm.size)) as rt:
        for name in ("float32", "bfloat16", "float8_e4m3fn", "int64", "bool", "complex64"):
            array = symmetric_array(rt, (4, 6), name)
            array[:] = sample(array.dtype, 24, rt.my_pe).reshape(4, 6)
            tensor = array.torch()
            assert tensor.dtype == getattr(torch, name)
            assert tensor.device == torch.device("cuda", rt.device_index)
            assert (tensor.data_ptr(), tuple(tensor.shape)) == (array.ptr, (4, 6))
            part = array[1:, ::2].torch()
            assert (part.data_ptr(), part.stride()) == (array[1:].ptr, (6, 2))
            tensor.view(torch.uint8).fill_(1)
            torch.cuda.synchronize()
            assert (array.view(np.uint8) == 1).all()
        with pytest.raises(TypeError, match="torch has no dtype"):
            symmetric_array(rt, 4, np.longdouble).torch()


def test_tensors_are_sources_and_destinations(comm: MPI.Intracomm) -> None:
    torch = pytest.importorskip("torch")
    with job(comm, settings_of("one node", comm.size)) as rt:
        device = torch.device("cuda", rt.device_index)
        for dtype in (torch.float32, torch.bfloat16, torch.float8_e4m3fn):
            inbox = zeros(rt, 8, str(dtype).removeprefix("torch."))
            source = torch.arange(8, device=device).add(rt.my_pe).to(dtype)
            rt.put(inbox, source, after(rt))
            rt.barrier_all()
            expected = torch.arange(8).add(before(rt)).to(dtype).float()
            assert torch.equal(inbox.torch().cpu().float(), expected)
            back = torch.zeros(8, dtype=dtype, device=device)
            rt.get(back, inbox, after(rt))
            assert torch.equal(back.cpu().float(), torch.arange(8).add(rt.my_pe).to(dtype).float())
            rt.barrier_all()


def test_a_graph_replays_puts_and_waits(comm: MPI.Intracomm) -> None:
    torch = pytest.importorskip("torch")
    with job(comm, settings_of("one node", comm.size)) as rt:
        count = 100_000
        inbox, mine = zeros(rt, count, np.float32), zeros(rt, count, np.float32)
        signal = zeros(rt, 1, np.uint64)
        inside, source = inbox.torch(), mine.torch()
        total = torch.zeros(1, device=source.device)
        with torch.cuda.device(source.device):
            graph = torch.cuda.CUDAGraph()
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                stream = torch.cuda.current_stream()
                source.add_(1)
                rt.barrier_all_on_stream(stream=stream)  # inboxes have been read
                rt.put_signal_on_stream(
                    inbox, mine, signal, 1, railshmem.SHMEM_SIGNAL_SET, after(rt), stream=stream
                )
                rt.signal_wait_until_on_stream(signal, railshmem.SHMEM_CMP_EQ, 1, stream=stream)
                total.copy_(inside.double().sum())
                rt.barrier_all_on_stream(stream=stream)
                signal.view(np.int64).torch().zero_()
                rt.barrier_all_on_stream(stream=stream)
            for turn in range(1, 101):
                graph.replay()
                torch.cuda.synchronize()
                assert total.item() == turn * count
        rt.barrier_all()


def test_tensors_of_the_pool_are_symmetric(comm: MPI.Intracomm) -> None:
    torch = pytest.importorskip("torch")
    with default_job(comm, "one node"):
        rt = railshmem.runtime()
        free = rt.heap_free
        pool = railshmem.torch_pool()
        with pool:
            inbox = torch.zeros(1000, dtype=torch.bfloat16, device=f"cuda:{rt.device_index}")
        torch.cuda.synchronize()
        pool.require_symmetric(inbox)
        rt.barrier_all()
        rt.put(inbox, torch.full_like(inbox, rt.my_pe + 1), after(rt))
        rt.barrier_all()
        assert (inbox == before(rt) + 1).all()
        with pytest.raises(railshmem.ArgumentError, match="still hold tensors"):
            pool.close()
        del inbox
        pool.close()
        assert rt.heap_free == free
        with pytest.raises(railshmem.ArgumentError, match="closed"), pool:
            pass
