"""What kernels/arch/cuda.hpp promises, on the GPU itself: copies of every alignment, atomics that
lose nothing, grids that meet. Needs cupy and one GPU; no job.
"""

from __future__ import annotations

import numpy as np
import pytest

from railshmem.kernels import INCLUDE

cupy = pytest.importorskip("cupy")

TEXT = r"""
#include "kernels/arch/arch.hpp"

using namespace railshmem::arch;

extern "C" __global__ void copy_by_block(char* to, const char* from, uint64_t bytes) {
  copy<Scope::block>(to, from, bytes);
}
extern "C" __global__ void copy_by_warp(char* to, const char* from, uint64_t bytes) {
  if (threadIdx.x < 32) copy<Scope::warp>(to, from, bytes);
}
extern "C" __global__ void copy_by_thread(char* to, const char* from, uint64_t bytes) {
  if (threadIdx.x == 0) copy<Scope::thread>(to, from, bytes);
}
extern "C" __global__ void whole(char* to, const char* from, uint64_t bytes, uint32_t* answer) {
  *answer = store_whole(to, from, bytes);
}
extern "C" __global__ void count(uint64_t* wide, uint32_t* narrow) {
  fetch_add(wide, uint64_t{1} << 32);
  claim_add(wide + 1, uint64_t{1});
  fetch_add(narrow, 1u);
  fetch_xor(narrow + 1, threadIdx.x);
  for (;;) {  // an increment built from compare-and-swap
    const uint32_t seen = load_relaxed(narrow + 2);
    if (compare_swap(narrow + 2, seen, seen + 1) == seen) break;
  }
}
"""


@pytest.fixture(scope="module")
def module() -> object:
    return cupy.RawModule(code=TEXT, options=("-std=c++17", f"-I{INCLUDE}"))


@pytest.mark.parametrize("kernel", ["copy_by_block", "copy_by_warp", "copy_by_thread"])
def test_copies_of_every_alignment(module: object, kernel: str) -> None:
    room = 70000
    source = cupy.asarray(np.random.default_rng(1).integers(1, 256, room, np.uint8))
    copy = module.get_function(kernel)
    for bytes_ in (0, 1, 3, 7, 8, 15, 16, 17, 100, 511, 4096, 4097, 65536 + 13):
        for to, from_ in [(a, b) for a in (0, 1, 4, 7, 8, 12, 15) for b in (0, 1, 2, 4, 8, 15)]:
            target = cupy.zeros(room, np.uint8)
            copy((1,), (256,), (target[to:], source[from_:], np.uint64(bytes_)))
            expected = cupy.zeros(room, np.uint8)
            expected[to : to + bytes_] = source[from_ : from_ + bytes_]
            assert (target == expected).all(), (bytes_, to, from_)


def test_words_are_stored_whole_where_they_can_be(module: object) -> None:
    source = cupy.arange(1, 33, dtype=np.uint8)
    whole = module.get_function("whole")
    answer = cupy.zeros(1, np.uint32)
    for bytes_ in range(17):
        for to in range(9):
            for from_ in (0, 1, 8):
                target = cupy.zeros(32, np.uint8)
                whole((1,), (32,), (target[to:], source[from_:], np.uint64(bytes_), answer))
                stored = bytes_ in (1, 2, 4, 8) and to % bytes_ == 0
                expected = cupy.zeros(32, np.uint8)
                if stored:
                    expected[to : to + bytes_] = source[from_ : from_ + bytes_]
                assert bool(answer[0]) == stored, (bytes_, to, from_)
                assert (target == expected).all(), (bytes_, to, from_)


def test_atomics_lose_nothing(module: object) -> None:
    blocks, threads = 64, 256
    wide, narrow = cupy.zeros(2, np.uint64), cupy.zeros(3, np.uint32)
    module.get_function("count")((blocks,), (threads,), (wide, narrow))
    assert wide.get().tolist() == [blocks * threads << 32, blocks * threads]
    assert narrow.get().tolist() == [blocks * threads, 0, blocks * threads]
