"""The OpenSHMEM beside the benchmarks: found, missing, broken, never in the way."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest

from railshmem.bench.openshmem import OpenShmem

OPERATIONS = (
    *("put", "put_quiet", "get", "fetch_add", "add", "signal", "put_signal"),
    *("barrier", "broadcast", "fcollect", "alltoall", "sum_reduce", "malloc"),
)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the whole PATH, for an OpenSHMEM of our own making."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def make_tool(folder: Path, name: str, script: str) -> None:
    tool = folder / name
    tool.write_text(
        f'#!/bin/sh\nPATH=/usr/bin:/bin\n[ "$1" = --version ] && echo fake 1.0 && exit\n{script}\n'
    )
    tool.chmod(0o755)


# As `oshcc -O2 SOURCE -o PROGRAM` would, but counting.
COMPILER = 'echo compiled >>"$(dirname "$0")/compilations"; cp "$2" "$4"'
# As `oshrun -n N PROGRAM` would.
ANSWERS = 'echo "ready 0.25"; while read -r name bytes count; do echo "0.$bytes"; done'


def test_a_machine_without_one_says_so(tools: Path) -> None:
    with OpenShmem(2, 1 << 20) as rival:
        assert not rival.available
        assert "no oshcc and oshrun in PATH" in rival.text
        assert math.isnan(rival.batch("put")(10))


def test_it_answers_and_is_compiled_once(tools: Path) -> None:
    make_tool(tools, "oshcc", COMPILER)
    make_tool(tools, "oshrun", ANSWERS)
    for _ in range(2):
        with OpenShmem(2, 1 << 20) as rival:
            assert rival.available
            assert rival.text == "fake 1.0"
            assert rival.init_seconds == 0.25
            assert rival.batch("put", 64)(10) == 0.64
            assert rival.batch("get", 8)(10) == 0.8
    assert (tools / "compilations").read_text() == "compiled\n"


def test_a_compiler_that_fails_is_the_reason(tools: Path) -> None:
    make_tool(tools, "oshcc", "echo no shmem.h here >&2; exit 1")
    make_tool(tools, "oshrun", ANSWERS)
    with OpenShmem(2, 1 << 20) as rival:
        assert not rival.available
        assert "no shmem.h here" in rival.text
    assert not list((tools / "cache" / "railshmem").iterdir())


def test_one_that_ends_is_left_out_and_the_reason_kept(tools: Path) -> None:
    make_tool(tools, "oshcc", COMPILER)
    make_tool(tools, "oshrun", 'echo "ready 0.1"; read -r line; echo out of memory >&2; exit 1')
    with OpenShmem(2, 1 << 20) as rival:
        put = rival.batch("put")
        assert math.isnan(put(1))
        assert not rival.available
        assert "out of memory" in rival.text
        assert math.isnan(put(1))


def test_one_that_does_not_start_is_left_out(tools: Path) -> None:
    make_tool(tools, "oshcc", COMPILER)
    make_tool(tools, "oshrun", "echo there are no slots >&2; exit 1")
    with OpenShmem(2, 1 << 20) as rival:
        assert not rival.available
        assert "there are no slots" in rival.text


def test_the_one_of_this_machine_runs_every_operation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with OpenShmem(2, 64 << 20) as rival:
        if shutil.which("oshcc") is None or shutil.which("oshrun") is None:
            assert rival.text.startswith("none found")
            return
        assert rival.available, rival.text
        assert rival.init_seconds > 0
        for operation in OPERATIONS:
            seconds = rival.batch(operation, 64)(5)
            assert 0 < seconds < 60, (operation, seconds, rival.text)
        assert math.isnan(rival.batch("no_such_operation")(1))
        assert not rival.available
