"""Hosts that are namespaces of this machine, and jobs on them: what tests/cluster is made of."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
HOSTS, RSH = str(HERE / "hosts"), str(HERE / "rsh")
MPIRUN = str(Path(sys.executable).with_name("mpirun"))

# Generous: a machine may have fewer cores than the job has PEs, and other things to do.
START_LIMIT_S = 60
LIMIT_S = 150

# MPI stays on the control network, so that what the rails carry is ours.
MPI_SETTINGS = {"MPIR_CVAR_CH4_NETMOD": "ucx", "UCX_NET_DEVICES": "ctl0"}
SETTINGS = {
    "RAILSHMEM_PROVIDER": "libfabric",
    "RAILSHMEM_NICS": "^ctl0",
    "RAILSHMEM_HEAP_SIZE": "64M",
    "RAILSHMEM_TIMEOUT_S": "20",
}


class Wire(NamedTuple):
    """Bytes that a host sent and received on one interface."""

    sent: int
    received: int


class Finished(NamedTuple):
    """What is left of a job."""

    status: int
    out: str
    err: str

    def well(self) -> Finished:
        """Fails the test where the job did not end well."""
        story = f"status {self.status}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"
        assert self.status == 0, story
        return self


class Job:
    """A running mpirun. `cluster` outlives it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._streams = selectors.DefaultSelector()
        self._taken: dict[str, bytes] = {}
        for name in ("stdout", "stderr"):
            stream: IO[bytes] = getattr(process, name)
            self._taken[name] = b""
            self._streams.register(stream, selectors.EVENT_READ, name)

    @property
    def out(self) -> str:
        """What came so far."""
        return self._taken["stdout"].decode()

    def wait_for(self, *texts: str, limit_s: float = LIMIT_S) -> None:
        """Until every text stands in stdout."""
        deadline = time.monotonic() + limit_s
        while not all(text in self.out for text in texts):
            if not self._read(deadline):
                missing = [text for text in texts if text not in self.out]
                pytest.fail(f"no {missing} within {limit_s:g} s{self._story()}")

    def finish(self, limit_s: float = LIMIT_S) -> Finished:
        """Its end, which must come in time."""
        deadline = time.monotonic() + limit_s
        while self._streams.get_map() and self._read(deadline):
            pass
        if self._streams.get_map():
            os.killpg(self._process.pid, signal.SIGKILL)
            pytest.fail(f"the job did not end in {limit_s:g} s{self._story()}")
        status = self._process.wait(timeout=LIMIT_S)
        return Finished(status, self.out, self._taken["stderr"].decode())

    def _read(self, deadline: float) -> bool:
        """Takes what there is; False at the deadline and where both streams have ended."""
        ready = self._streams.select(max(0.0, deadline - time.monotonic()))
        for key, _ in ready:
            data = os.read(key.fd, 1 << 16)
            self._taken[key.data] += data
            if not data:
                self._streams.unregister(key.fileobj)
        return bool(ready)

    def _story(self) -> str:
        return "".join(f"\n--- {name}\n{text.decode()}" for name, text in self._taken.items())


class Cluster:
    """Hosts of a shape (see tests/cluster/hosts), for the time of a with statement."""

    def __init__(self, shape: str) -> None:
        self._process = subprocess.Popen(
            [HOSTS, "run", shape, "sh", "-c", "echo ready; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            _, err = self._process.communicate(timeout=START_LIMIT_S)
            pytest.fail(f"no hosts: {err}")
        # hosts run -> unshare -> the first process of the namespaces
        first = psutil.Process(self._process.pid).children()[0].children()[0]
        self._enter = ["nsenter", "--target", str(first.pid), f"--wd={ROOT}"]
        self._enter += ["--mount", "--net", "--uts", "--ipc", "--pid"]
        self.hosts = self.on_head(HOSTS, "list").split()

    def end(self) -> None:
        """Ends all of its processes, and with them everything."""
        self._process.communicate("", timeout=START_LIMIT_S)

    def on_head(self, *command: str) -> str:
        """What the command prints; it must end well."""
        done = subprocess.run(
            [*self._enter, *command], capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def on(self, host: int, *command: str) -> str:
        """The same on a host."""
        return self.on_head(HOSTS, "on", str(host), *command)

    def open_on(self, host: int, *command: str) -> subprocess.Popen[bytes]:
        """The command on a host, beside what else happens."""
        return subprocess.Popen([*self._enter, HOSTS, "on", str(host), *command])

    def wires(self) -> dict[tuple[int, str], Wire]:
        """What went over the wire of each host and interface so far."""
        links: list[dict[str, Any]] = json.loads(self.on_head("ip", "-json", "-stats", "link"))
        wires = {}
        for link in links:
            host, dash, interface = link["ifname"].partition("-")
            if dash:  # what the head received, the host sent
                counts = link["stats64"]
                wires[int(host[1:]), interface] = Wire(counts["rx"]["bytes"], counts["tx"]["bytes"])
        return wires

    def start(self, *program: str, per_host: int = 2, alone: bool = False, **settings: str) -> Job:
        """mpirun of a Python program. `alone`: the launcher leaves the others when a PE ends."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("RAILSHMEM_")}
        # What the programs share with the tests of one host.
        path = f"{ROOT / 'tests/parallel'}:{os.environ.get('PYTHONPATH', '')}"
        places = ",".join(f"{host}:{per_host}" for host in self.hosts)
        launcher = [MPIRUN, "-launcher", "ssh", "-launcher-exec", RSH, "-iface", "control"]
        launcher += ["-disable-auto-cleanup"] if alone else []
        launcher += ["-hosts", places, "-n", str(per_host * len(self.hosts))]
        process = subprocess.Popen(
            [*self._enter, *launcher, sys.executable, *program],
            env={**kept, "PYTHONPATH": path, **MPI_SETTINGS, **SETTINGS, **settings},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        return Job(process)

    def run(
        self, *program: str, per_host: int = 2, limit_s: float = LIMIT_S, **settings: str
    ) -> Finished:
        """The job from its start to its end."""
        return self.start(*program, per_host=per_host, **settings).finish(limit_s)


@contextmanager
def cluster_of(shape: str) -> Iterator[Cluster]:
    """Hosts that are gone at the end, whatever happened to them."""
    cluster = Cluster(shape)
    try:
        yield cluster
    finally:
        cluster.end()


def lines_of(text: str, start: str) -> Sequence[str]:
    """The lines that begin so, sorted: those of different PEs come in any order."""
    return sorted(line for line in text.splitlines() if line.startswith(start))
