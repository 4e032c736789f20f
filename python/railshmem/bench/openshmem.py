"""The rival that any OpenSHMEM on this machine is: openshmem.c, started with `oshrun` on as many
PEs as the job has, and compiled with `oshcc` on first use.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from railshmem.bench.measure import Batch
from railshmem.bench.rival_program import (
    RivalError,
    RivalProgram,
    compiled,
    environment_of_its_own,
    version_of,
)

SOURCE = Path(__file__).with_name("openshmem.c")


class OpenShmem(RivalProgram):
    """A running rival, or the reason why there is none. Used as a context manager."""

    def __init__(self, n_pes: int, heap_bytes: int) -> None:
        self._n_pes, self._heap_bytes = n_pes, heap_bytes
        super().__init__()

    def batch(self, operation: str, nbytes: int = 8) -> Batch:
        """Runs `operation` on `nbytes` bytes; not a number once the rival is gone."""
        return lambda count: self.seconds(f"{operation} {nbytes} {count}")

    def _start(self) -> None:
        compiler, launcher = shutil.which("oshcc"), shutil.which("oshrun")
        if compiler is None or launcher is None:
            raise RivalError("none found (no oshcc and oshrun in PATH)")
        command = [compiler, "-O2", str(SOURCE)]
        # Which compiler it really is: the name alone may be a link to any.
        version = f"{Path(compiler).resolve()} {version_of(compiler)}"
        program = compiled("openshmem", command, SOURCE, version)
        self._run(
            [launcher, "-n", str(self._n_pes), str(program)],
            _environment(self._heap_bytes),
            version_of(launcher),
        )


def _environment(heap_bytes: int) -> dict[str, str]:
    kept = environment_of_its_own()
    kept["SHMEM_SYMMETRIC_SIZE"] = str(heap_bytes)
    # PEs may outnumber the cores, as ours may; Open MPI 4 and 5.
    kept["OMPI_MCA_rmaps_base_oversubscribe"] = "1"
    kept["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"
    if os.geteuid() == 0:  # the job it is compared with runs as root, too
        kept["OMPI_ALLOW_RUN_AS_ROOT"] = kept["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    return kept
