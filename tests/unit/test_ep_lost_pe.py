"""A PE that dies in the middle of an exchange: the others raise, naming it and where they were."""

from __future__ import annotations

import pytest

from test_job_end import READY, kill_pe_2

SETUP = """
e = ep.ExpertParallel(hidden=64, experts=9, topk=3, max_tokens=16, dtype=np.float32, handles=2,
                      layout=LAYOUT)
tokens, weights = np.ones((16, 64), np.float32), np.ones((16, 3), np.float32)
indices = np.arange(48).reshape(16, 3) % 9
first = e.dispatch(tokens, indices, weights)
e.combine(first.tokens, first.handle)
"""
# What PEs do before PE 2 falls asleep, to be killed; what they do then; what the others were in.
PLACES = {
    "before dispatch": (
        "",
        "e.dispatch(tokens, indices, weights)",
        {"0": "dispatch", "2": "dispatch"},
    ),
    "between the halves of dispatch": (
        "p = e.dispatch_send(tokens, indices, weights)",
        "d = e.dispatch_recv(p); e.combine(d.tokens, d.handle)",
        # In one node its rows are there, and combine is the first to miss it. In two, its node
        # misses rows that it forwards, and the other node its combine, whichever is faster.
        {"0": "combine", "2": ""},
    ),
    "before a dispatch by a known routing": (
        "",
        "e.dispatch(tokens, handle=first.handle)",
        {"0": "dispatch", "2": "dispatch"},
    ),
    "before combine": (
        "d = e.dispatch(tokens, indices, weights)",
        "e.combine(d.tokens, d.handle)",
        {"0": "combine", "2": "combine"},
    ),
}
SLEEP = "time.sleep(1000 if me == 2 else 0)"


@pytest.mark.parametrize("layout", ["contiguous", "expert-major"])
@pytest.mark.parametrize("nodes", ["0", "2"])
@pytest.mark.parametrize("place", PLACES)
def test_a_pe_killed_in_an_exchange_is_named_with_the_phase(
    place: str, nodes: str, layout: str
) -> None:
    """A PE died in the middle of dispatch, and the others waited for ever."""
    before, after, phases = PLACES[place]
    setup = SETUP.replace("LAYOUT", repr(layout))
    script = "\n".join([setup, before, READY, SLEEP, after])
    phase = phases[nodes]
    where = f"(in {phase}, dispatch 2)" if phase else "(in "
    message = f"the process of PE 2 has ended; restart the job {where}"
    kill_pe_2(script, message, RAILSHMEM_NODES=nodes)
