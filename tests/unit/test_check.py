"""`railshmem check`: finds what is wrong, says where, and is content with a sound machine."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

from railshmem.check import machine
from railshmem.check.atomics import steps
from railshmem.check.fabric import GUARD_BYTE, SIZES, compared, extent, picture, pieces
from railshmem.check.findings import NOTE, OK, WRONG, difference, judged
from railshmem.check.job import report, shapes
from test_cli import needs_mpirun, run, run_tool

# ---- comparing ----


def test_equal_arrays_do_not_differ() -> None:
    assert difference(np.arange(5), np.arange(5)) is None
    assert difference(np.zeros(0, np.uint8), np.zeros(0, np.uint8)) is None


def test_a_corrupted_word_is_found_with_its_offset_and_both_values() -> None:
    expected = np.arange(100, dtype=np.uint64)
    seen = expected.copy()
    seen[17] = 0xDEAD
    text = difference(seen, expected)
    assert text == "offset 17: expected 0x0000000000000011, seen 0x000000000000dead"
    seen[40:43] += 1
    assert str(difference(seen, expected)).endswith(", and 3 more up to offset 42")


def test_pieces_cover_every_size_and_do_not_touch() -> None:
    layout = pieces()
    assert {piece.size for piece in layout} == set(SIZES)
    assert {piece.start % 64 for piece in layout if piece.size == 8} == {0, 1, 3, 4}
    ends = [piece.start + piece.size for piece in layout]
    gaps = [
        after.start - end for end, after in zip(ends, [*layout[1:], None], strict=True) if after
    ]
    assert min(gaps) >= 64
    assert extent(layout) >= ends[-1] + 64


def test_a_picture_has_guards_around_every_piece() -> None:
    layout = pieces((1, 100))
    image = picture(layout, seed=1)
    guards = np.ones(image.size, bool)
    for start, size in layout:
        guards[start : start + size] = False
    assert (image[guards] == GUARD_BYTE).all()
    assert not np.array_equal(image, picture(layout, seed=2))


@pytest.mark.parametrize("which", [0, 3, -1])
@pytest.mark.parametrize("at", ["first", "last"])
def test_a_byte_that_did_not_arrive_is_named_by_its_piece(which: int, at: str) -> None:
    layout = pieces((8, 4099))
    expected = picture(layout, seed=3)
    seen = expected.copy()
    piece = layout[which]
    offset = 0 if at == "first" else piece.size - 1
    seen[piece.start + offset] ^= 0x40
    (text,) = compared(seen, expected, layout)
    assert text.startswith(f"{piece.size} bytes at alignment {piece.start % 64}: offset {offset}:")


def test_bytes_written_beside_a_piece_are_found() -> None:
    layout = pieces((8, 64))
    expected = picture(layout, seed=4)
    for at in (layout[0].start - 1, layout[2].start + 8, expected.size - 1):
        seen = expected.copy()
        seen[at] = 0
        (text,) = compared(seen, expected, layout)
        assert text.startswith(f"written outside of any put: buffer offset {at}:")


@pytest.mark.parametrize("bits", [32, 64])
def test_the_walk_through_atomics_is_arithmetic_of_numpy(bits: int) -> None:
    """The walk against words of numpy, which wrap as the hardware's do."""
    dtype = np.dtype(f"u{bits // 8}")

    class Words:
        """Atomics of one PE that is alone."""

        def __getattr__(self, method: str) -> object:
            name = method.removeprefix("atomic_")

            def call(word: np.ndarray, *operands: int) -> int | None:
                before = int(word[0])
                operand = dtype.type(operands[0]) if len(operands) > 1 else dtype.type(1)
                kind = name.removeprefix("fetch_")
                if kind == "compare_swap":
                    word[0] = operands[1] if before == operands[0] else before
                elif kind in ("set", "swap"):
                    word[0] = operand
                elif kind in ("add", "inc"):
                    word += operand
                elif kind in ("and", "or", "xor"):
                    getattr(np, f"bitwise_{kind}")(word, operand, out=word)
                fetches = name.startswith("fetch") or name in ("swap", "compare_swap")
                return before if fetches else None

            return call

    word = np.zeros(1, dtype)
    walk = steps(bits)
    for step in walk:
        assert step.call(Words(), word, 0) == step.returns, step.name
        assert int(word[0]) == step.after, step.name
    updates = {"set", "add", "inc", "or", "and", "xor"}
    fetching = {"fetch", "swap", "compare_swap", *(f"fetch_{name}" for name in updates - {"set"})}
    assert {step.name for step in walk} == updates | fetching


# ---- telling ----


def test_problems_are_shown_and_the_rest_is_counted() -> None:
    assert [f.status for f in judged("here", "put", [], "fine")] == [OK]
    many = judged("here", "put", [f"PE {n // 2}: byte {n}" for n in range(20)], "fine")
    assert [f.text for f in many[:2]] == ["PE 0: byte 0", "PE 1: byte 2"]
    assert many[-1].text == "and 14 more of this check"
    text = report(many, 4)
    assert text.splitlines()[-1] == "WRONG: put (here)"


def job_of(n_pes: int, boots: int = 1, nodes: int = 1, cores: int = 8) -> dict[str, object]:
    nics = [{"rail": 0}, {"rail": 1}, {"rail": 2}] if nodes > 1 else []
    pes = [{"boot_id": f"boot{pe % boots}", "cores": cores, "nics": nics} for pe in range(n_pes)]
    return {"pes": pes, "n_nodes": nodes, "progress_thread": nodes > 1, "lanes": 1}


def test_the_shapes_of_a_job() -> None:
    assert list(shapes(job_of(1))) == ["as started"]
    assert list(shapes(job_of(2))) == ["as started", "a node per PE"]
    assert list(shapes(job_of(4))) == ["as started", "2 emulated nodes", "a node per PE"]
    # Real hosts, or nodes that the user chose to emulate, are what is to be checked.
    assert list(shapes(job_of(4, boots=2, nodes=2))) == ["as started"]
    assert list(shapes(job_of(4, nodes=2))) == ["as started"]
    # A lane for each rail: none is left out.
    assert shapes(job_of(4, nodes=2))["as started"]["RAILSHMEM_LANES"] == "3"


def test_limits_of_the_machine_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.threads(job_of(4), 0).status == OK
    crowded = machine.threads(job_of(8, nodes=2), 0)
    assert crowded.status == NOTE
    assert "16 busy threads of 8 PEs on 8 cores" in crowded.text
    gib = 1 << 30
    free = {"MemTotal": 8 * gib, "MemAvailable": 5 * gib}
    assert machine.memory(job_of(4), 0, gib, free).status == OK
    assert machine.memory(job_of(4), 0, 2 * gib, free).status == NOTE
    assert machine.copying(3.0).status == OK
    assert machine.copying(0.01).status == WRONG
    monkeypatch.setattr(machine.resource, "getrlimit", lambda _: (100, 100))
    assert machine.open_files(2).status == WRONG or 64 + 8 <= 100
    assert machine.open_files(1000).status == WRONG
    unlimited = machine.resource.RLIM_INFINITY
    monkeypatch.setattr(machine.resource, "getrlimit", lambda _: (unlimited, unlimited))
    assert machine.open_files(1000).status == OK


# ---- whole jobs ----


@needs_mpirun
@pytest.mark.parametrize("n_pes", [1, 3])
def test_a_sound_machine_passes(n_pes: int) -> None:
    done = run_tool(n_pes, "check")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"railshmem check, {n_pes} PE")
    assert lines[-1] == "nothing is wrong"
    assert "as started: put" in done.stderr  # progress
    assert ("2 emulated nodes" in done.stdout) == (n_pes > 1)


@needs_mpirun
@pytest.mark.parametrize("emulated", ["atomics=off", "ordered=off"])
def test_the_nics_a_job_is_started_with_are_checked(emulated: str) -> None:
    chosen = {"RAILSHMEM_NODES": "2", "RAILSHMEM_RAILS": "3", "RAILSHMEM_EMULATED": emulated}
    done = run_tool(2, "check", settings=chosen)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "transports PROXY; rails 0, 1, 2" in done.stdout


FAULTY = """
import sys
import numpy as np
import railshmem.check.job as job
from railshmem import Runtime
from railshmem.cli import main

class Faulty(Runtime):
    BODY

job.Runtime = Faulty
sys.argv = ["railshmem", "check", "--timeout", "2"]
main()
"""

WRONG_BYTE = """
    def put(self, dest, source, pe):
        if self.my_pe == 0 and pe == 1 and source.size == 4099:
            source = source.copy()
            source[4000] ^= 0xFF
        super().put(dest, source, pe)
"""
LOST_ADD = """
    def atomic_fetch_add(self, dest, value, pe):
        return super().atomic_fetch_add(dest, 0 if pe == 1 else value, pe)
"""
EARLY_SIGNAL = """
    def put_signal(self, dest, source, signal, value, op, pe):
        part = source.size // 2
        super().put_signal(dest[:part], source[:part], signal, value, op, pe)
"""
LOST_SIGNAL = """
    def put_signal(self, dest, source, signal, value, op, pe):
        if self.my_pe == 1:
            self.put(dest, source, pe)
        else:
            super().put_signal(dest, source, signal, value, op, pe)
"""
FAILED_WRITE = """
    def put(self, dest, source, pe):
        if self.my_pe == 1 and source.size == 4099:
            raise railshmem.NetworkError("PE 1: WRITE failed")
        super().put(dest, source, pe)
"""


def check_with(body: str) -> subprocess.CompletedProcess[str]:
    script = FAULTY.replace("\n    BODY\n", body).replace("import sys", "import railshmem, sys", 1)
    done = run(2, "-c", script)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def row(done: subprocess.CompletedProcess[str], *parts: str) -> bool:
    """Whether one line of the table, unfolded, has all the parts."""
    return all(part in " ".join(done.stdout.split()) for part in parts)


@needs_mpirun
def test_a_wrong_byte_is_named_by_pair_size_and_offset() -> None:
    done = check_with(WRONG_BYTE)
    assert row(done, "PE 0 -> PE 1 (P2P): put of 4099 bytes at alignment 0: offset 4000: expected")
    verdict = done.stdout.splitlines()[-1]
    assert verdict.startswith("WRONG: put (a node per PE), put (as started), put from heap")
    assert "get" not in verdict


@needs_mpirun
def test_an_atomic_that_does_nothing_is_named() -> None:
    done = check_with(LOST_ADD)
    assert row(done, "PE 0 -> PE 1 (P2P): fetch_add of 32 bits left")
    assert "contention" in done.stdout.splitlines()[-1]


@needs_mpirun
def test_a_signal_before_its_data_is_named() -> None:
    done = check_with(EARLY_SIGNAL)
    assert row(done, "PE 1 -> PE 0 (P2P): signal 1 came before 1 bytes at alignment 0: offset 0:")


# A check that waits for what never comes ends at its deadline, and the others still run.
@needs_mpirun
def test_a_signal_that_never_comes_ends_in_a_report_and_the_rest_runs() -> None:
    done = check_with(LOST_SIGNAL)
    assert row(done, "PE 0: gave up after 2", "waiting for signal_wait_until", "(WaitTimeout)")
    verdict = done.stdout.splitlines()[-1]
    assert verdict == (
        "WRONG: signal ADD (a node per PE), signal ADD (as started), signal SET (a node per PE), "
        "signal SET (as started)"
    )


@needs_mpirun
def test_an_error_on_one_pe_is_everybodys() -> None:
    done = check_with(FAILED_WRITE)
    assert row(done, "PE 1: WRITE failed (NetworkError)", "PE 0: gave up after 2")
    verdict = done.stdout.splitlines()[-1]
    assert verdict.startswith("WRONG: put (a node per PE), put (as started), put from heap")
    assert "end" not in verdict


# What is wrong on the wire, not in a stand-in for it: error completions of the emulated NICs.
@needs_mpirun
@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("fail=read@20:access,pe=1", "PE 1: READ of"),
        ("fail=write@300:access,pe=1", "PE 1: WRITE of"),
        ("fail=atomic@9:operation,pe=0", "PE 0: FETCH_AND_ADD of 8 bytes to PE 0"),
    ],
)
def test_an_error_completion_is_found(fault: str, found: str) -> None:
    chosen = {"RAILSHMEM_NODES": "2", "RAILSHMEM_FAULTS": fault}
    done = run_tool(2, "check", "--timeout", "2", settings=chosen)
    assert done.returncode == 1, done.stdout + done.stderr
    assert row(done, found, "on rail 0 failed:", "(NetworkError)")
    assert done.stdout.splitlines()[-1].startswith("WRONG: ")
