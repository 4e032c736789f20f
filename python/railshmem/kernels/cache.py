"""A folder of compiled kernels that processes share, also over a network.

An entry's name has a hash of everything it follows from, so entries never change and nothing is
ever out of date. It appears whole or not at all (written aside, then renamed), says its own
checksum, and is made once: whoever makes it holds a lock that ends with its process.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from railshmem import _core

# Longer than any compilation. Whoever holds a lock for longer hangs; the waiter then compiles too.
PATIENCE_S = 300.0

_MAGIC = b"railshmem kernel 1\n"
_DIGEST_BYTES = hashlib.sha256().digest_size


class Entry(NamedTuple):
    """What the cache hands out."""

    image: bytes
    compiled: bool  # by this call


def cache_folder() -> Path | None:
    """RAILSHMEM_CACHE, else the user's cache folder; None where the user has no home."""
    chosen = {row[0]: row[1] for row in _core.settings_table()}["RAILSHMEM_CACHE"]
    if chosen:
        return Path(chosen).expanduser()
    users = os.environ.get("XDG_CACHE_HOME", "")
    if Path(users).is_absolute():
        return Path(users, "railshmem")
    try:
        return Path.home() / ".cache" / "railshmem"
    except RuntimeError:
        return None


class KernelCache:
    """Of one folder, which need not exist, nor be writable: then nothing is kept there."""

    def __init__(self, folder: Path | None, patience_s: float = PATIENCE_S) -> None:
        self._folder = folder
        self._patience_s = patience_s

    def find_or_make(
        self, title: str, follows_from: Sequence[str], make: Callable[[], bytes]
    ) -> Entry:
        """The entry that follows from these texts; `make` makes it where nobody has yet.

        `title` is for people who look into the folder. What `make` raises reaches the caller.
        """
        if self._folder is None:
            self._warn("the user has no home folder")
            return Entry(make(), compiled=True)
        place = self._folder / f"{title}-{_digest_of(follows_from)[:40]}.bin"
        image = _read(place)
        if image is not None:
            return Entry(image, compiled=False)
        with self._lock(self._folder / f"{title}.lock") as alone:
            image = _read(place)  # somebody may have made it while this process waited
            if image is not None:
                return Entry(image, compiled=False)
            image = make()
            try:
                if alone:
                    _remove_leftovers(place)
                _publish(place, image)
            except OSError as error:
                self._warn(f"{self._folder}: {error.strerror}")
            return Entry(image, compiled=True)

    @contextlib.contextmanager
    def _lock(self, place: Path) -> Iterator[bool]:
        """True for one process at a time. False: the file system cannot say who is alone.

        Then several may make one entry, which still appears whole.
        """
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError:
            yield False  # publishing will say why
            return
        try:
            yield _wait_for_lock(file, self._patience_s)
        finally:
            os.close(file)  # and the lock with it

    def _warn(self, why: str) -> None:
        warnings.warn(
            f"compiled kernels are not kept, so every process compiles them again: {why}. "
            "Set RAILSHMEM_CACHE to a folder that can be written, or fill it before: "
            "railshmem compile",
            RuntimeWarning,
            stacklevel=4,
        )


def _wait_for_lock(file: int, patience_s: float) -> bool:
    ends = time.monotonic() + patience_s
    pause_s = 0.01
    while time.monotonic() < ends:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.5)
        except OSError:
            return False  # a file system without locks
        else:
            return True
    return False


def _digest_of(texts: Sequence[str]) -> str:
    """Lengths are hashed too: no two lists of texts run together into one."""
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def _read(place: Path) -> bytes | None:
    """The entry's image; None where there is none, or one that is not whole."""
    try:
        data = place.read_bytes()
    except OSError:
        return None
    head = len(_MAGIC) + _DIGEST_BYTES
    image = data[head:]
    if data[:head] != _MAGIC + hashlib.sha256(image).digest():
        return None
    return image


def _remove_leftovers(place: Path) -> None:
    """Whoever was writing the entry has died: the lock is this process's."""
    for leftover in place.parent.glob(f"{place.stem}.*.tmp"):
        leftover.unlink(missing_ok=True)


def _publish(place: Path, image: bytes) -> None:
    """Others see the whole entry or none, also when this process or the machine dies meanwhile."""
    file, name = tempfile.mkstemp(prefix=f"{place.stem}.", suffix=".tmp", dir=place.parent)
    try:
        with os.fdopen(file, "wb") as aside:
            aside.write(_MAGIC + hashlib.sha256(image).digest() + image)
            aside.flush()
            os.fchmod(aside.fileno(), 0o644)  # users of an image read what root compiled
            os.fsync(aside.fileno())
        Path(name).replace(place)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
