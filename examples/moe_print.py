"""What PE 0 of the Mixture-of-Experts example prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from rich.table import Table

from moe_check import Verdict
from moe_traffic import Flow
from railshmem.bench.measure import Figure
from railshmem.bench.report import number_text, plain_table, size_text

MOST_FLOWS = 16  # lines; larger jobs show the largest
MOST_PES = 8
BAR_WIDTH = 32
SPARKS = " ▁▂▃▄▅▆▇█"


def traffic_table(flows: Sequence[Flow]) -> Table:
    """Who sends how much to whom."""
    table = plain_table()
    for name in ("from", "to", "transport", "rail"):
        table.add_column(name)
    for name in ("tokens", "bytes", "commands"):
        table.add_column(name, justify="right")
    shown = flows
    if len(flows) > MOST_FLOWS:
        shown = sorted(flows, key=lambda flow: -flow.bytes)[:MOST_FLOWS]
        table.caption = f"the largest {MOST_FLOWS} of {len(flows)}"
    for flow in shown:
        table.add_row(
            f"PE {flow.source}",
            f"PE {flow.target}",
            flow.transport,
            "-" if flow.rail is None else str(flow.rail),
            f"{flow.rows:,}",
            size_text(flow.bytes),
            "-" if flow.commands is None else f"{flow.commands:,}",
        )
    return table


def skew_lines(per_expert: np.ndarray, n_pes: int) -> str:
    """How unevenly the text loads experts and PEs; a (token, expert) pair counts once."""
    per_pe = per_expert.reshape(n_pes, -1).sum(axis=1)
    lines = [
        f"Routing skew: the busiest expert ({int(per_expert.argmax())}) gets "
        f"{per_expert.max():,} tokens, {_skew(per_expert):.1f}x the mean; "
        f"the busiest PE {_skew(per_pe):.2f}x the mean",
    ]
    largest = max(int(per_pe.max()), 1)
    for pe, count in list(enumerate(per_pe.tolist()))[:MOST_PES]:
        bar = "█" * round(BAR_WIDTH * count / largest)
        lines.append(f"  PE {pe:<3} {bar:<{BAR_WIDTH}} {count:,}")
    columns = per_expert[: len(per_expert) // 4 * 4].reshape(-1, 4).max(axis=1)
    levels = np.ceil(columns / max(int(columns.max()), 1) * (len(SPARKS) - 1)).astype(int)
    lines.append(f"  experts {''.join(SPARKS[level] for level in levels)} (4 a column, the busier)")
    return "\n".join(lines)


def _skew(load: np.ndarray) -> float:
    return float(load.max() / load.mean()) if load.any() else 1.0


def times_table(figures: Mapping[str, Figure]) -> Table:
    """Our times beside the rival's."""
    table = plain_table()
    table.add_column("")
    for name in ("RailSHMEM", "MPI_Alltoallv", "gain"):
        table.add_column(name, justify="right")
    ours, theirs = _milliseconds(figures, ""), _milliseconds(figures, "MPI ")
    for phase in ("dispatch", "combine", "both"):
        table.add_row(
            phase,
            number_text(ours[phase]),
            number_text(theirs[phase]),
            f"{theirs[phase] / ours[phase]:.2f}x",
        )
    table.add_row("experts", number_text(figures["experts"].median_us / 1e3), "", "")
    return table


def _milliseconds(figures: Mapping[str, Figure], prefix: str) -> dict[str, float]:
    times = {p: figures[f"{prefix}{p}"].median_us / 1e3 for p in ("dispatch", "combine")}
    return times | {"both": sum(times.values())}


def verdict_lines(verdict: Verdict) -> str:
    """What the comparison with the float64 reference found."""
    lines = ["Compared with one process in float64:"]
    for pe, what in verdict.wrong.items():
        lines.append(f"  dispatch  WRONG: {what} differ on PE {pe}")
    if not verdict.wrong:
        lines.append("  dispatch  bit-exact on every PE")
    found = verdict.comparison
    lines += [
        f"  combine   {'within' if found.good else 'OUTSIDE'} (K+2)*eps*sum|w*y| everywhere: "
        f"at most {found.worst_share:.2f} of it (error {found.worst_error:.2g})",
        f"  rounds    {'bit-identical' if verdict.repeatable else 'DIFFER from one another'}; "
        f"MPI_Alltoallv delivered {'the same rows' if verdict.rival_agrees else 'OTHER rows'}",
    ]
    return "\n".join(lines)
