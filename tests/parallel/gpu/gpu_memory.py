"""Memory and streams of the GPU that are not the library's: straight from the driver."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

DRIVER = ctypes.CDLL(os.environ.get("RAILSHMEM_GPU_DRIVER") or "libcuda.so.1")


def call(name: str, *arguments: object) -> None:
    answer = getattr(DRIVER, name)(*arguments)
    assert answer == 0, f"{name}: {answer}"


@contextmanager
def on_gpu(device: int) -> Iterator[None]:
    """The device's primary context, current in this thread."""
    call("cuInit", 0)
    context = ctypes.c_void_p()
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    yield
    call("cuDevicePrimaryCtxRelease_v2", device)


def gpu_count() -> int:
    count = ctypes.c_int()
    call("cuInit", 0)
    call("cuDeviceGetCount", ctypes.byref(count))
    return count.value


@contextmanager
def new_stream(device: int) -> Iterator[int]:
    """A stream beside the default one, as torch and cupy make them."""
    with on_gpu(device):
        stream = ctypes.c_void_p()
        non_blocking = 1
        call("cuStreamCreateWithPriority", ctypes.byref(stream), non_blocking, 0)
        yield stream.value or 0
        call("cuStreamSynchronize", stream)
        call("cuStreamDestroy_v2", stream)


def finish(stream: int) -> None:
    call("cuStreamSynchronize", ctypes.c_void_p(stream))


class GpuArray:
    """An array as cupy and numba show theirs."""

    def __init__(self, values: np.ndarray, device: int, **more: Any) -> None:
        self._device = device
        self._more = more
        at = ctypes.c_uint64()
        with on_gpu(device):
            call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(max(values.nbytes, 1)))
        self.ptr = at.value
        self.shape, self.dtype, self.nbytes = values.shape, values.dtype, values.nbytes
        self.copy(self.ptr, values.ctypes.data)

    def copy(self, to: int, source: int) -> None:
        with on_gpu(self._device):
            nbytes = ctypes.c_size_t(self.nbytes)
            stream = ctypes.c_void_p()
            call("cuMemcpyAsync", ctypes.c_uint64(to), ctypes.c_uint64(source), nbytes, stream)
            call("cuStreamSynchronize", stream)

    def numpy(self) -> np.ndarray:
        out = np.empty(self.shape, self.dtype)
        self.copy(out.ctypes.data, self.ptr)
        return out

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.ptr, False),
            **self._more,
        }

    def __del__(self) -> None:
        with on_gpu(self._device):
            call("cuMemFree_v2", ctypes.c_uint64(self.ptr))


class Named:
    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text


class Device(Named):
    """A torch.device, as far as the library looks at it."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.type = kind.partition(":")[0]


class Tensor:
    """What torch's tensors say of themselves, over memory of either kind."""

    def __init__(self, memory: Any, dtype: str, device: str) -> None:
        self._memory = memory  # keeps it
        self.dtype = Named(f"torch.{dtype}")
        self.device = Device(device)
        self.shape = memory.shape
        self.steps = [step // memory.dtype.itemsize for step in np.empty(memory.shape).strides]
        self.contiguous = True
        self.conjugated = False

    def data_ptr(self) -> int:
        memory = self._memory
        return memory.ctypes.data if isinstance(memory, np.ndarray) else memory.ptr

    def numel(self) -> int:
        return int(np.prod(self.shape))

    def stride(self) -> tuple[int, ...]:
        return tuple(self.steps)

    def is_contiguous(self) -> bool:
        return self.contiguous

    def is_conj(self) -> bool:
        return self.conjugated

    def is_neg(self) -> bool:
        return False
