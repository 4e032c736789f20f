"""Atomics, blocking and not (OpenSHMEM 1.5, section 9.7)."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np
import pytest
from mpi4py import MPI

import railshmem
from jobs import SHAPES, job, settings_of
from spec_arrays import WORD_TYPES, after, zeros

pytestmark = [pytest.mark.mpi(min_size=2), pytest.mark.parametrize("shape", SHAPES)]


class Words:
    """A word between two guards, on the next PE, and what it should hold."""

    def __init__(self, rt: railshmem.Runtime, dtype: type) -> None:
        self.rt = rt
        self.pe = after(rt)
        self.array = zeros(rt, 3, dtype)
        self.at = self.array[1:]
        self.expected = 0
        self.rt.barrier_all()

    def wrapped(self, value: int) -> int:
        """As the type holds it: sums wrap."""
        return int(
            np.array(value % 2 ** (8 * self.array.itemsize), np.uint64).astype(self.at.dtype)
        )

    def check(self) -> None:
        """Collective: what this PE did to the next one, its predecessor did here."""
        self.rt.barrier_all()
        assert self.array.tolist() == [0, self.expected, 0]
        self.rt.barrier_all()


def interesting(dtype: type) -> list[int]:
    limits = np.iinfo(dtype)
    return [int(limits.max), 1, int(limits.min), 0, 5, int(limits.max) - 3]


@pytest.mark.parametrize("dtype", WORD_TYPES)
def test_fetch_set_swap_and_compare_swap(comm: MPI.Intracomm, shape: str, dtype: type) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        words = Words(rt, dtype)
        for value in interesting(dtype):
            rt.atomic_set(words.at, value, words.pe)
            rt.quiet()
            assert rt.atomic_fetch(words.at, words.pe) == value
            other = words.wrapped(value + 9)
            assert rt.atomic_swap(words.at, other, words.pe) == value
            assert rt.atomic_compare_swap(words.at, value, 3, words.pe) == other
            assert rt.atomic_compare_swap(words.at, other, value, words.pe) == other
            words.expected = value
            words.check()


@pytest.mark.parametrize("dtype", WORD_TYPES)
def test_arithmetic_wraps(comm: MPI.Intracomm, shape: str, dtype: type) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        words = Words(rt, dtype)
        for value in interesting(dtype):
            before = words.expected
            assert rt.atomic_fetch_add(words.at, value, words.pe) == before
            rt.atomic_add(words.at, value, words.pe)
            before = words.wrapped(before + 2 * value)
            assert rt.atomic_fetch_inc(words.at, words.pe) == before
            rt.atomic_inc(words.at, words.pe)
            words.expected = words.wrapped(before + 2)
            words.check()


@pytest.mark.parametrize("dtype", WORD_TYPES)
def test_bits(comm: MPI.Intracomm, shape: str, dtype: type) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        words = Words(rt, dtype)
        for value in interesting(dtype):
            before = words.expected
            for fetching, update, op in (
                (rt.atomic_fetch_or, rt.atomic_or, operator.or_),
                (rt.atomic_fetch_xor, rt.atomic_xor, operator.xor),
                (rt.atomic_fetch_and, rt.atomic_and, operator.and_),
            ):
                assert fetching(words.at, value, words.pe) == before
                before = op(before, value)
                update(words.at, 11, words.pe)
                rt.quiet()
                before = op(before, 11)
                assert rt.atomic_fetch(words.at, words.pe) == before
            words.expected = before
            words.check()


@pytest.mark.parametrize("dtype", WORD_TYPES)
def test_results_of_nbi_forms_are_there_after_quiet(
    comm: MPI.Intracomm, shape: str, dtype: type
) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        words = Words(rt, dtype)
        top = int(np.iinfo(dtype).max)
        steps: list[tuple[Callable[..., None], tuple[int, ...], int]] = [
            (rt.atomic_fetch_nbi, (), 0),
            (rt.atomic_swap_nbi, (top,), top),
            (rt.atomic_compare_swap_nbi, (4, 9), top),  # 4 is not there
            (rt.atomic_compare_swap_nbi, (top, 12), 12),
            (rt.atomic_fetch_inc_nbi, (), 13),
            (rt.atomic_fetch_add_nbi, (5,), 18),
            (rt.atomic_fetch_and_nbi, (10,), 2),
            (rt.atomic_fetch_or_nbi, (5,), 7),
            (rt.atomic_fetch_xor_nbi, (1,), 6),
        ]
        fetched = np.full((len(steps), 2), 99, dtype)
        for row, (call, operands, _) in zip(fetched, steps, strict=True):
            call(row, words.at, *operands, words.pe)
            rt.fence()  # in the order posted, whatever the rail
        rt.quiet()
        assert fetched[:, 0].tolist() == [0, *(value for _, _, value in steps[:-1])]
        assert (fetched[:, 1] == 99).all()
        words.expected = 6
        words.check()


def test_floats_are_fetched_set_and_swapped(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        for dtype in (np.float32, np.float64):
            words = Words(rt, dtype)
            rt.atomic_set(words.at, -1.5, words.pe)
            rt.quiet()
            assert rt.atomic_swap(words.at, 0.25, words.pe) == -1.5
            fetched = np.zeros(2, dtype)
            rt.atomic_swap_nbi(fetched, words.at, 8.0, words.pe)
            rt.quiet()
            rt.atomic_fetch_nbi(fetched[1:], words.at, words.pe)
            rt.quiet()
            assert fetched.tolist() == [0.25, 8.0]
            words.expected = 8.0
            words.check()
            for refused in (rt.atomic_add, rt.atomic_fetch_xor):
                with pytest.raises(railshmem.ArgumentError, match="integer"):
                    refused(words.at, 1, words.pe)


@pytest.mark.parametrize("dtype", WORD_TYPES)
def test_atomics_of_all_pes_on_one_word_lose_nothing(
    comm: MPI.Intracomm, shape: str, dtype: type
) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        words = zeros(rt, 6, dtype)
        ors, xors, ands, sums, prize, seen = (words[i:] for i in range(6))
        if rt.my_pe == 0:
            ands[0] = 255
        rt.barrier_all()
        for bit in range(8):
            if bit % rt.n_pes == rt.my_pe:
                rt.atomic_or(ors, 1 << bit, 0)
                rt.atomic_xor(xors, 1 << bit, 0)
                rt.atomic_and(ands, 255 ^ (1 << bit), 0)
            rt.atomic_add(sums, bit, 0)
        won = rt.atomic_compare_swap(prize, 0, rt.my_pe + 1, 0) == 0
        rt.atomic_set(seen, 77, 0)
        rt.barrier_all()
        assert sum(comm.allgather(won)) == 1
        if rt.my_pe == 0:
            assert words.tolist()[:4] == [255, 255, 0, 28 * rt.n_pes]
            assert words[5] == 77
        winner = comm.allgather(won).index(True)
        assert rt.atomic_fetch(prize, 0) == winner + 1
