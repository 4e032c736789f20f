"""The rival that NCCL is, through torch.distributed, where torch is installed with it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from railshmem.bench.gpu.job import GpuJob


class Nccl:
    """Collective, as a context manager: a process group of all PEs, on their GPUs."""

    def __init__(self, job: GpuJob) -> None:
        self._job = job
        self._torch: Any
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._torch, mine = _torch_with_nccl(job)
        reasons = job.comm.allgather(mine)
        why_not = next(filter(None, reasons), "")
        self.available = not why_not
        if why_not:
            self._text = why_not
            return
        version = ".".join(map(str, self._torch.cuda.nccl.version()))
        self._text = f"{version}, through torch {self._torch.__version__}"
        if job.me == 0:
            self._folder = tempfile.TemporaryDirectory(prefix="railshmem-bench-")
        meeting = job.comm.bcast(self._folder.name if self._folder is not None else None)
        self._torch.cuda.set_device(job.runtime.device_index)
        self._torch.distributed.init_process_group(
            "nccl",
            init_method=Path(meeting, "store").as_uri(),
            rank=job.me,
            world_size=job.n_pes,
        )

    def alltoall(self, nbytes: int) -> Any:
        """A call that puts one exchange of `nbytes` bytes per pair on the GPU's stream."""
        torch = self._torch
        shape = self._job.n_pes * nbytes
        device = f"cuda:{self._job.runtime.device_index}"
        source, dest = (torch.zeros(shape, dtype=torch.uint8, device=device) for _ in range(2))
        stream = torch.cuda.ExternalStream(self._job.gpu.stream.value)

        def exchange() -> None:
            with torch.cuda.stream(stream):
                torch.distributed.all_to_all_single(dest, source)

        return exchange

    def __enter__(self) -> Nccl:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._job.rivals["NCCL"] = self._text
        if self.available and kind is None:
            self._torch.distributed.destroy_process_group()
        if self._folder is not None:
            self._folder.cleanup()


def _torch_with_nccl(job: GpuJob) -> tuple[Any, str]:
    """torch, or why it is of no use here."""
    if job.shares_gpus or job.n_pes < 2:
        return None, "not run: it needs a GPU for each of at least 2 PEs"
    try:
        import torch
        import torch.distributed
    except ImportError as error:
        return None, f"none found ({error})"
    if not torch.cuda.is_available() or not torch.distributed.is_nccl_available():
        return None, "none found (torch here comes without CUDA or NCCL)"
    return torch, ""
