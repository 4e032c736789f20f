"""The pictures of jobs and results: what they show, and that nothing in them overlaps."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from railshmem import picture
from railshmem.picture_of_job import draw_job
from railshmem.picture_of_results import draw_results, kind_of, read_results
from test_job_info import job


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every figure that is drawn in a test."""
    made: list[Any] = []
    real = picture.new_figure

    def keep(width: float, height: float) -> Any:
        made.append(real(width, height))
        return made[-1]

    for module in ("railshmem.picture_of_job", "railshmem.picture_of_results"):
        monkeypatch.setattr(f"{module}.new_figure", keep)
    return made


def visible_texts(figure: Any) -> list[Any]:
    from matplotlib.text import Text

    return [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]


def overlapping_texts(figure: Any) -> list[tuple[str, str]]:
    figure.draw_without_rendering()
    boxes = [
        (text.get_text(), text.get_window_extent().padded(-0.5)) for text in visible_texts(figure)
    ]
    return [
        (a, b) for (a, box), (b, other) in itertools.combinations(boxes, 2) if box.overlaps(other)
    ]


def is_png(file: Path) -> bool:
    return file.read_bytes().startswith(b"\x89PNG\r\n")


@pytest.mark.parametrize(
    ("n_pes", "per_node", "rails"),
    [(1, 1, 1), (4, 2, 2), (8, 4, 4), (16, 8, 8), (16, 1, 2), (64, 8, 8), (256, 8, 8)],
)
def test_a_job_is_drawn_without_overlaps(
    n_pes: int, per_node: int, rails: int, tmp_path: Path, figures: list[Any]
) -> None:
    draw_job(job(n_pes, per_node, rails), tmp_path / "job.png")
    assert is_png(tmp_path / "job.png")
    assert overlapping_texts(figures[0]) == []


def test_a_small_job_shows_pes_pairs_and_counts(tmp_path: Path, figures: list[Any]) -> None:
    draw_job(job(4, per_node=2, rails=2), tmp_path / "job.png")
    texts = [text.get_text() for text in visible_texts(figures[0])]
    for text in ("PE 0", "PE 3", "node 1  (host1)", "rail 0: 2 pairs", "rail 1: 2 pairs"):
        assert text in texts
    # The matrix: pairs 0-2 and 1-3 on rail 0, each in both directions.
    assert (texts.count("r0"), texts.count("r1"), texts.count("P2P")) == (4, 4, 4)


def test_a_large_job_is_drawn_by_node(tmp_path: Path, figures: list[Any]) -> None:
    draw_job(job(256, per_node=8, rails=8), tmp_path / "job.png")
    texts = [text.get_text() for text in visible_texts(figures[0])]
    assert "PE 0-7" in texts
    assert "PE 8" not in texts
    assert any("24 more" in text for text in texts)  # of 32 nodes
    assert "64" in texts  # pairs between two nodes


def test_one_rail_has_one_colour(tmp_path: Path) -> None:
    colours = [picture.colour_of_rail(rail) for rail in range(16)]
    assert len(set(colours)) == 16


def test_a_job_without_nics(tmp_path: Path, figures: list[Any]) -> None:
    info = job(4, per_node=4, rails=1)
    for pe in info["pes"]:
        pe["nics"], pe["home_rail"] = [], -1
    draw_job(info, tmp_path / "job.png")
    texts = "\n".join(text.get_text() for text in visible_texts(figures[0]))
    assert "no NICs" in texts
    assert "rail 0" not in texts


# ---- results


def lines() -> list[dict[str, Any]]:
    transfers = [
        {"bench": bench, "transport": "P2P", "bytes": size, "median_us": us, "limit_us": us / 2}
        | {"p99_us": us, "rival": "Win.Put", "rival_us": 3 * us, "shmem_us": 2 * us}
        for bench in ("put", "put_core", "put_quiet", "put_quiet_core")
        for size, us in ((8, 0.01), (4096, 0.1), (1 << 20, 40.0))
    ]
    barrier = {"bench": "barrier", "transport": "P2P", "median_us": 0.5, "p99_us": 1.0}
    return [*transfers, barrier | {"limit_us": 0.2, "rival": "comm.Barrier", "rival_us": 2.5}]


def write(file: Path, rows: list[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_results_are_curves_and_bars(tmp_path: Path, figures: list[Any]) -> None:
    draw_results(read_results([write(tmp_path / "a.jsonl", lines())]), tmp_path / "a.png")
    assert is_png(tmp_path / "a.png")
    (figure,) = figures
    texts = [text.get_text() for text in visible_texts(figure)]
    for text in ("put over P2P", "barrier over P2P", "GB/s", "4 KiB", "limit for put_core"):
        assert text in texts
    assert " 2.50 µs  MPI comm.Barrier" in texts
    curves = [line for axes in figure.findobj(match=is_axes) for line in axes.get_lines()]
    ours = next(line for line in curves if line.get_label() == "put_core")
    assert list(ours.get_xdata()) == [8, 4096, 1 << 20]
    assert list(ours.get_ydata()) == pytest.approx([0.8, 40.96, 26.2144])  # GB/s
    assert overlapping_texts(figure) == []


def is_axes(artist: Any) -> bool:
    return hasattr(artist, "get_lines") and hasattr(artist, "get_xscale")


def test_of_two_lines_about_the_same_thing_the_later_counts(tmp_path: Path) -> None:
    first, second = lines()[0], lines()[0] | {"median_us": 7.0}
    files = [write(tmp_path / "1.jsonl", [first]), write(tmp_path / "2.jsonl", [second])]
    assert [line["median_us"] for line in read_results(files)] == [7.0]


@pytest.mark.parametrize("text", ["not json", "[1]", '{"bench": "put"}', '{"median_us": 1}'])
def test_a_line_that_is_no_result_is_named(text: str, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps(lines()[0]) + "\n" + text + "\n")
    with pytest.raises(click.ClickException, match=r"a\.jsonl, line 2 is not a result"):
        read_results([file])


def test_no_results_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(click.ClickException, match="no result"):
        read_results([write(tmp_path / "a.jsonl", [])])


@pytest.mark.parametrize(
    ("bench", "kind"),
    [
        ("put_quiet_core", "put"),
        ("get", "get"),
        ("fetch_add_core", "atomic"),
        ("put_signal_core", "signal"),
        ("sum_reduce", "collectives"),
        ("proxy_x4", "proxy"),
        ("ep_dispatch", "ep"),
        ("init_8", "init"),
    ],
)
def test_kinds(bench: str, kind: str) -> None:
    assert kind_of(bench) == kind


def test_without_matplotlib_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(click.ClickException, match=r"railshmem\[plot\]"):
        draw_job(job(1, 1, 1), tmp_path / "job.png")


def test_a_name_that_is_no_picture_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(click.ClickException, match=r"cannot write .*job\.xyz"):
        draw_job(job(1, 1, 1), tmp_path / "job.xyz")


def gpu_lines() -> list[dict[str, Any]]:
    common = {"device": "cuda", "transport": "P2P"}
    transfers = [
        common
        | {"bench": bench, "bytes": size, "blocks": blocks, "median_us": us / gain}
        | {"limit_us": us / gain / 2, "p99_us": us}
        for bench in ("put", "put_quiet")
        for blocks, gain in ((1, 1), (8, 4), (32, 8), (132, 9))
        for size, us in ((1 << 16, 4.0), (1 << 20, 50.0), (1 << 28, 9000.0))
    ]
    rest = [
        {"bench": "p_quiet", "bytes": 8, "median_us": 1.2, "limit_us": 1.1},
        {
            "bench": "ep_dispatch",
            "bytes": 1 << 27,
            "tokens": 4096,
            "dtype": "fp8",
            "median_us": 99.0,
        }
        | {"rival": "NCCL", "rival_us": 150.0},
    ]
    return [*transfers, *(common | line for line in rest)]


def test_gpus_have_curves_by_blocks(tmp_path: Path, figures: list[Any]) -> None:
    lines = read_results([write(tmp_path / "a.jsonl", gpu_lines())])
    assert len(lines) == len(gpu_lines())  # a line for each number of blocks
    draw_results(lines, tmp_path / "a.png")
    (figure,) = figures
    texts = [text.get_text() for text in visible_texts(figure)]
    for text in (
        "put over P2P by kernels on GPUs",
        "put_quiet over P2P by kernels on GPUs",
        "latency over P2P by kernels on GPUs",
        "limit, 132 blocks",
        "1 block",
        "ep_dispatch  4096 tokens  fp8",
        " 150 µs  NCCL",
    ):
        assert text in texts
    assert overlapping_texts(figure) == []
