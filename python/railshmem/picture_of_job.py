"""`railshmem info --plot`: nodes with their PEs and NICs, the rails, and who uses which.

Above, every node is a box and every rail a line that its NICs hang on; a PE's lines go to the NICs
it uses. Below, a matrix has the colour of the rail for every pair of PEs. Jobs of more than
MANY_PES PEs are drawn by node, with counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from railshmem.job_info import MANY_PES, ranges
from railshmem.picture import FAINT, INK, PALE, colour_of_rail, new_figure, save

Info = Mapping[str, Any]

# So many nodes side by side can still be read, with all their PEs and with one tile for them.
MOST_NODES, MOST_LARGE_NODES = 16, 8
MAPPED, NO_PATH = "#c9d3dc", "#111111"

# Lengths in the drawing's own unit: the width of a PE with the room around it.
PE_WIDTH, PE_HEIGHT = 0.86, 0.62
NIC_STEP, NARROW_NIC_STEP, NIC_HEIGHT = 0.8, 0.32, 0.36
NODE_MARGIN, NODE_GAP, NODE_HEIGHT = 0.25, 0.45, 2.3
WIDEST = 30.0  # with full NICs
MOST_INCHES, INCHES_PER_UNIT, LETTERS_PER_UNIT = 22.0, 0.95, 8
PES_AT, NICS_AT, RAILS_AT, RAIL_STEP = 1.75, 0.45, -0.55, 0.42


class Box(NamedTuple):
    """A node as it is drawn."""

    node: int
    left: float
    width: float
    members: list[Mapping[str, Any]]  # PEs
    rails: list[int]  # one NIC on each
    nic_step: float  # from NIC to NIC

    @property
    def middle(self) -> float:
        """Where its name stands."""
        return self.left + self.width / 2

    def pe_at(self, index: int) -> float:
        """The middle of its index-th PE."""
        return self.left + self.width * (index + 0.5) / len(self.members)

    def nic_at(self, index: int) -> float:
        """The middle of its index-th NIC."""
        step = max(self.nic_step, (self.width - 2 * NODE_MARGIN) / len(self.rails))
        return self.middle + step * (index - (len(self.rails) - 1) / 2)


def draw_job(info: Info, file: Path) -> None:
    """Draws what Runtime.info returns into `file`."""
    boxes = _boxes(info, NIC_STEP)
    if boxes[-1].left + boxes[-1].width > WIDEST:
        boxes = _boxes(info, NARROW_NIC_STEP)
    rails = sorted({rail for box in boxes for rail in box.rails})
    right = boxes[-1].left + boxes[-1].width
    matrix_side = min(7.0, 1.6 + 0.36 * len(_matrix_labels(info)))
    width = min(MOST_INCHES, max(7.5, INCHES_PER_UNIT * right + 2.2))
    tall = 3.4 + 0.36 * len(rails) if rails else 2.6
    figure = new_figure(width, tall + matrix_side)
    top, bottom = figure.subplots(2, 1, height_ratios=[tall, matrix_side])
    _draw_nodes(top, info, boxes, rails, right)
    _draw_matrix(bottom, info)
    save(figure, file)


def _boxes(info: Info, nic_step: float) -> list[Box]:
    nodes: dict[int, list[Mapping[str, Any]]] = {}
    for pe in info["pes"]:
        nodes.setdefault(pe["node"], []).append(pe)
    boxes: list[Box] = []
    left = 0.0
    most = MOST_NODES if _is_small(info) else MOST_LARGE_NODES
    for node, members in sorted(nodes.items())[:most]:
        rails = sorted({nic["rail"] for pe in members for nic in pe["nics"]})
        across = len(members) if _is_small(info) else 2
        width = max(across, len(rails) * nic_step, 1.2) + 2 * NODE_MARGIN
        boxes.append(Box(node, left, width, members, rails, nic_step))
        left += width + NODE_GAP
    return boxes


def _is_small(info: Info) -> bool:
    return len(info["pes"]) <= MANY_PES


def _draw_nodes(
    axes: Any, info: Info, boxes: Sequence[Box], rails: Sequence[int], right: float
) -> None:
    from matplotlib.patches import FancyBboxPatch

    usage = _usage(info)
    names = {
        box.node: f"node {box.node}  ({', '.join(sorted({pe['host'] for pe in box.members}))})"
        for box in boxes
    }
    fits = all(len(names[box.node]) < LETTERS_PER_UNIT * box.width for box in boxes)
    floor = 0.0 if rails else PES_AT - PE_HEIGHT / 2 - NODE_MARGIN
    for box in boxes:
        axes.add_patch(
            FancyBboxPatch(
                (box.left, floor),
                box.width,
                NODE_HEIGHT - floor,
                boxstyle="round,pad=0,rounding_size=0.12",
                facecolor="#f7f8fa",
                edgecolor=PALE,
                linewidth=1.2,
            )
        )
        axes.text(
            box.middle,
            NODE_HEIGHT + 0.1,
            names[box.node] if fits else f"node {box.node}",
            ha="center",
            va="bottom",
            fontsize=9,
            color=INK,
        )
        _draw_rail_drops(axes, box, rails)
        _draw_pes(axes, info, box, usage)
        _draw_nics(axes, box, usage)
    pairs = Counter(rail for row in info["pairs"] for rail in _rails_of(row))
    for index, rail in enumerate(rails):
        height = RAILS_AT - index * RAIL_STEP
        axes.plot([0, right], [height, height], color=colour_of_rail(rail), linewidth=3.5, zorder=1)
        axes.text(
            right + 0.2,
            height,
            f"rail {rail}: {pairs[rail] // 2} pairs",
            va="center",
            fontsize=9,
            color=colour_of_rail(rail),
        )
    left_out = info["n_nodes"] - len(boxes)
    lines = [_title(info)]
    if left_out > 0:
        lines.append(f"the first {len(boxes)} nodes; {left_out} more are like them in kind")
    if not rails:
        lines.append("no NICs: every PE maps every other's memory")
    axes.set_title("\n".join(lines), fontsize=11, color=INK, pad=14)
    axes.set_xlim(-0.1, right + (1.9 if rails else 0.1))
    lowest = RAILS_AT - len(rails) * RAIL_STEP if rails else floor
    axes.set_ylim(lowest - 0.1, NODE_HEIGHT + 0.4)
    axes.axis("off")


def _title(info: Info) -> str:
    pes, nodes = len(info["pes"]), info["n_nodes"]
    by_path = Counter(
        pair["path"] for a, row in enumerate(info["pairs"]) for b, pair in enumerate(row) if a < b
    )
    paths = ", ".join(f"{count} by {path}" for path, count in sorted(by_path.items()))
    head = f"{pes} PE{'s' * (pes != 1)} on {nodes} node{'s' * (nodes != 1)}"
    return f"{head}; pairs: {paths}" if paths else head


def _rails_of(row: Sequence[Mapping[str, Any]]) -> list[int]:
    return [pair["rail"] for pair in row if pair["rail"] >= 0]


def _usage(info: Info) -> dict[int, Counter[int]]:
    """For every PE, how many peers it reaches over which rail."""
    return {pe: Counter(_rails_of(row)) for pe, row in enumerate(info["pairs"])}


def _draw_rail_drops(axes: Any, box: Box, rails: Sequence[int]) -> None:
    """From each NIC down to its rail."""
    for index, rail in enumerate(box.rails):
        x = box.nic_at(index)
        height = RAILS_AT - rails.index(rail) * RAIL_STEP
        axes.plot([x, x], [NICS_AT, height], color=colour_of_rail(rail), linewidth=2, zorder=2)
        axes.plot([x], [height], "o", color=colour_of_rail(rail), markersize=6, zorder=3)


def _draw_nics(axes: Any, box: Box, usage: Mapping[int, Counter[int]]) -> None:
    narrow = box.nic_step == NARROW_NIC_STEP
    for index, rail in enumerate(box.rails):
        peers = sum(usage[pe["pe"]][rail] for pe in box.members)
        name = str(rail) if narrow else f"NIC {rail}"
        detail = "" if narrow else f"{peers} used" if peers else "unused"
        size = (0.8 * box.nic_step, NIC_HEIGHT)
        _tile(axes, (box.nic_at(index), NICS_AT), size, name, detail, colour_of_rail(rail), "white")


def _draw_pes(axes: Any, info: Info, box: Box, usage: Mapping[int, Counter[int]]) -> None:
    if not _is_small(info):
        numbers = ranges(pe["pe"] for pe in box.members)
        total = sum((usage[pe["pe"]] for pe in box.members), Counter[int]())
        x = box.middle
        _draw_uses(axes, box, x, total)
        size, count = (2.1, PE_HEIGHT), f"{len(box.members)} PEs"
        _tile(axes, (x, PES_AT), size, f"PE {numbers}", count, "white", INK)
        return
    for index, pe in enumerate(box.members):
        x = box.pe_at(index)
        _draw_uses(axes, box, x, usage[pe["pe"]])
        home = f"home r{pe['home_rail']}" if pe["home_rail"] >= 0 else f"pid {pe['pid']}"
        size = (PE_WIDTH, PE_HEIGHT)
        _tile(axes, (x, PES_AT), size, f"PE {pe['pe']}", home, "white", INK)


def _draw_uses(axes: Any, box: Box, x: float, uses: Counter[int]) -> None:
    """From a PE to the NICs it uses, the thicker the more peers it reaches by them."""
    most = max(uses.values(), default=1)
    for index, rail in enumerate(box.rails):
        if uses[rail]:
            axes.plot(
                [x, box.nic_at(index)],
                [PES_AT - PE_HEIGHT / 2, NICS_AT + NIC_HEIGHT / 2],
                color=colour_of_rail(rail),
                linewidth=0.6 + 1.2 * uses[rail] / most,
                alpha=0.85,
                zorder=2,
            )


def _tile(
    axes: Any,
    middle: tuple[float, float],
    size: tuple[float, float],
    name: str,
    detail: str,
    face: Any,
    ink: str,
) -> None:
    """A box with a name and, in smaller type, a detail under it."""
    from matplotlib.patches import FancyBboxPatch

    (x, y), (width, height) = middle, size
    axes.add_patch(
        FancyBboxPatch(
            (x - width / 2, y - height / 2),
            width,
            height,
            boxstyle="round,pad=0,rounding_size=0.07",
            facecolor=face,
            edgecolor=PALE,
            linewidth=0.8,
            zorder=4,
        )
    )
    above = 0.22 * height if detail else 0.0
    style = {"ha": "center", "va": "center", "color": ink, "zorder": 5}
    axes.text(x, y + above, name, fontsize=7.5, **style)
    axes.text(x, y - 0.24 * height, detail, fontsize=6, **style)


# ---- the matrix of pairs -------------------------------------------------------------------------


def _matrix_labels(info: Info) -> list[str]:
    if _is_small(info):
        return [str(pe["pe"]) for pe in info["pes"]]
    return [str(node) for node in range(min(info["n_nodes"], MOST_NODES))]


def _draw_matrix(axes: Any, info: Info) -> None:
    from matplotlib.patches import Rectangle

    labels = _matrix_labels(info)
    for row in range(len(labels)):
        for column in range(len(labels)):
            cells = _cells(info, row, column)
            filled = 0.0
            total = sum(cells.values())
            for (path, rail), count in sorted(cells.items()):
                part = count / total
                colour = _colour(path, rail)
                axes.add_patch(Rectangle((column + filled, row), part, 1, facecolor=colour))
                filled += part
            text, ink = _cell_text(info, cells)
            plate = (
                {"facecolor": "white", "edgecolor": "none", "pad": 1} if len(cells) > 1 else None
            )
            style = {"ha": "center", "va": "center", "fontsize": 7, "bbox": plate}
            axes.text(column + 0.5, row + 0.5, text, color=ink, **style)
            axes.add_patch(
                Rectangle((column, row), 1, 1, fill=False, edgecolor="white", linewidth=1.5)
            )
    thing = "PE" if _is_small(info) else "node"
    middles = [index + 0.5 for index in range(len(labels))]
    axes.set_xticks(middles, labels, fontsize=8)
    axes.set_yticks(middles, labels, fontsize=8)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, colors=INK)
    axes.set_xlim(0, len(labels))
    axes.set_ylim(len(labels), 0)
    axes.set_aspect("equal")
    axes.set_ylabel(f"from {thing}", fontsize=9, color=INK)
    axes.set_title(_matrix_title(info), fontsize=9, color=INK, pad=8)
    for side in axes.spines.values():
        side.set_color(FAINT)
    _draw_legend(axes, info)


def _matrix_title(info: Info) -> str:
    if _is_small(info):
        return "what carries each pair, from row to column (rN: rail N)"
    return "what carries the pairs of two nodes, with counts"


def _cells(info: Info, row: int, column: int) -> Counter[tuple[str, int]]:
    """(path, rail) and how many ordered pairs of PEs the cell stands for."""
    if _is_small(info):
        members = {row: [row], column: [column]}
    else:
        members = {
            node: [pe["pe"] for pe in info["pes"] if pe["node"] == node] for node in (row, column)
        }
    cells: Counter[tuple[str, int]] = Counter()
    for a in members[row]:
        for b in members[column]:
            pair = info["pairs"][a][b]
            cells[("self", -1) if a == b else (pair["path"], pair["rail"])] += 1
    if len(cells) > 1:
        del cells["self", -1]
    return cells


def _colour(path: str, rail: int) -> Any:
    if rail >= 0:
        return colour_of_rail(rail)
    return {"self": "#eeeeee", "none": NO_PATH}.get(path, MAPPED)


def _cell_text(info: Info, cells: Counter[tuple[str, int]]) -> tuple[str, str]:
    (path, rail), _ = next(iter(cells.items()))
    ink = "white" if rail >= 0 or path == "none" else INK
    if not _is_small(info):
        return str(sum(cells.values())), ink if len(cells) == 1 else INK
    return {"self": "", "P2P": "P2P"}.get(path, f"r{rail}" if rail >= 0 else path), ink


def _draw_legend(axes: Any, info: Info) -> None:
    from matplotlib.patches import Patch

    found = {
        (pair["path"], pair["rail"])
        for a, row in enumerate(info["pairs"])
        for b, pair in enumerate(row)
        if a != b
    }
    names = {"P2P": "P2P: memory mapped", "none": "no path"}
    handles = [
        Patch(
            facecolor=_colour(path, rail),
            label=f"{path}, rail {rail}" if rail >= 0 else names.get(path, path),
        )
        for path, rail in sorted(found)
    ]
    if handles:
        axes.legend(
            handles=handles,
            loc="upper left",
            bbox_to_anchor=(1.03, 1.0),
            fontsize=8,
            frameon=False,
        )
