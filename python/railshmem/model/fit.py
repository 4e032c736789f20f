"""Numbers of a network from what `railshmem bench --json` measured on it, and how well they fit.

A measurement says on which cluster it was made (n_pes, n_nodes, n_hosts, rails, lanes); the model
predicts the same figure. The fit moves the network's numbers, as factors, until the relative errors
are least; numbers that the measurements say little about stay near where they started.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from railshmem.bench.report import number_text, plain_table, plain_text, size_text
from railshmem.errors import ArgumentError
from railshmem.model.cluster import Cluster, Layer
from railshmem.model.network import FITTED, Network
from railshmem.model.routing import Routing
from railshmem.model.times import Round, startup

Line = Mapping[str, Any]
Prediction = Callable[[Network], float]

PHASES = {"ep_dispatch": ("dispatch",), "ep_combine": ("combine",), "ep": ("dispatch", "combine")}
SHAPE = ("n_pes", "n_nodes", "n_hosts", "rails", "lanes")
# A number that changes by the factor e costs as much as a relative error of this.
STIFFNESS = 0.02
STEPS, SMALLEST_STEP = 60, 1e-4
MOST_FACTOR = 3.0  # of a number in one step


@dataclass(frozen=True)
class Measurement:
    """A figure, and how the model comes to it."""

    text: str
    measured_us: float
    predict: Prediction
    for_fit: bool


@dataclass(frozen=True)
class Compared:
    """A figure beside its prediction."""

    text: str
    measured_us: float
    predicted_us: float

    @property
    def error(self) -> float:
        """Relative, positive where the model is too slow."""
        return self.predicted_us / self.measured_us - 1


def read_measurements(files: Iterable[Path]) -> list[Measurement]:
    """What the model can predict among the results; raises where there is nothing of the kind."""
    found: list[Measurement] = []
    for file in files:
        for number, text in enumerate(_lines(file), 1):
            try:
                line = json.loads(text)
            except ValueError:
                line = None
            if not isinstance(line, dict) or not isinstance(line.get("bench"), str):
                raise ArgumentError(
                    f"{file}, line {number} is not a result of `railshmem bench --json`"
                )
            measured = _measurement(f"{file}, line {number}", line)
            if measured is not None:
                found.append(measured)
    if not found:
        raise ArgumentError(
            "nothing to compare: expected results of `railshmem bench ep`, `init` or, where PE 0 "
            "has a peer behind a NIC, `put`"
        )
    return found


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise ArgumentError(f"{file}: {error}") from None


def _measurement(place: str, line: Line) -> Measurement | None:
    bench = line["bench"]
    if bench in PHASES:
        return _of_ep(place, line)
    if bench.startswith("init_"):
        return _of_init(place, line)
    if bench == "put_quiet" and line.get("transport") == "PROXY":
        nbytes = int(_number(place, line, "bytes"))
        return Measurement(
            f"put_quiet {size_text(nbytes)}",
            _time(place, line),
            lambda network: (
                network.pe_message_us
                + network.nic_message_us
                + network.nic_latency_us
                + nbytes / (network.nic_gbs * 1e3)
            ),
            for_fit=True,
        )
    return None


def _of_ep(place: str, line: Line) -> Measurement:
    cluster = _cluster(place, line)
    sizes = {key: int(_number(place, line, key)) for key in ("tokens", "hidden", "experts", "topk")}
    layer = Layer(**sizes, dtype=str(line.get("dtype", "bf16")))
    round_ = Round.of(cluster, layer, Routing())
    phases = PHASES[line["bench"]]
    return Measurement(
        f"{line['bench']} {layer.tokens} tokens, {cluster.text}",
        _time(place, line),
        lambda network: sum(round_.times(network)[name].us for name in phases),
        for_fit=len(phases) == 1,  # a round says nothing that its halves do not
    )


def _of_init(place: str, line: Line) -> Measurement:
    cluster = _cluster(place, line)
    return Measurement(
        f"init {cluster.text}",
        _time(place, line),
        lambda network: startup(cluster, network).us,
        for_fit=True,
    )


def _cluster(place: str, line: Line) -> Cluster:
    n_pes, n_nodes, hosts, rails, lanes = (int(_number(place, line, key)) for key in SHAPE)
    if n_nodes < 1 or n_pes % n_nodes:
        raise ArgumentError(f"{place}: {n_pes} PEs on {n_nodes} nodes: the model needs equal nodes")
    return Cluster(n_nodes, n_pes // n_nodes, max(1, rails), lanes, hosts)


def _number(place: str, line: Line, key: str) -> float:
    value = line.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ArgumentError(
            f"{place} ({line['bench']}) has no number {key!r}: measure it again with this version"
        )
    return float(value)


def _time(place: str, line: Line) -> float:
    value = _number(place, line, "median_us")
    if not value > 0:
        raise ArgumentError(f"{place}: median_us {value}: expected more than 0")
    return value


def compare(network: Network, measurements: Sequence[Measurement]) -> list[Compared]:
    """Every figure beside its prediction."""
    return [Compared(each.text, each.measured_us, each.predict(network)) for each in measurements]


def median_error(compared: Sequence[Compared]) -> float:
    """Of the absolute relative errors."""
    return float(np.median([abs(each.error) for each in compared]))


def fitted(start: Network, measurements: Sequence[Measurement], name: str, source: str) -> Network:
    """The network that explains the measurements, beginning at `start`."""
    used = [each for each in measurements if each.for_fit]
    if not used:
        raise ArgumentError("nothing to fit: expected dispatch, combine, init or put_quiet")
    origin = np.log([getattr(start, key) for key in FITTED])
    logs = np.log([each.measured_us for each in used])

    def network_at(point: np.ndarray) -> Network:
        values = dict(zip(FITTED, np.exp(point).tolist(), strict=True))
        return replace(start, name=name, source=source, **values)

    def residuals(point: np.ndarray) -> np.ndarray:
        network = network_at(point)
        errors = np.log([each.predict(network) for each in used]) - logs
        return np.concatenate([errors, STIFFNESS * (point - origin)])

    return network_at(_least_squares(residuals, origin))


def _least_squares(residuals: Callable[[np.ndarray], np.ndarray], start: np.ndarray) -> np.ndarray:
    """Levenberg-Marquardt: steps that do not help are tried again, shorter."""
    point, damping = start.copy(), 1e-3
    now = residuals(point)
    for _ in range(STEPS):
        slopes = np.stack(
            [
                (residuals(point + SMALLEST_STEP * unit) - now) / SMALLEST_STEP
                for unit in np.eye(point.size)
            ],
            axis=1,
        )
        normal = slopes.T @ slopes
        step = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-12), -slopes.T @ now)
        step = np.clip(step, -np.log(MOST_FACTOR), np.log(MOST_FACTOR))
        then = residuals(point + step)
        if then @ then < now @ now:
            small = np.abs(step).max() < SMALLEST_STEP
            point, now, damping = point + step, then, damping / 3
            if small:
                break
        else:
            damping *= 4
            if damping > 1e8:
                break
    return point


def comparison_text(title: str, compared: Sequence[Compared]) -> str:
    """The table, and the median error as its last line."""
    table = plain_table()
    table.add_column("figure")
    for name in ("measured us", "predicted us", "error"):
        table.add_column(name, justify="right")
    for each in compared:
        table.add_row(
            each.text,
            number_text(each.measured_us),
            number_text(each.predicted_us),
            f"{100 * each.error:+.0f} %",
        )
    return plain_text(title, table) + f"median error {100 * median_error(compared):.0f} %\n"
