"""`railshmem bench plot`: what `bench KIND --json FILE` wrote, a panel for each kind.

Transfers are curves by size, once as GB/s and once as time; everything else is bars of time. Ours
is drawn in colours, limits in grey, MPI and OpenSHMEM in the colours that they have everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from railshmem.bench.report import number_text, size_text
from railshmem.picture import FAINT, INK, PALE, new_figure, save

Line = Mapping[str, Any]  # of a results file

CURVES = ("put", "get")
KINDS = {
    "fetch_add": "atomic",
    "add": "atomic",
    "put_signal": "signal",
    "broadcast": "collectives",
    "fcollect": "collectives",
    "alltoall": "collectives",
    "sum_reduce": "collectives",
}
OURS = ("#1f5fa8", "#59a1e0", "#0b7a4b", "#5cc08c")
LIMIT, MPI, SHMEM = "#8a8a8a", "#d9822b", "#b0345a"
PANEL_WIDTH, CURVES_HEIGHT, BAR_HEIGHT = 12.0, 4.6, 0.17


class Contestant(NamedTuple):
    """What a line holds beside our own figure."""

    key: str  # of its microseconds
    label: Callable[[Line], str]
    colour: str
    style: str


BESIDE = (
    Contestant("limit_us", lambda line: "limit", LIMIT, "--"),
    Contestant("rival_us", lambda line: f"MPI {line.get('rival', '')}".strip(), MPI, ":"),
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
            found[line["bench"], line.get("transport"), line.get("bytes")] = line
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
    heights = [_height(kind, rows) for (kind, _), rows in panels.items()]
    figure = new_figure(PANEL_WIDTH, sum(heights))
    parts = figure.subfigures(len(panels), 1, height_ratios=heights, squeeze=False)[:, 0]
    for part, ((kind, transport), rows) in zip(parts, panels.items(), strict=True):
        title = f"{kind} over {transport}" if transport else kind
        if kind in CURVES:
            _draw_curves(part, title, rows)
        else:
            _draw_bars(part, title, rows)
    save(figure, file)


def kind_of(bench: str) -> str:
    """put_quiet_core -> put."""
    base = bench.removesuffix("_core")
    return KINDS.get(base, base.partition("_")[0])


def _panels(lines: Sequence[Line]) -> dict[tuple[str, str], list[Line]]:
    panels: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        panels.setdefault((kind_of(line["bench"]), line.get("transport") or ""), []).append(line)
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
    return f"{row['bench']}  {size_text(row['bytes'])}" if row.get("bytes") else str(row["bench"])


def _plain(axes: Any) -> None:
    axes.grid(axis="both", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=7, colors=INK, length=2)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
