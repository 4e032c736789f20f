"""IBGDA is a reserved transport: a kernel that asks for it does not compile, and says why."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KERNEL = """
#include "kernels/shmem/order.hpp"
using namespace railshmem::device;
bool kernel(const DeviceContext* ctx, long* to, const long* from) {{
  return put<Transport::{transport}, railshmem::arch::Scope::warp>(ctx, to, from, 8, 1);
}}
"""


def compile_kernel(transport: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [os.environ.get("CXX", "c++"), "-std=c++17", f"-I{ROOT}", "-fsyntax-only", "-xc++", "-"],
        input=KERNEL.format(transport=transport),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_kernel_for_a_transport_that_exists_compiles() -> None:
    for transport in ("p2p", "proxy"):
        assert compile_kernel(transport).returncode == 0


def test_a_kernel_for_ibgda_does_not_compile_and_says_why() -> None:
    result = compile_kernel("ibgda")
    assert result.returncode != 0
    assert "IBGDA is reserved" in result.stderr
