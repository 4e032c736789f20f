"""The railshmem command as people start it: a job of its own, so these tests stay out of mpirun."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
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
    launcher = [str(find_mpirun()), "-n", str(n_pes)] if n_pes else []
    return subprocess.run(
        [*launcher, sys.executable, *command],
        env=job_environment() | (settings or {}),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def job_environment() -> dict[str, str]:
    """This test's own place in a job, if any, is not that of the job it starts."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PMI", "OMPI_COMM", "RAILSHMEM_"))
    }
    return inherited | {
        "RAILSHMEM_HEAP_SIZE": "256M",
        "RAILSHMEM_TIMEOUT_S": "60",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }


def run_tool(
    n_pes: int, *arguments: str, settings: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return run(n_pes, "-m", "railshmem.cli", *arguments, settings=settings)


def json_lines(
    n_pes: int, *arguments: str, settings: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    """What `railshmem bench ... --json -` printed; fails unless that is JSON lines and no more."""
    done = run_tool(n_pes, "bench", *arguments, "--json", "-", settings=settings)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines
    assert all(set(line) >= ALWAYS for line in lines)
    assert all(line["p99_us"] >= line["median_us"] > 0 for line in lines)
    assert all(line["line_before_us"] > 0 and line["line_after_us"] > 0 for line in lines)
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


def by_bench(lines: list[dict[str, Any]], transport: str | None = None) -> dict[str, Any]:
    return {line["bench"]: line for line in lines if transport in (None, line["transport"])}


@needs_mpirun
def test_info_as_json() -> None:
    done = run_tool(4, "info", "--json", "-", settings=TWO_NODES)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [pe["node"] for pe in found["pes"]] == [0, 0, 1, 1]
    assert [pair["path"] for pair in found["pairs"][0]] == ["P2P", "P2P", "PROXY", "PROXY"]
    assert found["pairs"][0][2]["rail"] in (0, 1)
    assert found["settings"]["RAILSHMEM_NODES"] == "2"


@needs_mpirun
def test_info_into_files(tmp_path: Path) -> None:
    picture, text = tmp_path / "job.png", tmp_path / "job.json"
    done = run_tool(2, "info", "--json", str(text), "--plot", str(picture), settings=TWO_NODES)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert json.loads(text.read_text())["n_nodes"] == 2
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_env_shows_what_the_library_takes() -> None:
    settings = {
        "RAILSHMEM_HEAP_SIZE": "",  # empty is not set: the standard's name counts
        "SHMEM_SYMMETRIC_SIZE": "32M",
        "RAILSHMEM_LANES": "3",
    }
    done = run_tool(0, "env", "--json", settings=settings)
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    heap, lanes, ring = (rows[f"RAILSHMEM_{name}"] for name in ("HEAP_SIZE", "LANES", "RING"))
    assert (heap["value"], heap["variable"]) == ("32M", "SHMEM_SYMMETRIC_SIZE")
    assert (lanes["value"], lanes["variable"], lanes["default"]) == ("3", "RAILSHMEM_LANES", "1")
    assert (ring["value"], ring["variable"]) == (ring["default"], "")


def test_env_says_what_init_would_refuse() -> None:
    done = run_tool(0, "env", settings={"RAILSHMEM_NODES": "some"})
    assert done.returncode == 1
    assert "some *" in done.stdout  # the table is there nevertheless
    assert "RAILSHMEM_NODES=some: expected a whole number" in done.stderr


@needs_mpirun
@pytest.mark.parametrize(("kind", "mpi"), [("put", "Win.Put"), ("get", "Win.Get+Flush")])
def test_transfers_on_both_transports(kind: str, mpi: str) -> None:
    lines = json_lines(4, kind, "--bytes", "8", "--rounds", "3", settings=TWO_NODES)
    for transport in ("P2P", "PROXY"):
        found = by_bench(lines, transport)
        python, core = found[kind], found[f"{kind}_core"]
        assert python["rival"] == mpi
        assert python["rival_us"] > 0
        # A call from Python costs what an empty one does, and the operation.
        assert python["limit_us"] == pytest.approx(
            python["empty_call_us"] + core["limit_us"], abs=2e-6
        )
        assert core["gbs"] == pytest.approx(8 / core["median_us"] / 1e3, rel=0.01)
    assert ("put_quiet_core" in by_bench(lines)) == (kind == "put")


@needs_mpirun
def test_atomic() -> None:
    lines = by_bench(json_lines(2, "atomic", "--rounds", "3"))
    assert set(lines) == {"fetch_add", "fetch_add_core", "add", "add_core"}
    assert lines["fetch_add"]["rival"] == "Fetch_and_op+Flush"
    assert all(line["limit_us"] > 0 for line in lines.values())


@needs_mpirun
@pytest.mark.parametrize("settings", [{}, {"RAILSHMEM_NODES": "2"}])
def test_signal(settings: dict[str, str]) -> None:
    lines = by_bench(json_lines(2, "signal", "--rounds", "2", settings=settings))
    assert set(lines) == {"signal", "signal_core", "put_signal", "put_signal_core"}
    assert {line["transport"] for line in lines.values()} == {"PROXY" if settings else "P2P"}
    assert lines["signal"]["rival"] == "Win.Put+Flush"


@needs_mpirun
def test_barrier() -> None:
    lines = by_bench(json_lines(2, "barrier", "--rounds", "3"))
    assert set(lines) == {"barrier", "barrier_core"}
    assert lines["barrier"]["rival"] == "comm.Barrier"
    # Two PEs: one step.
    assert lines["barrier"]["limit_us"] == pytest.approx(lines["barrier"]["cache_line_us"])


@needs_mpirun
@pytest.mark.parametrize("settings", [{}, TWO_NODES])
def test_collectives(settings: dict[str, str]) -> None:
    arguments = ("collectives", "--bytes", "8", "--bytes", "4096", "--rounds", "2")
    lines = json_lines(2, *arguments, settings=settings)
    names = ("broadcast", "fcollect", "alltoall", "sum_reduce")
    assert {(line["bench"], line["bytes"]) for line in lines} == {
        (f"{name}{form}", size) for name in names for form in ("", "_core") for size in (8, 4096)
    }
    rivals = {line["bench"]: line.get("rival") for line in lines}
    assert (rivals["sum_reduce"], rivals["sum_reduce_core"]) == ("Allreduce", None)


def test_arrays_of_doubles_are_whole() -> None:
    done = run_tool(0, "bench", "collectives", "--bytes", "12")
    assert done.returncode == 2
    assert "12 is not a multiple of 8" in done.stderr


@needs_mpirun
def test_malloc_reports_2000_calls() -> None:
    (line,) = json_lines(2, "malloc", "--bytes", "64", "--rounds", "1")
    assert line["calls"] == 2000
    assert line["total_s"] >= 2000 * line["median_us"] * 1e-6 * 0.5
    assert set(line) >= {"limit_us", "limit_total_s", "rival", "rival_us", "rival_total_s"}


@needs_mpirun
def test_proxy_reports_rates_by_producers_and_round_trip() -> None:
    arguments = ("proxy", "--producers", "2", "--rounds", "3")
    lines = by_bench(json_lines(2, *arguments, settings={"RAILSHMEM_NODES": "2"}))
    assert set(lines) == {"proxy", "proxy_x2", "proxy_round_trip"}
    assert lines["proxy_x2"]["producers"] == 2
    for name in ("proxy", "proxy_x2"):
        rate = lines[name]["commands_per_s"]
        assert rate == pytest.approx(1e6 / lines[name]["median_us"], rel=0.01)
    assert lines["proxy_round_trip"]["median_us"] == lines["proxy"]["round_trip_us"]


@needs_mpirun
def test_init_by_pes_and_heap() -> None:
    heaps = ("--heap", str(1 << 24), "--heap", str(1 << 25))
    lines = json_lines(3, "init", *heaps, "--rounds", "1")
    assert [(line["n_pes"], line["bytes"]) for line in lines] == [
        (n_pes, heap) for n_pes in (1, 2, 3) for heap in (1 << 24, 1 << 25)
    ]
    assert all(line["rival"] == "Win.Allocate" for line in lines)


@needs_mpirun
def test_results_become_a_picture(tmp_path: Path) -> None:
    files = [str(tmp_path / f"{kind}.jsonl") for kind in ("put", "barrier")]
    for kind, file in zip(("put", "barrier"), files, strict=True):
        sizes = ("--bytes", "8", "--bytes", "4096") if kind == "put" else ()
        done = run_tool(2, "bench", kind, *sizes, "--rounds", "2", "--json", file)
        assert done.returncode == 0, done.stderr
        assert "cache line, core to core:" in done.stdout
    picture = tmp_path / "results.png"
    done = run_tool(0, "bench", "plot", *files, "-o", str(picture))
    assert done.returncode == 0, done.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")


@needs_mpirun
def test_ctrl_c_ends_a_benchmark_on_all_pes() -> None:
    """Ctrl-C reached one PE while the other sat in MPI: the job stayed until somebody killed it."""
    command = [str(find_mpirun()), "-n", "2", sys.executable, "-m", "railshmem.cli"]
    with subprocess.Popen(
        [*command, "bench", "barrier", "--rounds", "10000000"],
        env=job_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as job:
        try:
            pes = wait_for_pes(job.pid, 2)
            pes[0].send_signal(signal.SIGINT)
            job.communicate(timeout=60)
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
    assert job.returncode != 0
    _, alive = psutil.wait_procs(pes, timeout=10)
    assert not alive


def wait_for_pes(launcher: int, count: int) -> list[psutil.Process]:
    """The processes of the tool below the launcher, once all have joined the job."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        below = psutil.Process(launcher).children(recursive=True)
        pes = [process for process in below if "railshmem.cli" in " ".join(process.cmdline())]
        # A PE that has joined maps its heap, and its peer's.
        if len(pes) == count and all(maps_heaps(process, 2) for process in pes):
            return pes
        time.sleep(0.05)
    raise AssertionError(f"the {count} PEs did not join within 60 s")


def maps_heaps(process: psutil.Process, count: int) -> bool:
    maps = Path(f"/proc/{process.pid}/maps").read_text()
    return maps.count("/memfd:") >= count


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
