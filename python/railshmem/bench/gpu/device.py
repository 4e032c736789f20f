"""One GPU as the benchmarks use it: kernels by name, a stream, times by events.

Calls the driver's library that the runtime has opened, by ctypes: the benchmarks run wherever the
runtime does, need no other package, and time nothing but what they launch.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from ctypes import (
    byref,
    c_char_p,
    c_float,
    c_int,
    c_int32,
    c_uint,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any, TypeAlias

import numpy as np

from railshmem import _core
from railshmem.errors import GpuError
from railshmem.kernels import kernel_image

# The types of kernels' arguments.
U32: TypeAlias = c_uint32
I32: TypeAlias = c_int32
U64: TypeAlias = c_uint64
Argument: TypeAlias = U32 | I32 | U64
Work: TypeAlias = Callable[[], object]

# cuda.h: CU_STREAM_NON_BLOCKING, CU_EVENT_DEFAULT, CU_MEMHOSTREGISTER_PORTABLE | _DEVICEMAP.
_APART, _TIMED, _PORTABLE_MAPPED = 1, 0, 3


class Gpu:
    """Number `device` of those that this process may see; the calling thread's current one."""

    def __init__(self, device: int, architecture: str) -> None:
        self._library = ctypes.CDLL(_library_name())
        self._architecture = architecture
        self._kernels: dict[str, c_void_p] = {}
        self._modules: dict[str, c_void_p] = {}
        self._pinned: list[mmap.mmap] = []
        self._blocks: list[int] = []
        self._call("cuInit", c_uint(0))
        version, handle, context = c_int(), c_int(), c_void_p()
        self._call("cuDriverGetVersion", byref(version))
        self.cuda_version = f"{version.value // 1000}.{version.value % 1000 // 10}"
        self._call("cuDeviceGet", byref(handle), c_int(device))
        self._call("cuDevicePrimaryCtxRetain", byref(context), handle)
        self._call("cuCtxSetCurrent", context)
        self.stream = c_void_p()
        self._call("cuStreamCreateWithPriority", byref(self.stream), c_uint(_APART), c_int(0))
        self._start, self._end = self._event(), self._event()

    # ---- memory ----

    def pinned(self, shape: int, dtype: Any = np.uint64) -> np.ndarray:
        """Zeroed host memory that kernels reach at the same address."""
        nbytes = shape * np.dtype(dtype).itemsize
        pages = mmap.mmap(-1, -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE)
        array = np.frombuffer(pages, dtype, shape)
        at, size = U64(array.ctypes.data), U64(len(pages))
        self._call("cuMemHostRegister_v2", at, size, c_uint(_PORTABLE_MAPPED))
        self._pinned.append(pages)  # as long as kernels may reach it
        return array

    def memory(self, nbytes: int) -> int:
        """The address of memory of this GPU, zeroed, that lives as long as the process."""
        at = U64()
        self._call("cuMemAlloc_v2", byref(at), U64(nbytes))
        self._blocks.append(at.value)
        self.fill(at.value, 0, nbytes)
        self.sync()
        return at.value

    def free_memory(self) -> None:
        """What memory() gave is gone."""
        self.sync()
        for at in self._blocks:
            self._call("cuMemFree_v2", U64(at))
        self._blocks.clear()

    def fill(self, at: int, value: int, nbytes: int) -> None:
        """In the order of the stream."""
        byte = ctypes.c_ubyte(value)
        self._call("cuMemsetD8Async", U64(at), byte, U64(nbytes), self.stream)

    def write(self, at: int, values: np.ndarray) -> None:
        """Copies an array of the host to this GPU."""
        source = np.ascontiguousarray(values)
        where = U64(source.ctypes.data)
        self._call("cuMemcpyAsync", U64(at), where, U64(source.nbytes), self.stream)
        self.sync()

    # ---- work ----

    def launch(
        self,
        kernel: str,
        blocks: int,
        threads: int,
        *arguments: Argument,
        together: bool = False,
    ) -> None:
        """Launches "MODULE:NAME" of kernels/entry/MODULE.cu. `together`: all blocks run at once."""
        places = (c_void_p * len(arguments))(*(ctypes.addressof(each) for each in arguments))
        grid = [c_uint(size) for size in (blocks, 1, 1, threads, 1, 1, 0)]
        function = self.kernel(kernel)
        if together:
            self._call("cuLaunchCooperativeKernel", function, *grid, self.stream, places)
        else:
            self._call("cuLaunchKernel", function, *grid, self.stream, places, None)

    def kernel(self, name: str) -> c_void_p:
        """Loads it where it is not yet."""
        if name not in self._kernels:
            module, _, entry = name.partition(":")
            if module not in self._modules:
                loaded = c_void_p()
                image = kernel_image(module, self._architecture)
                self._call("cuModuleLoadData", byref(loaded), image)
                self._modules[module] = loaded
            function = c_void_p()
            found = self._modules[module], c_char_p(entry.encode())
            self._call("cuModuleGetFunction", byref(function), *found)
            self._kernels[name] = function
        return self._kernels[name]

    def seconds(self, work: Work, before: Work | None = None) -> float:
        """What the GPU needs for what `work` gives to the stream, after what `before` gives."""
        if before is not None:
            before()
        self._call("cuEventRecord", self._start, self.stream)
        work()
        self._call("cuEventRecord", self._end, self.stream)
        self.sync()
        milliseconds = c_float()
        self._call("cuEventElapsedTime", byref(milliseconds), self._start, self._end)
        return milliseconds.value / 1e3

    def sync(self) -> None:
        """Waits for what the stream was given."""
        self._call("cuStreamSynchronize", self.stream)

    def _event(self) -> c_void_p:
        event = c_void_p()
        self._call("cuEventCreate", byref(event), c_uint(_TIMED))
        return event

    def _call(self, name: str, *arguments: Any) -> None:
        result = getattr(self._library, name)(*arguments)
        if result != 0:
            text = c_char_p()
            self._library.cuGetErrorString(c_int(result), byref(text))
            why = (text.value or b"unknown error").decode()
            raise GpuError(f"bench: {name} answered {result} ({why})")


def _library_name() -> str:
    """The one that the runtime opens, too."""
    chosen = {row[0]: row[1] for row in _core.settings_table()}["RAILSHMEM_GPU_DRIVER"]
    return chosen or "libcuda.so.1"
