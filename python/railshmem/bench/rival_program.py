"""A rival that is a program beside the job, run by PE 0.

It answers "ready SECONDS" when it has started, and each line it reads with the seconds that took.
Between commands it sleeps, so that its rounds can take turns with ours. Whatever goes wrong with
it, the benchmark goes on without it and says why.
"""

from __future__ import annotations

import hashlib
import math
import os
import select
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, TypeVar

START_TIMEOUT_S = 60.0
COMMAND_TIMEOUT_S = 60.0
END_TIMEOUT_S = 5.0

Own = TypeVar("Own", bound="RivalProgram")


class RivalError(Exception):
    """The rival cannot run; the text says why in one line."""


class RivalProgram(ABC):
    """A running rival, or the reason why there is none. Used as a context manager."""

    def __init__(self) -> None:
        self.text = ""  # which it is, or why there is none
        self.init_seconds = math.nan
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        try:
            self._start()
        except RivalError as error:
            self._give_up(str(error))

    @abstractmethod
    def _start(self) -> None:
        """Calls _run(). Raises RivalError where there is no such rival here."""

    @property
    def available(self) -> bool:
        """False also once it has stopped answering."""
        return self._process is not None

    def _run(self, command: Sequence[str], environment: Mapping[str, str], text: str) -> None:
        """Starts the program; `text` says which rival it is. Raises RivalError."""
        # Without a session of its own Ctrl-C would reach it first; it ends when its input does.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=dict(environment),
            text=True,
            start_new_session=True,
        )
        words = self._answer(START_TIMEOUT_S, "start").split()
        if len(words) != 2 or words[0] != "ready":
            raise RivalError(f"{command[0]} answered {' '.join(words)!r} instead of 'ready'")
        self.init_seconds = float(words[1])
        self.text = text

    def seconds(self, command: str) -> float:
        """What it answers to a line; not a number once it is gone."""
        if self._process is None:
            return math.nan
        try:
            self._send(f"{command}\n")
            return float(self._answer(COMMAND_TIMEOUT_S, command.partition(" ")[0]))
        except RivalError as error:
            self._give_up(str(error))
            return math.nan

    def __enter__(self: Own) -> Own:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()
        self._errors.close()

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


def compiled(name: str, command: Sequence[str], source: Path, version: str) -> Path:
    """The program that `command`, and then `-o` and a path, makes.

    Kept in the user's cache, as long as the command, the compiler's version and the source
    stay what they are. Raises RivalError.
    """
    made_of = [*command, version, source.read_text("utf-8")]
    digest = hashlib.sha256("\0".join(made_of).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "railshmem"
    program = cache / f"{name}-{digest}"
    if program.exists():
        return program
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        fresh = Path(folder) / program.name
        done = subprocess.run(
            [*command, "-o", str(fresh)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or ["no reason given"]
            why = next((line for line in lines if "error" in line), lines[0])
            raise RivalError(f"{command[0]} cannot compile {name}: {why}")
        fresh.replace(program)  # whole or not at all, whoever else compiles it now
    return program


def version_of(tool: str) -> str:
    """The first line of what it says of itself."""
    done = subprocess.run([tool, "--version"], capture_output=True, text=True, check=False)
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    return lines[0] if lines else Path(tool).name


# This job's own place in its launcher's job, which the rival must not take for its own.
_LAUNCHER_VARIABLES = ("PMI", "PMIX_", "HYDI_", "HYDRA_", "MPIR_", "MPICH_", "OMPI_", "PRTE_")


def environment_of_its_own() -> dict[str, str]:
    """This process's, without its place in a job."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_LAUNCHER_VARIABLES)
    }
