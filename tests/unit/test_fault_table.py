"""docs/faults.md lists the faults that others had, truly: each of its tests exists, once."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
GROUPS = ["Memory and init", "Queues and completions", "Order", "Expert parallelism"]


class Row(NamedTuple):
    group: str
    fault: str
    reason: str
    tests: list[str]


def table() -> list[Row]:
    rows = []
    group = ""
    for line in (ROOT / "docs/faults.md").read_text().splitlines():
        if line.startswith("## "):
            group = line.removeprefix("## ")
        elif line.startswith("| ") and not line.startswith("| fault |"):
            fault, reason, tests = (cell.strip() for cell in line.strip("|").split("|"))
            rows.append(Row(group, fault, reason, re.findall(r"`([^`]+)`", tests)))
    return rows


ROWS = table()
TESTS = sorted({test for row in ROWS for test in row.tests})


def words_of(test: str) -> list[str]:
    """What each test of this name says of itself: its docstring or first comment."""
    file, name = test.split("::", 1)
    (path,) = (ROOT / "tests").glob(f"*/{file}")
    text = path.read_text()
    if path.suffix == ".py":
        nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
        return [ast.get_docstring(node) or "" for node in nodes if node.name == name]
    found = []
    for case in text.split("\nTEST_CASE(")[1:]:
        title, body = case.split(") {\n", 1)
        if "".join(re.findall(r'"([^"]*)"', title)) == name:
            comment = re.search(r"// (.*)", body.split("\n}\n")[0])
            found.append(comment[1] if comment else "")
    return found


def test_every_group_has_rows_and_no_fault_is_told_twice() -> None:
    assert list(dict.fromkeys(row.group for row in ROWS)) == GROUPS
    assert [fault for fault, times in Counter(row.fault for row in ROWS).items() if times > 1] == []


@pytest.mark.parametrize("row", ROWS, ids=[row.fault for row in ROWS])
def test_every_fault_has_a_reason_and_tests(row: Row) -> None:
    assert row.reason
    assert row.tests
    assert len(set(row.tests)) == len(row.tests)


@pytest.mark.parametrize("test", TESTS)
def test_named_tests_exist_once(test: str) -> None:
    assert len(words_of(test)) == 1


@pytest.mark.parametrize("row", ROWS, ids=[row.fault for row in ROWS])
def test_the_first_test_tells_the_fault(row: Row) -> None:
    (words,) = words_of(row.tests[0])
    assert words
