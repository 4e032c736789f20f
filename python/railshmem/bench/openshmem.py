"""The rival that any OpenSHMEM on this machine is: openshmem.c, run beside the job by PE 0.

The program is compiled with `oshcc` on first use, kept in the user's cache, and started with
`oshrun` on as many PEs as the job has. Between commands it sleeps, so that its rounds can take
turns with ours.
"""

from __future__ import annotations

import hashlib
import math
import os
import select
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO

from railshmem.bench.measure import Batch

SOURCE = Path(__file__).with_name("openshmem.c")
START_TIMEOUT_S = 60.0
COMMAND_TIMEOUT_S = 60.0
END_TIMEOUT_S = 5.0

# This job's own place in its launcher's job, which the rival must not take for its own.
_LAUNCHER_VARIABLES = ("PMI", "PMIX_", "HYDI_", "HYDRA_", "MPIR_", "MPICH_", "OMPI_", "PRTE_")


class OpenShmem:
    """A running rival, or the reason why there is none. Used as a context manager."""

    def __init__(self, n_pes: int, heap_bytes: int) -> None:
        self.text = ""  # which OpenSHMEM, or why none
        self.init_seconds = math.nan
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        try:
            self._start(n_pes, heap_bytes)
        except RivalError as error:
            self._give_up(str(error))

    @property
    def available(self) -> bool:
        """False also once it has stopped answering."""
        return self._process is not None

    def batch(self, operation: str, nbytes: int = 8) -> Batch:
        """Runs `operation` on `nbytes` bytes; not a number once the rival is gone."""

        def run(count: int) -> float:
            if self._process is None:
                return math.nan
            try:
                self._send(f"{operation} {nbytes} {count}\n")
                return float(self._answer(COMMAND_TIMEOUT_S, operation))
            except RivalError as error:
                self._give_up(str(error))
                return math.nan

        return run

    def __enter__(self) -> OpenShmem:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()
        self._errors.close()

    def _start(self, n_pes: int, heap_bytes: int) -> None:
        compiler, launcher = shutil.which("oshcc"), shutil.which("oshrun")
        if compiler is None or launcher is None:
            raise RivalError("none found (no oshcc and oshrun in PATH)")
        program = _compiled(compiler)
        # Without a session of its own Ctrl-C would reach it first; it ends when its input does.
        self._process = subprocess.Popen(
            [launcher, "-n", str(n_pes), str(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=_environment(heap_bytes),
            text=True,
            start_new_session=True,
        )
        words = self._answer(START_TIMEOUT_S, "start").split()
        if len(words) != 2 or words[0] != "ready":
            raise RivalError(f"{launcher} answered {' '.join(words)!r} instead of 'ready'")
        self.init_seconds = float(words[1])
        self.text = _version(launcher)

    def _send(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise RivalError(f"it ended: {self._last_error()}") from None

    def _answer(self, timeout_s: float, what: str) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        if not ready:
            raise RivalError(f"no answer to '{what}' within {timeout_s:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise RivalError(f"it ended at '{what}': {self._last_error()}")
        return line

    def _last_error(self) -> str:
        self._errors.seek(0)
        lines = [line.strip(" -\n") for line in self._errors]
        return next((line for line in lines if line), "no reason given")

    def _give_up(self, why: str) -> None:
        self._end()
        self.text = why

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        # The exit status says nothing: some releases crash in shmem_finalize.
        try:
            process.stdin.close()
            process.wait(END_TIMEOUT_S)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            process.kill()
            process.wait()
        process.stdout.close()


class RivalError(Exception):
    """The rival cannot run; the text says why in one line."""


def _compiled(compiler: str) -> Path:
    """The program, compiled unless this source and this compiler have met before."""
    made_of = (
        SOURCE.read_bytes() + str(Path(compiler).resolve()).encode() + _version(compiler).encode()
    )
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "railshmem"
    program = cache / f"openshmem-{hashlib.sha256(made_of).hexdigest()[:16]}"
    if program.exists():
        return program
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        fresh = Path(folder) / program.name
        command = [compiler, "-O2", str(SOURCE), "-o", str(fresh)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or ["no reason given"]
            raise RivalError(f"{compiler} cannot compile {SOURCE.name}: {lines[0]}")
        fresh.replace(program)  # whole or not at all, whoever else compiles it now
    return program


def _version(tool: str) -> str:
    done = subprocess.run([tool, "--version"], capture_output=True, text=True, check=False)
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    return lines[0] if lines else Path(tool).name


def _environment(heap_bytes: int) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_LAUNCHER_VARIABLES)
    }
    kept["SHMEM_SYMMETRIC_SIZE"] = str(heap_bytes)
    # PEs may outnumber the cores, as ours may; Open MPI 4 and 5.
    kept["OMPI_MCA_rmaps_base_oversubscribe"] = "1"
    kept["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"
    if os.geteuid() == 0:  # the job it is compared with runs as root, too
        kept["OMPI_ALLOW_RUN_AS_ROOT"] = kept["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    return kept
