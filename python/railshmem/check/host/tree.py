"""A host's files: /sys, /proc and /dev, below / or below a folder that stands for it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Tree:
    """Reads that never fail: what is not there, or may not be read, is None or empty."""

    root: Path = Path("/")
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def path(self, name: str) -> Path:
        """Where an absolute name lies."""
        return self.root / name.lstrip("/")

    def text(self, name: str) -> str | None:
        """A file's content without the white space around it."""
        try:
            return self.path(name).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:  # some of /sys answers with errors, say a GID that is not there
            return None

    def number(self, name: str) -> int | None:
        """A file with one whole number."""
        text = self.text(name)
        try:
            return None if text is None else int(text)
        except ValueError:
            return None

    def data(self, name: str) -> bytes:
        """A file's bytes."""
        try:
            return self.path(name).read_bytes()
        except OSError:
            return b""

    def names(self, name: str) -> list[str]:
        """What a folder holds, sorted."""
        try:
            return sorted(each.name for each in self.path(name).iterdir())
        except OSError:
            return []

    def found(self, pattern: str) -> list[str]:
        """Absolute names that fit a pattern."""
        fitting = self.root.glob(pattern.lstrip("/"))
        return sorted(f"/{path.relative_to(self.root)}" for path in fitting)

    def exists(self, name: str) -> bool:
        """Whether there is such a file or folder."""
        return self.path(name).exists()

    def target(self, name: str) -> str | None:
        """The last part of where a link leads."""
        try:
            return self.path(name).resolve(strict=True).name
        except OSError:
            return None

    def may_open(self, name: str) -> bool:
        """Whether this user may read and write it."""
        return os.access(self.path(name), os.R_OK | os.W_OK)

    def first_number(self, names: Sequence[str]) -> int | None:
        """Of the first of the files that has one."""
        numbers = (self.number(name) for name in names)
        return next((number for number in numbers if number is not None), None)
