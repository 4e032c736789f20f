"""`railshmem info` stays readable: every pair of a small job, nodes of a large one."""

from __future__ import annotations

from typing import Any

import pytest

from railshmem.job_info import job_text, settings_text


def job(n_pes: int, per_node: int, rails: int) -> dict[str, Any]:
    """What Runtime.info returns, as plain data."""
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
            "nics": [{"name": f"emu{r}", "rail": r, "capabilities": can} for r in range(rails)],
        }
        for pe in range(n_pes)
    ]

    def pair(a: int, b: int) -> dict[str, Any]:
        if a // per_node == b // per_node:
            return {"path": "P2P", "rail": -1, "reason": "same node: heap mapped"}
        rail = (a + b) % rails
        return {"path": "PROXY", "rail": rail, "reason": f"other host: rail {rail} (isolated)"}

    return {
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
    assert len(text.splitlines()) < 30


@pytest.mark.parametrize(("n_pes", "per_node"), [(64, 8), (256, 8)])
def test_a_large_job_stays_compact(n_pes: int, per_node: int) -> None:
    text = job_text(job(n_pes, per_node, rails=8))
    assert len(text.splitlines()) < 30 + 2 * n_pes // per_node
    assert max(map(len, text.splitlines())) <= 118
    assert "0-7" in text  # the PEs of node 0, as a range
    # One group of reasons each for P2P and PROXY, whatever the rails.
    assert text.count("same node: heap mapped") == 1
    assert text.count("other host: rail N (isolated)") == 1


def test_the_settings_are_listed() -> None:
    assert "RAILSHMEM_HEAP_SIZE" in settings_text()
