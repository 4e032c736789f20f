"""`railshmem model predict --plot`: bytes by rail, and time by tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from railshmem.model.network import Network
from railshmem.model.report import hot_text, nic_bytes
from railshmem.model.times import Round
from railshmem.picture import FAINT, INK, PALE, colour_of_rail, new_figure, save

PHASES = {"dispatch": "#1f5fa8", "combine": "#0b7a4b"}


def draw_prediction(network: Network, rounds: Sequence[Round], file: Path) -> None:
    """Draws into `file`."""
    figure = new_figure(12.0, 4.8)
    left, right = figure.subplots(1, 2)
    _draw_rails(left, rounds[-1])
    _draw_times(right, network, rounds)
    cluster, layer = rounds[-1].cluster, rounds[-1].layer
    figure.suptitle(
        f"{cluster.text}, {network.name}: predicted; rows of {layer.hidden} {layer.dtype}, "
        f"{layer.experts} experts, top {layer.topk}\n{hot_text(rounds[-1])}",
        fontsize=8,
        color=INK,
        wrap=True,
    )
    figure.tight_layout()
    save(figure, file)


def _draw_rails(axes: Any, round_: Round) -> None:
    load = nic_bytes(round_) / 1e6
    rails = np.arange(load.shape[1])
    mean = load.mean(axis=0)
    axes.bar(rails, mean, color=[colour_of_rail(int(rail)) for rail in rails], label="mean NIC")
    spread = np.stack([mean - load.min(axis=0), load.max(axis=0) - mean])
    axes.errorbar(rails, mean, spread, fmt="none", ecolor=INK, capsize=3)
    axes.set_xlabel("rail (whisker: least and busiest NIC of it)", color=PALE)
    axes.set_ylabel(f"MB of a NIC's busier direction, {round_.layer.tokens} tokens", color=PALE)
    axes.set_xticks(rails)
    axes.grid(axis="y", color=FAINT)
    axes.set_axisbelow(True)


def _draw_times(axes: Any, network: Network, rounds: Sequence[Round]) -> None:
    tokens = [round_.layer.tokens for round_ in rounds]
    times = [round_.times(network) for round_ in rounds]
    for name, colour in PHASES.items():
        axes.plot(tokens, [each[name].us for each in times], "o-", color=colour, label=name)
        nics = [each[name].parts["NICs"] for each in times]
        axes.plot(tokens, nics, ":", color=colour, label=f"{name}: busiest NIC alone")
    axes.set_xlabel("tokens of a PE", color=PALE)
    axes.set_ylabel("µs", color=PALE)
    if min(tokens) > 0 and len(tokens) > 1:
        axes.set_xscale("log", base=2)
        axes.set_xticks(tokens, [str(each) for each in tokens])
    axes.set_ylim(bottom=0)
    axes.grid(color=FAINT)
    axes.legend(fontsize=7, frameon=False)
