"""What `railshmem compile` does: fills the cache, and says with what."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from railshmem.bench.report import plain_table, plain_text
from railshmem.kernels import Entry, cache_folder, find_or_compile

# What continuous integration compiles for: the GPUs that the library is written for.
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")


class Row(NamedTuple):
    kernel: str
    architecture: str
    entry: Entry
    seconds: float


def compile_all(
    names: Sequence[str], architectures: Sequence[str], progress_on: Console
) -> list[Row]:
    """Every kernel for every architecture, from the cache where it is there."""
    rows = []
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=progress_on, transient=True) as progress:
        for name in names:
            for architecture in architectures:
                task = progress.add_task(f"{name} for {architecture}", total=None)
                began = time.monotonic()
                entry = find_or_compile(name, architecture)
                rows.append(Row(name, architecture, entry, time.monotonic() - began))
                progress.remove_task(task)
    return rows


def write_all(rows: Sequence[Row], folder: Path) -> None:
    """Each as NAME.ARCHITECTURE, which programs in C++ look for."""
    folder.mkdir(parents=True, exist_ok=True)
    for row in rows:
        (folder / f"{row.kernel}.{row.architecture}").write_bytes(row.entry.image)


def text_of(rows: Sequence[Row]) -> str:
    """As a table, and where the cache is."""
    table = plain_table()
    for heading in ("kernels", "architecture", "result"):
        table.add_column(heading)
    for heading in ("KiB", "seconds"):
        table.add_column(heading, justify="right")
    for row in rows:
        result = "compiled" if row.entry.compiled else "was there"
        size, seconds = f"{len(row.entry.image) / 1024:.0f}", f"{row.seconds:.1f}"
        table.add_row(row.kernel, row.architecture, result, size, seconds)
    return plain_text(f"Compiled kernels in {cache_folder()}", table)
