"""One runtime under test, and the buffers that the checks fill and compare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from railshmem import Runtime, symmetric_array
from railshmem.check.findings import difference

MIB = 1 << 20
# Small ones, powers of two and their neighbours, and what is beyond a single piece on the wire.
SIZES = (1, 2, 3, 4, 7, 8, 15, 16, 63, 64, 255, 4096, 4099, 65535, 65536, MIB + 1, 4 * MIB)
SHIFTS = (0, 1, 3, 4)  # bytes beyond an address that 64 divides
LARGE = 65536  # larger pieces are tried at two alignments only
GUARD = 64
GUARD_BYTE = 0xA5


class Piece(NamedTuple):
    """Bytes [start, start + size) of a buffer."""

    start: int
    size: int

    def __str__(self) -> str:
        return f"{self.size} bytes at alignment {self.start % 64}"


def pieces(sizes: Sequence[int] = SIZES) -> list[Piece]:
    """Every size at every alignment, one behind the other with guard bytes between them."""
    out: list[Piece] = []
    end = 0
    for size in sizes:
        for shift in SHIFTS if size <= LARGE else SHIFTS[:2]:
            start = -(-(end + GUARD) // 64) * 64 + shift
            out.append(Piece(start, size))
            end = start + size
    return out


def extent(of: Sequence[Piece]) -> int:
    """Bytes of a buffer that holds the pieces and a guard behind them."""
    return of[-1].start + of[-1].size + GUARD


def picture(of: Sequence[Piece], seed: int) -> NDArray[np.uint8]:
    """What a buffer holds once every piece of it has arrived, and nothing but these."""
    content = np.random.default_rng(seed).integers(0, 256, extent(of), np.uint8)
    out = np.full(content.size, GUARD_BYTE, np.uint8)
    for start, size in of:
        out[start : start + size] = content[start : start + size]
    return out


def compared(
    seen: NDArray[np.uint8], expected: NDArray[np.uint8], of: Sequence[Piece]
) -> list[str]:
    """A text for each piece that differs, and for guard bytes that were written."""
    if np.array_equal(seen, expected):
        return []
    problems = []
    left = seen.copy()
    for piece in of:
        part = slice(piece.start, piece.start + piece.size)
        found = difference(seen[part], expected[part])
        if found:
            problems.append(f"{piece}: {found}")
        left[part] = GUARD_BYTE
    found = difference(left, np.full(left.size, GUARD_BYTE, np.uint8))
    if found:
        problems.append(f"written outside of any put: buffer {found}")
    return problems


class Fabric:
    """A runtime, with the words for its pairs."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.me: int = runtime.my_pe
        self.n_pes: int = runtime.n_pes
        info = runtime.info()
        self.n_lanes: int = info["lanes"]
        self._pairs = info["pairs"]

    def pair(self, source: int, target: int) -> str:
        """Who sends to whom, and how: "PE 0 -> PE 3 (PROXY, rail 1)"."""
        found = self._pairs[source][target]
        rail = f", rail {found['rail']}" if found["rail"] >= 0 else ""
        return f"PE {source} -> PE {target} ({found['path']}{rail})"

    def rounds(self) -> Iterator[tuple[int, int]]:
        """(target, source) of this PE, so that all pairs are met once and everyone is busy."""
        for shift in range(self.n_pes):
            yield (self.me + shift) % self.n_pes, (self.me - shift) % self.n_pes

    @contextmanager
    def array(self, shape: int, dtype: DTypeLike = np.uint8) -> Iterator[NDArray[Any]]:
        """Collective: zeroed symmetric memory, freed when the check ends well.

        After an error the PEs no longer agree on the next collective call: the whole runtime is
        given up, with all its memory.
        """
        made = symmetric_array(self.runtime, shape, dtype)
        made[...] = 0
        self.runtime.barrier_all()
        yield made
        self.runtime.barrier_all()
        self.runtime.free(made)
