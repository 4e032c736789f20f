"""Timelines: reads what RAILSHMEM_TRACE=DIR made and joins it into one file for Perfetto.

Each PE's file (shmem/trace/file_layout.hpp) carries the names of its events, so files of another
build can be read too. Chunks are read and written one at a time: what is held in memory does not
grow with the files.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

from railshmem.errors import ArgumentError

MAGIC = 0x4543415254485352
VERSION = 1
HEADER = np.dtype(
    [
        ("magic", "<u8"),
        ("version", "<u4"),
        ("header_bytes", "<u4"),
        ("chunk_bytes", "<u4"),
        ("event_bytes", "<u4"),
        ("pe", "<i4"),
        ("n_pes", "<i4"),
        ("pid", "<i4"),
        ("chunks", "<u4"),
        ("job", "<u8"),
        ("clock_ahead_ns", "<i8"),
        ("clock_error_ns", "<u8"),
        ("overwritten", "<u8"),
        ("lost", "<u8"),
        ("closed", "<u4"),
        ("names_bytes", "<u4"),
        ("host", "S64"),
    ]
)
CHUNK = np.dtype([("sequence", "<u8"), ("writer", "<u4"), ("track", "S52")])
EVENT = np.dtype(
    [
        ("at_ns", "<u8"),
        ("duration_ns", "<u8"),
        ("bytes", "<u8"),
        ("id", "<u8"),
        ("peer", "<i4"),
        ("rail", "<i4"),
        ("where", "<u4"),
        ("moment", "<u4"),
    ]
)
# Thread numbers of the queue pairs' tracks, behind those of real threads.
FIRST_PAIR_TRACK = 10000


class Moment(NamedTuple):
    """What an event with this number is; a label of "-" says that the number means nothing."""

    kind: str
    category: str
    name: str
    bytes_label: str
    id_label: str
    where_label: str


class Chunk(NamedTuple):
    """One thread's events, in the order in which they ended."""

    writer: int
    track: str
    events: NDArray[Any]  # of EVENT


class TraceFile:
    """One PE's timeline. Raises ArgumentError naming the file where it is none, or is cut off."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            head = file.read(HEADER.itemsize)
            size = file.seek(0, os.SEEK_END)
            if len(head) < HEADER.itemsize:
                raise ArgumentError(f"{path}: cut off after {size} bytes, inside its header")
            header = np.frombuffer(head, HEADER)[0]
            if header["magic"] != MAGIC:
                raise ArgumentError(f"{path}: not a timeline of railshmem")
            if header["version"] != VERSION or header["event_bytes"] != EVENT.itemsize:
                raise ArgumentError(
                    f"{path}: version {header['version']} of the format; this railshmem reads "
                    f"version {VERSION}"
                )
            self.header_bytes = int(header["header_bytes"])
            self.chunk_bytes = int(header["chunk_bytes"])
            self.n_chunks = int(header["chunks"])
            whole = self.header_bytes + self.n_chunks * self.chunk_bytes
            if size < whole:
                raise ArgumentError(f"{path}: cut off: {size} of {whole} bytes are there")
            file.seek(HEADER.itemsize)
            names = file.read(int(header["names_bytes"])).decode()
        self.pe = int(header["pe"])
        self.n_pes = int(header["n_pes"])
        self.pid = int(header["pid"])
        self.host = header["host"].decode()
        self.job = int(header["job"])
        self.clock_ahead_ns = int(header["clock_ahead_ns"])
        self.clock_error_ns = int(header["clock_error_ns"])
        self.overwritten = int(header["overwritten"])
        self.lost = int(header["lost"])
        self.closed = bool(header["closed"])
        self.moments: dict[int, Moment] = {}
        for line in names.splitlines():
            number, *texts = line.split("\t")
            self.moments[int(number)] = Moment(*texts)

    def chunks(self) -> Iterator[Chunk]:
        """Every chunk, those of one thread together and in the order of their use."""
        with self.path.open("rb") as file:
            order = []
            for index in range(self.n_chunks):
                file.seek(self.header_bytes + index * self.chunk_bytes)
                head = np.frombuffer(file.read(CHUNK.itemsize), CHUNK)[0]
                order.append((int(head["writer"]), int(head["sequence"]), index))
            for writer, _, index in sorted(order):
                file.seek(self.header_bytes + index * self.chunk_bytes)
                content = file.read(self.chunk_bytes)
                track = np.frombuffer(content, CHUNK, 1)[0]["track"].decode(errors="replace")
                count = (self.chunk_bytes - CHUNK.itemsize) // EVENT.itemsize
                events = np.frombuffer(content, EVENT, count, CHUNK.itemsize)
                yield Chunk(writer, track, events[events["moment"] != 0])


@dataclass
class Merged:
    """What merge() wrote."""

    pes: list[int] = field(default_factory=list)
    n_pes: int = 0
    events: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    def text(self) -> str:
        """For people: one line, and one for each thing that is not as it should be."""
        pes = "1 PE" if self.n_pes == 1 else f"{len(self.pes)} of {self.n_pes} PEs"
        lines = [f"{pes}, {self.events} events, {self.seconds:.6f} s", *self.notes]
        return "".join(f"{line}\n" for line in lines)


def merge(directory: Path, output: Path) -> Merged:
    """Joins the timelines in `directory` into `output`, in the trace event format.

    Processes are PEs; their tracks are threads, blocks of kernels and queue pairs. Times are
    microseconds of PE 0's clock since the first event. Raises ArgumentError, naming the file, for
    what is no timeline, is cut off or belongs to another run; then `output` is not touched.
    """
    files = _files_of_one_run(directory)
    origin, end = _limits(files)
    found = Merged([file.pe for file in files], files[0].n_pes)
    unfinished = output.with_name(f"{output.name}.unfinished")
    with unfinished.open("w", encoding="utf-8") as target:
        writer = _Writer(target)
        for file in files:
            _Process(file, writer, origin).write()
            found.notes += _notes(file)
        writer.close()
    unfinished.replace(output)
    found.events = sum(len(chunk.events) for file in files for chunk in file.chunks())
    found.seconds = (end - origin) / 1e9
    missing = sorted(set(range(found.n_pes)) - set(found.pes))
    if missing:
        found.notes.append(f"no timeline of PE {', '.join(map(str, missing))} is in {directory}")
    return found


def _files_of_one_run(directory: Path) -> list[TraceFile]:
    paths = sorted(directory.glob("pe-*.trace"))
    if not paths:
        raise ArgumentError(f"{directory}: holds no pe-NNNN.trace; was RAILSHMEM_TRACE set to it?")
    files = [TraceFile(path) for path in paths]
    first = files[0]
    for file in files:
        if file.job != first.job or file.n_pes != first.n_pes:
            raise ArgumentError(
                f"{file.path}: of another run ({file.n_pes} PEs, process {file.pid}) than "
                f"{first.path} ({first.n_pes} PEs, process {first.pid}): remove what is old"
            )
    return files


def _limits(files: Iterable[TraceFile]) -> tuple[int, int]:
    """The first and the last moment of all, on PE 0's clock."""
    begin: list[int] = []
    end: list[int] = []
    for file in files:
        for chunk in file.chunks():
            if len(chunk.events):
                ended = chunk.events["at_ns"] + chunk.events["duration_ns"]
                begin.append(int(chunk.events["at_ns"].min()) - file.clock_ahead_ns)
                end.append(int(ended.max()) - file.clock_ahead_ns)
    return min(begin, default=0), max(end, default=0)


def _notes(file: TraceFile) -> list[str]:
    notes = []
    if not file.closed:
        notes.append(f"PE {file.pe} has not closed its timeline: it ended early, or still runs")
    if file.overwritten:
        notes.append(f"PE {file.pe}: {file.overwritten} older events made room for newer ones")
    if file.lost:
        notes.append(f"PE {file.pe}: {file.lost} events found no room")
    if file.clock_error_ns:
        notes.append(f"PE {file.pe}: its clock is known to {file.clock_error_ns / 1e3:.1f} us")
    return notes


class _Writer:
    """The output as a stream of events."""

    def __init__(self, target: TextIO) -> None:
        self._target = target
        self._before = '{"displayTimeUnit":"ns","traceEvents":[\n'

    def event(self, **fields: Any) -> None:
        self._target.write(self._before + json.dumps(fields, separators=(",", ":")))
        self._before = ",\n"

    def close(self) -> None:
        self._target.write("\n]}\n" if self._before == ",\n" else self._before + "]}\n")


@dataclass
class _Request:
    """A request posted to a queue pair, and what it carries."""

    id: int
    at_ns: int
    bytes: int
    peer: int


class _QueuePair:
    """A queue pair as a track: requests are served one after another, in the order of posting."""

    def __init__(self, track: int) -> None:
        self.track = track
        self.waiting: deque[_Request] = deque()
        self.free_at_ns = 0  # when the request before was complete


class _Process:
    """Writes one PE's events."""

    def __init__(self, file: TraceFile, writer: _Writer, origin_ns: int) -> None:
        self._file = file
        self._writer = writer
        self._origin_ns = origin_ns + file.clock_ahead_ns
        self._pairs: dict[tuple[int, int], _QueuePair] = {}
        self._in_flight: dict[int, int] = {}  # rail -> bytes
        self._last_ns = 0

    def write(self) -> None:
        file = self._file
        ended = "" if file.closed else ", not closed"
        self._name("process", 0, f"PE {file.pe} ({file.host}, process {file.pid}{ended})")
        self._meta("process_sort_index", 0, sort_index=file.pe)
        named: set[int] = set()
        for chunk in file.chunks():
            if chunk.writer not in named:
                named.add(chunk.writer)
                self._name("thread", chunk.writer, chunk.track)
            for event in chunk.events.tolist():
                self._write_event(chunk.writer, *event)
        for pair in self._pairs.values():
            while pair.waiting:
                self._serve(pair, pair.waiting[0], self._last_ns, "not completed")

    def _write_event(
        self,
        track: int,
        at_ns: int,
        duration_ns: int,
        nbytes: int,
        id_: int,
        peer: int,
        rail: int,
        where: int,
        number: int,
    ) -> None:
        moment = self._file.moments.get(number)
        if moment is None:
            moment = Moment("span", "unknown", f"event {number}", "bytes", "id", "where")
        self._last_ns = max(self._last_ns, at_ns + duration_ns)
        if moment.kind == "posted":
            self._posted(track, rail, where, _Request(id_, at_ns, nbytes, peer))
            return
        if moment.kind == "completed":
            self._completed(rail, where, id_, at_ns, nbytes)
            return
        labels = (moment.bytes_label, moment.id_label, moment.where_label)
        args = {
            label: value
            for label, value in zip(labels, (nbytes, id_, where), strict=True)
            if label != "-"
        }
        args |= {name: value for name, value in (("peer", peer), ("rail", rail)) if value >= 0}
        self._slice(moment, track, at_ns, duration_ns, args)
        if moment.kind == "ring":
            self._flow("s", f"ring {id_}", track, at_ns)
        elif moment.kind == "command":
            self._flow("f", f"ring {id_}", track, at_ns)

    def _posted(self, track: int, rail: int, where: int, request: _Request) -> None:
        pair = self._pairs.get((rail, where))
        if pair is None:
            pair = self._pairs[(rail, where)] = _QueuePair(FIRST_PAIR_TRACK + len(self._pairs))
            self._name(
                "thread", pair.track, f"rail {rail}, queue pair {where} to PE {request.peer}"
            )
        pair.waiting.append(request)
        self._count(rail, request.bytes, request.at_ns)
        self._flow("s", f"nic {pair.track} {request.id}", track, request.at_ns)

    def _completed(self, rail: int, where: int, id_: int, at_ns: int, status: int) -> None:
        pair = self._pairs.get((rail, where))
        # Of a request whose posting was overwritten nothing is known but this.
        while pair is not None and pair.waiting and pair.waiting[0].id <= id_:
            request = pair.waiting[0]
            self._serve(pair, request, at_ns, "failed" if status else "")
            self._count(rail, -request.bytes, at_ns)

    def _serve(self, pair: _QueuePair, request: _Request, until_ns: int, problem: str) -> None:
        pair.waiting.popleft()
        start = max(request.at_ns, pair.free_at_ns)
        pair.free_at_ns = max(until_ns, start)
        args = {
            "bytes": request.bytes,
            "request": request.id,
            "peer": request.peer,
            "queued_us": (start - request.at_ns) / 1e3,
        }
        moment = Moment("span", "nic", problem or "request", "-", "-", "-")
        self._slice(moment, pair.track, start, pair.free_at_ns - start, args)
        self._flow("f", f"nic {pair.track} {request.id}", pair.track, start)

    def _count(self, rail: int, change: int, at_ns: int) -> None:
        if change == 0:
            return
        self._in_flight[rail] = self._in_flight.get(rail, 0) + change
        self._writer.event(
            ph="C",
            name=f"rail {rail}: bytes in flight",
            pid=self._file.pe,
            ts=self._us(at_ns),
            args={"bytes": self._in_flight[rail]},
        )

    def _slice(
        self, moment: Moment, track: int, at_ns: int, duration_ns: int, args: dict[str, Any]
    ) -> None:
        self._writer.event(
            ph="X",
            name=moment.name,
            cat=moment.category,
            pid=self._file.pe,
            tid=track,
            ts=self._us(at_ns),
            dur=duration_ns / 1e3,
            args=args,
        )

    def _flow(self, end: str, name: str, track: int, at_ns: int) -> None:
        """An arrow between the slices that enclose its two ends."""
        binding = {"bp": "e"} if end == "f" else {}
        self._writer.event(
            ph=end,
            name="travels as",
            cat="flow",
            id=f"PE {self._file.pe} {name}",
            pid=self._file.pe,
            tid=track,
            ts=self._us(at_ns),
            **binding,
        )

    def _name(self, what: str, track: int, name: str) -> None:
        self._meta(f"{what}_name", track, name=name)

    def _meta(self, kind: str, track: int, /, **args: Any) -> None:
        self._writer.event(ph="M", name=kind, pid=self._file.pe, tid=track, args=args)

    def _us(self, at_ns: int) -> float:
        return (at_ns - self._origin_ns) / 1e3
