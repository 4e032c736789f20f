"""`railshmem model ...`: the command line of predictions."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from railshmem.bench.commands import DTYPES

if TYPE_CHECKING:
    from railshmem.model.fit import Measurement

Command = Callable[..., None]
DEFAULT_NETWORK = "roce-400g"
TOKENS = (128, 1024, 4096)


@click.group()
def model() -> None:
    """Predict dispatch, combine and init on clusters that are not there; which rail is hot?"""


_with_network = click.option(
    "--network",
    "network_name",
    default=DEFAULT_NETWORK,
    show_default=True,
    metavar="NAME|FILE",
    help="One of `railshmem model networks`, or a JSON file, say of `railshmem model fit`.",
)


def _whole(name: str, default: int, least: int, what: str) -> Callable[[Command], Command]:
    return click.option(
        name, default=default, show_default=True, type=click.IntRange(least), help=what
    )


@model.command()
@click.option("--nodes", required=True, type=click.IntRange(1), help="Nodes of the job.")
@click.option("--pes", required=True, type=click.IntRange(1), help="PEs of a node.")
@click.option("--rails", required=True, type=click.IntRange(1), help="NICs of a node.")
@_whole("--lanes", 1, 1, "RAILSHMEM_LANES: they count for queue pairs.")
@_whole("--queue-depth", 256, 8, "RAILSHMEM_QUEUE_DEPTH: it counts for their memory.")
@click.option(
    "--tokens",
    multiple=True,
    default=TOKENS,
    show_default=True,
    type=click.IntRange(0),
    help="Tokens of each PE; may be given several times.",
)
@_whole("--hidden", 7168, 16, "Elements of a token.")
@_whole("--experts", 256, 1, "Experts of the job.")
@_whole("--topk", 8, 1, "Experts of a token.")
@click.option("--dtype", default="bf16", show_default=True, type=click.Choice(DTYPES))
@click.option(
    "--routing",
    default="uniform",
    show_default=True,
    type=click.Choice(("uniform", "zipf")),
    help="Every expert alike, or the k-th most wanted with a chance of 1 / k^exponent.",
)
@click.option(
    "--exponent", default=1.0, show_default=True, type=click.FloatRange(0, 10), help="Of zipf."
)
@_whole("--seed", 0, 0, "Of the tokens' experts.")
@_with_network
@click.option("--json", "json_target", metavar="FILE", help="Also as JSON lines; '-' prints them.")
@click.option(
    "--plot", metavar="PNG", type=click.Path(path_type=Path), help="Bytes by rail, time by tokens."
)
def predict(
    nodes: int,
    pes: int,
    rails: int,
    lanes: int,
    queue_depth: int,
    tokens: tuple[int, ...],
    hidden: int,
    experts: int,
    topk: int,
    dtype: str,
    routing: str,
    exponent: float,
    seed: int,
    network_name: str,
    json_target: str | None,
    plot: Path | None,
) -> None:
    """Time of dispatch, combine and init, bytes of every rail, queue pairs and their memory."""
    from railshmem.model.cluster import Cluster, Layer
    from railshmem.model.network import load_network
    from railshmem.model.report import prediction_objects, prediction_text
    from railshmem.model.routing import Routing
    from railshmem.model.times import Round, startup

    with _usage_errors():
        network = load_network(network_name)
        cluster = Cluster(nodes, pes, rails, lanes)
        skew = Routing(exponent if routing == "zipf" else 0.0, seed)
        layers = [Layer(each, hidden, experts, topk, dtype) for each in sorted(set(tokens))]
        rounds = [Round.of(cluster, layer, skew) for layer in layers]
        start = startup(cluster, network, queue_depth)
    text = prediction_text(network, skew, rounds, start)
    objects = prediction_objects(network, skew, rounds, start)
    lines = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in objects)
    if json_target == "-":
        text = lines
    elif json_target is not None:
        _write(Path(json_target), lines)
    if plot is not None:
        from railshmem.model.picture import draw_prediction

        draw_prediction(network, rounds, plot)
    sys.stdout.write(text)


@model.command()
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, metavar="FILE", type=click.Path(path_type=Path))
@click.option("--name", help="Of the network; default: the file's.")
@_with_network
def fit(results: tuple[Path, ...], output: Path, name: str | None, network_name: str) -> None:
    """Fit a network's numbers to RESULTS of `railshmem bench ep|init|put --json`.

    It begins at --network: what the results say nothing about stays as it is there, and so do
    host_cores, host_gbs and overlap.
    """
    from railshmem.model.fit import compare, comparison_text, fitted
    from railshmem.model.network import load_network

    with _usage_errors():
        start = load_network(network_name)
        measurements = _read(results)
        source = f"fitted to {', '.join(file.name for file in results)}, from {start.name}"
        network = fitted(start, measurements, name or output.stem, source)
        compared = compare(network, measurements)
    _write(output, network.as_json())
    sys.stdout.write(comparison_text(f"fit of {network.name}", compared))


@model.command()
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path))
@_with_network
@click.option(
    "--tolerance",
    type=click.FloatRange(0, min_open=True),
    metavar="SHARE",
    help="Fail where the median error is more: 0.3 is 30 %.",
)
def check(results: tuple[Path, ...], network_name: str, tolerance: float | None) -> None:
    """Predict what RESULTS measured, on the same network or another, and show the error."""
    from railshmem.model.fit import compare, comparison_text, median_error
    from railshmem.model.network import load_network

    with _usage_errors():
        network = load_network(network_name)
        compared = compare(network, _read(results))
    sys.stdout.write(comparison_text(f"{network.name} against measurements", compared))
    if tolerance is not None and median_error(compared) > tolerance:
        raise click.ClickException(
            f"the median error is {100 * median_error(compared):.0f} %, more than "
            f"{100 * tolerance:.0f} %"
        )


@model.command()
@click.argument("names", nargs=-1)
def networks(names: tuple[str, ...]) -> None:
    """Show the numbers of networks, all that come with the package or those named."""
    from railshmem.bench.report import plain_table, plain_text
    from railshmem.model.network import NUMBERS, load_network, preset_names

    with _usage_errors():
        shown = [load_network(name) for name in names or preset_names()]
    table = plain_table()
    table.add_column("number", no_wrap=True)
    for network in shown:
        table.add_column(network.name, justify="right")
    table.add_column("meaning")
    for key, meaning in NUMBERS.items():
        table.add_row(key, *(f"{getattr(network, key):g}" for network in shown), meaning)
    sources = [f"{network.name}: {network.source}" for network in shown]
    sys.stdout.write(plain_text(table, "", *sources, width=140))


def _read(results: tuple[Path, ...]) -> list[Measurement]:
    from railshmem.model.fit import read_measurements

    return read_measurements(results)


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"cannot write {file}: {error.strerror}") from None


@contextmanager
def _usage_errors() -> Iterator[Any]:
    """What the model refuses is an error of the command line."""
    from railshmem.errors import ArgumentError

    try:
        yield
    except ArgumentError as error:
        raise click.ClickException(str(error)) from None
