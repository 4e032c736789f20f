"""Checks of every atomic: its result and its effect, against arithmetic in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from railshmem import Runtime
from railshmem.check.fabric import Fabric

CONTENDED_ADDS = 100


class Step(NamedTuple):
    """One call on a word: what it returns (None: nothing) and what the word is afterwards."""

    name: str
    call: Callable[[Runtime, Any, int], int | None]
    returns: int | None
    after: int


def steps(bits: int) -> list[Step]:
    """A walk through all atomics of words of 32 or 64 bits, from a word of 0."""
    mask = (1 << bits) - 1
    high = 1 << (bits - 1)
    word = 0
    out: list[Step] = []

    def update(name: str, operand: int, result: int) -> None:
        nonlocal word
        word = result & mask
        method = f"atomic_{name}"
        out.append(Step(name, lambda r, w, pe: getattr(r, method)(w, operand, pe), None, word))

    def fetch(name: str, operand: int, result: int) -> None:
        nonlocal word
        before, word = word, result & mask
        method = f"atomic_{name}"
        out.append(Step(name, lambda r, w, pe: getattr(r, method)(w, operand, pe), before, word))

    def swap_if(condition: int, operand: int) -> None:
        nonlocal word
        before = word
        word = operand if before == condition else before
        out.append(
            Step(
                "compare_swap",
                lambda r, w, pe: r.atomic_compare_swap(w, condition, operand, pe),
                before,
                word,
            )
        )

    update("set", high | 0x1234, high | 0x1234)
    out.append(Step("fetch", lambda r, w, pe: r.atomic_fetch(w, pe), word, word))
    update("add", 0x111, word + 0x111)
    fetch("fetch_add", high, word + high)  # carries out of the word
    out.append(Step("inc", lambda r, w, pe: r.atomic_inc(w, pe), None, word + 1))
    out.append(Step("fetch_inc", lambda r, w, pe: r.atomic_fetch_inc(w, pe), word + 1, word + 2))
    word += 2
    update("or", high | 0xF0F0, word | high | 0xF0F0)
    fetch("fetch_or", 0x0F0F, word | 0x0F0F)
    update("and", high | 0xFF00, word & (high | 0xFF00))
    fetch("fetch_and", mask - 0x0F00, word & (mask - 0x0F00))
    update("xor", mask, word ^ mask)
    fetch("fetch_xor", high | 0x5A5A, word ^ (high | 0x5A5A))
    fetch("swap", high | 0x77, high | 0x77)
    swap_if(0x77, 1)  # does not fit
    swap_if(high | 0x77, mask)
    fetch("fetch_add", 1, word + 1)  # mask + 1 is 0 again
    return out


def atomics_32(fabric: Fabric) -> list[str]:
    """Every atomic on words of 32 bits."""
    return _atomics(fabric, 32)


def atomics_64(fabric: Fabric) -> list[str]:
    """Every atomic on words of 64 bits."""
    return _atomics(fabric, 64)


def _atomics(fabric: Fabric, bits: int) -> list[str]:
    dtype = np.dtype(f"u{bits // 8}")
    problems = []
    # A word per source, and a neighbour on either side that nobody may touch.
    with fabric.array(2 * fabric.n_pes + 1, dtype) as words:
        for target, _ in fabric.rounds():
            at = 2 * fabric.me + 1
            word = words[at : at + 1]
            for step in steps(bits):
                returned = step.call(fabric.runtime, word, target)
                fabric.runtime.quiet()  # an update may be overtaken until it is complete
                after = fabric.runtime.atomic_fetch(word, target)
                pair = fabric.pair(fabric.me, target)
                for what, expected, seen in (
                    ("returned", step.returns, returned),
                    ("left", step.after, after),
                ):
                    if expected is not None and seen != expected:
                        problems.append(
                            f"{pair}: {step.name} of {bits} bits {what} {seen:#x}, "
                            f"expected {expected:#x}"
                        )
        fabric.runtime.barrier_all()
        touched = np.flatnonzero(words[::2])
        if touched.size:
            problems.append(f"PE {fabric.me}: word {2 * touched[0]} beside an atomic was written")
    return problems


def contention(fabric: Fabric) -> list[str]:
    """All PEs add to the same words: no addition is lost, and no PE goes back."""
    problems = []
    with fabric.array(fabric.n_pes, np.uint64) as words:
        for target, _ in fabric.rounds():
            latest = -1
            for _ in range(CONTENDED_ADDS):
                before = fabric.runtime.atomic_fetch_add(words[target : target + 1], 1, target)
                if before <= latest:
                    problems.append(
                        f"{fabric.pair(fabric.me, target)}: fetch_add returned {before} "
                        f"after {latest}"
                    )
                latest = before
        fabric.runtime.barrier_all()
        expected = CONTENDED_ADDS * fabric.n_pes
        total = fabric.runtime.atomic_fetch(words[fabric.me : fabric.me + 1], fabric.me)
        if total != expected:
            problems.append(
                f"PE {fabric.me}: {fabric.n_pes} PEs added {expected} in all, the word has {total}"
            )
    return problems
