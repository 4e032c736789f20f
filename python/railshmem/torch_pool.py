"""A memory pool of torch over the symmetric heap: tensors that peers reach, without a copy."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from railshmem import _core
from railshmem.errors import ArgumentError
from railshmem.shmem import runtime


class TorchPool:
    """What torch allocates inside `with pool:`, in this thread, lies in the symmetric heap.

    Symmetric memory is allocated by all PEs together: inside, every PE makes tensors of the same
    sizes in the same order. torch asks for memory in blocks of 2 MiB and more, and each block it
    asks for is a collective call; sizes that differ raise on every PE. Inside its blocks torch
    places tensors by itself: they are symmetric as long as every PE lets go of tensors in the same
    order, too, which `require_symmetric` checks. Memory returns to the heap only by `close`.
    """

    def __init__(self) -> None:
        import torch

        self._runtime = runtime()
        device = self._runtime.device_index
        if device is None:
            raise ArgumentError(f"torch_pool: the job runs on CPUs ({self._runtime.device_reason})")
        allocator = torch.cuda.memory.CUDAPluggableAllocator(
            _core.__file__, "railshmem_torch_alloc", "railshmem_torch_free"
        )
        self._device = torch.device("cuda", device)
        self._allocator = allocator  # the pool only borrows it
        self._pool: Any = torch.cuda.MemPool(allocator.allocator())
        self._inside: list[Any] = []

    def __enter__(self) -> TorchPool:
        import torch

        if self._pool is None:
            raise ArgumentError("torch_pool: the pool was closed")
        inside = torch.cuda.use_mem_pool(self._pool, self._device)
        inside.__enter__()
        self._inside.append(inside)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._inside.pop().__exit__(kind, error, trace)

    def require_symmetric(self, tensor: Any) -> None:
        """Collective: raises ArgumentError on every PE where the tensor is not symmetric."""
        offset = self._runtime.heap_offset(tensor)
        self._runtime.require_same("heap offset of a tensor", str(offset))

    def close(self) -> None:
        """Collective: gives the memory back to the heap.

        Raises ArgumentError on every PE where one still has tensors of a pool; then the memory
        stays, and close may be called again.
        """
        import torch

        self._pool = None
        torch.cuda.empty_cache()  # of the pool, too, once its tensors are gone
        self._runtime.free_torch_blocks()


def torch_pool() -> TorchPool:
    """A TorchPool over the heap of shmem_init's runtime.

        pool = railshmem.torch_pool()
        with pool:
            inbox = torch.empty(n_pes, 4096, device="cuda")  # on every PE
        railshmem.shmem_put(inbox[me], tensor, pe)
        del inbox
        pool.close()

    Raises ArgumentError where the job runs on CPUs.
    """
    return TorchPool()
