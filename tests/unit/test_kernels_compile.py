"""Every kernel compiles for every GPU that the library is written for, without a GPU and without a
warning; and what users' compilers are given compiles there too."""

from __future__ import annotations

import dataclasses
import importlib
import re
import shutil
import subprocess
import sysconfig
import warnings
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from railshmem import _core
from railshmem.cli import cli
from railshmem.errors import GpuError
from railshmem.kernels import INCLUDE, find_or_compile, kernel_names
from railshmem.kernels.ahead import ARCHITECTURES
from railshmem.kernels.compiler import HipClang, Nvrtc
from railshmem.kernels.sources import KernelSource, read_kernel

ROOT = Path(__file__).resolve().parents[2]
ELF = b"\x7fELF"


def has(*modules: str) -> bool:
    try:
        for module in modules:
            importlib.import_module(module)
    except ImportError:
        return False
    return True


def find_nvcc() -> str | None:
    """The one of the environment's packages, else the one on the path."""
    packages = Path(sysconfig.get_path("platlib"), "nvidia")
    return next(map(str, packages.glob("cu*/bin/nvcc")), None) or shutil.which("nvcc")


needs_nvrtc = pytest.mark.skipif(not has("cuda.core", "cuda.bindings.nvrtc"), reason="no cuda-core")
needs_clang = pytest.mark.skipif(
    not any(map(shutil.which, ("clang++-19", "amdclang++"))), reason="no clang for AMD GPUs"
)
needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="no nvcc")


@pytest.fixture(autouse=True)
def warnings_are_errors() -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def user_kernel(text: str, folder: Path) -> KernelSource:
    """A kernel of somebody else's, for the compilers' common interface."""
    entry = folder / "kernels" / "entry" / "user.cu"
    entry.parent.mkdir(parents=True)
    entry.write_text(text)
    return KernelSource("user", INCLUDE, {"kernels/entry/user.cu": text}, _core.DEVICE_ABI)


@needs_nvrtc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", kernel_names())
def test_for_nvidia(name: str, architecture: str, tmp_path: Path) -> None:
    entry = find_or_compile(name, architecture, folder=tmp_path)
    assert entry.compiled
    assert entry.image.startswith(ELF)
    assert not find_or_compile(name, architecture, folder=tmp_path).compiled


@needs_clang
@pytest.mark.parametrize("name", kernel_names())
def test_for_amd(name: str, tmp_path: Path) -> None:
    entry = find_or_compile(name, "gfx942", folder=tmp_path)
    assert entry.image.startswith(ELF)


@pytest.mark.parametrize("name", kernel_names())
def test_for_the_host(name: str) -> None:
    """The stand-in of a GPU's driver runs the same kernels."""
    subprocess.run(
        [
            *("c++", "-x", "c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"),
            *(f"-DRAILSHMEM_ABI={_core.DEVICE_ABI}u", "-I", INCLUDE),
            INCLUDE / "kernels" / "entry" / f"{name}.cu",
        ],
        check=True,
        timeout=100,
    )


@needs_nvrtc
def test_another_layout_of_the_context_is_refused() -> None:
    source = dataclasses.replace(read_kernel("core"), abi=_core.DEVICE_ABI + 1)
    with pytest.raises(GpuError, match="not of one release"):
        Nvrtc().compile(source, "sm_90")


@needs_nvrtc
def test_what_nvrtc_refuses_is_an_error_with_its_words(tmp_path: Path) -> None:
    source = user_kernel("this is no kernel\n", tmp_path)
    with pytest.raises(GpuError, match=r"refuses kernels/entry/user\.cu for sm_90[^$]*expected a"):
        Nvrtc().compile(source, "sm_90")


@needs_nvrtc
def test_an_architecture_that_nvrtc_does_not_know_is_an_error() -> None:
    with pytest.raises(GpuError, match="sm_7777"):
        Nvrtc().compile(read_kernel("core"), "sm_7777")


@needs_clang
def test_what_clang_refuses_is_an_error_with_its_words(tmp_path: Path) -> None:
    folder = tmp_path / "include"
    source = dataclasses.replace(user_kernel("this is no kernel\n", folder), include=folder)
    with pytest.raises(GpuError, match=r"(?s)user\.cu:1:1: error.*this is no kernel"):
        HipClang().compile(source, "gfx942")


# Every call of docs/device.md, in every scope that it has.
USERS_KERNEL = """
#include <railshmem/device.hpp>

using namespace railshmem::device;

template <Scope S>
RSH_DEVICE bool data(const DeviceContext* ctx, float* to, const float* from, int pe) {
  return put<S>(ctx, to, from, 4096, pe) && get<S>(ctx, to, from, 4096, pe) &&
         get_nbi<S>(ctx, to, from, 4096, pe);
}

template <Scope S>
RSH_DEVICE bool signals(const DeviceContext* ctx, float* to, const float* from, uint64_t* word,
                        int pe) {
  return put_signal<S>(ctx, to, from, 4096, set_signal(word, 1), pe) &&
         put_signal<S>(ctx, to, from, 4096, add_signal(word, 1), pe) &&
         wait_until<S>(ctx, word, Compare::greater_equal, uint64_t{2});
}

template <Scope S>
RSH_DEVICE bool order(const DeviceContext* ctx) {
  return fence<S>(ctx) && quiet<S>(ctx) && barrier_all<S>(ctx);
}

RSH_DEVICE bool words(const DeviceContext* ctx, float* to, uint64_t* word, uint32_t* half, int pe) {
  uint64_t old;
  return put_immediate(ctx, to, 1.0f, pe) &&
         put_immediate(ctx, to, 1.0f, pe, set_signal(word, 1)) &&
         ring_signal(ctx, add_signal(word, 1), pe) &&
         atomic_update(ctx, AtomicOp::add, half, 1u, pe) &&
         atomic_fetch(ctx, AtomicOp::swap, word, uint64_t{7}, uint64_t{0}, pe, &old);
}

extern "C" RSH_USERS_KERNEL void everything(const DeviceContext* ctx, float* to, const float* from,
                                            uint64_t* word, uint32_t* half) {
  if (!compatible(ctx)) return;
  const int pe = (my_pe(ctx) + 1) % n_pes(ctx);
  data<Scope::thread>(ctx, to, from, pe);
  data<Scope::warp>(ctx, to, from, pe);
  data<Scope::block>(ctx, to, from, pe);
  signals<Scope::block>(ctx, to, from, word, pe);
  order<Scope::block>(ctx);
  words(ctx, to, word, half, pe);
  if (float* theirs = ptr(ctx, to, pe)) *theirs = 2;
}
"""


@needs_nvrtc
@pytest.mark.parametrize("before", ["", "#include <cuda/std/cstdint>\n"], ids=["alone", "libcu++"])
def test_users_kernels_compile_with_nvrtc(before: str) -> None:
    from cuda.core import Program, ProgramOptions

    libraries = Path(sysconfig.get_path("platlib"), "nvidia")
    found = next(libraries.glob("cu*/include/cccl"), None)
    if before and found is None:
        pytest.skip("no libcu++")
    include = [str(INCLUDE), *([str(found)] if before else [])]
    options = ProgramOptions(std="c++17", arch="sm_90", include_path=include)
    text = before + USERS_KERNEL.replace("RSH_USERS_KERNEL", "__global__")
    assert bytes(Program(text, "c++", options).compile("cubin").code).startswith(ELF)


@needs_nvcc
def test_users_kernels_compile_with_nvcc(tmp_path: Path) -> None:
    file = tmp_path / "user.cu"
    file.write_text("#include <cstdint>\n" + USERS_KERNEL.replace("RSH_USERS_KERNEL", "__global__"))
    compile_with_nvcc(file, tmp_path / "user.o")


def compile_with_nvcc(file: Path, to: Path, *more: str) -> None:
    ended = subprocess.run(
        [
            *(str(find_nvcc()), "-std=c++17", "-arch=sm_90", "-Werror=all-warnings"),
            *("-I", str(INCLUDE), *more, "-c", str(file), "-o", str(to)),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert ended.returncode == 0, ended.stderr
    assert to.read_bytes().startswith(ELF)


# ---- the examples --------------------------------------------------------------------------------


def text_of_example(name: str) -> str:
    if not name.endswith(".md"):
        return importlib.import_module(name).KERNEL
    [text] = re.findall(r"```cuda\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)
    return text


@needs_nvrtc
@pytest.mark.parametrize("name", ["cupy_all_gather", "cuda_core_ring", "docs/device.md"])
def test_the_examples_kernels_compile(name: str) -> None:
    from cuda.core import Program, ProgramOptions

    # cupy adds no other header, and neither does cuda.core.
    options = ProgramOptions(std="c++17", arch="sm_90", include_path=[str(INCLUDE)])
    program = Program(text_of_example(name), "c++", options)
    assert bytes(program.compile("cubin").code).startswith(ELF)


def mpi_headers() -> Path | None:
    """Of the MPI that comes from PyPI, or of the launcher's on the path."""
    launcher = shutil.which("mpirun")
    beside = [Path(sysconfig.get_path("data"), "include")]
    if launcher is not None:
        beside.append(Path(launcher).resolve().parent.parent / "include")
    return next((folder for folder in beside if (folder / "mpi.h").is_file()), None)


@needs_nvcc
@pytest.mark.skipif(mpi_headers() is None, reason="no mpi.h")
def test_the_example_for_nvcc_compiles(tmp_path: Path) -> None:
    include = [ROOT, ROOT / "shmem" / "include", mpi_headers()]
    flags = [text for folder in include for text in ("-I", str(folder))]
    flags += ["-diag-suppress=1835"]  # gnu::tls_model: the host's compiler knows it, nvcc does not
    compile_with_nvcc(ROOT / "examples" / "gpu" / "ring.cu", tmp_path / "ring.o", *flags)


# ---- the command ---------------------------------------------------------------------------------


def railshmem(*arguments: str, cache: Path) -> Result:
    """The command in this process, which has NVRTC loaded already."""
    return CliRunner(env={"RAILSHMEM_CACHE": str(cache)}).invoke(cli, arguments)


@needs_nvrtc
@needs_clang
def test_the_command_fills_the_cache(tmp_path: Path) -> None:
    command = ("compile", "--arch", "sm_90", "--arch", "gfx942", "core")
    first = railshmem(*command, cache=tmp_path)
    assert first.exit_code == 0, first.output
    assert first.output.count("compiled") == 2
    assert str(tmp_path) in first.output
    again = railshmem(*command, cache=tmp_path)
    assert again.output.count("was there") == 2
    assert [file.suffix for file in sorted(tmp_path.glob("core-*.bin"))] == [".bin"] * 2


def test_the_command_names_the_kernels_that_there_are(tmp_path: Path) -> None:
    refused = railshmem("compile", "--arch", "sm_90", "nonsense", cache=tmp_path)
    assert refused.exit_code == 1
    assert "no kernel is called 'nonsense'; there are: " in refused.output
    assert "core" in refused.output


def test_the_command_prints_folders(tmp_path: Path) -> None:
    assert railshmem("path", "--include", cache=tmp_path).output == f"{INCLUDE}\n"
    assert railshmem("path", "--cache", cache=tmp_path).output == f"{tmp_path}\n"
    assert railshmem("path", cache=tmp_path).exit_code == 2
