"""The contract of `railshmem bench`: JSON lines for programs, a table for people."""

from __future__ import annotations

import json
from math import nan
from pathlib import Path

import numpy as np
import pytest

from railshmem.bench.measure import Figure, batch_size, figure, repeat, take_turns
from railshmem.bench.report import Result, number_text, publish, result_of, size_text

FULL = Result(
    "put",
    1.5,
    2.5,
    transport="P2P",
    bytes=4096,
    gbs=2.7,
    limit_us=0.1,
    limit_gbs=40.0,
    rival="Win.Put",
    rival_us=3.0,
    extra={"total_s": 0.25},
)


def test_a_line_has_every_key_that_applies() -> None:
    line = json.loads(FULL.as_json())
    assert line == {
        "bench": "put",
        "median_us": 1.5,
        "p99_us": 2.5,
        "transport": "P2P",
        "bytes": 4096,
        "gbs": 2.7,
        "limit_us": 0.1,
        "limit_gbs": 40.0,
        "rival": "Win.Put",
        "rival_us": 3.0,
        "total_s": 0.25,
    }


def test_keys_that_do_not_apply_are_absent() -> None:
    assert set(json.loads(Result("barrier", 1.0, 2.0).as_json())) == {
        "bench",
        "median_us",
        "p99_us",
    }


def test_json_on_stdout_is_all_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    publish("a title", [FULL, FULL], "-", (0.06, 0.25))
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["bench"] for line in lines] == ["put", "put"]
    assert json.loads(lines[0])["line_after_us"] == 0.25


def test_json_into_a_file_leaves_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "results.jsonl"
    publish("a title", [FULL], str(target), (0.06, 0.25))
    assert json.loads(target.read_text())["bytes"] == 4096
    out = capsys.readouterr().out
    assert out.startswith("a title\n")
    assert "60 ns before, 250 ns after" in out
    for text in ("put", "4 KiB", "15.00x", "Win.Put", "2.00x"):
        assert text in out
    assert "SHMEM" not in out  # no column for a rival that this machine does not have


def test_the_rivals_stand_beside_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    figures = {
        "put": Figure(2.0, 3.0),
        "put mpi": Figure(5.0, 6.0),
        "put shmem": Figure(8.0, 9.0),
        "get": Figure(1.0, 1.0),
        "get shmem": Figure(nan, nan),  # it stopped answering
    }
    put = result_of(figures, "put", limit_us=1.0, nbytes=4000, moves=True, mpi="Win.Put")
    get = result_of(figures, "get", limit_us=None)
    assert (put.rival_us, put.shmem_us, put.gbs, put.limit_gbs) == (5.0, 8.0, 2.0, 4.0)
    assert (get.rival_us, get.shmem_us, get.gbs) == (None, None, None)
    publish("a title", [put, get], None, (0.1, 0.1))
    out = capsys.readouterr().out
    for text in ("SHMEM us", "2.00x", "2.50x", "4.00x"):
        assert text in out
    assert "nan" not in out


def test_figures_are_in_microseconds() -> None:
    found = figure([1e-6, 2e-6, 3e-6])
    assert found.median_us == pytest.approx(2)
    assert found.p99_us == pytest.approx(2.98)
    assert found.gbs(2000) == pytest.approx(1)


def test_a_batch_is_long_enough_and_not_endless() -> None:
    assert batch_size(lambda count: count * 1e-6, at_least=1) == 32
    assert batch_size(lambda count: 1.0, at_least=1) == 1
    assert batch_size(lambda count: 1.0, at_least=500) == 500
    assert batch_size(lambda count: 0.0, at_least=1) == 1 << 14


def test_contestants_take_turns() -> None:
    order: list[str] = []

    def contestant(name: str) -> float:
        order.append(name)
        return 1.0

    figures = take_turns({n: lambda count, n=n: contestant(n) for n in "ab"}, rounds=3)
    assert "".join(order[-12:]) == "aabb" * 3  # each warms up before it is timed
    assert set(figures) == {"a", "b"}


def test_what_ends_a_batch_counts_once() -> None:
    calls: list[str] = []
    repeat(lambda: calls.append("put"), lambda: calls.append("quiet"))(3)
    assert calls == ["put", "put", "put", "quiet"]


@pytest.mark.parametrize(
    ("nbytes", "text"), [(8, "8 B"), (4096, "4 KiB"), (3 << 19, "1.5 MiB"), (1 << 30, "1 GiB")]
)
def test_sizes_are_readable(nbytes: int, text: str) -> None:
    assert size_text(nbytes) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (0.012345, "0.0123"),
        (4.5, "4.50"),
        (12345.6, "12,346"),
        (np.float64(99.9), "99.9"),
    ],
)
def test_numbers_have_three_digits(value: float | None, text: str) -> None:
    assert number_text(value) == text
