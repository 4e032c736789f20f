"""docs/api.md lists every host call of OpenSHMEM 1.5, truly: names, sections and tests."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

import railshmem

ROOT = Path(__file__).parents[2]

# What the specification defines for the host and has not deprecated, by section.
SPECIFIED = {
    "9.1": "init my_pe n_pes finalize global_exit pe_accessible addr_accessible ptr"
    " info_get_version info_get_name",
    "9.2": "init_thread query_thread",
    "9.3": "malloc free realloc align malloc_with_hints calloc",
    "9.4": "team_my_pe team_n_pes team_config_t team_get_config team_translate_pe"
    " team_split_strided team_split_2d team_destroy",
    "9.5": "ctx_create team_create_ctx ctx_destroy ctx_get_team",
    "9.6": "put p iput get g iget put_nbi get_nbi",
    "9.7": "atomic_fetch atomic_set atomic_compare_swap atomic_swap atomic_fetch_inc atomic_inc"
    " atomic_fetch_add atomic_add atomic_fetch_and atomic_and atomic_fetch_or atomic_or"
    " atomic_fetch_xor atomic_xor atomic_fetch_nbi atomic_compare_swap_nbi atomic_swap_nbi"
    " atomic_fetch_inc_nbi atomic_fetch_add_nbi atomic_fetch_and_nbi atomic_fetch_or_nbi"
    " atomic_fetch_xor_nbi",
    "9.8": "put_signal put_signal_nbi signal_fetch",
    "9.9": "barrier_all sync team_sync sync_all alltoall alltoalls broadcast collect fcollect"
    " and_reduce or_reduce xor_reduce max_reduce min_reduce sum_reduce prod_reduce",
    "9.10": "wait_until wait_until_all wait_until_any wait_until_some wait_until_all_vector"
    " wait_until_any_vector wait_until_some_vector test test_all test_any test_some"
    " test_all_vector test_any_vector test_some_vector signal_wait_until",
    "9.11": "fence quiet",
    "9.12": "set_lock clear_lock test_lock",
}
# Beside the specification: arrays in place of addresses, and jobs by a shared id.
OWN = {"shmem_array", "shmem_get_unique_id"}
# Rows of the last section, which say no section of the specification.
BEYOND = {name for name in railshmem.__all__ if name.endswith("_on_stream")}


class Row(NamedTuple):
    call: str
    section: str
    python: list[str]
    cpp: list[str]
    tests: list[str]


def table() -> dict[str, Row]:
    rows = {}
    for line in (ROOT / "docs/api.md").read_text().splitlines():
        if line.startswith("| `"):
            call, section, *lists = (cell.strip() for cell in line.strip("|").split("|"))
            python, cpp, tests = (re.findall(r"`([^`]+)`", cell) for cell in lists)
            assert call not in rows
            rows[call.strip("`")] = Row(call.strip("`"), section, python, cpp, tests)
    return rows


ROWS = table()


def sources_of(folder: str) -> str:
    return "\n".join(path.read_text() for path in sorted((ROOT / folder).glob("*.hpp")))


def test_every_call_of_the_specification_has_a_row_in_its_section() -> None:
    expected = {
        f"shmem_{name}": section for section, names in SPECIFIED.items() for name in names.split()
    }
    assert ROWS.keys() - BEYOND == expected.keys()
    for call, section in expected.items():
        assert ROWS[call].section.startswith(f"{section}."), call


def test_every_call_beyond_the_specification_has_a_row() -> None:
    assert {call for call, row in ROWS.items() if row.section == "-"} == BEYOND


def test_every_public_name_is_in_the_table() -> None:
    public = {name for name in railshmem.__all__ if name.startswith("shmem_")}
    listed = {name for row in ROWS.values() for name in row.python}
    assert public - listed - OWN == set()


@pytest.mark.parametrize("call", ROWS)
def test_python_names_exist_and_say_their_section(call: str) -> None:
    row = ROWS[call]
    assert row.python
    for name in row.python:
        assert name in railshmem.__all__
        text = " ".join((getattr(railshmem, name).__doc__ or "").split())
        assert text
        assert row.section == "-" or re.search(
            rf"section {re.escape(row.section)}\b(?!\.\d)", text
        ), (name, text)


@pytest.mark.parametrize("call", ROWS)
def test_cpp_names_exist(call: str) -> None:
    headers = sources_of("shmem/include/railshmem")
    for name in ROWS[call].cpp:
        generated = re.sub("shmem_TYPENAME_", "", name)
        if generated != name:
            assert re.search(rf"\b(RAILSHMEM_\w+\(\w[\w:]*, N, {generated},)", headers), name
        elif "SIZE" in name:
            stem = name.removeprefix("shmem_").replace("SIZE", "##BITS##").removesuffix("##")
            assert f"RAILSHMEM_SIZED({stem}," in headers, name
        else:
            assert re.search(rf"\b{name}\b( \w+)?[(;]|using {name} =", headers), name


def functions_of(path: Path) -> dict[str, str]:
    text = path.read_text()
    return {
        node.name: ast.get_source_segment(text, node) or ""
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef)
    }


@pytest.mark.parametrize("call", ROWS)
def test_named_tests_exist_and_make_the_call(call: str) -> None:
    row = ROWS[call]
    assert row.tests
    sources = []
    for test in row.tests:
        file, name = test.split("::")
        assert name.startswith("test_")
        found = functions_of(next((ROOT / "tests").glob(f"*/{file}")))
        assert name in found, test
        sources.append(found[name])
        method = re.sub("^shmemx?_", "", call)
        names = "|".join([rf"\.{method}", rf"\b{method}", *(rf"\b{n}" for n in row.python)])
        assert re.search(rf"({names})\b", sources[-1]), f"{test} does not mention {call}"
    # Each form is called by its name in some test.
    for name in row.python:
        assert re.search(rf"\b{name}\b", "\n".join(sources)), f"no test of {name}"
