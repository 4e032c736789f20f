"""Jobs that meet by an id over TCP: no MPI, no launcher, and ends that reach everybody."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from railshmem import shmem
from railshmem.errors import ArgumentError, InitError

LIMIT_S = 60

JOIN = """
import os, signal, sys, time
import numpy as np
import railshmem as r
from railshmem import shmem
me, n = int(sys.argv[1]), int(sys.argv[2])
r.shmem_init(uid=os.environ["JOB_ID"], rank=me, n_pes=n)
assert (r.shmem_my_pe(), r.shmem_n_pes()) == (me, n)
"""


class Job:
    """Processes of one job, each started for itself; this process made the id."""

    def __init__(self, n: int, script: str, uid: str | None = None, **settings: str) -> None:
        uid = uid or shmem.shmem_get_unique_id()
        environment = {k: v for k, v in os.environ.items() if not k.startswith("RAILSHMEM_")}
        environment |= {"RAILSHMEM_TIMEOUT_S": "20", "RAILSHMEM_HEAP_SIZE": "16M"}
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-c", script, str(rank), str(n)],
                env={**environment, "JOB_ID": uid, **settings},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(n)
        ]

    def finish(self) -> tuple[list[int], list[str], list[str]]:
        """Exit codes, stdouts and stderrs, by rank; fails when a process does not end."""
        outs, errs = [], []
        deadline = time.monotonic() + LIMIT_S
        for process in self.processes:
            try:
                out, err = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                for one in self.processes:
                    one.kill()
                pytest.fail(f"a process did not end in {LIMIT_S} s: {process.communicate()}")
            outs.append(out)
            errs.append(err)
        return [process.returncode for process in self.processes], outs, errs

    def wait_for_line(self, rank: int, line: str) -> None:
        out = self.processes[rank].stdout
        assert out is not None
        assert out.readline() == line + "\n"


@pytest.mark.parametrize("nodes", ["0", "2"])
def test_processes_that_share_an_id_are_a_job_without_mpi(nodes: str) -> None:
    script = """
mine = r.shmem_array(3, np.int64)
mine[:] = me
r.shmem_barrier_all()
seen = np.zeros(3, np.int64)
r.shmem_get(seen, mine, (me + 1) % n)
assert (seen == (me + 1) % n).all()
assert "mpi4py" not in sys.modules
"""
    assert Job(4, JOIN + script, RAILSHMEM_NODES=nodes).finish() == ([0] * 4, [""] * 4, [""] * 4)


def test_one_process_takes_part_in_jobs_one_after_the_other() -> None:
    """The id of the next job travels in the memory of the one before."""
    script = """
for round in range(3):
    box = r.shmem_array(512, np.uint8)
    if me == round % n:  # also on a PE that is not the first
        uid = shmem.shmem_get_unique_id().encode().ljust(512)
        for pe in range(n):
            r.shmem_put(box, np.frombuffer(uid, np.uint8), pe)
    r.shmem_barrier_all()
    uid = bytes(box).decode().strip()
    r.shmem_finalize()
    r.shmem_init(uid=uid, rank=n - 1 - me, n_pes=n)
    assert r.shmem_my_pe() == n - 1 - me
"""
    assert Job(3, JOIN + script).finish() == ([0] * 3, [""] * 3, [""] * 3)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing_starts_a_job(method: str, tmp_path: Path) -> None:
    """The program that starts the PEs made the id; forked PEs hold a dead copy of its hub."""
    script = f"""
import multiprocessing, sys
from railshmem import shmem

def pe(rank, n, uid):
    shmem.shmem_init(uid=uid, rank=rank, n_pes=n)
    assert shmem.shmem_my_pe() == rank
    shmem.shmem_finalize()
    if {method!r} == "fork":
        sys.exit(0)  # with all handlers and destructors

if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    uid = shmem.shmem_get_unique_id()
    pes = [context.Process(target=pe, args=(rank, 3, uid)) for rank in range(3)]
    for one in pes:
        one.start()
    for one in pes:
        one.join()
    sys.exit(sum(one.exitcode for one in pes))
"""
    file = tmp_path / "job.py"
    file.write_text(script)
    done = subprocess.run(
        [sys.executable, file],
        timeout=LIMIT_S,
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "RAILSHMEM_HEAP_SIZE": "16M"},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# How PE 1 ends -> its exit code, everybody's else, and what the others say.
ENDS = {
    "raise LookupError('the shelf is empty')": (1, 1, "LookupError: the shelf is empty"),
    "sys.exit(3)": (3, 3, "the program ended with status 3"),
    "sys.exit('no more')": (1, 1, "the program ended with status 1"),
    "shmem.shmem_global_exit(5)": (5, 5, "shmem_global_exit(5)"),
    "os._exit(0)": (0, 1, "the process of PE 1 has ended"),
    "os.kill(os.getpid(), signal.SIGKILL)": (-9, 1, "the process of PE 1 has ended"),
}
WAITS = {
    "barrier": "r.shmem_barrier_all()",
    "word": "w = r.shmem_array(1, np.int64); w[0] = 0; r.shmem_wait_until(w, r.SHMEM_CMP_NE, 0)",
    "elsewhere": "time.sleep(1000)",
}


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("end", ENDS)
def test_the_end_of_one_pe_ends_all(end: str, wait: str) -> None:
    """One rank raised, the others sat in a barrier until somebody killed the job."""
    code, others, message = ENDS[end]
    ready = "w = r.shmem_array(1, np.int64)\n" if wait == "word" else ""
    script = f"""
r.shmem_barrier_all()
if me == 1:
    {ready}
    {end}
{WAITS[wait]}
"""
    codes, _, errs = Job(3, JOIN + script, RAILSHMEM_TIMEOUT_S="500").finish()
    assert codes == [others, code, others]
    assert message in errs[0]
    assert message in errs[2]


def test_an_exit_that_was_caught_is_no_end() -> None:
    script = """
try:
    sys.exit(4)
except SystemExit:
    pass
r.shmem_barrier_all()
sys.exit()
"""
    assert Job(2, JOIN + script).finish() == ([0] * 2, [""] * 2, [""] * 2)


def test_a_pe_at_its_end_does_not_pass_for_one_in_a_barrier() -> None:
    """The others passed the barrier with it and hung in the next one until the deadline."""
    script = """
if me == 1:
    sys.exit(0)
r.shmem_barrier_all()
"""
    codes, _, errs = Job(3, JOIN + script, RAILSHMEM_TIMEOUT_S="500").finish()
    assert codes == [1, 1, 1]
    for err in errs:
        assert "PE 0: barrier or sync; PE 1: shmem_finalize" in err


def test_global_exit_with_success_is_silent() -> None:
    script = "r.shmem_barrier_all()\nif me == 1: shmem.shmem_global_exit(0)\ntime.sleep(1000)"
    assert Job(3, JOIN + script).finish() == ([0] * 3, [""] * 3, [""] * 3)


def test_a_lost_pe_can_be_caught_by_name() -> None:
    script = """
r.shmem_barrier_all()
if me == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    r.shmem_barrier_all()
except r.PeerLost as error:
    os.write(1, f"{error}\\n".encode())
    os._exit(0)
"""
    codes, outs, _ = Job(2, JOIN + script).finish()
    assert codes == [0, -9]
    assert outs[0] == "PE 0: the process of PE 1 has ended; restart the job\n"


def test_the_end_of_the_ids_maker_ends_the_job() -> None:
    maker = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from railshmem import shmem; import time\n"
            "print(shmem.shmem_get_unique_id(), flush=True); time.sleep(1000)",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert maker.stdout is not None
    uid = maker.stdout.readline().strip()
    script = "r.shmem_barrier_all(); os.write(1, b'ready\\n'); time.sleep(1000)"
    job = Job(2, JOIN + script, uid)
    for rank in range(2):
        job.wait_for_line(rank, "ready")
    maker.kill()
    maker.wait()
    codes, _, errs = job.finish()
    assert codes == [1, 1]
    assert "the process of the maker of the job's id has ended" in "".join(errs)

    codes, _, errs = Job(1, JOIN, uid).finish()
    assert codes == [1]
    assert "cannot reach the process that made the job's id" in errs[0]


def test_a_maker_that_hangs_does_not_hang_the_job() -> None:
    maker = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from railshmem import shmem; import time\n"
            "print(shmem.shmem_get_unique_id(), flush=True); time.sleep(1000)",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert maker.stdout is not None
    uid = maker.stdout.readline().strip()
    psutil.Process(maker.pid).suspend()
    try:
        codes, _, errs = Job(1, JOIN, uid, RAILSHMEM_TIMEOUT_S="1").finish()
    finally:
        maker.kill()
        maker.communicate()
    assert codes == [1]
    assert "RAILSHMEM_TIMEOUT_S, 1 s" in errs[0]


def test_a_pe_killed_in_init_ends_the_others() -> None:
    script = "import os; os.write(1, b'here\\n')\n" + JOIN
    job = Job(2, script.replace("n_pes=n", "n_pes=n + 1"))  # a third never comes
    job.wait_for_line(0, "here")
    wait_until_connected(job.processes[0].pid)
    job.processes[0].kill()
    codes, _, errs = job.finish()
    assert codes == [-9, 1]
    assert "rank 0 (pid" in errs[1]
    assert "left before all ranks had come" in errs[1]


def wait_until_connected(pid: int) -> None:
    """Until the process holds both of its connections to the hub."""
    deadline = time.monotonic() + LIMIT_S
    process = psutil.Process(pid)
    while [c.status for c in process.net_connections("tcp")].count("ESTABLISHED") < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_ranks_that_do_not_come_are_named() -> None:
    """init hung for ever when one rank did not come."""
    script = JOIN.replace("n_pes=n", "n_pes=5")
    codes, _, errs = Job(2, script, RAILSHMEM_TIMEOUT_S="1").finish()
    assert codes == [1, 1]
    for err in errs:
        assert "WaitTimeout" in err
        assert "these ranks had not come in time: 2, 3, 4" in err


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("rank=0, n_pes=n", "two processes came as the same rank"),
        ("rank=me, n_pes=n + me", "says that the job has"),
        ("rank=me + 1, n_pes=n", "cannot be in a job of 2 PEs"),
    ],
)
def test_ranks_and_sizes_that_do_not_fit_are_named_on_all(place: str, message: str) -> None:
    codes, _, errs = Job(2, JOIN.replace("rank=me, n_pes=n", place)).finish()
    assert codes == [1, 1]
    for err in errs:
        assert "ArgumentError" in err
        assert message in err


def test_ctrl_c_ends_init() -> None:
    script = """
import os, sys
import railshmem as r
try:
    os.write(1, b"waiting\\n")
    r.shmem_init(uid=os.environ["JOB_ID"], rank=0, n_pes=2)
except KeyboardInterrupt:
    os.write(1, b"interrupted\\n")
"""
    job = Job(1, script)
    job.wait_for_line(0, "waiting")
    wait_until_connected(job.processes[0].pid)
    job.processes[0].send_signal(signal.SIGINT)
    assert job.finish() == ([0], ["interrupted\n"], [""])


def test_the_network_interface_can_be_chosen() -> None:
    chosen = shmem.shmem_get_unique_id(settings={"RAILSHMEM_INTERFACE": "127.0.0.1"})
    assert chosen.endswith("/127.0.0.1")
    assert Job(2, JOIN, chosen).finish()[0] == [0, 0]
    with pytest.raises(InitError, match=r"RAILSHMEM_INTERFACE=eth77: this host has .*lo"):
        shmem.shmem_get_unique_id(settings={"RAILSHMEM_INTERFACE": "eth77"})


def test_ways_into_a_job_exclude_each_other() -> None:
    with pytest.raises(ArgumentError, match="comm and uid given"):
        shmem.shmem_init(object(), uid="x", rank=0, n_pes=1)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="expected all three or none"):
        shmem.shmem_init(uid="x", rank=0)
    with pytest.raises(ArgumentError, match="expected all three or none"):
        shmem.shmem_init(rank=0, n_pes=1)
    with pytest.raises(ArgumentError, match="'x' is not a job id of this library"):
        shmem.shmem_init(uid="x", rank=0, n_pes=1)


CONTAINER = ["unshare", "--pid", "--fork", "--mount-proc"]


def containers_work() -> bool:
    try:
        return (
            subprocess.run([*CONTAINER, "true"], check=False, capture_output=True).returncode == 0
        )
    except FileNotFoundError:
        return False


if containers_work():  # needs rights that not every machine gives

    @pytest.mark.parametrize("rails", ["0", "1"])
    def test_two_containers_with_one_host_name_are_no_node(rails: str) -> None:
        """Containers with one host name were taken for one node, and init died of the mapping.

        Here they share the kernel's boot id too: only a mapping that works makes a node.
        """
        script = """
import os, subprocess, sys
import railshmem as r
if sys.argv[1] == "1" and "INSIDE" not in os.environ:
    os.environ["INSIDE"] = "yes"
    sys.exit(subprocess.run([*CONTAINER, sys.executable, "-c", SCRIPT, *sys.argv[1:]]).returncode)
r.shmem_init(uid=os.environ["JOB_ID"], rank=int(sys.argv[1]), n_pes=2)
"""
        whole = f"CONTAINER = {CONTAINER!r}\nSCRIPT = {script!r}\n{script}"
        codes, _, errs = Job(2, whole, RAILSHMEM_RAILS=rails).finish()
        assert codes == [1, 1]
        for err in errs:
            assert "InitError" in err
            expected = "its memory cannot be mapped" if rails == "0" else "cannot open /proc/"
            assert expected in err
