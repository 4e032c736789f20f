"""What `railshmem bench --device cuda` makes of its figures; tests/gpu/test_bench.py measures."""

from __future__ import annotations

import json
from math import nan

import pytest

from railshmem.bench.gpu import report
from railshmem.bench.gpu.nvshmem import beside
from railshmem.bench.gpu.transfers import times_in_sample
from railshmem.bench.measure import Figure
from railshmem.bench.report import Result, deliver, plain_text

MIB = 1 << 20


def transfer(bench: str, nbytes: int, blocks: int, us: float, **rival: float | str) -> Result:
    more = {"limit_us": us * 0.9, "gbs": nbytes / us / 1e3, **rival}
    return Result(bench, us, us, transport="P2P", bytes=nbytes, extra={"blocks": blocks}, **more)


@pytest.mark.parametrize(
    ("nbytes", "blocks", "times"),
    [(65536, 1, 256), (65536, 132, 4096), (MIB, 32, 256), (256 * MIB, 132, 1), (256 * MIB, 1, 1)],
)
def test_a_sample_is_long_and_not_endless(nbytes: int, blocks: int, times: int) -> None:
    assert times_in_sample(nbytes, blocks) == times


def test_bandwidths_stand_in_one_table() -> None:
    rows = [transfer("put", MIB, blocks, us) for blocks, us in ((1, 50.0), (32, 3.0))]
    rows.append(transfer("put", 16 * MIB, 32, 45.0))
    text = plain_text(report.bandwidth_table(rows))
    head, first, second = text.splitlines()
    assert head.split() == ["GB/s", "(of", "limit)", "bytes", "1", "block", "32", "blocks"]
    assert first.split() == ["put", "1", "MiB", "21.0", "(0.90)", "350", "(0.90)"]
    assert second.split() == ["put", "16", "MiB", "373", "(0.90)"]


def test_the_rivals_bandwidths_stand_beside_them() -> None:
    rows = [
        transfer("put", MIB, blocks, us, rival="NVSHMEM", rival_us=2 * us)
        for blocks, us in ((1, 50.0), (32, 3.0))
    ]
    text = plain_text(report.bandwidth_table(rows))
    assert "NVSHMEM, same order" in text
    assert "10.5 / 175" in text


def test_other_figures_have_a_line_each() -> None:
    rate = Result(
        "proxy_post",
        0.02,
        0.03,
        transport="PROXY",
        bytes=8,
        limit_us=0.016,
        extra={"warps": 8, "commands_per_s": 50_000_000},
    )
    signal = Result("signal", 1.6, 2.0, limit_us=1.5, rival="NVSHMEM", rival_us=3.2)
    layer = Result("ep", 400.0, 410.0, extra={"tokens": 128, "dtype": "fp8", "sms": 24})
    text = plain_text(report.table_of([rate, signal, layer]))
    for part in ("proxy_post (warps: 8)", "50.0", "1.25x", "1.07x", "NVSHMEM", "2.00x"):
        assert part in text
    assert "ep (128 tokens, fp8, 24 SMs)" in text


def test_every_line_says_where_it_is_from(capsys: pytest.CaptureFixture[str]) -> None:
    origin = {"device": "cuda", "hardware": "2 x GPU", "date": "2026-11-30"}
    deliver([transfer("get", MIB, 8, 10.0)], "-", origin, "a table")
    line = json.loads(capsys.readouterr().out)
    assert line["hardware"] == "2 x GPU"
    assert line["device"] == "cuda"
    assert line["blocks"] == 8


@pytest.mark.parametrize("answer", [nan, 0.0])
def test_a_rival_that_did_not_answer_leaves_no_figure(answer: float) -> None:
    assert beside({"rival": Figure(answer, answer)}) == {}
    assert beside({}) == {}
    assert beside({"rival": Figure(2.0, 3.0)}) == {"rival": "NVSHMEM", "rival_us": 2.0}
