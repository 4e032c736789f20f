"""The hosts themselves: as far apart as they claim to be, and gone when nobody needs them."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from cluster import HOSTS, START_LIMIT_S, Cluster


def test_hosts_have_names_boots_memory_and_interfaces_of_their_own(cluster: Cluster) -> None:
    identities = set()
    for host in (0, 1):
        assert cluster.on(host, "hostname") == f"host{host}\n"
        assert cluster.on(host, "ls", "/sys/class/net").split() == ["ctl0", "lo", "rail0", "rail1"]
        cluster.on(host, "sh", "-c", f'[ -z "$(ls /dev/shm)" ] && echo {host} >/dev/shm/mine')
        identities.add(cluster.on(host, "cat", "/proc/sys/kernel/random/boot_id"))
    identities.add(Path("/proc/sys/kernel/random/boot_id").read_text())
    assert len(identities) == 3
    assert not Path("/dev/shm/mine").exists()


CONNECT = """
import socket, sys
s = socket.socket()
s.settimeout(1)
s.bind((sys.argv[1], 0))
try:
    s.connect((sys.argv[2], 7))
except ConnectionRefusedError:
    print("reached")  # by a host that listens to nobody
except OSError as error:
    print("not reached")
"""


@pytest.mark.hosts("3x2")
def test_a_rail_reaches_only_itself(cluster: Cluster) -> None:
    for source_rail in (0, 1):
        for target_rail in (0, 1):
            source, target = f"10.1.{source_rail}.1", f"10.1.{target_rail}.3"
            seen = cluster.on(0, "python3", "-c", CONNECT, source, target)
            assert seen == ("reached\n" if source_rail == target_rail else "not reached\n")
    wires = cluster.wires()
    assert set(wires) == {(h, name) for h in range(3) for name in ("ctl0", "rail0", "rail1")}


@pytest.mark.hosts("rail0=0,rail1=1/b1=1,a0=0/rail0=0")
def test_hosts_may_differ(cluster: Cluster) -> None:
    shown = [cluster.on(host, "ls", "/sys/class/net").split() for host in range(3)]
    assert shown[0] == ["ctl0", "lo", "rail0", "rail1"]
    assert shown[1] == ["a0", "b1", "ctl0", "lo"]
    assert shown[2] == ["ctl0", "lo", "rail0"]
    assert cluster.on(1, "ip", "-br", "-4", "address", "show", "b1").split()[2] == "10.1.1.2/24"


def test_two_runs_do_not_meet(cluster: Cluster) -> None:
    other = Cluster("2x1")
    assert other.on(0, "hostname") == cluster.on(0, "hostname")
    other.end()
    assert cluster.on(1, "hostname") == "host1\n"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_a_run_that_is_killed(how: signal.Signals) -> None:
    run = subprocess.Popen(
        [HOSTS, "run", "2x1", "sh", "-c", "sleep 1000 & echo ready; sleep 1000"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert run.stdout is not None
    assert run.stdout.readline() == "ready\n"
    family = psutil.Process(run.pid).children(recursive=True)
    assert len(family) >= 6  # unshare, the head, two hosts, the command and its child
    run.send_signal(how)
    run.wait(START_LIMIT_S)
    _, alive = psutil.wait_procs(family, timeout=START_LIMIT_S)
    assert not alive


@pytest.mark.parametrize("shape", ["0x1", "2x0", "2", "rail0", "rail0=0;reboot", "x" * 11 + "=0"])
def test_shapes_that_are_none_are_refused(shape: str) -> None:
    done = subprocess.run(
        [HOSTS, "run", shape, "true"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert f"the shape '{shape}' is neither" in done.stderr


def test_without_privileges_it_says_so() -> None:
    """Where namespaces cannot be made the tests fail with a sentence; they do not skip."""
    done = subprocess.run(
        ["setpriv", "--bounding-set", "-sys_admin", HOSTS, "run", "2x1", "true"],
        capture_output=True,
        text=True,
        timeout=START_LIMIT_S,
        check=False,
    )
    assert done.returncode == 1
    assert "does not let root make namespaces" in done.stderr
