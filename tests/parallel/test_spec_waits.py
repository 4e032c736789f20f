"""Point-to-point synchronisation (OpenSHMEM 1.5, section 9.10)."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

import railshmem
from jobs import SHAPES, job, settings_of
from railshmem import (
    SHMEM_CMP_EQ,
    SHMEM_CMP_GE,
    SHMEM_CMP_GT,
    SHMEM_CMP_LE,
    SHMEM_CMP_LT,
    SHMEM_CMP_NE,
)
from spec_arrays import WORD_TYPES, after, zeros

pytestmark = [pytest.mark.mpi(min_size=2), pytest.mark.parametrize("shape", SHAPES)]

COUNT = 7
EVERY = list(range(COUNT))
OMITTED = [0, 1, 0, 0, 1, 0, 0]  # a status: words 1 and 4 take no part
LEFT = [0, 2, 3, 5, 6]


def edge(dtype: type) -> int:
    """Negative where there is a sign, beyond the signed range where there is none."""
    limits = np.iinfo(dtype)
    return int(limits.min) + 5 if limits.min < 0 else int(limits.max) - 5


def holding(value: int) -> list[tuple[object, int]]:
    """The six comparisons, each with an operand for which `value` satisfies it."""
    return [
        (SHMEM_CMP_EQ, value),
        (SHMEM_CMP_NE, value + 1),
        (SHMEM_CMP_GT, value - 1),
        (SHMEM_CMP_GE, value),
        (SHMEM_CMP_LT, value + 1),
        (SHMEM_CMP_LE, value),
    ]


def failing(value: int) -> list[tuple[object, int]]:
    return [
        (SHMEM_CMP_EQ, value + 1),
        (SHMEM_CMP_NE, value),
        (SHMEM_CMP_GT, value),
        (SHMEM_CMP_GE, value + 1),
        (SHMEM_CMP_LT, value),
        (SHMEM_CMP_LE, value - 1),
    ]


@pytest.mark.parametrize("dtype", WORD_TYPES)
def test_wait_until_takes_what_the_six_comparisons_hold_for(
    comm: MPI.Intracomm, shape: str, dtype: type
) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        word = zeros(rt, 2, dtype)
        for value in (edge(dtype), 7):
            rt.barrier_all()
            rt.p(word, value, after(rt))
            assert rt.wait_until(word, SHMEM_CMP_EQ, value) == value
            for compare, operand in holding(value):
                assert rt.wait_until(word, compare, operand) == value
        assert word[1] == 0
        rt.barrier_all()


@pytest.mark.parametrize("dtype", WORD_TYPES)
def test_test_tells_the_six_comparisons_apart(comm: MPI.Intracomm, shape: str, dtype: type) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        word = zeros(rt, 1, dtype)
        for value in (edge(dtype), 7):
            word[0] = value
            for compare, operand in holding(value):
                assert rt.test(word, compare, operand) is True
            for compare, operand in failing(value):
                assert rt.test(word, compare, operand) is False
        rt.barrier_all()
        rt.p(word, 9, after(rt))
        while not rt.test(word, SHMEM_CMP_EQ, 9):  # the peer's put comes without a wait
            pass
        rt.barrier_all()


class Arrivals:
    """Words that the previous PE sets one by one, in an order that differs from PE to PE."""

    def __init__(self, rt: railshmem.Runtime, dtype: type) -> None:
        self.rt = rt
        self.words = zeros(rt, COUNT, dtype)
        self.values = [edge(dtype) + index % 3 for index in EVERY]
        self.order = np.random.default_rng(rt.my_pe).permutation(COUNT).tolist()

    def send(self, indices: list[int]) -> None:
        for index in self.order:
            if index in indices:
                self.rt.p(self.words[index:], self.values[index], after(self.rt))

    def again(self) -> None:
        self.rt.barrier_all()
        self.words[:] = 0
        self.rt.barrier_all()


@pytest.mark.parametrize("dtype", WORD_TYPES)
def test_wait_until_all_waits_for_every_word_that_takes_part(
    comm: MPI.Intracomm, shape: str, dtype: type
) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        arrivals = Arrivals(rt, dtype)
        words, values = arrivals.words, arrivals.values
        arrivals.send(EVERY)
        assert rt.wait_until_all(words, None, SHMEM_CMP_NE, 0) is None
        assert words.tolist() == values
        arrivals.again()
        arrivals.send(LEFT)
        rt.wait_until_all(words, OMITTED, SHMEM_CMP_NE, 0)
        assert [index for index in EVERY if words[index]] == LEFT
        arrivals.again()
        arrivals.send(LEFT)
        rt.wait_until_all_vector(words, np.array(OMITTED, np.int32), SHMEM_CMP_EQ, values)
        assert words[LEFT].tolist() == [values[index] for index in LEFT]
        # Nobody takes part: satisfied at once.
        rt.wait_until_all(words, [1] * COUNT, SHMEM_CMP_EQ, 77)
        rt.wait_until_all_vector(words[:0], None, SHMEM_CMP_EQ, [])
        rt.barrier_all()


@pytest.mark.parametrize("dtype", WORD_TYPES)
def test_wait_until_any_finds_each_word_once(comm: MPI.Intracomm, shape: str, dtype: type) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        arrivals = Arrivals(rt, dtype)
        words, values = arrivals.words, arrivals.values
        for vector in (False, True):
            arrivals.send(LEFT)
            status = list(OMITTED)
            found = []
            for _ in LEFT:
                index = (
                    rt.wait_until_any_vector(words, status, SHMEM_CMP_EQ, values)
                    if vector
                    else rt.wait_until_any(words, status, SHMEM_CMP_NE, 0)
                )
                assert words[index] == values[index]
                found.append(index)
                status[index] = 1
            assert sorted(found) == LEFT
            assert rt.wait_until_any(words, status, SHMEM_CMP_NE, 0) is None
            assert rt.wait_until_any_vector(words, status, SHMEM_CMP_EQ, values) is None
            arrivals.again()
        assert rt.wait_until_any(words[:0], None, SHMEM_CMP_EQ, 0) is None


@pytest.mark.parametrize("dtype", WORD_TYPES)
def test_wait_until_some_finds_each_word_once(comm: MPI.Intracomm, shape: str, dtype: type) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        arrivals = Arrivals(rt, dtype)
        words, values = arrivals.words, arrivals.values
        for vector in (False, True):
            arrivals.send(LEFT)
            status = list(OMITTED)
            found: list[int] = []
            while len(found) < len(LEFT):
                indices = (
                    rt.wait_until_some_vector(words, status, SHMEM_CMP_EQ, values)
                    if vector
                    else rt.wait_until_some(words, status, SHMEM_CMP_NE, 0)
                )
                assert indices.dtype == np.int64
                assert indices.size > 0
                assert words[indices].tolist() == [values[index] for index in indices]
                found += indices.tolist()
                for index in indices:
                    status[index] = 1
            assert sorted(found) == LEFT
            assert rt.wait_until_some(words, status, SHMEM_CMP_NE, 0).size == 0
            assert rt.wait_until_some_vector(words, status, SHMEM_CMP_EQ, values).size == 0
            arrivals.again()
        assert rt.wait_until_some(words[:0], None, SHMEM_CMP_EQ, 0).size == 0


@pytest.mark.parametrize("dtype", WORD_TYPES)
def test_test_all_any_and_some_look_once(comm: MPI.Intracomm, shape: str, dtype: type) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        arrivals = Arrivals(rt, dtype)
        words, values = arrivals.words, arrivals.values
        assert rt.test_all(words, None, SHMEM_CMP_NE, 0) is False
        assert rt.test_all_vector(words, OMITTED, SHMEM_CMP_EQ, values) is False
        assert rt.test_any(words, None, SHMEM_CMP_NE, 0) is None
        assert rt.test_any_vector(words, None, SHMEM_CMP_EQ, values) is None
        assert rt.test_some(words, None, SHMEM_CMP_NE, 0).tolist() == []
        assert rt.test_some_vector(words, OMITTED, SHMEM_CMP_EQ, values).tolist() == []
        rt.barrier_all()
        arrivals.send([2, 4, 5])
        rt.barrier_all()
        assert rt.test_some(words, None, SHMEM_CMP_NE, 0).tolist() == [2, 4, 5]
        assert rt.test_some(words, OMITTED, SHMEM_CMP_NE, 0).tolist() == [2, 5]
        assert rt.test_some_vector(words, OMITTED, SHMEM_CMP_EQ, values).tolist() == [2, 5]
        # In turn, so that no word is passed over for ever.
        assert {rt.test_any(words, OMITTED, SHMEM_CMP_NE, 0) for _ in range(4)} == {2, 5}
        found = {rt.test_any_vector(words, None, SHMEM_CMP_EQ, values) for _ in range(6)}
        assert found == {2, 4, 5}
        assert rt.test_all(words, [0 if i in (2, 4, 5) else 1 for i in EVERY], SHMEM_CMP_NE, 0)
        rt.barrier_all()
        arrivals.send(EVERY)
        rt.barrier_all()
        assert rt.test_all(words, None, SHMEM_CMP_NE, 0) is True
        assert rt.test_all_vector(words, None, SHMEM_CMP_EQ, values) is True
        other = [*values[:-1], values[-1] + 1]
        assert rt.test_all_vector(words, None, SHMEM_CMP_EQ, other) is False
        # Nothing takes part.
        none = [1] * COUNT
        assert rt.test_all(words, none, SHMEM_CMP_EQ, 77) is True
        assert rt.test_any(words, none, SHMEM_CMP_NE, 0) is None
        assert rt.test_some(words, none, SHMEM_CMP_NE, 0).size == 0
        assert rt.test_any_vector(words[:0], None, SHMEM_CMP_EQ, []) is None
        rt.barrier_all()


def test_bad_arguments_of_waits_name_what_is_wrong(comm: MPI.Intracomm, shape: str) -> None:
    with job(comm, settings_of(shape, comm.size)) as rt:
        words = zeros(rt, 4, np.int32)
        with pytest.raises(railshmem.ArgumentError, match="expected 4, one for each"):
            rt.wait_until_all(words, [0, 0], SHMEM_CMP_EQ, 0)
        with pytest.raises(railshmem.ArgumentError, match="cmp_values has 2"):
            rt.test_any_vector(words, None, SHMEM_CMP_EQ, [0, 0])
        with pytest.raises(railshmem.ArgumentError, match="does not fit a signed integer of 32"):
            rt.wait_until(words, SHMEM_CMP_EQ, 1 << 31)
        with pytest.raises(railshmem.ArgumentError, match="32 or 64 bits"):
            rt.test(zeros(rt, 1, np.int16), SHMEM_CMP_EQ, 0)
        with pytest.raises(railshmem.ArgumentError, match="not inside the symmetric heap"):
            rt.wait_until_some(np.zeros(4, np.int32), None, SHMEM_CMP_EQ, 0)
