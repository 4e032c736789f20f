"""How jobs end: well, with an exception, with a killed PE, with Ctrl-C, with a PE that never came.

Launchers end the survivors of a dead process by themselves. Where a test is about what the library
does, that is switched off.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

MPIRUN = [str(Path(sys.executable).with_name("mpirun"))]
ALONE = [*MPIRUN, "-disable-auto-cleanup"]
LIMIT_S = 60

PREAMBLE = """
import os, signal, sys, time
import numpy as np
import railshmem as r
from railshmem import ep
r.shmem_init()
me, n = r.shmem_my_pe(), r.shmem_n_pes()
"""


def start(launcher: list[str], n: int, script: str, **settings: str) -> subprocess.Popen[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAILSHMEM_")}
    return subprocess.Popen(
        [*launcher, "-n", str(n), sys.executable, "-c", PREAMBLE + script],
        env={**environment, "RAILSHMEM_TIMEOUT_S": "20", "RAILSHMEM_HEAP_SIZE": "64M", **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(job: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr; fails when the job does not end or leaves a process behind."""
    family = descendants(job.pid)
    try:
        out, err = job.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        out, err = job.communicate()
        pytest.fail(f"the job did not end in {LIMIT_S} s:\n{out}\n{err}")
    _, alive = psutil.wait_procs(family, timeout=10)
    for process in alive:
        process.kill()
    assert not alive, f"processes outlived the job: {alive}"
    return job.returncode, out, err


def descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def ranks_of(job: subprocess.Popen[str]) -> list[psutil.Process]:
    """The job's Python processes in order of rank, once all have printed that they are ready."""
    assert job.stdout is not None
    pids: dict[int, int] = {}
    deadline = time.monotonic() + LIMIT_S
    while len(pids) < 4 and time.monotonic() < deadline:
        words = job.stdout.readline().split()
        if words[:1] == ["ready"]:
            pids[int(words[1])] = int(words[2])
    assert len(pids) == 4
    return [psutil.Process(pids[rank]) for rank in range(4)]


READY = """
r.shmem_barrier_all()
os.write(1, f"ready {me} {os.getpid()}\\n".encode())
"""


@pytest.mark.parametrize("nodes", ["0", "2"])
@pytest.mark.parametrize("last", ["r.shmem_finalize()", "pass"])
def test_create_use_exit_returns_0(nodes: str, last: str) -> None:
    script = f"a = r.shmem_array(4); r.shmem_barrier_all(); r.shmem_put(a, a, (me + 1) % n); {last}"
    code, out, err = finish(start(MPIRUN, 3, script, RAILSHMEM_NODES=nodes))
    assert (code, out, err) == (0, "", "")


@pytest.mark.parametrize("nodes", ["0", "2"])
def test_an_exception_that_nobody_catches_ends_the_job(nodes: str) -> None:
    """One rank raised, the others sat in a barrier until somebody killed the job."""
    script = """
if me == 1:
    raise LookupError("the shelf is empty")
r.shmem_barrier_all()
"""
    began = time.monotonic()
    code, _, err = finish(start(ALONE, 4, script, RAILSHMEM_NODES=nodes, RAILSHMEM_TIMEOUT_S="500"))
    assert code != 0
    assert "PE 1: Traceback" in err
    assert "PE 1: LookupError: the shelf is empty" in err
    assert time.monotonic() - began < LIMIT_S


def test_exit_with_a_status_ends_the_job() -> None:
    """The others waited for the PE that had ended until their deadline."""
    script = "if me == 1: sys.exit(3)\nr.shmem_wait_until(word, r.SHMEM_CMP_NE, 0)"
    word = "word = r.shmem_array(1, np.int64); word[0] = 0\n"
    job = start(ALONE, 3, word + script, RAILSHMEM_TIMEOUT_S="500")
    code, _, err = finish(job)
    assert code != 0
    assert "PE 1: the program ended with status 3: ending the job" in err


def test_a_pe_at_its_end_does_not_pass_for_one_in_a_barrier() -> None:
    script = "if me == 1: sys.exit(0)\nr.shmem_barrier_all()"
    code, _, err = finish(start(ALONE, 3, script, RAILSHMEM_TIMEOUT_S="500"))
    assert code != 0
    assert "PE 0: barrier or sync; PE 1: shmem_finalize" in err


@pytest.mark.parametrize("status", [0, 5])
def test_global_exit_ends_every_pe(status: int) -> None:
    script = f"""
from railshmem import shmem
r.shmem_barrier_all()
if me == 1:
    shmem.shmem_global_exit({status})
time.sleep(1000)
"""
    code, _, err = finish(start(MPIRUN, 3, script))
    assert code == status
    assert "Traceback" not in err


def test_a_job_of_some_ranks_ends_all_ranks() -> None:
    """MPI_Abort knows of no part of a launch: what the documentation of shmem_init says."""
    script = """
import sys, time
from mpi4py import MPI
import railshmem as r
world = MPI.COMM_WORLD
part = world.Split(world.rank % 2)
r.shmem_init(part)
assert r.shmem_n_pes() == 2
world.Barrier()
if world.rank == 2:
    raise LookupError("the shelf is empty")
time.sleep(1000)
"""
    job = subprocess.Popen(
        [*MPIRUN, "-n", "4", sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    code, _, err = finish(job)
    assert code != 0
    assert "PE 1: LookupError: the shelf is empty" in err


ABSENT = "if me == 2: time.sleep(1000)"  # so that the others are waiting when it is killed
WAITS = {
    "barrier": f"{ABSENT}\nr.shmem_barrier_all()",
    "wait_until": f"""
w = r.shmem_array(1, np.int64)
w[0] = 0
{ABSENT}
r.shmem_wait_until(w, r.SHMEM_CMP_NE, 0)
""",
    "dispatch and combine": """
e = ep.ExpertParallel(hidden=64, experts=8, topk=2, max_tokens=16, dtype=np.float32)
tokens, weights = np.ones((16, 64), np.float32), np.ones((16, 2), np.float32)
indices = np.arange(32).reshape(16, 2) % 8
while True:
    d = e.dispatch(tokens, indices, weights)
    e.combine(d.tokens, d.handle)
""",
}


def kill_pe_2(script: str, message: str, busy: bool = False, **settings: str) -> None:
    """Kills PE 2 of a job of 4: it must end, leave nothing behind, and say why.

    Told not to, mpich's launcher still kills the survivors now and then, about a millisecond after
    the death. Such a run ends as it must, but shows nothing of the library: another one does.
    """
    for _ in range(8):
        job = start(ALONE, 4, script, **settings)
        ranks = ranks_of(job)
        if busy:
            wait_until_busy(ranks)
        ranks[2].send_signal(signal.SIGKILL)
        code, _, err = finish(job)
        assert code != 0
        assert not any(r.is_running() and r.status() != psutil.STATUS_ZOMBIE for r in ranks)
        if err:
            break
    assert message in err


@pytest.mark.parametrize("nodes", ["0", "2"])
@pytest.mark.parametrize("wait", WAITS)
def test_a_killed_pe_ends_the_others_with_a_clear_message(wait: str, nodes: str) -> None:
    """A PE died in the middle, and the others waited for ever."""
    kill_pe_2(READY + WAITS[wait], "the process of PE 2 has ended", RAILSHMEM_NODES=nodes)


@pytest.mark.parametrize("nodes", ["0", "2"])
def test_a_pe_killed_while_the_others_are_in_mpi_ends_them(nodes: str) -> None:
    """The survivors sit in a call of MPI, which does not know of the death this library sees."""
    body = f"{ABSENT}\nfrom mpi4py import MPI; MPI.COMM_WORLD.Barrier()"
    kill_pe_2(
        READY + body,
        "the process of PE 2 has ended, and no operation of this PE noticed",
        RAILSHMEM_NODES=nodes,
    )


def test_a_pe_killed_in_the_middle_of_the_demo_ends_the_others() -> None:
    examples = Path(__file__).parents[2] / "examples"
    demo = f"""
import runpy
sys.path.insert(0, {str(examples)!r})
sys.argv = ["moe_layer.py", "--rounds", "1000000"]
r.shmem_finalize()
os.write(1, f"ready {{me}} {{os.getpid()}}\\n".encode())
runpy.run_path({str(examples / "moe_layer.py")!r}, run_name="__main__")
"""
    settings = {"RAILSHMEM_NODES": "2", "RAILSHMEM_RAILS": "2", "RAILSHMEM_HEAP_SIZE": "1G"}
    kill_pe_2(demo, "the process of PE 2 has ended", busy=True, **settings)


def wait_until_busy(ranks: list[psutil.Process]) -> None:
    """Until every PE has worked for two seconds of its own time: the demo is in its rounds."""
    before = [sum(rank.cpu_times()[:2]) for rank in ranks]
    deadline = time.monotonic() + LIMIT_S
    while any(sum(r.cpu_times()[:2]) < b + 2 for r, b in zip(ranks, before, strict=True)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_stopped_pe_ends_the_others_at_the_deadline() -> None:
    job = start(ALONE, 4, READY + "time.sleep(0.2); r.shmem_barrier_all()", RAILSHMEM_TIMEOUT_S="2")
    ranks = ranks_of(job)
    ranks[1].suspend()
    try:
        code, _, err = finish(job)
    finally:
        if ranks[1].is_running():
            ranks[1].kill()
    assert code != 0
    assert "gave up after 2" in err
    assert "waiting for barrier: a peer" in err


def test_ctrl_c_ends_a_wait() -> None:
    script = """
r.shmem_barrier_all()
w = r.shmem_array(1, np.int64)
w[0] = 0
try:
    os.write(1, b"waiting\\n")
    r.shmem_wait_until(w, r.SHMEM_CMP_NE, 0)
except KeyboardInterrupt:
    os.write(1, b"interrupted\\n")
"""
    job = start(MPIRUN, 1, script)
    assert job.stdout is not None
    assert job.stdout.readline() == "waiting\n"
    python = next(p for p in descendants(job.pid) if "python" in p.name())
    deadline = time.monotonic() + LIMIT_S
    while python.status() != psutil.STATUS_SLEEPING:  # it spins and yields before it sleeps
        assert time.monotonic() < deadline
    python.send_signal(signal.SIGINT)
    code, out, _ = finish(job)
    assert (code, out) == (0, "interrupted\n")


def test_a_pe_that_does_not_come_to_init_is_named() -> None:
    """init hung for ever on the others when one rank did not come."""
    script = """
import os, sys, time
from mpi4py import MPI
import railshmem as r
if MPI.COMM_WORLD.rank == 2:
    time.sleep(1000)
r.shmem_init()
"""
    job = subprocess.Popen(
        [*ALONE, "-n", "3", sys.executable, "-c", script],
        env={**os.environ, "RAILSHMEM_TIMEOUT_S": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    code, _, err = finish(job)
    assert code != 0
    assert "these ranks had not come: [2]" in err


@pytest.mark.parametrize("value", ["soon", "nan", "-1", "inf"])
def test_a_bad_timeout_is_named(value: str) -> None:
    code, _, err = finish(start(MPIRUN, 2, "", RAILSHMEM_TIMEOUT_S=value))
    assert code != 0
    assert "InitError" in err
    assert f"RAILSHMEM_TIMEOUT_S={value}" in err


def test_nothing_stays_in_shared_memory() -> None:
    job = start(ALONE, 4, READY + "time.sleep(1000)", RAILSHMEM_NODES="2")
    ranks = ranks_of(job)
    own = list(Path("/dev/shm").glob("*railshmem*"))
    for rank in ranks:
        rank.kill()
    finish(job)
    assert not own
    assert not list(Path("/dev/shm").glob("*railshmem*"))
