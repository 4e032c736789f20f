"""Kernels for GPUs: machine code on first use, kept in a cache.

`kernel_image("core", "sm_90")` is what the driver loads. The sources and headers are part of the
package (`INCLUDE`), so that users' kernels include the same ones.
"""

from __future__ import annotations

from pathlib import Path

from railshmem.kernels.cache import Entry, KernelCache, cache_folder
from railshmem.kernels.compiler import Compiler, compiler_for
from railshmem.kernels.sources import INCLUDE, KernelSource, kernel_names, read_kernel

__all__ = [
    "INCLUDE",
    "Entry",
    "KernelCache",
    "cache_folder",
    "find_or_compile",
    "kernel_image",
    "kernel_names",
]


def kernel_image(name: str, architecture: str) -> bytes:
    """The machine code of kernels/entry/NAME.cu for "sm_90", "gfx942", ...

    From the cache, else compiled now, which takes seconds. Raises GpuError where there is no such
    kernel, no compiler, or the compiler refuses.
    """
    return find_or_compile(name, architecture).image


def find_or_compile(
    name: str,
    architecture: str,
    *,
    compiler: Compiler | None = None,
    folder: Path | None = None,
    include: Path = INCLUDE,
) -> Entry:
    """The same, and whether it was compiled now. The rest is for those who replace a part."""
    source = read_kernel(name, include)
    compiler = compiler or compiler_for(architecture)
    cache = KernelCache(folder or cache_folder())
    return cache.find_or_make(
        f"{name}-{architecture}",
        _everything_that_matters(source, architecture, compiler),
        lambda: compiler.compile(source, architecture),
    )


def _everything_that_matters(
    source: KernelSource, architecture: str, compiler: Compiler
) -> list[str]:
    """What the machine code follows from: change any of it and it is another entry."""
    texts = [part for file, text in sorted(source.texts.items()) for part in (file, text)]
    return [architecture, compiler.version, *compiler.options(source, architecture), *texts]
