"""Two hosts that are namespaces: the library beside libfabric alone and MPI's messages.

The contestants take turns, each in processes of its own, and figures are medians over the turns.
scripts/bench-cluster runs it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from cluster import Cluster, cluster_of
from railshmem.bench.measure import Figure, figure
from railshmem.bench.report import Result, as_table, deliver, plain_text

HERE = Path(__file__).resolve().parent
MIB = 1 << 20
LIMIT_S = 120
# Bytes, window, count: a put and its completion; a stream.
SMALL, LARGE = (8, 1, 2000), (MIB, 16, 160)
RAILS = {"UCX_NET_DEVICES": "rail0,rail1"}  # MPI may use what we use

Turn = Callable[[], list[float]]  # microseconds of an operation, for each figure


def flat(*figures: tuple[int, int, int]) -> list[str]:
    return [str(number) for each in figures for number in each]


def numbers_of(text: str) -> list[float]:
    return [float(line) for line in text.split()]


class Contest:
    """What takes part on a cluster of two hosts."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster, self._folder = cluster, folder
        self._bare = folder / "bare_fabric"
        source = str(HERE / "bare_fabric.c")
        subprocess.run(["cc", "-O2", source, "-o", str(self._bare), "-lfabric"], check=True)

    def bare(self, *figures: tuple[int, int, int]) -> list[float]:
        """libfabric alone, over rail 0."""
        with tempfile.TemporaryDirectory(dir=self._folder) as meeting:
            target = self._cluster.open_on(1, str(self._bare), "target", "rail0", meeting)
            command = (str(self._bare), "initiator", "rail0", meeting, *flat(*figures))
            taken = numbers_of(self._cluster.on(0, *command))
            target.wait(LIMIT_S)
        return taken

    def ours(self, contexts: int, *figures: tuple[int, int, int]) -> list[float]:
        """The library, with as many lanes as contexts."""
        program = (str(HERE / "one_sided.py"), str(contexts), *flat(*figures))
        done = self._cluster.run(
            *program, per_host=1, limit_s=LIMIT_S, RAILSHMEM_LANES=str(contexts)
        )
        return numbers_of(done.well().out)

    def mpi(self, *figures: tuple[int, int, int]) -> list[float]:
        """MPI's two-sided messages from Python."""
        program = (str(HERE / "two_sided.py"), *flat(*figures))
        done = self._cluster.run(*program, per_host=1, limit_s=LIMIT_S, **RAILS)
        return numbers_of(done.well().out)

    def shape_wires(self, rate: str) -> None:
        """What leaves a host on a rail is slowed down to the rate."""
        shaping = ("root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms")
        for host in (0, 1):
            for rail in ("rail0", "rail1"):
                self._cluster.on(host, "tc", "qdisc", "replace", "dev", rail, *shaping)


def take_turns(contestants: Mapping[str, Turn], rounds: int) -> dict[str, list[Figure]]:
    taken: dict[str, list[list[float]]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, turn in contestants.items():
            taken[name].append(turn())
    return {
        name: [figure([us * 1e-6 for us in column]) for column in zip(*rows, strict=True)]
        for name, rows in taken.items()
    }


def result(bench: str, nbytes: int, ours: Figure, limit: Figure, mpi: Figure | None) -> Result:
    return Result(
        bench,
        ours.median_us,
        ours.p99_us,
        transport="PROXY",
        bytes=nbytes,
        gbs=ours.gbs(nbytes),
        limit_us=limit.median_us,
        limit_gbs=limit.gbs(nbytes),
        rival="Send+Recv" if mpi else None,
        rival_us=mpi.median_us if mpi else None,
        extra={"limit": "libfabric alone"},
    )


def as_they_are(contest: Contest, rounds: int) -> list[Result]:
    """Latency and bandwidth over one rail whose wire costs nothing but memory copies."""
    figures = take_turns(
        {
            "bare": lambda: contest.bare(SMALL, LARGE),
            "ours": lambda: contest.ours(1, SMALL, LARGE),
            "mpi": lambda: contest.mpi(SMALL, LARGE),
        },
        rounds,
    )
    return [
        result(name, nbytes, *(figures[who][place] for who in ("ours", "bare", "mpi")))
        for place, (name, nbytes) in enumerate((("put_quiet", 8), ("put", MIB)))
    ]


def on_slow_wires(contest: Contest, rate: str, rounds: int) -> list[Result]:
    """One rail and two, where the wire is the bound."""
    contest.shape_wires(rate)
    stream = (MIB, 16, 64)
    figures = take_turns(
        {
            "bare": lambda: contest.bare(stream),
            "one": lambda: contest.ours(1, stream),
            "two": lambda: contest.ours(2, stream),
        },
        rounds,
    )
    bare = figures["bare"][0]
    return [
        result(f"put_{rate}_1_rail", MIB, figures["one"][0], bare, None),
        result(f"put_{rate}_2_rails", MIB, figures["two"][0], bare, None),
    ]


def expert_parallelism(cluster: Cluster, options: list[str]) -> list[Result]:
    """`railshmem bench ep` on 2 hosts x 2 PEs, beside Alltoallv over the same rails."""
    program = ("-m", "railshmem.cli", "bench", "ep", *options, "--json", "-")
    done = cluster.run(*program, limit_s=LIMIT_S, RAILSHMEM_HEAP_SIZE="256M", **RAILS).well()
    results = []
    for line in done.out.splitlines():
        values = json.loads(line)
        known = {k: values.pop(k) for k in list(values) if k in Result.__dataclass_fields__}
        results.append(Result(**known, extra=values))
    return results


def verdicts(results: list[Result]) -> str:
    """What was asked for, and what is."""
    by_name = {row.bench: row for row in results}
    lines = []
    for name, text, better in (
        ("put_quiet", "8 B put+quiet is {:.2f} x of libfabric alone (asked: at most 1.3)", 1),
        ("put", "1 MiB has {:.2f} of libfabric's bandwidth (asked: at least 0.9)", -1),
    ):
        if row := by_name.get(name):
            assert row.limit_us
            lines.append(text.format((row.median_us / row.limit_us) ** better))
    slow = [row.median_us for row in results if row.bench.endswith(("_1_rail", "_2_rails"))]
    if slow:
        lines.append(f"two rails move {slow[0] / slow[1]:.2f} x what one does (asked: 1.6)")
    if row := by_name.get("ep"):
        assert row.rival_us
        lines.append(f"EP is {row.rival_us / row.median_us:.2f} x as fast as Alltoallv (asked: 1)")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", default="400mbit", help="of the slow wires, as tc has it")
    parser.add_argument("--tokens", default="512", help="of each PE, in EP")
    parser.add_argument("--json", metavar="FILE", help="write one JSON object a line")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, cluster_of("2x2") as cluster:
        contest = Contest(cluster, Path(folder))
        results = as_they_are(contest, options.rounds)
        results += expert_parallelism(cluster, ["--tokens", options.tokens, "--rounds", "10"])
        results += on_slow_wires(contest, options.rate, options.rounds)
    title = "2 hosts (network namespaces) x 2 rails, tcp; limit of put: libfabric alone"
    text = plain_text(title, as_table(results), "", verdicts(results))
    deliver(results, options.json, {"network": "namespaces, tcp"}, text)


if __name__ == "__main__":
    sys.exit(main())
