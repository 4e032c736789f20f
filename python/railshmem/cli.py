"""The `railshmem` command: `mpirun -n N railshmem info`, `mpirun -n N railshmem bench put`, ...

Every PE runs the same command and only PE 0 prints, with one write, so that launchers that merge
the PEs' output cannot tear it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from railshmem.bench.commands import bench
from railshmem.launcher import launched_rank
from railshmem.model.commands import model


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="railshmem")
def cli() -> None:
    """RailSHMEM: OpenSHMEM-style communication for jobs started by mpirun."""


cli.add_command(bench)
cli.add_command(model)


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects instead.")
def env(as_json: bool) -> None:
    """Print every setting, its value in this environment, its default and its meaning."""
    from railshmem.job_info import settings_json, settings_problem, settings_text

    _print(settings_json() if as_json else settings_text())
    if problem := settings_problem():
        raise click.ClickException(problem)


@cli.command()
@click.option(
    "--json",
    "json_target",
    metavar="FILE",
    help="Write one JSON object (docs/info.md); '-' prints it.",
)
@click.option("--plot", metavar="PNG", type=click.Path(path_type=Path), help="Draw the job.")
def info(json_target: str | None, plot: Path | None) -> None:
    """Show hosts, PEs, NICs, rails, and how each pair of PEs is connected and why.

    Prints text unless the job goes into a file or a picture.
    """
    from railshmem.bench.job import Job, joined_job

    with joined_job(Job) as job:
        if job.me == 0:
            _show(job.runtime.info(), json_target, plot)


def _show(found: Mapping[str, Any], json_target: str | None, plot: Path | None) -> None:
    from railshmem.job_info import job_json, job_text

    if json_target == "-":
        _print(job_json(found))
    elif json_target is not None:
        Path(json_target).write_text(job_json(found), encoding="utf-8")
    if plot is not None:
        from railshmem.picture_of_job import draw_job

        draw_job(found, plot)
    if json_target is None and plot is None:
        _print(job_text(found))


@cli.command()
@click.option(
    "--timeout",
    "timeout_s",
    default=20.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds that a single wait may take.",
)
@click.option(
    "--host",
    "host_only",
    is_flag=True,
    help="Only look at this host, or at those of the job: no memory, no traffic.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects instead.")
def check(timeout_s: float, host_only: bool, as_json: bool) -> None:
    """Look at hosts and their networks, test every pair, size and atomic; say what is wrong.

    Networks for RoCE, InfiniBand, EFA and TCP: docs/deployment.md has what the lines mean.
    """
    from railshmem.bench.job import Job, joined_job
    from railshmem.check.job import check_hosts, check_machine

    if host_only:
        from mpi4py import MPI

        sound = check_hosts(MPI.COMM_WORLD, as_json)
    else:
        with joined_job(Job) as job:
            sound = check_machine(job.comm, timeout_s, as_json)
    if not sound:
        raise click.exceptions.Exit(1)


@cli.group()
def trace() -> None:
    """Timelines that RAILSHMEM_TRACE=DIR made."""


@trace.command("merge")
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write, in the trace event format: open it in ui.perfetto.dev.",
)
def trace_merge(directory: Path, output: Path) -> None:
    """Join the timelines in DIRECTORY into one file."""
    from railshmem.errors import ArgumentError
    from railshmem.trace import merge

    try:
        _print(merge(directory, output).text())
    except ArgumentError as error:
        raise click.ClickException(str(error)) from error


@cli.command("compile")
@click.argument("names", nargs=-1, metavar="[KERNELS]...")
@click.option(
    "--arch",
    "architectures",
    multiple=True,
    metavar="ARCH",
    help="sm_90, gfx942, ...; may be given several times. Default: sm_80, sm_90 and sm_100.",
)
@click.option(
    "--to",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Also write them here, for C++ programs that get it as RAILSHMEM_KERNELS.",
)
def compile_kernels(
    names: tuple[str, ...], architectures: tuple[str, ...], folder: Path | None
) -> None:
    """Compile kernels ahead of time, all or those named; no GPU is needed.

    They go into RAILSHMEM_CACHE (railshmem path --cache), from where jobs take them.
    """
    from rich.console import Console

    from railshmem.errors import GpuError
    from railshmem.kernels import kernel_names
    from railshmem.kernels.ahead import ARCHITECTURES, compile_all, text_of, write_all

    console = Console(stderr=True, quiet=launched_rank() != 0)
    try:
        rows = compile_all(names or kernel_names(), architectures or ARCHITECTURES, console)
    except GpuError as error:
        raise click.ClickException(str(error)) from error
    if folder is not None:
        write_all(rows, folder)
    _print(text_of(rows))


@cli.command()
@click.option("--include", "wanted", flag_value="include", help="Headers for users' kernels.")
@click.option("--cache", "wanted", flag_value="cache", help="Kernels that were compiled.")
def path(wanted: str | None) -> None:
    """Print one of the library's folders, for the command lines of compilers."""
    from railshmem.kernels import INCLUDE, cache_folder

    if wanted is None:
        raise click.UsageError("which one? --include or --cache")
    folder = INCLUDE if wanted == "include" else cache_folder()
    if folder is None:
        raise click.ClickException("the user has no home folder: set RAILSHMEM_CACHE")
    _print(f"{folder}\n")


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
    except click.Abort:  # Ctrl-C
        _end_job()
        code = 130
    sys.exit(code if isinstance(code, int) else 0)


def _end_job() -> None:
    """The other PEs may wait where this one will not come any more."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.COMM_WORLD.Abort(130)


if __name__ == "__main__":
    main()
