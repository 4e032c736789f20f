"""The cache of compiled kernels: what makes another entry, who compiles, and what goes wrong.

A compiler of the test's own stands for NVRTC: the cache knows neither.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from railshmem.errors import GpuError
from railshmem.kernels import KernelCache, cache_folder, find_or_compile, kernel_names
from railshmem.kernels.sources import KernelSource, read_kernel


class Recorder:
    """Compiles by noting that it was asked to."""

    def __init__(self, version: str = "1.0", options: Sequence[str] = ("-O3",)) -> None:
        self.version = version
        self.given = options
        self.compiled: list[str] = []

    def options(self, source: KernelSource, architecture: str) -> Sequence[str]:
        return self.given

    def compile(self, source: KernelSource, architecture: str) -> bytes:
        self.compiled.append(f"{source.name} {architecture}")
        return f"image of {source.name} for {architecture}".encode()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A kernel that includes a header that includes another."""
    entry = tmp_path / "include" / "kernels" / "entry"
    entry.mkdir(parents=True)
    (entry / "small.cu").write_text('#include "kernels/outer.hpp"\n#include <stdint.h>\n')
    (entry.parent / "outer.hpp").write_text('# include "inner.hpp"  // beside it\n')
    (entry.parent / "inner.hpp").write_text("constexpr int kNumber = 1;\n")
    return tmp_path / "include"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def compile_small(
    tree: Path, folder: Path | None, compiler: Recorder, architecture: str = "sm_90"
) -> bool:
    """Whether it had to compile."""
    entry = find_or_compile("small", architecture, compiler=compiler, folder=folder, include=tree)
    assert entry.image == f"image of small for {architecture}".encode()
    return entry.compiled


def files_in(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(pattern))


# ---- what an entry follows from ------------------------------------------------------------------


def test_the_second_time_nobody_compiles(tree: Path, folder: Path) -> None:
    compiler = Recorder()
    assert compile_small(tree, folder, compiler)
    assert not compile_small(tree, folder, compiler)
    assert compiler.compiled == ["small sm_90"]


def test_every_text_that_is_included_is_part_of_the_kernel(tree: Path) -> None:
    texts = read_kernel("small", tree).texts
    assert sorted(texts) == ["kernels/entry/small.cu", "kernels/inner.hpp", "kernels/outer.hpp"]


def test_an_edited_include_is_another_kernel(tree: Path, folder: Path) -> None:
    compiler = Recorder()
    compile_small(tree, folder, compiler)
    inner = tree / "kernels" / "inner.hpp"
    before = inner.read_text()
    inner.write_text("constexpr int kNumber = 2;\n")
    assert compile_small(tree, folder, compiler)
    inner.write_text(before)
    assert not compile_small(tree, folder, compiler)


def test_a_changed_option_is_another_kernel(tree: Path, folder: Path) -> None:
    compile_small(tree, folder, Recorder())
    assert compile_small(tree, folder, Recorder(options=("-O2",)))
    assert compile_small(tree, folder, Recorder(options=("-O", "3")))
    assert not compile_small(tree, folder, Recorder())


def test_another_compiler_version_is_another_kernel(tree: Path, folder: Path) -> None:
    compile_small(tree, folder, Recorder())
    assert compile_small(tree, folder, Recorder(version="1.1"))


def test_another_architecture_is_another_kernel(tree: Path, folder: Path) -> None:
    compiler = Recorder()
    compile_small(tree, folder, compiler)
    assert compile_small(tree, folder, compiler, "sm_100")
    assert compiler.compiled == ["small sm_90", "small sm_100"]


def test_a_file_that_is_not_included_does_not_matter(tree: Path, folder: Path) -> None:
    compile_small(tree, folder, Recorder())
    (tree / "kernels" / "another.hpp").write_text("#error\n")
    assert not compile_small(tree, folder, Recorder())


def test_the_layout_of_the_context_is_compiled_in(tree: Path) -> None:
    from railshmem import _core

    assert read_kernel("small", tree).abi == _core.DEVICE_ABI


# ---- who compiles --------------------------------------------------------------------------------

MAKE = """
import sys, time
from pathlib import Path
from railshmem.kernels import KernelCache

folder, made, wait_for = map(Path, sys.argv[1:])

def make():
    with made.open("a") as log:
        log.write("made\\n")
    while not wait_for.exists():
        time.sleep(0.01)
    return b"image"

print(KernelCache(folder).find_or_make("small", ["text"], make).compiled)
"""


@pytest.fixture
def makers() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that the test starts; none outlives it."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def start_making(folder: Path, tmp_path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", MAKE, folder, tmp_path / "made", tmp_path / "go"],
        stdout=subprocess.PIPE,
        text=True,
    )


def wait_until_made(tmp_path: Path, times: int) -> None:
    made = tmp_path / "made"
    ends = time.monotonic() + 60
    while not made.exists() or made.read_text().count("made") < times:
        assert time.monotonic() < ends, "nobody compiles"
        time.sleep(0.01)


def test_two_processes_at_once_compile_once(
    tmp_path: Path, folder: Path, makers: list[subprocess.Popen[str]]
) -> None:
    makers += [start_making(folder, tmp_path) for _ in range(3)]
    wait_until_made(tmp_path, 1)
    (tmp_path / "go").touch()
    said = sorted(process.communicate(timeout=60)[0].strip() for process in makers)
    assert said == ["False", "False", "True"]
    assert (tmp_path / "made").read_text() == "made\n"


def test_a_killed_builder_stops_nobody(
    tmp_path: Path, folder: Path, makers: list[subprocess.Popen[str]]
) -> None:
    makers.append(start_making(folder, tmp_path))
    wait_until_made(tmp_path, 1)
    makers[0].send_signal(signal.SIGKILL)
    makers[0].wait(timeout=60)
    entry = KernelCache(folder).find_or_make("small", ["text"], lambda: b"image")
    assert entry.compiled
    assert entry.image == b"image"


def test_what_a_killed_builder_left_is_removed(folder: Path) -> None:
    cache = KernelCache(folder)
    cache.find_or_make("small", ["text"], lambda: b"image")
    [place] = files_in(folder, "*.bin")
    place.unlink()
    leftover = folder / f"{place.stem}.abc.tmp"
    leftover.write_bytes(b"half an im")
    cache.find_or_make("small", ["text"], lambda: b"image")
    assert files_in(folder, "*.tmp") == []


def test_a_stuck_builder_is_not_waited_for_for_ever(
    tmp_path: Path, folder: Path, makers: list[subprocess.Popen[str]]
) -> None:
    makers.append(start_making(folder, tmp_path))
    wait_until_made(tmp_path, 1)
    entry = KernelCache(folder, patience_s=0.05).find_or_make("small", ["text"], lambda: b"image")
    assert entry.compiled
    (tmp_path / "go").touch()
    assert makers[0].communicate(timeout=60)[0].strip() == "True"


def test_a_refused_kernel_leaves_nothing_behind(folder: Path) -> None:
    def refuse() -> bytes:
        raise GpuError("line 7: what is this?")

    with pytest.raises(GpuError, match="line 7"):
        KernelCache(folder).find_or_make("small", ["text"], refuse)
    assert files_in(folder, "*.bin") + files_in(folder, "*.tmp") == []
    assert KernelCache(folder).find_or_make("small", ["text"], lambda: b"image").compiled


# ---- what can be wrong with the folder -----------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[:10],
        lambda data: b"",
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: bytes(len(data)),
    ],
    ids=["short", "cut", "empty", "flipped bit", "zeros"],
)
def test_a_corrupted_entry_is_made_again(folder: Path, damage: object) -> None:
    cache = KernelCache(folder)
    cache.find_or_make("small", ["text"], lambda: b"image")
    [place] = files_in(folder, "*.bin")
    assert callable(damage)
    place.write_bytes(damage(place.read_bytes()))
    assert cache.find_or_make("small", ["text"], lambda: b"image").compiled
    entry = cache.find_or_make("small", ["text"], lambda: b"another")
    assert entry == (b"image", False)


READ_ONLY = """
import os, sys, warnings
from pathlib import Path
from railshmem.kernels import KernelCache

if os.geteuid() == 0:
    os.setuid(65534)  # root may write everywhere
warnings.simplefilter("default")
cache = KernelCache(Path(sys.argv[1]))
print(cache.find_or_make("there", ["text"], lambda: b"image"))
for _ in range(2):
    print(cache.find_or_make("missing", ["text"], lambda: b"image"))
"""


def test_a_read_only_folder_is_read_and_one_warning_says_that_nothing_is_kept() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "cache")
        KernelCache(folder).find_or_make("there", ["text"], lambda: b"image")
        Path(name).chmod(0o755)
        folder.chmod(0o555)
        ended = subprocess.run(
            [sys.executable, "-c", READ_ONLY, folder],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        folder.chmod(0o755)
        assert len(files_in(folder, "*.bin")) == 1
    assert [line.endswith("compiled=True)") for line in ended.stdout.splitlines()] == [
        False,
        True,
        True,
    ]
    assert ended.stderr.count("RuntimeWarning: compiled kernels are not kept") == 1
    assert "RAILSHMEM_CACHE" in ended.stderr


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = KernelCache(tmp_path / "file" / "cache")
    with pytest.warns(RuntimeWarning, match="not kept"):
        assert cache.find_or_make("small", ["text"], lambda: b"image").compiled


def test_entries_of_an_image_can_be_read_by_everybody(folder: Path) -> None:
    KernelCache(folder).find_or_make("small", ["text"], lambda: b"image")
    [place] = files_in(folder, "*.bin")
    assert place.stat().st_mode & 0o444 == 0o444


# ---- where it is ---------------------------------------------------------------------------------


def test_the_folder_is_chosen_by_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("RAILSHMEM_CACHE", raising=False)
    assert cache_folder() == tmp_path / ".cache" / "railshmem"
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/railshmem")
    monkeypatch.setenv("RAILSHMEM_CACHE", "~/kernels")
    assert cache_folder() == tmp_path / "kernels"


def test_without_a_home_nothing_is_kept(monkeypatch: pytest.MonkeyPatch, tree: Path) -> None:
    def nowhere() -> Path:
        raise RuntimeError("no home")

    monkeypatch.setattr(Path, "home", nowhere)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("RAILSHMEM_CACHE", raising=False)
    with pytest.warns(RuntimeWarning, match="no home folder"):
        assert compile_small(tree, None, Recorder())


# ---- bad input -----------------------------------------------------------------------------------


def test_an_unknown_kernel_is_an_error_that_names_the_known_ones(tree: Path) -> None:
    with pytest.raises(GpuError, match=r"'large'; there are: small"):
        find_or_compile("large", "sm_90", compiler=Recorder(), include=tree)


@pytest.mark.parametrize("architecture", ["", "90", "compute_90", "x86"])
def test_an_unknown_kind_of_architecture_is_an_error(architecture: str) -> None:
    with pytest.raises(GpuError, match="expected one like sm_90 or gfx942"):
        find_or_compile("core", architecture)


def test_a_missing_include_is_an_error_that_names_it(tree: Path) -> None:
    (tree / "kernels" / "inner.hpp").unlink()
    with pytest.raises(GpuError, match=r"kernels/outer\.hpp includes 'inner\.hpp'"):
        read_kernel("small", tree)


def test_the_package_has_its_kernels_and_their_headers() -> None:
    assert "core" in kernel_names()
    for name in kernel_names():
        texts = read_kernel(name).texts
        assert "kernels/arch/cuda.hpp" in texts
        assert "kernels/arch/hip.hpp" in texts
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert os.access(read_kernel("core").include / "railshmem" / "device.hpp", os.R_OK)
