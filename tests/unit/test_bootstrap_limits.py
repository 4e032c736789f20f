"""Init in processes that may open few files: what nobody needs may fail, and the rest says why."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
import os, resource, sys
import railshmem as r
alone = r.ThreadBootstrap(r.ThreadJob(1), 0)
rails, room = int(sys.argv[1]), int(sys.argv[2])
next_free = os.dup(0)
os.close(next_free)
resource.setrlimit(resource.RLIMIT_NOFILE, (next_free + room, next_free + room))
runtime = r.Runtime(alone, {"RAILSHMEM_RAILS": str(rails), "RAILSHMEM_HEAP_SIZE": "4M"})
pe = runtime.info()["pes"][0]
print(len(pe["nics"]), pe["no_nics"])
"""


def init(rails: int, room: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, str(rails), str(room)],
        env={k: v for k, v in os.environ.items() if not k.startswith("RAILSHMEM_")},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_nic_that_nobody_needs_may_fail() -> None:
    """init aborted because a NIC that nobody needed could not register memory."""
    good = init(rails=2, room=100)
    assert (good.returncode, good.stdout) == (0, "2 \n"), good.stderr
    few = init(rails=2, room=1)  # for the heap
    assert few.returncode == 0, few.stderr
    assert few.stdout.startswith("0 ")
    assert "Too many open files" in few.stdout


def test_a_process_without_room_for_its_heap_says_so() -> None:
    none = init(rails=0, room=0)
    assert none.returncode == 1
    assert "Too many open files" in none.stderr
