"""Operations on streams beside the default one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from types import SimpleNamespace

import numpy as np
import pytest
from gpu_memory import finish, new_stream
from mpi4py import MPI

from jobs import job, settings_of
from railshmem import SHMEM_CMP_GE, SHMEM_SIGNAL_ADD, symmetric_array
from spec_arrays import after, before, sample, zeros


class OfCudaCore:
    def __init__(self, stream: int) -> None:
        self._stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self._stream)


FORMS: dict[str, Callable[[int], object]] = {
    "a number": lambda stream: stream,
    "of torch": lambda stream: SimpleNamespace(cuda_stream=stream),
    "of cupy": lambda stream: SimpleNamespace(ptr=stream),
    "of cuda.core": OfCudaCore,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_library_s_stream_is_taken(comm: MPI.Intracomm, form: str) -> None:
    with job(comm, settings_of("one node", comm.size)) as rt, new_stream(rt.device_index) as raw:
        stream = FORMS[form](raw)
        inbox = zeros(rt, 50_000, np.int32)
        mine = symmetric_array(rt, 50_000, np.int32)
        mine[:] = sample(np.int32, 50_000, rt.my_pe)
        signal = zeros(rt, 1, np.uint64)
        rt.barrier_all_on_stream(stream=stream)
        rt.put_signal_on_stream(inbox, mine, signal, 1, SHMEM_SIGNAL_ADD, after(rt), stream=stream)
        rt.signal_wait_until_on_stream(signal, SHMEM_CMP_GE, 1, stream=stream)
        rt.get_on_stream(mine, inbox, rt.my_pe, stream=stream)
        rt.quiet_on_stream(stream=stream)
        finish(raw)
        np.testing.assert_array_equal(mine, sample(np.int32, 50_000, before(rt)))
        rt.barrier_all()


def test_streams_put_and_ring_at_the_same_time(comm: MPI.Intracomm) -> None:
    """Each signal stands for its own data, however the streams' kernels interleave."""
    n_streams, turns, count = 4, 8, 60_000
    with job(comm, settings_of("one node", comm.size)) as rt, ExitStack() as stack:
        streams = [stack.enter_context(new_stream(rt.device_index)) for _ in range(n_streams)]
        inbox = zeros(rt, (n_streams, count), np.int32)
        seen = zeros(rt, (turns, n_streams, count), np.int32)
        mine = symmetric_array(rt, (turns, n_streams, count), np.int32)
        for turn in range(turns):
            for lane in range(n_streams):
                mine[turn, lane] = 1000 * rt.my_pe + 10 * turn + lane
        signals, taken = zeros(rt, n_streams, np.uint64), zeros(rt, n_streams, np.uint64)
        for turn in range(turns):
            for lane, stream in enumerate(streams):
                rt.put_signal_on_stream(
                    inbox[lane], mine[turn, lane], signals[lane:], 1, SHMEM_SIGNAL_ADD, after(rt),
                    stream=stream,
                )  # fmt: skip
                rt.signal_wait_until_on_stream(
                    signals[lane:], SHMEM_CMP_GE, turn + 1, stream=stream
                )
                rt.get_on_stream(seen[turn, lane], inbox[lane], rt.my_pe, stream=stream)
                rt.signal_op_on_stream(taken[lane:], 1, SHMEM_SIGNAL_ADD, before(rt), stream=stream)
                rt.signal_wait_until_on_stream(taken[lane:], SHMEM_CMP_GE, turn + 1, stream=stream)
        for stream in streams:
            finish(stream)
        for turn in range(turns):
            for lane in range(n_streams):
                assert (seen[turn, lane] == 1000 * before(rt) + 10 * turn + lane).all()
        rt.barrier_all()
