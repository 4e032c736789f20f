"""Timelines: what `railshmem trace merge` makes of files, of good ones and of all others."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from railshmem.errors import ArgumentError
from railshmem.trace import CHUNK, EVENT, HEADER, MAGIC, VERSION, TraceFile, merge
from test_cli import needs_mpirun, run, run_tool

HEADER_BYTES = 4096
CHUNK_BYTES = 1024
NAMES = """\
1\tspan\thost\tput\tbytes\t-\t-
2\tring\tring\tposted\tbytes\tcommand\tlane
3\tcommand\tring\tcommand\tbytes\tcommand\tlane
4\tposted\tnic\trequest\tbytes\trequest\tqueue pair
5\tcompleted\tnic\tcompletion\tstatus\trequest\tqueue pair
6\tspan\twait\twait for completions\texpected\theap offset\t-
"""
Event = tuple[int, int, int, int, int, int, int, int]


def event(
    moment: int,
    at_ns: int,
    duration_ns: int = 0,
    *,
    nbytes: int = 0,
    id_: int = 0,
    peer: int = -1,
    rail: int = -1,
    where: int = 0,
) -> Event:
    return (at_ns, duration_ns, nbytes, id_, peer, rail, where, moment)


def write_timeline(
    directory: Path, pe: int, chunks: Sequence[tuple[int, int, Sequence[Event]]], **head: Any
) -> Path:
    """A file as the library writes it; chunks are (writer, sequence, events)."""
    header = np.zeros((), HEADER)
    fields = {
        "magic": MAGIC,
        "version": VERSION,
        "header_bytes": HEADER_BYTES,
        "chunk_bytes": CHUNK_BYTES,
        "event_bytes": EVENT.itemsize,
        "pe": pe,
        "n_pes": 2,
        "pid": 100 + pe,
        "chunks": len(chunks),
        "job": 7,
        "closed": 1,
        "names_bytes": len(NAMES),
        "host": f"host{pe}",
    }
    for name, value in (fields | head).items():
        header[name] = value
    content = (header.tobytes() + NAMES.encode()).ljust(HEADER_BYTES, b"\0")
    for writer, sequence, events in chunks:
        start = np.array((sequence, writer, f"thread {writer}"), CHUNK).tobytes()
        content += (start + np.array(events, EVENT).tobytes()).ljust(CHUNK_BYTES, b"\0")
    path = directory / f"pe-{pe:04}.trace"
    path.write_bytes(content)
    return path


def merged(directory: Path) -> list[dict[str, Any]]:
    output = directory / "trace.json"
    merge(directory, output)
    return json.loads(output.read_text())["traceEvents"]


def slices(events: Sequence[dict[str, Any]], pe: int) -> list[dict[str, Any]]:
    return [found for found in events if found["ph"] == "X" and found["pid"] == pe]


def test_processes_are_pes_and_tracks_are_threads(tmp_path: Path) -> None:
    write_timeline(tmp_path, 0, [(0, 0, [event(1, 5000, 2000, nbytes=64, peer=1)])])
    write_timeline(tmp_path, 1, [(3, 0, [event(6, 6500, 500)])], closed=0)
    events = merged(tmp_path)
    names = {
        (e["name"], e["pid"]): e["args"]["name"] for e in events if "name" in e.get("args", {})
    }
    assert names["process_name", 0] == "PE 0 (host0, process 100)"
    assert names["process_name", 1] == "PE 1 (host1, process 101, not closed)"
    assert names["thread_name", 1] == "thread 3"
    (put,) = slices(events, 0)
    assert (put["name"], put["cat"], put["ts"], put["dur"]) == ("put", "host", 0.0, 2.0)
    assert put["args"] == {"bytes": 64, "peer": 1}
    (wait,) = slices(events, 1)
    assert (wait["ts"], wait["dur"]) == (1.5, 0.5)


def test_clocks_of_other_hosts_are_aligned(tmp_path: Path) -> None:
    write_timeline(tmp_path, 0, [(0, 0, [event(1, 1_000_000, 10)])])
    ahead = 5_000_000_000
    head = {"clock_ahead_ns": ahead, "clock_error_ns": 1500}
    write_timeline(tmp_path, 1, [(0, 0, [event(1, 1_000_500 + ahead, 10)])], **head)
    events = merged(tmp_path)
    assert slices(events, 0)[0]["ts"] == 0.0
    assert slices(events, 1)[0]["ts"] == 0.5
    done = merge(tmp_path, tmp_path / "again.json")
    assert done.seconds == pytest.approx(510e-9)
    assert done.notes == ["PE 1: its clock is known to 1.5 us"]


def test_chunks_of_a_thread_are_put_in_order(tmp_path: Path) -> None:
    chunks = [(0, 5, [event(1, 300)]), (1, 0, [event(1, 50)]), (0, 4, [event(1, 100)])]
    file = TraceFile(write_timeline(tmp_path, 0, chunks, overwritten=80))
    assert [int(c.events["at_ns"][0]) for c in file.chunks()] == [100, 300, 50]
    assert merge(tmp_path, tmp_path / "out").notes == [
        "PE 0: 80 older events made room for newer ones",
        f"no timeline of PE 1 is in {tmp_path}",
    ]


def test_requests_are_served_one_after_another_and_joined_to_their_commands(tmp_path: Path) -> None:
    at = {"rail": 1, "where": 9, "peer": 1}
    chunks = [
        (0, 0, [event(2, 1000, 100, id_=40, nbytes=24, **at)]),
        (
            1,
            0,
            [
                event(4, 2000, id_=0, nbytes=16, **at),
                event(4, 2100, id_=1, nbytes=8, **at),
                event(3, 1900, 300, id_=40, nbytes=24, **at),
                event(5, 4000, id_=0, **at),
                event(5, 5000, id_=1, **at),
                event(4, 6000, id_=2, nbytes=32, **at),
            ],
        ),
    ]
    write_timeline(tmp_path, 0, chunks, n_pes=1)
    events = merged(tmp_path)
    served = [s for s in slices(events, 0) if s["cat"] == "nic"]
    assert [(s["name"], s["ts"], s["dur"]) for s in served] == [
        ("request", 1.0, 2.0),
        ("request", 3.0, 1.0),  # behind the first, although it was posted before that had ended
        ("not completed", 5.0, 0.0),
    ]
    assert served[1]["args"]["queued_us"] == 0.9 + 1.0
    counted = [e["args"]["bytes"] for e in events if e["ph"] == "C"]
    assert counted == [16, 24, 8, 0, 32]
    ends: dict[str, list[str]] = {}
    for found in events:
        if found["ph"] in "sf":
            ends.setdefault(found["id"], []).append(found["ph"])
    assert len(ends) == 4
    assert all(sorted(pair) == ["f", "s"] for pair in ends.values())


def test_completions_of_overwritten_requests_are_left_out(tmp_path: Path) -> None:
    at = {"rail": 0, "where": 1, "peer": 1}
    known = [event(5, 100, id_=6, **at), event(4, 200, id_=8, **at), event(5, 300, id_=8, **at)]
    write_timeline(tmp_path, 0, [(0, 3, known)], overwritten=21)
    assert [s["ts"] for s in slices(merged(tmp_path), 0)] == [0.1]


def test_an_error_completion_is_shown_as_one(tmp_path: Path) -> None:
    at = {"rail": 0, "where": 1, "peer": 1}
    events = [event(4, 200, id_=0, **at), event(5, 300, id_=0, nbytes=5, **at)]
    write_timeline(tmp_path, 0, [(0, 0, events)])
    assert [s["name"] for s in slices(merged(tmp_path), 0)] == ["failed"]


def test_events_of_a_newer_library_are_kept_under_their_number(tmp_path: Path) -> None:
    write_timeline(tmp_path, 0, [(0, 0, [event(99, 10, 5)])])
    assert slices(merged(tmp_path), 0)[0]["name"] == "event 99"


def test_a_run_without_events_is_an_empty_timeline(tmp_path: Path) -> None:
    write_timeline(tmp_path, 0, [], n_pes=1)
    assert slices(merged(tmp_path), 0) == []


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:100]), "inside its header"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "cut off: 6143 of 6144 bytes"),
        (lambda path: path.write_bytes(b"PK" + path.read_bytes()[2:]), "not a timeline"),
        (lambda path: write_timeline(path.parent, 1, [], version=9), "version 9 of the format"),
        (lambda path: write_timeline(path.parent, 1, [], job=8), "of another run"),
        (lambda path: write_timeline(path.parent, 1, [], n_pes=5), "of another run"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_and_nothing_is_written(
    tmp_path: Path, spoil: Any, complaint: str
) -> None:
    chunks = [(0, 0, [event(1, 10)]), (0, 1, [event(1, 20)])]
    write_timeline(tmp_path, 0, chunks)
    path = write_timeline(tmp_path, 1, chunks)
    spoil(path)
    output = tmp_path / "trace.json"
    output.write_text("of before")
    with pytest.raises(ArgumentError, match=complaint) as caught:
        merge(tmp_path, output)
    assert "pe-0001.trace" in str(caught.value)
    assert output.read_text() == "of before"
    assert sorted(p.name for p in tmp_path.iterdir() if p.suffix != ".trace") == ["trace.json"]


def test_merging_nothing_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=str(tmp_path)):
        merge(tmp_path, tmp_path / "out")
    done = run_tool(0, "trace", "merge", str(tmp_path), "-o", str(tmp_path / "out"))
    assert done.returncode == 1
    assert "holds no pe-NNNN.trace" in done.stderr
    assert "Traceback" not in done.stderr


TRAFFIC = """
import numpy as np, railshmem as r
r.shmem_init()
me, n = r.shmem_my_pe(), r.shmem_n_pes()
there = r.shmem_array(4096, np.uint8)
word = r.shmem_array(1, np.uint64)
word[:] = 0
mine = np.full(4096, me, np.uint8)
r.shmem_barrier_all()
for peer in range(n):
    if peer != me:
        r.shmem_put(there, mine, peer, nelems=100 + peer)
        r.shmem_atomic_add(word, 1, peer)
r.shmem_barrier_all()
END
"""


def trace_of_a_job(directory: Path, end: str) -> list[dict[str, Any]]:
    settings = {"RAILSHMEM_NODES": "2", "RAILSHMEM_RAILS": "2", "RAILSHMEM_TRACE": str(directory)}
    script = TRAFFIC.replace("END", end)
    done = run(4, "-c", script, settings=settings)
    if not end:
        assert done.returncode == 0, done.stderr
    output = directory / "trace.json"
    told = run_tool(0, "trace", "merge", str(directory), "-o", str(output))
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith("4 of 4 PEs, ")
    assert ("has not closed" in told.stdout) == bool(end)
    return json.loads(output.read_text())["traceEvents"]


@needs_mpirun
def test_a_job_leaves_a_timeline_of_calls_ring_and_nics(tmp_path: Path) -> None:
    events = trace_of_a_job(tmp_path, "")
    for pe in range(4):
        found = slices(events, pe)
        puts = [s["args"] for s in found if s["cat"] == "host" and s["name"] == "put"]
        others = [peer for peer in range(4) if peer != pe]
        assert puts == [{"bytes": 100 + peer, "lane": 0, "peer": peer} for peer in others]
        categories = Counter(s["cat"] for s in found)
        assert categories["ring"] > 0
        assert categories["nic"] > 0
        assert not any(s["name"] in ("failed", "not completed") for s in found)
        # Everything posted to the ring was taken as a command, and everything posted to a NIC
        # has a place in the track of its queue pair.
        flows = Counter((e["id"], e["ph"]) for e in events if e["ph"] in "sf" and e["pid"] == pe)
        assert all(number == 1 for number in flows.values())
        assert {i for i, ph in flows if ph == "s"} == {i for i, ph in flows if ph == "f"}


# A PE that is killed cannot write a file any more: what it had seen must be there already.
@needs_mpirun
def test_a_killed_pe_leaves_what_it_had_recorded(tmp_path: Path) -> None:
    end = (
        "import os, signal\nif me == 1: os.kill(os.getpid(), signal.SIGKILL)\nr.shmem_barrier_all()"
    )
    found = slices(trace_of_a_job(tmp_path, end), 1)
    assert sum(s["cat"] == "host" and s["name"] == "put" for s in found) == 3
