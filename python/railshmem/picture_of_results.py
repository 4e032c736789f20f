"""`railshmem bench plot`: what `bench KIND --json FILE` wrote, a panel for each kind.

Transfers are curves by size, once as GB/s and once as time; everything else is bars of time. Ours
is drawn in colours, limits in grey, MPI and OpenSHMEM in the colours that they have everywhere.
Transfers by a GPU's kernels have a panel for each operation and a curve for each number of blocks,
whose limit has the same colour, paler and dashed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import click

from railshmem.bench.report import number_text, size_text
from railshmem.picture import FAINT, INK, PALE, new_figure, save

Line = Mapping[str, Any]  # of a results file

CURVES = ("put", "get")
# What tells apart two lines about the same operation.
SUBJECT = ("bench", "transport", "bytes", "device", "blocks", "warps", "tokens", "dtype", "sms")
KINDS = {
    "fetch_add": "atomic",
    "add": "atomic",
    "put_signal": "signal",
    "p_quiet": "latency",
    "broadcast": "collectives",
    "fcollect": "collectives",
    "alltoall": "collectives",
    "sum_reduce": "collectives",
}
OURS = ("#1f5fa8", "#59a1e0", "#0b7a4b", "#5cc08c")
LIMIT, MPI, SHMEM = "#8a8a8a", "#d9822b", "#b0345a"
PANEL_WIDTH, CURVES_HEIGHT, BAR_HEIGHT = 12.0, 4.6, 0.17


def _name_of_rival(line: Line) -> str:
    """On GPUs the rivals' own names, else what MPI calls the operation."""
    name = line.get("rival", "")
    return name if line.get("device") else f"MPI {name}".strip()


class Contestant(NamedTuple):
    """What a line holds beside our own figure."""

    key: str  # of its microseconds
    label: Callable[[Line], str]
    colour: str
    style: str


BESIDE = (
    Contestant("limit_us", lambda line: "limit", LIMIT, "--"),
    Contestant("rival_us", _name_of_rival, MPI, ":"),
    Contestant("shmem_us", lambda line: "OpenSHMEM", SHMEM, "-."),
)


def read_results(files: Iterable[Path]) -> list[Line]:
    """The lines of all files; a usage error names the first that is none of ours.

    Of two lines about the same thing the later one counts.
    """
    found: dict[tuple[Any, ...], Line] = {}
    for file in files:
        for number, text in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            line = _parsed(text)
            if line is None:
                raise click.ClickException(
                    f"{file}, line {number} is not a result of `railshmem bench --json`"
                )
            found[tuple(line.get(key) for key in SUBJECT)] = line
    if not found:
        raise click.ClickException("there is no result in these files")
    return list(found.values())


def _parsed(text: str) -> Line | None:
    try:
        line = json.loads(text)
    except ValueError:
        return None
    known = isinstance(line, dict) and isinstance(line.get("bench"), str)
    return line if known and isinstance(line.get("median_us"), (int, float)) else None


def draw_results(lines: Sequence[Line], file: Path) -> None:
    """Draws the lines into `file`."""
    panels = _panels(lines)
    heights = [_height(panel.kind, rows) for panel, rows in panels.items()]
    figure = new_figure(PANEL_WIDTH, sum(heights))
    parts = figure.subfigures(len(panels), 1, height_ratios=heights, squeeze=False)[:, 0]
    for part, (panel, rows) in zip(parts, panels.items(), strict=True):
        if panel.by_blocks:
            _draw_curves_by_blocks(part, panel.title, rows)
        elif panel.kind in CURVES:
            _draw_curves(part, panel.title, rows)
        else:
            _draw_bars(part, panel.title, rows)
    save(figure, file)


def kind_of(bench: str) -> str:
    """put_quiet_core -> put."""
    base = bench.removesuffix("_core")
    return KINDS.get(base, base.partition("_")[0])


class Panel(NamedTuple):
    """What is drawn together."""

    kind: str
    transport: str
    device: str  # of GPUs
    by_blocks: str  # the operation whose curves these are

    @property
    def title(self) -> str:
        title = self.by_blocks or self.kind
        title += f" over {self.transport}" if self.transport else ""
        return title + (" by kernels on GPUs" if self.device else "")


def _panels(lines: Sequence[Line]) -> dict[Panel, list[Line]]:
    panels: dict[Panel, list[Line]] = {}
    for line in lines:
        by_blocks = line["bench"] if line.get("blocks") else ""
        kind = kind_of(line["bench"])
        panel = Panel(kind, line.get("transport") or "", line.get("device") or "", by_blocks)
        panels.setdefault(panel, []).append(line)
    return panels


def _height(kind: str, rows: Sequence[Line]) -> float:
    return CURVES_HEIGHT if kind in CURVES else 1.3 + BAR_HEIGHT * _n_bars(rows)


def _n_bars(rows: Sequence[Line]) -> int:
    """Bars, and the room of one between groups."""
    return sum(2 + sum(1 for other in BESIDE if row.get(other.key)) for row in rows)


# ---- curves --------------------------------------------------------------------------------------


def _draw_curves(part: Any, title: str, rows: Sequence[Line]) -> None:
    part.suptitle(title, fontsize=12, color=INK, x=0.02, ha="left")
    speed, time = part.subplots(1, 2)
    part.subplots_adjust(left=0.06, right=0.78, wspace=0.22, bottom=0.14, top=0.88)
    ours = sorted({row["bench"] for row in rows})
    for bench, colour in zip(ours, OURS, strict=False):
        mine = sorted((row for row in rows if row["bench"] == bench), key=lambda row: row["bytes"])
        _curve(speed, time, mine, "median_us", bench, colour, "-")
        for other in BESIDE:
            # From Python, the limit is that of the call.
            if other.key == "limit_us" and not bench.endswith("_core"):
                continue
            beside = [row for row in mine if row.get(other.key)]
            if beside:
                label = f"{other.label(beside[0])} for {bench}"
                shade = other.colour if "quiet" not in bench else _lighter(other.colour)
                _curve(speed, time, beside, other.key, label, shade, other.style)
    _finish_curves(part, speed, time, rows)


def _draw_curves_by_blocks(part: Any, title: str, rows: Sequence[Line]) -> None:
    part.suptitle(title, fontsize=12, color=INK, x=0.02, ha="left")
    speed, time = part.subplots(1, 2)
    part.subplots_adjust(left=0.06, right=0.78, wspace=0.22, bottom=0.14, top=0.88)
    for blocks, colour in zip(sorted({row["blocks"] for row in rows}), cycle(OURS), strict=False):
        mine = sorted(
            (row for row in rows if row["blocks"] == blocks), key=lambda row: row["bytes"]
        )
        name = f"{blocks} block{'s' if blocks > 1 else ''}"
        _curve(speed, time, mine, "median_us", name, colour, "-")
        limits = [row for row in mine if row.get("limit_us")]
        if limits:
            _curve(speed, time, limits, "limit_us", f"limit, {name}", _lighter(colour), "--")
        rivals = [row for row in mine if row.get("rival_us")]
        if rivals:
            name = f"{rivals[0].get('rival', 'rival')}, {name}"
            _curve(speed, time, rivals, "rival_us", name, MPI, ":")
    _finish_curves(part, speed, time, rows)
    speed.set_yscale("linear")  # they all end at the link's ceiling
    speed.set_ylim(bottom=0)


def _finish_curves(part: Any, speed: Any, time: Any, rows: Sequence[Line]) -> None:
    sizes = sorted({row["bytes"] for row in rows})
    for axes, what in ((speed, "GB/s"), (time, "µs")):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(sizes, [size_text(size) for size in sizes], fontsize=7, rotation=30)
        axes.minorticks_off()
        axes.set_ylabel(what, fontsize=9, color=INK)
        _plain(axes)
    handles, labels = speed.get_legend_handles_labels()
    part.legend(
        handles, labels, loc="center left", bbox_to_anchor=(0.79, 0.5), fontsize=8, frameon=False
    )


def _curve(
    speed: Any, time: Any, rows: Sequence[Line], key: str, label: str, colour: str, style: str
) -> None:
    sizes = [row["bytes"] for row in rows]
    us = [row[key] for row in rows]
    look = {"color": colour, "linestyle": style, "linewidth": 1.6, "marker": "o", "markersize": 3}
    speed.plot(
        sizes, [size / t / 1e3 for size, t in zip(sizes, us, strict=True)], **look, label=label
    )
    time.plot(sizes, us, **look)


def _lighter(colour: str) -> Any:
    from matplotlib.colors import to_rgb

    return tuple(0.5 + 0.5 * part for part in to_rgb(colour))


# ---- bars ----------------------------------------------------------------------------------------


def _draw_bars(part: Any, title: str, rows: Sequence[Line]) -> None:
    axes = part.subplots(1, 1)
    inches = _height("", rows)
    part.subplots_adjust(left=0.2, right=0.9, top=1 - 0.45 / inches, bottom=0.5 / inches)
    at, ticks, names = 0.0, [], []
    biggest = 0.0
    for row in rows:
        bars = [("ours", row["median_us"], OURS[0])]
        bars += [(o.label(row), row[o.key], o.colour) for o in BESIDE if row.get(o.key)]
        for offset, (label, us, colour) in enumerate(bars):
            axes.barh(at + offset, us, height=0.85, color=colour)
            text = f" {number_text(us)} µs  {label}"
            axes.text(us, at + offset, text, va="center", fontsize=7, color=INK)
            biggest = max(biggest, us)
        ticks.append(at + (len(bars) - 1) / 2)
        names.append(_name(row))
        at += len(bars) + 1
    axes.set_title(title, fontsize=12, color=INK, loc="left")
    axes.set_yticks(ticks, names, fontsize=8)
    axes.set_ylim(at - 1, -1)
    axes.set_xscale("log")
    axes.set_xlim(right=biggest * 6)  # room for the text behind the longest bar
    axes.set_xlabel("µs, logarithmic", fontsize=8, color=PALE)
    _plain(axes)


def _name(row: Line) -> str:
    parts = [str(row["bench"])]
    of_layer = row.get("device") and "tokens" in row  # which its bytes do not tell
    if row.get("bytes") and not of_layer:
        parts.append(size_text(row["bytes"]))
    if row.get("device"):
        units = (("tokens", " tokens"), ("dtype", ""), ("warps", " warps"))
        parts += [f"{row[key]}{unit}" for key, unit in units if key in row]
    return "  ".join(parts)


def _plain(axes: Any) -> None:
    axes.grid(axis="both", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=7, colors=INK, length=2)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
