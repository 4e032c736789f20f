"""`railshmem bench KIND`: the command line of the benchmarks.

The modules of the kinds need MPI, so they are imported when a kind runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from railshmem.bench.gpu.job import GpuJob
    from railshmem.bench.job import Job
    from railshmem.bench.report import Result

LAYOUTS = ("contiguous", "expert-major", "slots")
DTYPES = ("bf16", "fp16", "fp32", "fp8")

KIB, MIB = 1 << 10, 1 << 20
SIZES = (8, 256, 4 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB)
LARGE_SIZES = (16 * MIB, 64 * MIB)
GPU_SIZES = (64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB)
GPU_BLOCKS = (1, 8, 32, 132)
GPU_WARPS = (1, 8)

Command = Callable[..., None]


@click.group()
def bench() -> None:
    """Measure the library beside its physical limits, MPI and the machine's OpenSHMEM."""


def _with_options(rounds: int) -> Callable[[Command], Command]:
    """The options that all benchmarks have."""

    def decorate(command: Command) -> Command:
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


_with_device = click.option(
    "--device",
    default="cpu",
    show_default=True,
    type=click.Choice(("cpu", "cuda")),
    help="Who measures: the CPU's code, or kernels on NVIDIA GPUs.",
)


def _several(
    name: str, default: tuple[int, ...], most: int, what: str
) -> Callable[[Command], Command]:
    return click.option(
        f"--{name}",
        multiple=True,
        default=default,
        show_default=True,
        type=click.IntRange(1, most),
        help=f"With --device cuda: {what}; may be given several times.",
    )


_with_blocks = _several("blocks", GPU_BLOCKS, 1024, "blocks of a kernel")


def _with_sizes(
    what: str, sizes: tuple[int, ...], step: int = 1, shown: str = ""
) -> Callable[[Command], Command]:
    """`shown`: what the help says of the default."""

    def check(context: click.Context, option: click.Parameter, value: tuple[int, ...]) -> Any:
        for size in value:
            if size % step:
                raise click.BadParameter(f"{size} is not a multiple of {step}")
        return value

    return click.option(
        "--bytes",
        "sizes",
        multiple=True,
        default=sizes,
        show_default=shown or True,
        type=click.IntRange(step, 1 << 30),
        callback=check,
        help=f"Size of {what}; may be given several times.",
    )


_with_large = click.option("--large", is_flag=True, help="Also 16 and 64 MiB.")


# Which sizes are usual depends on the device.
_with_transfer_sizes = partial(
    _with_sizes, sizes=(), shown="8 B to 4 MiB; with --device cuda 64 KiB to 256 MiB"
)


def _cpu_sizes(sizes: tuple[int, ...], large: bool) -> tuple[int, ...]:
    return (sizes or SIZES) + (LARGE_SIZES if large else ())


@bench.command()
@_with_device
@_with_transfer_sizes("a put")
@_with_large
@_with_blocks
@_with_options(rounds=100)
def put(
    device: str,
    sizes: tuple[int, ...],
    large: bool,
    blocks: tuple[int, ...],
    rounds: int,
    json_target: str | None,
) -> None:
    """PE 0 puts into the first peer of each transport."""
    if device == "cuda":
        from railshmem.bench.gpu import transfers

        gpu_sizes = sizes or GPU_SIZES
        _run_on_gpu(lambda job: transfers.run_put(job, gpu_sizes, blocks, rounds), json_target)
        return
    from railshmem.bench import put as kind

    _run(lambda job: kind.run(job, _cpu_sizes(sizes, large), rounds), json_target)


@bench.command()
@_with_device
@_with_transfer_sizes("a get")
@_with_large
@_with_blocks
@_with_options(rounds=100)
def get(
    device: str,
    sizes: tuple[int, ...],
    large: bool,
    blocks: tuple[int, ...],
    rounds: int,
    json_target: str | None,
) -> None:
    """PE 0 gets from the first peer of each transport."""
    if device == "cuda":
        from railshmem.bench.gpu import transfers

        gpu_sizes = sizes or GPU_SIZES
        _run_on_gpu(lambda job: transfers.run_get(job, gpu_sizes, blocks, rounds), json_target)
        return
    from railshmem.bench import get as kind

    _run(lambda job: kind.run(job, _cpu_sizes(sizes, large), rounds), json_target)


@bench.command()
@_with_device
@_with_options(rounds=100)
def atomic(device: str, rounds: int, json_target: str | None) -> None:
    """PE 0 adds to a word of the first peer of each transport."""
    if device == "cuda":
        from railshmem.bench.gpu import latencies

        _run_on_gpu(lambda job: latencies.run_atomic(job, rounds), json_target)
        return
    from railshmem.bench import atomic as kind

    _run(lambda job: kind.run(job, rounds), json_target)


@bench.command()
@_with_device
@_with_options(rounds=50)
def signal(device: str, rounds: int, json_target: str | None) -> None:
    """8 bytes from PE 0 to a peer and back."""
    if device == "cuda":
        from railshmem.bench.gpu import latencies

        _run_on_gpu(lambda job: latencies.run_signal(job, rounds), json_target)
        return
    from railshmem.bench import signal as kind

    _run(lambda job: kind.run(job, rounds), json_target)


@bench.command()
@_with_device
@_with_options(rounds=50)
def barrier(device: str, rounds: int, json_target: str | None) -> None:
    """All PEs meet."""
    if device == "cuda":
        from railshmem.bench.gpu import latencies

        _run_on_gpu(lambda job: latencies.run_barrier(job, rounds), json_target)
        return
    from railshmem.bench import barrier as kind

    _run(lambda job: kind.run(job, rounds), json_target)


@bench.command()
@_with_sizes("a PE's array", (8, 4 * KIB, 64 * KIB, MIB), step=8)
@_with_options(rounds=30)
def collectives(sizes: tuple[int, ...], rounds: int, json_target: str | None) -> None:
    """All PEs broadcast, collect, exchange and sum doubles."""
    from railshmem.bench import collectives as kind

    _run(lambda job: kind.run(job, sizes, rounds), json_target)


@bench.command()
@_with_sizes("a row", (64 * KIB, MIB, 4 * MIB), step=16)
@click.option("--device", default="cuda", show_default=True, type=click.Choice(("cuda",)))
@_with_options(rounds=30)
def alltoall(device: str, sizes: tuple[int, ...], rounds: int, json_target: str | None) -> None:
    """A kernel on every PE's GPU sends a row to every PE (on CPUs: see collectives)."""
    from railshmem.bench.gpu import alltoall as kind

    _run_on_gpu(lambda job: kind.run(job, sizes, rounds), json_target)


@bench.command()
@click.option(
    "--bytes",
    "nbytes",
    default=64 * KIB,
    show_default=True,
    type=click.IntRange(1),
    help="Size of an allocation.",
)
@_with_options(rounds=3)
def malloc(nbytes: int, rounds: int, json_target: str | None) -> None:
    """All PEs allocate symmetric memory 2,000 times."""
    from railshmem.bench import malloc as kind

    _run(lambda job: kind.run(job, nbytes, rounds), json_target)


@bench.command()
@click.option(
    "--producers",
    multiple=True,
    default=(2, 4),
    show_default=True,
    type=click.IntRange(2, 64),
    help="Blocks of the kernel, beside a kernel of one; may be given several times.",
)
@_several("warps", GPU_WARPS, 1024, "warps of a kernel")
@_with_device
@_with_options(rounds=50)
def proxy(
    producers: tuple[int, ...],
    warps: tuple[int, ...],
    device: str,
    rounds: int,
    json_target: str | None,
) -> None:
    """Kernels of PE 0 hand commands to its progress thread."""
    if device == "cuda":
        from railshmem.bench.gpu import proxy as on_gpu

        _run_on_gpu(lambda job: on_gpu.run(job, warps, rounds), json_target)
        return
    from railshmem.bench import proxy as kind

    _run(lambda job: kind.run(job, (1, *producers), rounds), json_target)


@bench.command()
@click.option(
    "--heap",
    "heaps",
    multiple=True,
    default=(64 * MIB, 1 << 30),
    show_default=True,
    type=click.IntRange(MIB, 1 << 40),
    help="Bytes of the symmetric heap; may be given several times.",
)
@_with_options(rounds=5)
def init(heaps: tuple[int, ...], rounds: int, json_target: str | None) -> None:
    """1, 2, 4, ... PEs of this job, then all of them, join a job."""
    from railshmem.bench import init as kind

    _run(lambda job: kind.run(job, heaps, rounds), json_target)


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
@click.option(
    "--sms",
    default=24,
    show_default=True,
    type=click.IntRange(1, 1024),
    help="With --device cuda: blocks of the kernels, each on a processor of its own.",
)
@click.option(
    "--bulk", is_flag=True, help="With --device cuda: dispatch moves rows by bulk copies."
)
@_with_device
@_with_options(rounds=20)
def ep(
    device: str, sms: int, bulk: bool, rounds: int, json_target: str | None, **shape: Any
) -> None:
    """All PEs dispatch tokens to experts and combine the results."""
    from railshmem.bench import ep as kind

    if device == "cuda":
        from railshmem.bench.gpu import ep as on_gpu

        layer = kind.Shape(**shape)
        _run_on_gpu(lambda job: on_gpu.run(job, layer, sms, bulk, rounds), json_target)
        return
    if shape["layout"] == "slots":
        raise click.UsageError("--layout slots is measured with --device cuda only")
    _run(lambda job: kind.run(job, kind.Shape(**shape), rounds), json_target)


@bench.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("-o", "--output", required=True, metavar="PNG", type=click.Path(path_type=Path))
def plot(files: tuple[Path, ...], output: Path) -> None:
    """Draw what `bench KIND --json FILE` wrote: a panel for each kind."""
    from railshmem.picture_of_results import draw_results, read_results

    draw_results(read_results(files), output)


def _run(measure: Callable[[Job], list[Result]], json_target: str | None) -> None:
    from railshmem.bench.job import Job, joined_job
    from railshmem.bench.report import publish

    with joined_job(Job) as job:
        before = job.one_way_us()
        results = measure(job)
        after = job.one_way_us()
        if job.me == 0:
            publish(job.title, results, json_target, (before, after))


def _run_on_gpu(measure: Callable[[GpuJob], list[Result]], json_target: str | None) -> None:
    from railshmem.bench.gpu.job import joined_gpu_job
    from railshmem.bench.gpu.report import publish

    with joined_gpu_job() as job:
        results = measure(job)
        if job.me == 0:
            publish(job, results, json_target)
