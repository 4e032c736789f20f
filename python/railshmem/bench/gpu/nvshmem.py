"""The rival that NVSHMEM is, where its package (nvidia-nvshmem-cu13) and nvcc are installed:
nvshmem_rival.cu, a process on each GPU of the job.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Mapping
from math import isnan, nan
from pathlib import Path
from types import TracebackType
from typing import Any

from railshmem.bench.gpu.job import GpuJob
from railshmem.bench.measure import Figure, Phases
from railshmem.bench.rival_program import (
    RivalError,
    RivalProgram,
    compiled,
    environment_of_its_own,
    version_of,
)

SOURCE = Path(__file__).with_name("nvshmem_rival.cu")
# Beside what the operations use.
ROOM = 64 << 20


class Nvshmem:
    """Collective, as a context manager: on PE 0 the program, on the others whether there is one."""

    def __init__(self, job: GpuJob, heap_bytes: int) -> None:
        self._job = job
        self._program = _Program(job, heap_bytes) if job.me == 0 else None
        mine = self._program is not None and self._program.available
        self._available = bool(job.comm.bcast(mine))

    def against(self, operation: str, nbytes: int, blocks: int, count: int) -> dict[str, Phases]:
        """A contestant "rival", of seconds per operation; none where there is no NVSHMEM."""
        if not self._available:
            return {}
        command = f"{operation} {nbytes} {blocks} {count}"
        program = self._program
        return self._job.alone(
            "rival", lambda: nan if program is None else program.seconds(command) / count
        )

    def __enter__(self) -> Nvshmem:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._program is not None:
            self._job.rivals["NVSHMEM"] = self._program.text
            self._program.__exit__(kind, value, trace)


class _Program(RivalProgram):
    def __init__(self, job: GpuJob, heap_bytes: int) -> None:
        self._job, self._heap_bytes = job, heap_bytes
        super().__init__()

    def _start(self) -> None:
        if self._job.shares_gpus or self._job.n_pes < 2:
            raise RivalError("not run: it needs a GPU for each of at least 2 PEs")
        if self._job.n_nodes > 1:
            raise RivalError("not run: nodes are emulated, and it would use the links between them")
        compiler = shutil.which("nvcc")
        spec = importlib.util.find_spec("nvidia.nvshmem") if _has_nvidia_packages() else None
        if compiler is None or spec is None or not spec.submodule_search_locations:
            raise RivalError("none found (it needs nvcc and the package nvidia-nvshmem-cu13)")
        home = Path(next(iter(spec.submodule_search_locations)))
        library = home / "lib"
        host = next(iter(sorted(library.glob("libnvshmem_host.so*"))), None)
        if host is None:
            raise RivalError(f"{library} has no libnvshmem_host.so")
        command = [
            *(compiler, "-std=c++17", "-O2", "-rdc=true", f"-arch={self._job.architecture}"),
            *("-I", str(home / "include"), str(SOURCE), "-L", str(library)),
            # Handed on to the linker: nvcc knows no file whose name ends in a version.
            *("-lnvshmem_device", "-Xlinker", str(host), "-Xlinker", f"-rpath={library}"),
        ]
        program = compiled("nvshmem_rival", command, SOURCE, version_of(compiler))
        environment = environment_of_its_own()
        environment["NVSHMEM_SYMMETRIC_SIZE"] = str(self._heap_bytes + ROOM)
        # It opens its parts by their names.
        paths = [str(library), os.environ.get("LD_LIBRARY_PATH", "")]
        environment["LD_LIBRARY_PATH"] = ":".join(filter(None, paths))
        self._run(
            [str(program), str(self._job.n_pes), str(self._heap_bytes)],
            environment,
            f"NVSHMEM of {home.name}, {host.name}",
        )


def _has_nvidia_packages() -> bool:
    return importlib.util.find_spec("nvidia") is not None


def beside(figures: Mapping[str, Figure], rival: str = "NVSHMEM") -> dict[str, Any]:
    """What a Result says of the rival; nothing where it did not answer."""
    found = figures.get("rival")
    if found is None or isnan(found.median_us) or found.median_us == 0:
        return {}
    return {"rival": rival, "rival_us": found.median_us}
