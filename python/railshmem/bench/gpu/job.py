"""The job on GPUs: its machine in words, and contestants that take turns."""

from __future__ import annotations

import datetime
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import railshmem
from railshmem import _core
from railshmem.bench.gpu.device import U32, U64, Gpu
from railshmem.bench.job import BenchError, Job, joined_job
from railshmem.bench.measure import Figure, Phases, take_turns_together

# Room for the largest default sizes; asked where nobody chose another.
HEAP = "8G"
# Of the kernel that goes before what starts on several GPUs at once: longer than it takes to launch
# what comes behind it.
DELAY_NS = 400_000

Seconds = Callable[[], float]


class GpuJob(Job):
    """A Job whose PEs have a GPU each, or share one."""

    def __init__(self) -> None:
        super().__init__()
        info = self.runtime.info()
        cards: list[dict[str, Any]] = [pe["gpu"] for pe in info["pes"]]
        if self.runtime.device != "cuda":
            raise BenchError(f"the job does not run on CUDA GPUs: {self.runtime.device_reason}")
        mine = cards[self.me]
        self.architecture: str = mine["architecture"]
        self.gpu = Gpu(self.runtime.device_index, self.architecture)
        self.context = U64(self.runtime.device_context())
        places = {(pe["host"], pe["gpu"]["bus_id"]) for pe in info["pes"]}
        self.n_gpus = len(places)
        # Then kernels of different PEs take turns of milliseconds instead of running at once.
        self.shares_gpus = self.n_gpus < self.n_pes
        self.hardware = f"{self.n_gpus} x {mine['name']} ({self.architecture})"
        kernel_side = Path("/sys/module/nvidia/version")
        release = f"{kernel_side.read_text().strip()}, " if kernel_side.exists() else ""
        self.rivals: dict[str, str] = {}  # which they were, or why there were none
        self.driver = f"{release}CUDA {self.gpu.cuda_version}"

    @property
    def title(self) -> str:
        nodes = "1 node" if self.n_nodes == 1 else f"{self.n_nodes} nodes"
        shared = ", shared by PEs: latencies are the scheduler's" if self.shares_gpus else ""
        lines = [f"{self.n_pes} PEs, {nodes}; {self.hardware}{shared}; driver {self.driver}"]
        return "\n".join([*lines, *(f"{name}: {text}" for name, text in self.rivals.items())])

    @property
    def origin(self) -> dict[str, str]:
        """What every line of results says beside its figures."""
        return {
            "device": "cuda",
            "hardware": self.hardware,
            "driver": self.driver,
            "date": datetime.date.today().isoformat(),
            "command": self._command(),
        }

    def _command(self) -> str:
        """Without what only says where files lie."""
        changed = [
            f"{name}={value}"
            for name, value, fallback, *_ in _core.settings_table()
            if value != fallback and name in os.environ and "/" not in value
        ]
        arguments = sys.argv[1:]
        if "--json" in arguments:
            file = arguments.index("--json")
            del arguments[file : file + 2]
        return " ".join([*changed, "mpirun", "-n", str(self.n_pes), "railshmem", *arguments])

    def mapped_peer(self) -> int:
        """The PE that PE 0 puts to by loads and stores; itself where it is alone."""
        peer = 0 if self.n_pes == 1 else self.mapped_peer_of_pe_0()
        if peer is None:
            raise BenchError(f"PE 0 maps the memory of no other PE: {self.n_nodes} nodes")
        return peer

    def trips(self, wanted: int) -> int:
        """Round trips in one sample: enough that starting two kernels does not count."""
        return wanted if not self.shares_gpus else max(wanted // 500, 2)

    def there(self, array: Any, pe: int) -> int:
        """Where kernels of this PE find the symmetric array of `pe`."""
        found: Any = railshmem.shmem_ptr(array, pe)
        if found is None:
            raise BenchError(f"PE {self.me} does not map the memory of PE {pe}")
        return int(found.ptr)

    def alone(self, name: str, seconds: Seconds) -> dict[str, Phases]:
        """A contestant that only PE 0 plays."""
        return {name: lambda: {name: seconds() if self.me == 0 else 0.0}}

    def together(self, name: str, seconds: Seconds) -> dict[str, Phases]:
        """One that all play at the same time; the slowest counts."""
        return {name: lambda: {name: seconds()}}

    def pair(self, name: str, other: int, seconds: Seconds) -> dict[str, Phases]:
        """One that PE 0 and `other` play; PE 0's time counts, as the other may start earlier."""

        def play() -> dict[str, float]:
            taken = seconds() if self.me in (0, other) else 0.0
            return {name: taken if self.me == 0 else 0.0}

        return {name: play}

    def take_turns(
        self, contestants: Mapping[str, Phases], rounds: int, what: str
    ) -> dict[str, Figure]:
        """Collective: one figure for each."""
        figures = take_turns_together(self.comm, contestants, rounds, warm_up=1, what=what)
        self.runtime.barrier_all()  # raises what stopped a kernel
        return figures

    def start_together(self) -> None:
        """Collective, with the PEs close together: what follows on the stream starts on all GPUs at
        the same time, and everything that is given to the stream soon has been given by then.
        """
        if self.shares_gpus:
            return
        self.gpu.launch("bench:rsh_bench_delay", 1, 1, U64(DELAY_NS))
        self.gpu.launch("bench:rsh_bench_barrier", 1, 1, self.context, U32(1))


@contextmanager
def joined_gpu_job() -> Iterator[GpuJob]:
    """The job from init to finalize, on CUDA GPUs."""
    settings = {"RAILSHMEM_DEVICE": "cuda"}
    if not {"RAILSHMEM_HEAP_SIZE", "SHMEM_SYMMETRIC_SIZE"} & set(os.environ):
        settings["RAILSHMEM_HEAP_SIZE"] = HEAP
    with joined_job(GpuJob, settings) as job:
        yield job
        job.gpu.sync()


def at(array: Any, offset: int = 0) -> U64:
    """A symmetric array as a kernel's argument."""
    return U64(int(array.ptr) + offset)
