"""The arrays that tests of railshmem.ep give and get, in the memory that the job's kernels reach.

Tests speak numpy. In jobs on GPUs what they give is copied to the GPU, outside of the heap, and a
call is over when its kernels are: then it means what it means on CPUs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np

import railshmem
from jobs import DEVICE
from railshmem.ep import ExpertParallel, Outputs

ON_GPU = DEVICE != "cpu"


def placed(rt: railshmem.Runtime, given: Any) -> Any:
    """An array of the PE's own memory with the same elements; what is no plain array stays."""
    plain = isinstance(given, np.ndarray) and given.flags.c_contiguous and given.flags.writeable
    if not ON_GPU or not plain:
        return given
    from gpu.gpu_memory import GpuArray

    assert rt.device_index is not None
    memory = GpuArray(given, rt.device_index)
    raw = (ctypes.c_char * given.nbytes).from_address(memory.ptr)
    raw.memory = memory  # type: ignore[attr-defined]  # lives as long as what looks at it
    array = railshmem.DeviceArray(rt, np.ndarray(given.shape, given.dtype, raw))
    array[...] = given
    return array


def address_of(array: Any) -> int:
    return array.ptr if isinstance(array, railshmem.DeviceArray) else array.ctypes.data


class _OnGpu:
    """An ExpertParallel that takes numpy's arrays, and returns sums as such."""

    def __init__(self, rt: railshmem.Runtime, exchange: ExpertParallel) -> None:
        self._rt, self._exchange = rt, exchange

    def __getattr__(self, name: str) -> Any:
        return getattr(self._exchange, name)

    def dispatch(self, *arrays: Any, **named: Any) -> Any:
        return self._call(self._exchange.dispatch, *arrays, **named)

    def dispatch_send(self, *arrays: Any, **named: Any) -> Any:
        return self._call(self._exchange.dispatch_send, *arrays, **named)

    def dispatch_recv(self, pending: Any) -> Any:
        return self._call(self._exchange.dispatch_recv, pending)

    def combine(self, results: Any, handle: Any, *, out: Any = None) -> Any:
        return self._sums(self._exchange.combine, results, handle, out=out)

    def combine_send(self, results: Any, handle: Any) -> Any:
        return self._call(self._exchange.combine_send, results, handle)

    def combine_recv(self, pending: Any, *, out: Any = None) -> Any:
        return self._sums(self._exchange.combine_recv, pending, out=out)

    def _call(self, call: Callable[..., Any], *arrays: Any, **named: Any) -> Any:
        # Both are kept until the kernels have ended.
        given = [placed(self._rt, each) for each in arrays]
        options = {name: self._named(each) for name, each in named.items()}
        try:
            result = call(*given, **options)
            self._exchange.finish()
        finally:
            # Also where it failed: what frees the GPU's memory waits for all kernels, and keeps the
            # progress thread from the GPU meanwhile.
            self._settle()
        return result

    def _settle(self) -> None:
        from gpu.gpu_memory import finish, on_gpu

        assert self._rt.device_index is not None
        with on_gpu(self._rt.device_index):
            finish(0)

    def _named(self, given: Any) -> Any:
        if not isinstance(given, Outputs):
            return placed(self._rt, given)
        return Outputs(*(placed(self._rt, getattr(given, each.name)) for each in fields(given)))

    def _sums(self, call: Callable[..., Any], *arrays: Any, out: Any) -> Any:
        sums = self._call(call, *arrays, out=out)
        if out is None:
            return sums.numpy()
        if isinstance(out, np.ndarray):
            out[...] = sums.numpy()
        return out


def make_exchange(rt: railshmem.Runtime, **arguments: Any) -> Any:
    """Collective: an ExpertParallel of the runtime."""
    exchange = ExpertParallel(**arguments, runtime=rt)
    return _OnGpu(rt, exchange) if ON_GPU else exchange
