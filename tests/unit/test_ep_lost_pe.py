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
# Where PE 2 sleeps until it is killed -> what the others were doing.
PLACES: dict[str, tuple[str, str | dict[str, str]]] = {
    "before dispatch": (
        "{sleep}; e.dispatch(tokens, indices, weights)",
        "(in dispatch, dispatch 2)",
    ),
    "between the halves of dispatch": (
        "p = e.dispatch_send(tokens, indices, weights); {sleep}; d = e.dispatch_recv(p); "
        "e.combine(d.tokens, d.handle)",
        # In one node its rows are there, and combine is the first to miss it.
        {"0": "(in combine, dispatch 2)", "2": "(in dispatch, dispatch 2)"},
    ),
    "before a dispatch by a known routing": (
        "{sleep}; e.dispatch(tokens, handle=first.handle)",
        "(in dispatch, dispatch 2)",
    ),
    "before combine": (
        "d = e.dispatch(tokens, indices, weights); {sleep}; e.combine(d.tokens, d.handle)",
        "(in combine, dispatch 2)",
    ),
}


@pytest.mark.parametrize("layout", ["contiguous", "expert-major"])
@pytest.mark.parametrize("nodes", ["0", "2"])
@pytest.mark.parametrize("place", PLACES)
def test_a_pe_killed_in_an_exchange_is_named_with_the_phase(
    place: str, nodes: str, layout: str
) -> None:
    """A PE died in the middle of dispatch, and the others waited for ever."""
    calls, where = PLACES[place]
    setup = SETUP.replace("LAYOUT", repr(layout))
    # One line, in which PE 2 stays where it is told to.
    body = calls.format(sleep="time.sleep(1000 if me == 2 else 0)")
    phase = where if isinstance(where, str) else where[nodes]
    message = f"the process of PE 2 has ended; restart the job {phase}"
    kill_pe_2(setup + READY + body, message, RAILSHMEM_NODES=nodes)
