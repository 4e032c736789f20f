"""Checks of what moves data: puts, gets, signals, order and barriers.

Each is collective, returns what this PE found wrong, and lets the library's errors out.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np

from railshmem import SHMEM_CMP_GE, SHMEM_SIGNAL_ADD, SHMEM_SIGNAL_SET
from railshmem.check.fabric import GUARD_BYTE, LARGE, MIB, Fabric, compared, extent, picture, pieces
from railshmem.check.findings import difference

SIGNAL_SIZES = (1, 8, 100, 4096, LARGE + 1, MIB)
LANE_SIZES = (8, 4096, LARGE + 1)
ORDER_ROUNDS = 100
BARRIERS = 50


def heap(fabric: Fabric) -> list[str]:
    """Every PE's heap is reached at its first and last word, and is the heap of the right PE."""
    run = fabric.runtime
    problems = []
    with fabric.array(MIB, np.uint64) as block, fabric.array(fabric.n_pes, np.uint64) as told:
        block[0] = block[-1] = 1000 + fabric.me
        run.barrier_all()
        for target, _ in fabric.rounds():
            expected = np.full(1, 1000 + target, np.uint64)
            for at in (0, block.size - 1):
                seen = np.zeros(1, np.uint64)
                run.get(seen, block[at : at + 1], target)
                found = difference(seen, expected)
                if found:
                    problems.append(f"{fabric.pair(fabric.me, target)}: word {at} read: {found}")
            run.put(
                told[fabric.me : fabric.me + 1], np.full(1, 2000 + fabric.me, np.uint64), target
            )
        run.barrier_all()
        found = difference(told, np.arange(2000, 2000 + fabric.n_pes, dtype=np.uint64))
        if found:
            problems.append(f"PE {fabric.me}: words told by all PEs: {found}")
    return problems


def put_private(fabric: Fabric) -> list[str]:
    """Puts from memory that no NIC knows, every size and alignment."""
    return _put(fabric, from_heap=False)


def put_heap(fabric: Fabric) -> list[str]:
    """Puts from the symmetric heap, every size and alignment."""
    return _put(fabric, from_heap=True)


def _put(fabric: Fabric, *, from_heap: bool) -> list[str]:
    run = fabric.runtime
    layout = pieces()
    room = extent(layout)
    problems = []
    with (
        fabric.array(room) as there,
        fabric.array(room + 5) if from_heap else nullcontext(np.empty(room + 5, np.uint8)) as home,
    ):
        source = home[5:]  # aligned otherwise than its target
        for target, sender in fabric.rounds():
            there[:] = GUARD_BYTE
            source[:] = picture(layout, _seed(fabric.me, target))
            run.barrier_all()
            for start, size in layout:
                run.put(there[start : start + size], source[start : start + size], target)
            run.barrier_all()
            expected = picture(layout, _seed(sender, fabric.me))
            found = compared(there, expected, layout)
            problems += [f"{fabric.pair(sender, fabric.me)}: put of {text}" for text in found]
    return problems


def get(fabric: Fabric) -> list[str]:
    """Gets into private memory and into the heap, every size and alignment."""
    run = fabric.runtime
    layout = pieces()
    room = extent(layout)
    problems = []
    with fabric.array(room) as there, fabric.array(room + 5) as in_heap:
        there[:] = picture(layout, fabric.me)
        run.barrier_all()
        for target, _ in fabric.rounds():
            expected = picture(layout, target)
            for name, home in (("the heap", in_heap), ("private memory", np.empty_like(in_heap))):
                into = home[5:]
                into[:] = GUARD_BYTE
                for start, size in layout:
                    run.get(into[start : start + size], there[start : start + size], target)
                found = compared(into, expected, layout)
                pair = fabric.pair(fabric.me, target)
                problems += [f"{pair}: get into {name} of {text}" for text in found]
    return problems


def signal_set(fabric: Fabric) -> list[str]:
    """Whoever sees a signal that was SET sees the data that it announces."""
    return _signal(fabric, SHMEM_SIGNAL_SET)


def signal_add(fabric: Fabric) -> list[str]:
    """Whoever sees a signal that was ADDed sees the data that it announces."""
    return _signal(fabric, SHMEM_SIGNAL_ADD)


def _signal(fabric: Fabric, op: Any) -> list[str]:
    run = fabric.runtime
    layout = pieces(SIGNAL_SIZES)
    room = extent(layout)
    problems = []
    with fabric.array(room) as there, fabric.array(1, np.uint64) as signal:
        for target, sender in fabric.rounds():
            there[:] = GUARD_BYTE
            signal[:] = 0
            run.barrier_all()
            source = picture(layout, _seed(fabric.me, target))
            for number, (start, size) in enumerate(layout, 1):
                value = number if op == SHMEM_SIGNAL_SET else 1
                part = slice(start, start + size)
                run.put_signal(there[part], source[part], signal, value, op, target)
            expected = picture(layout, _seed(sender, fabric.me))
            name = fabric.pair(sender, fabric.me)
            for number, piece in enumerate(layout, 1):
                run.signal_wait_until(signal, SHMEM_CMP_GE, number)
                part = slice(piece.start, piece.start + piece.size)
                found = difference(there[part], expected[part])
                if found:
                    problems.append(f"{name}: signal {number} came before {piece}: {found}")
            run.barrier_all()
            found = difference(signal, np.full(1, len(layout), np.uint64))
            if found:
                problems.append(f"{name}: the signal in the end: {found}")
    return problems


def lanes(fabric: Fabric) -> list[str]:
    """Contexts on every lane, and so on every rail, put, signal and get."""
    run = fabric.runtime
    layout = pieces(LANE_SIZES)
    room = extent(layout)
    problems = []
    # Contexts take the lanes in turn.
    contexts = [run.ctx_create() for _ in range(fabric.n_lanes)]
    with (
        fabric.array(room * len(contexts)) as there,
        fabric.array(len(contexts), np.uint64) as signals,
    ):
        for target, sender in fabric.rounds():
            there[:] = GUARD_BYTE
            signals[:] = 0
            run.barrier_all()
            for lane, context in enumerate(contexts):
                mine = there[lane * room : (lane + 1) * room]
                source = picture(layout, _seed(fabric.me, target) + lane)
                for start, size in layout:
                    context.put(mine[start : start + size], source[start : start + size], target)
                context.fence()
                signal = signals[lane : lane + 1]
                context.put_signal(mine[:0], source[:0], signal, 1, SHMEM_SIGNAL_SET, target)
            for lane in range(len(contexts)):
                run.signal_wait_until(signals[lane : lane + 1], SHMEM_CMP_GE, 1)
                expected = picture(layout, _seed(sender, fabric.me) + lane)
                found = compared(there[lane * room : (lane + 1) * room], expected, layout)
                name = f"{fabric.pair(sender, fabric.me)}, lane {lane}"
                problems += [f"{name}: put of {text}" for text in found]
            run.barrier_all()
            for lane, context in enumerate(contexts):
                back = np.zeros(room, np.uint8)
                context.get(back, there[lane * room : (lane + 1) * room], target)
                expected = picture(layout, _seed(fabric.me, target) + lane)
                found = compared(back, expected, layout)
                name = f"{fabric.pair(fabric.me, target)}, lane {lane}"
                problems += [f"{name}: get of {text}" for text in found]
            run.barrier_all()
    for context in contexts:
        context.destroy()
    return problems


def order(fabric: Fabric) -> list[str]:
    """What was put before a fence is there once a word put after it is."""
    run = fabric.runtime
    width = 64
    problems = []
    with (
        fabric.array(ORDER_ROUNDS * width, np.uint64) as data,
        fabric.array(1, np.uint64) as flag,
    ):
        for target, sender in fabric.rounds():
            data[:] = 0
            flag[:] = 0
            run.barrier_all()
            for number in range(1, ORDER_ROUNDS + 1):
                place = data[(number - 1) * width : number * width]
                run.put(place, np.full(width, number, np.uint64), target)
                run.fence()
                run.put(flag, np.full(1, number, np.uint64), target)
            for number in range(1, ORDER_ROUNDS + 1):
                run.wait_until(flag, SHMEM_CMP_GE, number)
                place = data[(number - 1) * width : number * width]
                found = difference(place, np.full(width, number, np.uint64))
                if found:
                    pair = fabric.pair(sender, fabric.me)
                    problems.append(f"{pair}: word {number} came before its data: {found}")
            run.barrier_all()
    return problems


def barrier(fabric: Fabric) -> list[str]:
    """After a barrier every PE has come, and what it put before is there."""
    run = fabric.runtime
    problems = []
    with fabric.array(fabric.n_pes, np.uint64) as told:
        for number in range(1, BARRIERS + 1):
            mine = np.full(1, number, np.uint64)
            for target, _ in fabric.rounds():
                run.put(told[fabric.me : fabric.me + 1], mine, target)
            run.barrier_all()
            found = difference(told, np.full(fabric.n_pes, number, np.uint64))
            if found:
                problems.append(f"PE {fabric.me}, barrier {number}: word of PE at {found}")
            run.barrier_all()
    return problems


def _seed(source: int, target: int) -> int:
    return source * 100_003 + target
