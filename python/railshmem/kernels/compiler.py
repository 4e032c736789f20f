"""The compilers of kernels: NVRTC, reached through cuda.core, and clang for AMD GPUs.

Neither needs a GPU. Also where the cache has everything they are asked for their versions.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from railshmem.errors import GpuError
from railshmem.kernels.sources import KernelSource


class Compiler(Protocol):
    """What turns a kernel's source into machine code."""

    @property
    def version(self) -> str:
        """Two compilers of one version make the same of the same."""
        ...

    def options(self, source: KernelSource, architecture: str) -> Sequence[str]:
        """Everything it is told, less where files lie."""
        ...

    def compile(self, source: KernelSource, architecture: str) -> bytes:
        """Raises GpuError with what it says where it refuses."""
        ...


@cache
def compiler_for(architecture: str) -> Compiler:
    """Raises GpuError saying what to install where it is missing."""
    if architecture.startswith("sm_"):
        return Nvrtc()
    if architecture.startswith("gfx"):
        return HipClang()
    raise GpuError(f"architecture {architecture!r}: expected one like sm_90 or gfx942")


class Nvrtc:
    """NVIDIA's compiler library."""

    def __init__(self) -> None:
        try:
            self._cuda_core = _import_cuda_core()
            from cuda.bindings import nvrtc

            _, major, minor = nvrtc.nvrtcVersion()
        except Exception as error:  # packages, libraries and their versions fail in many ways
            raise GpuError(
                "kernels for NVIDIA GPUs are compiled with cuda-core and NVRTC, which cannot be "
                f"used here: {error}. pip install 'railshmem[cuda]' brings both"
            ) from error
        self._version = f"NVRTC {major}.{minor} {_library_file('libnvrtc.so')}"

    @property
    def version(self) -> str:
        return self._version

    def options(self, source: KernelSource, architecture: str) -> Sequence[str]:
        return [f"{name}={value}" for name, value in self._options(source, architecture).items()]

    def compile(self, source: KernelSource, architecture: str) -> bytes:
        program_options = self._cuda_core.ProgramOptions
        given = self._options(source, architecture) | {"include_path": [str(source.include)]}
        if any(field.name == "name" for field in fields(program_options)):
            given["name"] = source.file  # messages and profilers say where a line is from
        log = io.StringIO()
        try:
            program = self._cuda_core.Program(source.text, "c++", program_options(**given))
            image = program.compile("cubin", logs=log).code
        except Exception as error:
            raise GpuError(
                f"{self._version} refuses {source.file} for {architecture}: {error}"
            ) from error
        if said := log.getvalue().strip(" \n\0"):
            warnings.warn(f"NVRTC on {source.file}: {said}", RuntimeWarning, stacklevel=2)
        return bytes(image)

    @staticmethod
    def _options(source: KernelSource, architecture: str) -> dict[str, Any]:
        return {
            "std": "c++17",
            "arch": architecture,
            "lineinfo": True,
            "define_macro": [("RAILSHMEM_ABI", str(source.abi))],
        }


def _import_cuda_core() -> ModuleType:
    """Its first releases had the same names in another place."""
    try:
        from cuda import core

        if hasattr(core, "Program"):
            return core
    except ImportError:
        pass
    from cuda.core import experimental

    return experimental


def _library_file(name: str) -> str:
    """Name and size of a loaded library's file: NVRTC does not tell its patch level."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = Path(line.rpartition(" ")[2])
        if path.name.startswith(name) and path.is_file():
            return f"{path.resolve().name} {path.stat().st_size}"
    return ""


# ROCm's own first: it knows its GPUs best.
_CLANGS = (
    "amdclang++",
    "/opt/rocm/llvm/bin/clang++",
    "clang++",
    *(f"clang++-{release}" for release in range(22, 17, -1)),
)


class HipClang:
    """clang as a compiler of HIP, without ROCm's headers and libraries. Linking needs its lld."""

    def __init__(self) -> None:
        found = (path for path in map(shutil.which, _CLANGS) if path)
        self._clang = next(found, None)
        if self._clang is None:
            raise GpuError(
                "kernels for AMD GPUs are compiled with clang, and there is none: install ROCm's "
                "or the packages clang-19 and lld-19"
            )
        self._version = _run([self._clang, "--version"]).splitlines()[0]

    @property
    def version(self) -> str:
        return self._version

    def options(self, source: KernelSource, architecture: str) -> Sequence[str]:
        return [
            *("-x", "hip", f"--offload-arch={architecture}", "--cuda-device-only"),
            *("--no-gpu-bundle-output", "-nogpulib", "-nogpuinc", "-std=c++17", "-O3"),
            *("-Wall", "-Wextra", f"-DRAILSHMEM_ABI={source.abi}"),
            # Said of the EP kernels between nodes: they have more registers than blocks of 1,024
            # threads may have on gfx942, so that their launch is refused there until they are cut.
            "-Wno-pass-failed",
        ]

    def compile(self, source: KernelSource, architecture: str) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            image = Path(folder, "image")
            said = _run(
                [
                    str(self._clang),
                    *self.options(source, architecture),
                    *("-I", str(source.include), "-o", str(image)),
                    str(source.include / source.file),
                ]
            )
            if said:
                warnings.warn(f"clang on {source.file}: {said}", RuntimeWarning, stacklevel=2)
            return image.read_bytes()


def _run(command: Sequence[str]) -> str:
    """What the command says; it must end well."""
    try:
        ended = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
    except OSError as error:
        raise GpuError(f"cannot run {command[0]}: {error}") from error
    if ended.returncode != 0:
        raise GpuError(f"{' '.join(command)} failed: {ended.stdout.strip()}")
    return ended.stdout.strip()
