"""Joining a job through an MPI communicator (mpi4py)."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable

import numpy as np
from mpi4py import MPI

from railshmem import _core
from railshmem.errors import InitError, WaitTimeout

# On the caller's communicator, before there is one of our own: a tag that scripts rarely use.
_PRESENCE_TAG = 30583
_GATHER_TAG = 1
_FAILURE_TAG = 2


class MpiBootstrap(_core.Bootstrap):
    """The collectives of init over MPI, none of which waits for ever.

    MPI's own collectives say neither that a rank is missing nor which: here every rank sends its
    part to rank 0, which knows whose part did not come, and tells the others.
    """

    def __init__(self, comm: MPI.Intracomm, timeout_s: float) -> None:
        super().__init__()
        self._timeout_s = timeout_s
        self._rank = comm.Get_rank()
        self._size = comm.Get_size()
        self._gather(comm, _PRESENCE_TAG, np.zeros(1, np.uint8))
        self._comm, request = comm.Idup()
        self._wait([request], "a communicator of its own")

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    def barrier(self) -> None:
        self.allgather(b"")

    def abort(self, code: int, why: str) -> None:
        sys.stdout.flush()
        sys.stderr.write(f"PE {self._rank}: aborting the job: {why}\n")
        sys.stderr.flush()
        self._comm.Abort(code)

    def allgather(self, data: bytes) -> bytes:
        # One byte more, so that a barrier has something to carry.
        mine = np.frombuffer(data + b"\0", np.uint8)
        everything = self._gather(self._comm, _GATHER_TAG, mine)
        if everything is None:
            everything = np.empty((self._size, mine.size), np.uint8)
        request = self._comm.Ibcast(everything, 0)
        self._wait([request], "rank 0's answer", failure=self._failure if self._rank else None)
        return everything[:, :-1].tobytes()

    def alltoall(self, data: bytes) -> bytes:
        mine = np.frombuffer(data, np.uint8)
        everything = self._gather(self._comm, _GATHER_TAG, mine)
        if everything is not None:  # [from, to, bytes] -> [to, from, bytes]
            by_sender = everything.reshape(self._size, self._size, -1)
            everything = np.ascontiguousarray(by_sender.transpose(1, 0, 2))
        theirs = np.empty_like(mine)
        request = self._comm.Iscatter(everything, theirs, 0)
        self._wait([request], "rank 0's answer", failure=self._failure if self._rank else None)
        return theirs.tobytes()

    def _gather(self, comm: MPI.Intracomm, tag: int, mine: np.ndarray) -> np.ndarray | None:
        """Every rank's part, by rank, on rank 0; None elsewhere."""
        if self._rank != 0:
            self._wait([comm.Isend(mine, 0, tag)], "rank 0 to take part")
            return None
        parts = np.empty((self._size, mine.size), np.uint8)
        parts[0] = mine
        others = range(1, self._size)
        requests = [comm.Irecv(parts[rank], rank, tag) for rank in others]
        try:
            self._wait(requests, "all ranks")
        except WaitTimeout:
            missing = [rank for rank in others if not requests[rank - 1].Test()]
            text = f"after {self._timeout_s:g} s these ranks had not come: {missing}"
            for rank in others:
                if rank not in missing:
                    comm.isend(text, rank, _FAILURE_TAG)
            raise WaitTimeout(f"PE 0: bootstrap: {text}") from None
        return parts

    def _failure(self) -> None:
        if self._comm.Iprobe(0, _FAILURE_TAG):
            text = self._comm.recv(source=0, tag=_FAILURE_TAG)
            raise InitError(f"PE {self._rank}: bootstrap: {text}")

    def _wait(
        self,
        requests: Iterable[MPI.Request],
        what: str,
        failure: Callable[[], None] | None = None,
    ) -> None:
        """MPI has no wait with a deadline: look, give the core away, and look again."""
        # Rank 0 is the first to give up, so that its answer still reaches the others.
        deadline = time.monotonic() + self._timeout_s * (1.0 if self._rank == 0 else 1.2) + 0.1
        looks = 0
        pending = list(requests)
        while True:
            pending = [request for request in pending if not request.Test()]
            if not pending:
                return
            if failure is not None:
                failure()
            if time.monotonic() > deadline:
                raise WaitTimeout(
                    f"PE {self._rank}: bootstrap: waited {self._timeout_s:g} s for {what}"
                )
            looks += 1
            if looks < 50:
                os.sched_yield()
            else:
                time.sleep(0.001)
