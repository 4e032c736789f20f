"""Element types of tokens by the names used on command lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

# Hidden elements that share one fp8 scale.
SCALE_BLOCK = 128


@dataclass(frozen=True)
class TokenType:
    """What travels to the experts, and what their results travel back in."""

    name: str
    dispatch: np.dtype[Any]
    combine: np.dtype[Any]

    @property
    def scaled(self) -> bool:
        """Whether a row carries one float32 scale per SCALE_BLOCK elements."""
        return self.dispatch.itemsize == 1


def _same(name: str, dtype: Any) -> TokenType:
    return TokenType(name, np.dtype(dtype), np.dtype(dtype))


TOKEN_TYPES: dict[str, TokenType] = {
    "bf16": _same("bf16", ml_dtypes.bfloat16),
    "fp16": _same("fp16", np.float16),
    "fp32": _same("fp32", np.float32),
    "fp8": TokenType("fp8", np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.bfloat16)),
}


def quantise(values: np.ndarray, kind: TokenType) -> tuple[np.ndarray, np.ndarray | None]:
    """Rows [T, H] as they travel: tokens, and scales [T, H / SCALE_BLOCK] if the type has them."""
    if not kind.scaled:
        return values.astype(kind.dispatch), None
    largest = float(ml_dtypes.finfo(kind.dispatch).max)
    blocks = values.reshape(len(values), -1, SCALE_BLOCK).astype(np.float32)
    scales = np.abs(blocks).max(axis=2) / np.float32(largest)
    scales[scales == 0] = 1
    tokens = (blocks / scales[:, :, None]).astype(kind.dispatch)
    return tokens.reshape(values.shape), scales


def restore(tokens: np.ndarray, scales: np.ndarray | None) -> np.ndarray:
    """The float64 values that rows stand for."""
    exact = tokens.astype(np.float32).astype(np.float64)
    if scales is None:
        return exact
    blocks = exact.reshape(len(tokens), -1, SCALE_BLOCK) * scales.astype(np.float64)[:, :, None]
    return blocks.reshape(tokens.shape)
