"""Symmetric arrays in GPU memory.

They look like numpy's, and views work alike, but the CPU cannot touch their elements: whatever
reads or writes them here is a copy by the GPU's driver, done when the call returns. Kernels take
them by `.ptr`, `__cuda_array_interface__` (cupy, numba), DLPack or `.torch()`, all without a copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from railshmem._core import DeviceLayout

if TYPE_CHECKING:
    import torch


class DeviceArray(DeviceLayout, np.lib.mixins.NDArrayOperatorsMixin):
    """An array in the memory of this PE's GPU, or of a mapped peer's.

    Basic indexing (integers, slices, `...`, None), `reshape`, `view`, `ravel` and `T` give views
    that keep the memory alive. Everything that needs values is computed by numpy on a copy in host
    memory: `numpy()`, operators, comparisons, ufuncs, indexing by lists and masks. Assignments
    write to the GPU: `a[2:] = 1`, `a += 1`, `a[mask] = other`.
    """

    # ---- what it is ----

    @property
    def shape(self) -> tuple[int, ...]:
        return self._elements.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._elements.dtype

    @property
    def strides(self) -> tuple[int, ...]:
        """In bytes, as numpy's."""
        return self._elements.strides

    @property
    def ndim(self) -> int:
        return self._elements.ndim

    @property
    def size(self) -> int:
        """Elements."""
        return self._elements.size

    @property
    def itemsize(self) -> int:
        return self._elements.itemsize

    @property
    def nbytes(self) -> int:
        return self._elements.nbytes

    @property
    def ptr(self) -> int:
        """The address in the GPU's memory, for kernels; 0 where there are no bytes."""
        return self._elements.ctypes.data if self.nbytes else 0

    @property
    def device(self) -> int:
        """The number of the GPU among those that this process may see."""
        return self.__dlpack_device__()[1]

    def __len__(self) -> int:
        return len(self._elements)

    def __repr__(self) -> str:
        return (
            f"<DeviceArray of shape {self.shape} and {self.dtype}, {self.nbytes} bytes at "
            f"{self.ptr:#x} of GPU {self.device}>"
        )

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie one behind the other, the last axis first."""
        return self._elements.flags.c_contiguous

    # ---- views ----

    def _like(self, elements: NDArray[Any]) -> DeviceArray:
        return DeviceArray(self._runtime, elements)

    def reshape(self, *shape: Any) -> DeviceArray:
        """A view of another shape; of contiguous arrays only (ValueError)."""
        if not self.contiguous:  # numpy would copy, and touch what it must not
            raise ValueError(f"no view of shape {shape}: the array's elements are apart")
        return self._like(self._elements.reshape(*shape))

    def view(self, dtype: DTypeLike) -> DeviceArray:
        """The same bytes as elements of another type."""
        return self._like(self._elements.view(dtype))

    def ravel(self) -> DeviceArray:
        return self.reshape(-1)

    @property
    def T(self) -> DeviceArray:  # noqa: N802
        return self._like(self._elements.T)

    def __getitem__(self, index: Any) -> Any:
        """A view; a number where integers name one element; a copy in host memory for lists, masks
        and names of fields."""
        parts = index if isinstance(index, tuple) else (index,)
        if not _is_basic(parts):
            return self.numpy()[_on_host(index)]
        found = self._like(self._elements[_view_index(parts)])
        one = len(parts) == self.ndim and all(isinstance(part, _INTEGERS) for part in parts)
        return found.numpy()[()] if one else found

    def __iter__(self) -> Iterator[Any]:
        if self.ndim == 0:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    # ---- assignment ----

    def __setitem__(self, index: Any, value: Any) -> None:
        parts = index if isinstance(index, tuple) else (index,)
        if _is_basic(parts):
            self._like(self._elements[_view_index(parts)]).fill(value)
            return
        # Only the elements that are named are written: peers may be writing to the others.
        places = np.arange(self.size).reshape(self.shape)[_on_host(index)]
        values = np.empty(places.shape, self.dtype)
        values[...] = _on_host(value)
        for place, one in zip(places.flat, values.flat, strict=True):
            self[np.unravel_index(place, self.shape)] = one

    def fill(self, value: Any) -> None:
        """Writes a number to every element, or an array whose shape fits: a[...] = value."""
        if isinstance(value, DeviceArray):
            alike = value.shape == self.shape and value.dtype == self.dtype
            if alike and value.contiguous and self.contiguous:
                self._copy_from(value)
                return
            value = value.numpy()
        if np.ndim(value) == 0 and self.contiguous:
            one = np.empty((), self.dtype)
            one[...] = value
            content = one.tobytes()
            if content == content[:1] * len(content):
                self._fill(content[0])
                return
        whole = np.empty(self.shape, self.dtype)
        whole[...] = value
        self._write(whole)

    # ---- copies in host memory ----

    def numpy(self) -> NDArray[Any]:
        """A copy in host memory."""
        return self._read()

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("a DeviceArray cannot become a numpy array without a copy")
        found = self._read()
        return found if dtype is None else found.astype(dtype, copy=False)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """numpy's operation on copies in host memory; what `out` names is written to the GPU."""
        if method == "at":  # would change a copy
            return NotImplemented
        targets = options.pop("out", ())
        if targets:
            options["out"] = tuple(map(_on_host, targets))
        options = {name: _on_host(given) for name, given in options.items()}
        results = getattr(ufunc, method)(*map(_on_host, inputs), **options)
        if not targets:
            return results
        several = results if isinstance(results, tuple) else (results,)
        for target, result in zip(targets, several, strict=True):
            if isinstance(target, DeviceArray):
                target[...] = result
        named = tuple(
            result if target is None else target
            for target, result in zip(targets, several, strict=True)
        )
        return named if isinstance(results, tuple) else named[0]

    def astype(self, dtype: DTypeLike) -> NDArray[Any]:
        return self._read().astype(dtype)

    def tolist(self) -> Any:
        return self._read().tolist()

    def tobytes(self) -> bytes:
        return self._read().tobytes()

    __bytes__ = tobytes

    def item(self, *place: Any) -> Any:
        return self._read().item(*place)

    def all(self, *axes: Any, **options: Any) -> Any:
        return self._read().all(*axes, **options)

    def any(self, *axes: Any, **options: Any) -> Any:
        return self._read().any(*axes, **options)

    def sum(self, *axes: Any, **options: Any) -> Any:
        return self._read().sum(*axes, **options)

    def min(self, *axes: Any, **options: Any) -> Any:
        return self._read().min(*axes, **options)

    def max(self, *axes: Any, **options: Any) -> Any:
        return self._read().max(*axes, **options)

    def __bool__(self) -> bool:
        return bool(self._read())

    def __int__(self) -> int:
        return int(self._read())

    def __float__(self) -> float:
        return float(self._read())

    def __index__(self) -> int:
        return self._read().__index__()

    # ---- for other libraries, without a copy ----

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3. `stream` is None: nothing of this library is on its way when a call has
        returned; whoever launched kernels of their own orders what follows."""
        found = {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.ptr, False),
            "strides": None if self.contiguous else self.strides,
            "stream": None,
        }
        return found if self.dtype.names is None else {**found, "descr": self.dtype.descr}

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule of the same memory. `stream` has nothing to wait for, as above."""
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(
                f"DLPack device {dl_device} asked of an array on {self.__dlpack_device__()}; "
                "numpy() gives a copy in host memory"
            )
        if copy:
            raise BufferError("a DeviceArray gives no copies by DLPack; copy what it shares")
        return self._dlpack(max_version is not None and max_version[0] >= 1)

    def torch(self) -> torch.Tensor:
        """A tensor of the same memory, dtype, shape and strides."""
        import torch

        name = self.dtype.name
        kind = getattr(torch, name, None)
        if not isinstance(kind, torch.dtype):
            raise TypeError(f"torch has no dtype {name}")
        if not self.contiguous:
            whole = self._like(_span(self._elements)).torch().view(kind)
            steps = [stride // self.itemsize for stride in self.strides]
            return whole.as_strided(self.shape, steps)
        # As bytes: DLPack came to some types later than torch did.
        plain = torch.from_dlpack(self.ravel().view(np.uint8))
        return plain.view(kind).reshape(self.shape)


_INTEGERS = (int, np.integer)


def _is_basic(parts: tuple[Any, ...]) -> bool:
    """Whether numpy answers such an index with a view."""
    return all(
        part is None
        or part is Ellipsis
        or isinstance(part, slice)
        or (isinstance(part, _INTEGERS) and not isinstance(part, bool))
        for part in parts
    )


def _view_index(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same index so that numpy answers with a view even where it names one element."""
    return parts if any(part is Ellipsis for part in parts) else (*parts, ...)


def _on_host(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_on_host, value))
    return value.numpy() if isinstance(value, DeviceArray) else value


def _span(elements: NDArray[Any]) -> NDArray[Any]:
    """The bytes from the first to the last of elements whose strides are not negative."""
    size = elements.itemsize
    if any(step < 0 or step % size for step in elements.strides):
        raise ValueError(f"torch has no strides of {elements.strides} bytes")
    last = sum((n - 1) * step for n, step in zip(elements.shape, elements.strides, strict=True))
    first = np.lib.stride_tricks.as_strided(elements, (1,), (size,)).view(np.uint8)
    return np.lib.stride_tricks.as_strided(first, (last + size,), (1,))
