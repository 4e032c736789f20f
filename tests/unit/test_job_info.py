"""`railshmem info` stays readable: every pair of a small job, nodes of a large one."""

from __future__ import annotations

from typing import Any

import pytest

from railshmem.job_info import job_text, settings_text

GIB = 1 << 30


def job(n_pes: int, per_node: int, rails: int, device: str = "cpu") -> dict[str, Any]:
    """What Runtime.info returns, as plain data."""

    def gpu(pe: int) -> dict[str, Any] | None:
        if device == "cpu":
            return None
        facts = {"name": "fast card", "architecture": "sm_90", "memory_bytes": 80 * GIB}
        return {"index": pe % per_node, "bus_id": f"0000:0{pe % per_node}:00.0", **facts}

    can = {"atomics": True, "ordered": False, "max_inline": 28}
    pes = [
        {
            "pe": pe,
            "host": f"host{pe // per_node}",
            "boot_id": f"boot{pe // per_node}",
            "pid": 1000 + pe,
            "node": pe // per_node,
            "local_index": pe % per_node,
            "home_rail": pe % per_node % rails,
            "gpu": gpu(pe),
            "device_reason": f"number {pe % per_node} of this host's PEs" if gpu(pe) else "no GPU",
            "nics": [
                {"name": f"emu{r}", "rail": r, "answers": True, "capabilities": can}
                for r in range(rails)
            ],
        }
        for pe in range(n_pes)
    ]

    def pair(a: int, b: int) -> dict[str, Any]:
        if a // per_node == b // per_node:
            return {"path": "P2P", "rail": -1, "reason": "same node: heap mapped"}
        rail = (a + b) % rails
        return {"path": "PROXY", "rail": rail, "reason": f"other host: rail {rail} (isolated)"}

    return {
        "device": device,
        "nic_provider": "emulated",
        "nic_reason": "RAILSHMEM_NODES splits the job",
        "pes": pes,
        "n_nodes": n_pes // per_node,
        "pairs": [[pair(a, b) for b in range(n_pes)] for a in range(n_pes)],
        "queue_pairs": 12,
        "lanes": 1,
        "progress_thread": True,
        "settings": {},
    }


def test_a_small_job_shows_every_pair() -> None:
    text = job_text(job(4, per_node=2, rails=2))
    assert text.startswith("4 PEs on 2 nodes, 2 machines (host0, host1)")
    assert "atomics, no ordered, max inline 28" in text
    assert "0 self P2P PROXY r0 PROXY r1" in " ".join(text.split())
    assert len(text.splitlines()) < 40


def test_nics_of_different_rails_cannot_reach_each_other() -> None:
    plain = job(4, per_node=2, rails=2)
    plain["pes"][2]["nics"][1]["answers"] = False
    text = " ".join(job_text(plain).split())
    assert "NICs (emulated: RAILSHMEM_NODES splits the job)" in text
    assert "0: emu0 - - rail 0 other rail" in text
    assert "0: emu1 - - other rail no answer" in text
    assert "NO ANSWER" in text


def test_heaps_in_host_memory_say_why() -> None:
    text = job_text(job(2, per_node=2, rails=1))
    assert "heaps in host memory: no GPU" in text
    assert "GPUs" not in text


def test_gpus_have_a_row_for_each_pe() -> None:
    text = " ".join(job_text(job(4, per_node=2, rails=1, device="cuda")).split())
    assert "heaps in GPU memory (cuda)" in text
    assert "3 1 fast card (sm_90) 80.0 GiB 0000:01:00.0 number 1 of this host's PEs" in text


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(("n_pes", "per_node"), [(64, 8), (256, 8)])
def test_a_large_job_stays_compact(n_pes: int, per_node: int, device: str) -> None:
    text = job_text(job(n_pes, per_node, rails=8, device=device))
    assert len(text.splitlines()) < 30 + 2 * n_pes // per_node
    assert max(map(len, text.splitlines())) <= 118
    assert "0-7" in text  # the PEs of node 0, as a range
    # One group of reasons each for P2P and PROXY, whatever the rails.
    assert text.count("same node: heap mapped") == 1
    assert text.count("other host: rail N (isolated)") == 1


def test_the_settings_are_listed() -> None:
    assert "RAILSHMEM_HEAP_SIZE" in settings_text()
