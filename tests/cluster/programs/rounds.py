"""100 exact rounds of dispatch and combine, in the middle of which something happens.

    rounds.py nothing | unplug INTERFACE | pull INTERFACE | kill HOST

unplug: PE 0's host takes its interface down; pull: the other end of that interface's wire, on the
head, goes down; kill: the processes of that host are killed. Every PE prints how its rounds ended.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from mpi4py import MPI

import railshmem
from ep_layer import SHAPES, Layer, same_bits
from railshmem.bootstrap import MpiBootstrap

ROUNDS, WHEN = 100, 50


def command_of(event: str, target: str, pids: dict[str, list[int]]) -> list[str]:
    if event == "unplug":
        return ["ip", "link", "set", target, "down"]
    if event == "pull":  # process 1 of a cluster is on the head
        return ["nsenter", "--target", "1", "--net", "ip", "link", "set", f"h0-{target}", "down"]
    return ["kill", "-KILL", *map(str, pids[target])]


def play(rt: railshmem.Runtime, command: list[str] | None) -> None:
    """The rounds; `command` runs beside them from round WHEN on."""
    layer = Layer(rt, SHAPES["bf16"]._replace(max_tokens=64))
    first = []
    event = None
    for number in range(ROUNDS):
        if number == WHEN and command is not None:
            event = subprocess.Popen(command)
        out = layer.round(number % 10)
        first.append(out)
        assert same_bits(out, first[number % 10])
    if event is not None:
        assert event.wait(10) == 0


def wait_for_mates(rank: int, n_mates: int) -> None:
    """Until all processes of this host have come here: MPI would wait for the other host's, too."""
    folder = Path("/dev/shm")  # the host's own
    (folder / f"said-{rank}").touch()
    end = time.monotonic() + 60
    while len(list(folder.glob("said-*"))) < n_mates and time.monotonic() < end:
        time.sleep(0.01)


def main() -> None:
    comm = MPI.COMM_WORLD
    host = os.uname().nodename
    pids: dict[str, list[int]] = {}
    for where, pid in comm.allgather((host, os.getpid())):
        pids.setdefault(where, []).append(pid)
    event, target = (*sys.argv[1:], "")[:2]
    executes = comm.rank == (comm.size - 1 if event == "kill" else 0) and event != "nothing"
    rt = railshmem.Runtime(MpiBootstrap(comm, 30))
    start = time.monotonic()
    try:
        play(rt, command_of(event, target, pids) if executes else None)
        text = "exact"
    except railshmem.RailshmemError as error:
        text = f"{type(error).__name__} after {time.monotonic() - start:.1f} s: {error}"
    print(f"PE {rt.my_pe}: {text}\n", end="", flush=True)
    # Nobody raises because another has ended.
    if event != "kill":
        comm.Barrier()
    else:
        wait_for_mates(comm.rank, len(pids[host]))
    if text == "exact":
        rt.finalize()
        return
    os._exit(3)  # MPI's own end would wait for those that are gone


main()
