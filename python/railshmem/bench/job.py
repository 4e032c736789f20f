"""What every benchmark knows about the job it runs in."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

import railshmem


class BenchError(Exception):
    """The benchmark cannot run in this job; the text says what to change."""


class Job:
    """The default runtime beside the MPI communicator of the same processes."""

    def __init__(self) -> None:
        self.comm = MPI.COMM_WORLD
        self.runtime: Any = railshmem.runtime()
        self.me: int = self.runtime.my_pe
        self.n_pes: int = self.runtime.n_pes
        info = self.runtime.info()
        self.n_nodes: int = info["n_nodes"]
        self.emulated: bool = self.n_nodes > len({pe["boot_id"] for pe in info["pes"]})
        self._paths: list[str] = [pair["path"] for pair in info["pairs"][0]]
        self._node: list[int] = [pe["node"] for pe in info["pes"]]

    @property
    def title(self) -> str:
        """Where the figures come from, for the head of the table."""
        library = MPI.Get_library_version().split("\n")[0].split(",")[0].strip("\x00 ")
        pes = "1 PE" if self.n_pes == 1 else f"{self.n_pes} PEs"
        nodes = "1 node" if self.n_nodes == 1 else f"{self.n_nodes} nodes"
        emulated = ", which shares memory across emulated nodes" if self.emulated else ""
        return f"{pes}, {nodes}; rival: {' '.join(library.split())} through mpi4py{emulated}"

    def peers_of_pe_0(self) -> dict[str, int]:
        """For each transport that PE 0 uses, the first peer reached by it.

        A PE that is alone puts to itself.
        """
        peers: dict[str, int] = {}
        for pe, path in enumerate(self._paths):
            if pe > 0:
                peers.setdefault(path, pe)
        return peers or {"P2P": 0}

    def mapped_peer_of_pe_0(self) -> int | None:
        """The first other PE whose memory PE 0 maps."""
        mapped = [pe for pe in range(1, self.n_pes) if self._node[pe] == self._node[0]]
        return mapped[0] if mapped else None

    def heap_array(self, shape: int | tuple[int, ...], dtype: Any = np.uint8) -> np.ndarray:
        """Collective: zeroed symmetric memory."""
        array: np.ndarray = railshmem.shmem_array(shape, dtype)
        array[...] = np.zeros((), array.dtype)
        railshmem.shmem_barrier_all()
        return array


def address(array: np.ndarray) -> int:
    """Where the array's bytes begin."""
    return int(array.ctypes.data)
