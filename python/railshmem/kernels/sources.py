"""Where the sources of kernels lie, and every text that one is made of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from railshmem import _core
from railshmem.errors import GpuError

# In a source tree its entries are links into the tree; in an installed package they are files.
INCLUDE = Path(__file__).resolve().parent.parent / "include"
ENTRIES = Path("kernels", "entry")

_INCLUDED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)


@dataclass(frozen=True)
class KernelSource:
    """A kernel's file, the folder its includes are looked up in, and what all of them say."""

    name: str
    include: Path
    texts: dict[str, str]  # by name relative to the folder; of the kernel's own file too
    abi: int  # the layout of DeviceContext that the kernel must have been compiled with

    @property
    def file(self) -> str:
        return f"{ENTRIES.as_posix()}/{self.name}.cu"

    @property
    def text(self) -> str:
        return self.texts[self.file]


def kernel_names(include: Path = INCLUDE) -> list[str]:
    """Everything that can be compiled."""
    return sorted(file.stem for file in (include / ENTRIES).glob("*.cu"))


def read_kernel(name: str, include: Path = INCLUDE) -> KernelSource:
    """Reads the kernel and, through all its includes, everything that it is made of.

    Conditions of the preprocessor are not looked at: a text that another machine would include
    counts too, which can only compile once more than needed.
    """
    if name not in kernel_names(include):
        known = ", ".join(kernel_names(include)) or f"none in {include}"
        raise GpuError(f"no kernel is called {name!r}; there are: {known}")
    texts: dict[str, str] = {}
    unread = [f"{ENTRIES.as_posix()}/{name}.cu"]
    while unread:
        file = unread.pop()
        if file not in texts:
            texts[file] = _read(include / file)
            unread += _includes(file, texts[file], include)
    return KernelSource(name, include, texts, _core.DEVICE_ABI)


def _includes(file: str, text: str, include: Path) -> Iterator[str]:
    for quoted, angled in _INCLUDED.findall(text):
        wanted = quoted or angled
        beside = (Path(file).parent / wanted).as_posix()
        if quoted and (include / beside).is_file():
            yield beside
        elif (include / wanted).is_file():
            yield wanted
        elif quoted:
            raise GpuError(f"{file} includes {wanted!r}, which {include} does not have")
        # An angled name that is not ours is the compiler's, whose version counts for it.


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise GpuError(f"cannot read a kernel's source: {error}") from error
