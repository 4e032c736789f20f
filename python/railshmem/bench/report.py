"""Results of benchmarks: a table for people, one JSON object a line for programs."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console, RenderableType
from rich.table import Table

TABLE_WIDTH = 118


@dataclass(frozen=True)
class Result:
    """One figure with its physical limit and its rival, all measured in the same run."""

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
    extra: dict[str, float | int | str | bool] = field(default_factory=dict)

    def as_json(self) -> str:
        """One line; keys that do not apply are absent."""
        own = {key: value for key, value in vars(self).items() if key != "extra"}
        own = {key: value for key, value in own.items() if value is not None} | self.extra
        return json.dumps({k: round(v, 6) if isinstance(v, float) else v for k, v in own.items()})


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
    """The table for people. Ratios above 1 in the last column mean that we are faster."""
    table = plain_table()
    for name in ("bench", "path"):
        table.add_column(name)
    for name in ("bytes", "median us", "p99 us", "GB/s", "limit us", "of limit", "rival us"):
        table.add_column(name, justify="right")
    table.add_column("rival")
    table.add_column("gain", justify="right")
    for row in results:
        table.add_row(
            row.bench,
            row.transport or "",
            "" if row.bytes is None else size_text(row.bytes),
            number_text(row.median_us),
            number_text(row.p99_us),
            number_text(row.gbs),
            number_text(row.limit_us),
            "" if not row.limit_us else f"{row.median_us / row.limit_us:.2f}x",
            number_text(row.rival_us),
            row.rival or "",
            "" if not row.rival_us else f"{row.rival_us / row.median_us:.2f}x",
        )
    return table


def publish(title: str, results: Sequence[Result], json_target: str | None) -> None:
    """Prints on the calling PE. With `--json -` only JSON lines reach stdout."""
    lines = "".join(result.as_json() + "\n" for result in results)
    if json_target == "-":
        text = lines
    else:
        if json_target is not None:
            Path(json_target).write_text(lines, encoding="utf-8")
        text = plain_text(title, as_table(results))
    sys.stdout.write(text)
    sys.stdout.flush()
