"""The rival must be right before it is worth beating: its sums against numpy's."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from railshmem import _core


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("bf16", ml_dtypes.bfloat16), ("fp16", np.float16), ("fp32", np.float32)],
)
def test_rows_are_summed_in_float32_and_rounded_once(name: str, dtype: type) -> None:
    rng = np.random.default_rng(1)
    # From subnormal to overflowing fp16 numbers.
    sizes = np.exp(rng.uniform(-18, 11.5, (6, 256)))
    with np.errstate(over="ignore"):
        rows = (rng.standard_normal((6, 256)) * sizes).astype(dtype)
    places = np.array([[0, 1, -1], [2, -1, -1], [-1, 3, -1]], np.int32)  # [PE, token]
    out = np.ones((3, 256), dtype)
    _core.bench.sum_rows(rows.view(np.uint8), places, out.view(np.uint8), name)
    wide = rows.astype(np.float32)
    with np.errstate(over="ignore"):
        expected = np.stack([wide[0] + wide[2], wide[1] + wide[3]]).astype(dtype)
    np.testing.assert_array_equal(out[:2], expected)
    np.testing.assert_array_equal(out[2], np.zeros(256, dtype))
