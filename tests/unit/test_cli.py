"""The railshmem command as people start it: a job of its own, so these tests stay out of mpirun."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ALWAYS = {"bench", "median_us", "p99_us"}
TWO_NODES = {"RAILSHMEM_NODES": "2", "RAILSHMEM_RAILS": "2"}


def find_mpirun() -> str | None:
    """The launcher beside this Python, else the one on the path."""
    beside = Path(sys.executable).parent / "mpirun"
    return str(beside) if beside.exists() else shutil.which("mpirun")


needs_mpirun = pytest.mark.skipif(find_mpirun() is None, reason="no mpirun found")


def run(
    n_pes: int, *command: str, settings: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs `python ...` on n PEs; 0 PEs: without a launcher."""
    # This test's own place in a job, if any, is not that of the job it starts.
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PMI", "OMPI_COMM", "RAILSHMEM_"))
    }
    environment = inherited | {
        "RAILSHMEM_HEAP_SIZE": "256M",
        "RAILSHMEM_TIMEOUT_S": "60",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }
    launcher = [str(find_mpirun()), "-n", str(n_pes)] if n_pes else []
    return subprocess.run(
        [*launcher, sys.executable, *command],
        env=environment | (settings or {}),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def run_tool(
    n_pes: int, *arguments: str, settings: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return run(n_pes, "-m", "railshmem.cli", *arguments, settings=settings)


def json_lines(
    n_pes: int, *arguments: str, settings: dict[str, str] | None = None
) -> list[dict[str, object]]:
    """What `railshmem bench ... --json -` printed; fails unless that is JSON lines and no more."""
    done = run_tool(n_pes, "bench", *arguments, "--json", "-", settings=settings)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines
    assert all(set(line) >= ALWAYS for line in lines)
    assert all(line["p99_us"] >= line["median_us"] > 0 for line in lines)
    return lines


def test_env_prints_every_setting() -> None:
    done = run_tool(0, "env")
    assert done.returncode == 0, done.stderr
    for name in ("RAILSHMEM_HEAP_SIZE", "RAILSHMEM_TIMEOUT_S", "RAILSHMEM_NODES"):
        assert name in done.stdout


def test_info_works_alone() -> None:
    done = run_tool(0, "info")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 PE on 1 node")


@needs_mpirun
def test_info_of_one_node() -> None:
    done = run_tool(4, "info")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("4 PEs on 1 node")
    assert "same node: heap mapped" in done.stdout
    assert "PROXY" not in done.stdout


@needs_mpirun
def test_info_of_two_emulated_nodes() -> None:
    done = run_tool(4, "info", settings=TWO_NODES)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("4 PEs on 2 nodes")  # once: only PE 0 prints
    assert done.stdout.count("Reasons") == 1
    for text in ("emu0 (0), emu1 (1)", "PROXY r0", "PROXY r1", "other emulated node"):
        assert text in done.stdout


@needs_mpirun
def test_put_on_both_transports() -> None:
    lines = json_lines(4, "put", "--bytes", "8", "--rounds", "5", settings=TWO_NODES)
    assert {line["transport"] for line in lines} == {"P2P", "PROXY"}
    assert {line["bench"] for line in lines} == {"put", "put_quiet", "put_core"}
    for line in lines:
        assert set(line) >= {"bytes", "gbs", "limit_us", "limit_gbs"}
        assert line["bench"] == "put_core" or set(line) >= {"rival", "rival_us"}


@needs_mpirun
def test_barrier() -> None:
    lines = json_lines(2, "barrier", "--rounds", "3")
    assert set(lines[0]) >= {"limit_us", "rival", "rival_us"}


@needs_mpirun
def test_malloc_reports_2000_calls() -> None:
    (line,) = json_lines(2, "malloc", "--bytes", "64", "--rounds", "1")
    assert set(line) >= {"total_s", "limit_us", "rival", "rival_us"}
    assert line["calls"] == 2000


@needs_mpirun
def test_proxy_reports_rate_and_round_trip() -> None:
    lines = json_lines(2, "proxy", "--rounds", "3", settings={"RAILSHMEM_NODES": "2"})
    for line in lines:
        assert set(line) >= {"commands_per_s", "round_trip_us", "limit_us", "rival_us"}


@needs_mpirun
def test_proxy_says_what_it_needs() -> None:
    done = run_tool(2, "bench", "proxy", "--json", "-")
    assert done.returncode != 0
    assert done.stderr.count("set RAILSHMEM_NODES=2") == 1
    assert "Traceback" not in done.stderr
    assert "bench" not in done.stdout


@needs_mpirun
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32", "fp8"])
def test_ep_beside_alltoallv(dtype: str) -> None:
    shape = ("--tokens", "16", "--hidden", "256", "--experts", "16", "--topk", "4")
    arguments = ("ep", *shape, "--dtype", dtype, "--rounds", "2")
    lines = json_lines(4, *arguments, settings=TWO_NODES)
    assert [line["bench"] for line in lines] == ["ep", "ep_dispatch", "ep_combine"]
    for line in lines:
        assert set(line) >= {"limit_us", "rival", "rival_us", "gbs"}
        assert line["rival"] == "Alltoallv"
        assert line["dtype"] == dtype


@needs_mpirun
@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_ep_by_expert_agrees_with_mpi_and_is_timed_beside_it(dtype: str) -> None:
    shape = ("--tokens", "33", "--hidden", "128", "--experts", "16", "--layout", "expert-major")
    lines = json_lines(4, "ep", *shape, "--dtype", dtype, "--rounds", "2", settings=TWO_NODES)
    assert [line["bench"] for line in lines] == ["ep", "ep_dispatch", "ep_combine"]
    assert all(line["layout"] == "expert-major" for line in lines)


@needs_mpirun
@pytest.mark.parametrize(
    "arguments", [("--dtype", "bf16"), ("--dtype", "fp8"), ("--tokens", "3"), ("--tokens", "0")]
)
def test_moe_layer_is_right(arguments: tuple[str, str]) -> None:
    script = str(ROOT / "examples" / "moe_layer.py")
    text = str(ROOT / "examples" / "moe_gating.py")
    sizes = ("--hidden", "256", "--rounds", "2", "--text", text)
    done = run(4, script, *sizes, *arguments, settings=TWO_NODES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "bit-exact on every PE" in done.stdout
    assert len(done.stdout.splitlines()) <= 45


@needs_mpirun
def test_hello_ring_greets() -> None:
    done = run(4, str(ROOT / "examples" / "hello_ring.py"))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines())[1].startswith("PE 1: [0. 0. 0. 0.] from PE 0")
