"""What a check found, and how bytes that should be equal differ."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

OK = "ok"
NOTE = "note"  # worth knowing; nothing is wrong
WRONG = "WRONG"
NOT_RUN = "not run"

# Of one check, each of another pair; the rest is counted.
SHOWN_PROBLEMS = 6


@dataclass(frozen=True)
class Finding:
    """One line of the table."""

    where: str  # what was checked on: "this machine", or the job's shape
    check: str
    status: str
    text: str


def json_text(findings: Sequence[Finding]) -> str:
    """A list of objects with the fields of Finding."""
    return json.dumps([vars(finding) for finding in findings], indent=2, ensure_ascii=False) + "\n"


def judged(where: str, check: str, problems: Sequence[str], good: str) -> list[Finding]:
    """One line that says `good`, or a line for the first problem of each pair (or PE).

    What a problem is about ends at its first colon.
    """
    if not problems:
        return [Finding(where, check, OK, good)]
    first: dict[str, str] = {}
    for text in problems:
        first.setdefault(text.partition(":")[0], text)
    shown = list(first.values())[:SHOWN_PROBLEMS]
    if len(problems) > len(shown):
        shown.append(f"and {len(problems) - len(shown)} more of this check")
    return [Finding(where, check, WRONG, text) for text in shown]


def difference(seen: NDArray[Any], expected: NDArray[Any]) -> str | None:
    """Where the first element that differs lies, and what was expected and seen; None: nowhere.

    Both arrays have one dimension and the same dtype and length.
    """
    wrong = np.flatnonzero(seen != expected)
    if wrong.size == 0:
        return None
    first, last = int(wrong[0]), int(wrong[-1])
    digits = 2 * seen.itemsize
    text = (
        f"offset {first}: expected {int(expected[first]):#0{digits + 2}x}, "
        f"seen {int(seen[first]):#0{digits + 2}x}"
    )
    if wrong.size > 1:
        text += f", and {wrong.size - 1} more up to offset {last}"
    return text
