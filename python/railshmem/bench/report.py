"""Results of benchmarks: a table for people, one JSON object a line for programs."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isnan
from pathlib import Path

from rich.console import Console, RenderableType
from rich.table import Table

from railshmem.bench.measure import Figure

TABLE_WIDTH = 118


# What a line says beside the common keys.
Extra = Mapping[str, float | int | str | bool]


@dataclass(frozen=True)
class Result:
    """One figure with its physical limit and its rivals, all measured in the same run.

    `rival` names what MPI did meanwhile, `shmem_us` is the same by the machine's OpenSHMEM.
    """

    bench: str
    median_us: float
    p99_us: float
    transport: str | None = None
    bytes: int | None = None
    gbs: float | None = None
    limit_us: float | None = None
    limit_gbs: float | None = None
    rival: str | None = None
    rival_us: float | None = None
    shmem_us: float | None = None
    extra: Extra = field(default_factory=dict)

    def as_json(self) -> str:
        """One line; keys that do not apply are absent."""
        own = {key: value for key, value in vars(self).items() if key != "extra"}
        own = {key: value for key, value in own.items() if value is not None} | dict(self.extra)
        return json.dumps({k: round(v, 6) if isinstance(v, float) else v for k, v in own.items()})


def result_of(
    figures: Mapping[str, Figure],
    bench: str,
    *,
    limit_us: float | None,
    transport: str | None = None,
    nbytes: int | None = None,
    moves: bool = False,
    mpi: str | None = None,
    extra: Extra | None = None,
) -> Result:
    """The figure `bench` beside "`bench` mpi" (an operation named `mpi`) and "`bench` shmem".

    `moves`: it moves `nbytes` bytes, at so many GB/s.
    """
    ours = figures[bench]
    rivals = [figures.get(f"{bench} {name}") for name in ("mpi", "shmem")]
    mpi_us, shmem_us = (None if f is None or isnan(f.median_us) else f.median_us for f in rivals)
    return Result(
        bench,
        ours.median_us,
        ours.p99_us,
        transport=transport,
        bytes=nbytes,
        gbs=ours.gbs(nbytes) if moves and nbytes else None,
        limit_us=limit_us,
        limit_gbs=nbytes / limit_us / 1e3 if moves and nbytes and limit_us else None,
        rival=mpi,
        rival_us=mpi_us,
        shmem_us=shmem_us,
        extra=extra or {},
    )


def size_text(nbytes: int) -> str:
    """4096 -> "4 KiB"."""
    value, units = float(nbytes), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{value:.4g} {units[0]}"


def number_text(value: float | None) -> str:
    """Three significant digits, without exponents for the sizes that occur."""
    if value is None:
        return ""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:#.3g}"


def plain_text(*parts: RenderableType, width: int = TABLE_WIDTH) -> str:
    """Rich output as one string, so that a PE prints it with one write.

    Without colours: some launchers give their PEs a terminal and pass the codes on to a file.
    Titles are lines of their own: rich would fold a table's title into the table's width.
    """
    target = io.StringIO()
    console = Console(file=target, width=width, color_system=None, highlight=False)
    for part in parts:
        console.print(part)
    return "".join(f"{line.rstrip()}\n" for line in target.getvalue().splitlines())


def plain_table() -> Table:
    """The look that all tables of the tool share."""
    return Table(box=None, pad_edge=False)


def as_table(results: Sequence[Result]) -> Table:
    """The table for people. A gain above 1 means that we are faster than the rival before it."""
    with_shmem = any(row.shmem_us for row in results)
    connected = any(row.extra.get("queue_pairs") for row in results)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("bench", "path"):
        table.add_column(name, no_wrap=True)
    for name in ("bytes", "median us", "p99 us", "GB/s", "limit us", "of limit"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("MPI", no_wrap=True)
    for name in ("MPI us", "gain", *(("SHMEM us", "gain") if with_shmem else ())):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("QPs of a PE", "memory") if connected else ():
        table.add_column(name, justify="right", no_wrap=True)
    for row in results:
        cells = [
            row.bench,
            row.transport or "",
            "" if row.bytes is None else size_text(row.bytes),
            number_text(row.median_us),
            number_text(row.p99_us),
            number_text(row.gbs),
            number_text(row.limit_us),
            "" if not row.limit_us else f"{row.median_us / row.limit_us:.2f}x",
            row.rival or "",
            number_text(row.rival_us),
            _gain(row, row.rival_us),
        ]
        if with_shmem:
            cells += [number_text(row.shmem_us), _gain(row, row.shmem_us)]
        if connected:
            memory = int(row.extra.get("connection_bytes", 0))
            cells += [str(row.extra.get("queue_pairs", "")), size_text(memory)]
        table.add_row(*cells)
    return table


def _gain(row: Result, rival_us: float | None) -> str:
    return "" if not rival_us else f"{rival_us / row.median_us:.2f}x"


def publish(
    title: str,
    results: Sequence[Result],
    json_target: str | None,
    cache_line_us: tuple[float, float],
) -> None:
    """Prints on the calling PE. With `--json -` only JSON lines reach stdout.

    `cache_line_us`: what a cache line took from core to core before and after the measurements,
    because that, and everything else with it, changes from minute to minute.
    """
    before, after = cache_line_us
    line = f"cache line, core to core: {before * 1e3:.0f} ns before, {after * 1e3:.0f} ns after"
    text = plain_text(title, line, as_table(results))
    deliver(results, json_target, {"line_before_us": before, "line_after_us": after}, text)


def deliver(results: Sequence[Result], json_target: str | None, origin: Extra, text: str) -> None:
    """Prints `text`, or the results as JSON lines, and writes those where they are wanted.

    `origin`: what every line says beside its figures.
    """
    lines = "".join(
        replace(result, extra={**result.extra, **origin}).as_json() + "\n" for result in results
    )
    if json_target == "-":
        text = lines
    elif json_target is not None:
        Path(json_target).write_text(lines, encoding="utf-8")
    sys.stdout.write(text)
    sys.stdout.flush()
