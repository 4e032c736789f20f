"""Results of GPUs for people: bandwidth by size and blocks, then everything else line by line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from rich.table import Table

from railshmem.bench.gpu.job import GpuJob
from railshmem.bench.report import (
    Result,
    deliver,
    number_text,
    plain_table,
    plain_text,
    size_text,
)

WIDTH = 140  # names say much

# What tells apart rows of one name.
DETAILS = {"warps": "warps: {}", "tokens": "{} tokens", "dtype": "{}", "sms": "{} SMs"}


def publish(job: GpuJob, results: Sequence[Result], json_target: str | None) -> None:
    """Prints on the calling PE. With `--json -` only JSON lines reach stdout."""
    by_blocks = [row for row in results if _blocks(row)]
    others = [row for row in results if not _blocks(row)]
    tables = [bandwidth_table(by_blocks)] if by_blocks else []
    tables += [table_of(others)] if others else []
    deliver(results, json_target, job.origin, plain_text(job.title, *tables, width=WIDTH))


def bandwidth_table(results: Sequence[Result]) -> Table:
    """A cell: GB/s, the part of the limit that is, and the rival's GB/s."""
    grids = sorted({_blocks(row) for row in results})
    table = plain_table()
    table.add_column("GB/s (of limit)", no_wrap=True)
    table.add_column("bytes", justify="right", no_wrap=True)
    for grid in grids:
        heading = "1 block" if grid == 1 else f"{grid} blocks"
        table.add_column(heading, justify="right", no_wrap=True)
    if rival := next((row.rival for row in results if row.rival), None):
        table.add_column(f"{rival}, same order", no_wrap=True)
    for bench, nbytes in dict.fromkeys((row.bench, row.bytes or 0) for row in results):
        cells = {_blocks(row): row for row in results if (row.bench, row.bytes) == (bench, nbytes)}
        rows = [cells[grid] for grid in grids if grid in cells]
        theirs = [number_text(nbytes / row.rival_us / 1e3) for row in rows if row.rival_us]
        table.add_row(
            bench,
            size_text(nbytes),
            *(_cell(cells.get(grid)) for grid in grids),
            *([" / ".join(theirs)] if rival else []),
        )
    return table


def _cell(row: Result | None) -> str:
    if row is None:
        return ""
    part = f" ({row.limit_us / row.median_us:.2f})" if row.limit_us else ""
    return f"{number_text(row.gbs)}{part}"


def table_of(results: Sequence[Result]) -> Table:
    """A line for each. A gain above 1 means that we are faster than the rival."""
    table = plain_table()
    for name in ("bench", "path"):
        table.add_column(name, no_wrap=True)
    for name in ("bytes", "median us", "p99 us", "GB/s", "M/s", "limit us", "of limit"):
        table.add_column(name, justify="right", no_wrap=True)
    rival = next((row.rival for row in results if row.rival), None)  # one at most in a run
    for name in (f"{rival} us", "gain") if rival else ():
        table.add_column(name, justify="right", no_wrap=True)
    for row in results:
        rate = row.extra.get("commands_per_s")
        table.add_row(
            _name(row),
            row.transport or "",
            "" if row.bytes is None else size_text(row.bytes),
            number_text(row.median_us),
            number_text(row.p99_us),
            number_text(row.gbs),
            "" if rate is None else number_text(float(rate) / 1e6),
            number_text(row.limit_us),
            f"{row.median_us / row.limit_us:.2f}x" if row.limit_us else "",
            *(_beside(row) if rival else ()),
        )
    return table


def _beside(row: Result) -> tuple[str, str]:
    if not row.rival_us:
        return "", ""
    return number_text(row.rival_us), f"{row.rival_us / row.median_us:.2f}x"


def _name(row: Result) -> str:
    details = [text.format(row.extra[key]) for key, text in DETAILS.items() if key in row.extra]
    return f"{row.bench} ({', '.join(details)})" if details else row.bench


def _blocks(row: Result) -> int:
    return cast(int, row.extra.get("blocks", 0))
