"""`railshmem bench --device cuda` from end to end: every kind runs and says what it must.

On this machine's GPUs, or on those of the driver that RAILSHMEM_GPU_DRIVER names. The figures are
not judged.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

ORIGIN = {"device", "hardware", "driver", "date", "command"}
TWO_NODES = {"RAILSHMEM_NODES": "2"}
LAYER = ("--tokens", "32", "--hidden", "256", "--experts", "8", "--topk", "2", "--sms", "2")


def lines_of(kind: str, *options: str, settings: dict[str, str] | None = None) -> list[Any]:
    launcher = Path(sys.executable).with_name("mpirun")
    mpirun = str(launcher) if launcher.exists() else shutil.which("mpirun")
    if mpirun is None:
        pytest.skip("no mpirun")
    tool = (sys.executable, "-m", "railshmem.cli", "bench", kind, "--device", "cuda")
    done = subprocess.run(
        [mpirun, "-n", "2", *tool, "--rounds", "2", "--json", "-", *options],
        # The stand-in's processors run as many blocks at once.
        env={**os.environ, "RAILSHMEM_HEAP_SIZE": "256M", "STANDIN_PROCESSORS": "64"}
        | (settings or {}),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(set(line) >= ORIGIN and line["median_us"] > 0 for line in lines)
    return lines


def names(lines: Sequence[Any]) -> list[str]:
    return list(dict.fromkeys(line["bench"] for line in lines))


def test_put() -> None:
    lines = lines_of(
        "put", "--bytes", "65536", "--bytes", "262144", "--blocks", "1", "--blocks", "4"
    )
    assert names(lines) == ["put", "put_quiet", "p_quiet"]
    assert len(lines) == 2 * 2 * 2 + 1
    assert all(line["limit_us"] > 0 for line in lines)


def test_get() -> None:
    lines = lines_of("get", "--bytes", "65536", "--blocks", "2")
    assert names(lines) == ["get"]
    assert "--blocks 2" in lines[0]["command"]


def test_atomic() -> None:
    assert names(lines_of("atomic")) == ["fetch_add"]


def test_signal() -> None:
    lines = lines_of("signal")
    assert [(line["bench"], line.get("bytes")) for line in lines] == [
        ("signal", None),
        ("put_signal", 8),
        ("put_signal", 1024),
    ]


def test_barrier() -> None:
    assert names(lines_of("barrier")) == ["barrier"]


def test_alltoall() -> None:
    [line] = lines_of("alltoall", "--bytes", "65536")
    assert line["bench"] == "alltoall"
    assert line["limit_gbs"] > 0


def test_proxy() -> None:
    lines = lines_of("proxy", "--warps", "1", "--warps", "2", settings=TWO_NODES)
    posted = ["proxy_post", "proxy_post_fenced", "proxy_answer"]
    assert names(lines) == [*posted, "proxy", "proxy_round_trip"]


@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_ep(dtype: str) -> None:
    lines = lines_of("ep", *LAYER, "--dtype", dtype)
    assert names(lines) == ["ep_dispatch", "ep_combine", "ep"]
    assert all(line["limit_us"] > 0 for line in lines)
