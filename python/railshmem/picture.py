"""What the tool's pictures share: matplotlib, which is optional, and a canvas without a screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

DOTS_PER_INCH = 130
INK, PALE, FAINT = "#222222", "#666666", "#e4e4e4"


def new_figure(width: float, height: float) -> Any:
    """An empty matplotlib Figure of so many inches; a usage error where there is no matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise click.ClickException(
            "pictures need matplotlib, which is not installed: pip install 'railshmem[plot]'"
        ) from None
    figure = Figure(figsize=(width, height), dpi=DOTS_PER_INCH, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Any, file: Path) -> None:
    """Writes the picture, in the format that the file's name says."""
    try:
        figure.savefig(file, bbox_inches="tight", pad_inches=0.15)
    except (OSError, ValueError) as error:
        raise click.ClickException(f"cannot write {file}: {error}") from None


def colour_of_rail(rail: int) -> Any:
    """The same colour for a rail wherever it is drawn; up to 20 differ."""
    from matplotlib import colormaps

    return colormaps["tab10"](rail) if rail < 10 else colormaps["tab20"]((2 * rail + 1) % 20)
