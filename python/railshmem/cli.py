"""The `railshmem` command: `mpirun -n N railshmem info`, `mpirun -n N railshmem bench put`, ...

Every PE runs the same command and only PE 0 prints, with one write, so that launchers that merge
the PEs' output cannot tear it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from railshmem.launcher import launched_rank

if TYPE_CHECKING:
    from railshmem.bench.job import Job
    from railshmem.bench.report import Result

LAYOUTS = ("contiguous", "expert-major")
DTYPES = ("bf16", "fp16", "fp32", "fp8")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="railshmem")
def cli() -> None:
    """RailSHMEM: OpenSHMEM-style communication for jobs started by mpirun."""


@cli.command()
def env() -> None:
    """Print every setting, its default and its meaning."""
    from railshmem.job_info import settings_text

    _print(settings_text())


@cli.command()
def info() -> None:
    """Print hosts, PEs, NICs, rails, and how each pair of PEs is connected and why."""
    from railshmem.job_info import job_text

    with _job() as job:
        if job.me == 0:
            _print(job_text(job.runtime.info()))


@cli.group()
def bench() -> None:
    """Measure the library beside its physical limit and MPI."""


def _bench_options(rounds: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The options that all benchmarks have."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        command = click.option(
            "--json",
            "json_target",
            metavar="FILE",
            help="Write one JSON object a line; '-' prints them and nothing else.",
        )(command)
        return click.option(
            "--rounds",
            default=rounds,
            show_default=True,
            type=click.IntRange(1),
            help="Samples of each figure.",
        )(command)

    return decorate


@bench.command()
@click.option(
    "--bytes",
    "sizes",
    multiple=True,
    default=(8, 4096, 65536, 1 << 20),
    show_default=True,
    type=click.IntRange(1, 1 << 30),
    help="Size of a put; may be given several times.",
)
@_bench_options(rounds=100)
def put(sizes: tuple[int, ...], rounds: int, json_target: str | None) -> None:
    """PE 0 puts into the first peer of each transport."""
    from railshmem.bench import put as kind

    _run(lambda job: kind.run(job, sizes, rounds), json_target)


@bench.command()
@_bench_options(rounds=50)
def barrier(rounds: int, json_target: str | None) -> None:
    """All PEs meet."""
    from railshmem.bench import barrier as kind

    _run(lambda job: kind.run(job, rounds), json_target)


@bench.command()
@click.option(
    "--bytes",
    "nbytes",
    default=65536,
    show_default=True,
    type=click.IntRange(1),
    help="Size of an allocation.",
)
@_bench_options(rounds=3)
def malloc(nbytes: int, rounds: int, json_target: str | None) -> None:
    """All PEs allocate symmetric memory 2,000 times."""
    from railshmem.bench import malloc as kind

    _run(lambda job: kind.run(job, nbytes, rounds), json_target)


@bench.command()
@_bench_options(rounds=50)
def proxy(rounds: int, json_target: str | None) -> None:
    """A kernel of PE 0 hands commands to its progress thread."""
    from railshmem.bench import proxy as kind

    _run(lambda job: kind.run(job, rounds), json_target)


@bench.command()
@click.option(
    "--tokens",
    default=512,
    show_default=True,
    type=click.IntRange(0),
    help="Tokens of each PE.",
)
@click.option(
    "--hidden",
    default=2048,
    show_default=True,
    type=click.IntRange(16),
    help="Elements of a token.",
)
@click.option(
    "--experts",
    default=256,
    show_default=True,
    type=click.IntRange(1),
    help="Experts of the job.",
)
@click.option(
    "--topk",
    default=8,
    show_default=True,
    type=click.IntRange(1),
    help="Experts of a token.",
)
@click.option("--dtype", default="bf16", show_default=True, type=click.Choice(DTYPES))
@click.option("--layout", default="contiguous", show_default=True, type=click.Choice(LAYOUTS))
@click.option(
    "--alignment",
    default=16,
    show_default=True,
    type=click.IntRange(1),
    help="Rows of an expert's block are a multiple of it (expert-major).",
)
@_bench_options(rounds=20)
def ep(rounds: int, json_target: str | None, **shape: Any) -> None:
    """All PEs dispatch tokens to experts and combine the results."""
    from railshmem.bench import ep as kind

    _run(lambda job: kind.run(job, kind.Shape(**shape), rounds), json_target)


def _run(measure: Callable[[Job], list[Result]], json_target: str | None) -> None:
    from railshmem.bench.report import publish

    with _job() as job:
        results = measure(job)
        if job.me == 0:
            publish(job.title, results, json_target)


@contextmanager
def _job() -> Iterator[Job]:
    """The job from init to finalize. What every PE finds wrong with it becomes a usage error."""
    import railshmem
    from railshmem.bench.job import BenchError, Job

    railshmem.shmem_init()
    problem: BenchError | None = None
    try:
        yield Job()
    except BenchError as error:  # the same on every PE
        problem = error
    railshmem.shmem_finalize()
    if problem is not None:
        raise click.ClickException(str(problem))


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


class _Silent:
    """Stands for the standard output of PEs other than 0 (help and usage texts)."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False


def main() -> None:
    """Entry point. Errors of other kinds reach the library's hook, which ends the job."""
    speaks = launched_rank() == 0
    if not speaks:
        sys.stdout = _Silent()
    try:
        code = cli.main(prog_name="railshmem", standalone_mode=False)
    except click.ClickException as error:
        if speaks:
            error.show()
        code = error.exit_code
    except click.Abort:
        code = 130
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
