"""How the job of a script ends when it does not end by itself: one PE's end becomes everybody's.

An exception that nobody catches, sys.exit with a status, shmem_global_exit, a lost PE: the PE that
sees it says why and ends all others. MPI by itself would leave them waiting for ever.
"""

from __future__ import annotations

import atexit
import math
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NoReturn

from railshmem import _core
from railshmem._core import JobNews, Runtime
from railshmem.errors import JobAborted, RailshmemError

# For an operation to report that a PE is gone, before the job is ended without it.
LOSS_GRACE_S = 2.0


@dataclass(frozen=True)
class Ending:
    """How this PE ends its job."""

    rank: int
    # Exit code, and why in one line: ends every process of the job. May return, and then this one
    # is still to be ended.
    abort: Callable[[int, str], None]
    # A launcher that is told to abort drops the output it has not passed on yet, and nothing says
    # when it has: it is given this time, or the reason is lost.
    output_s: float = 0.0
    # What the job has told this PE; None where it tells nothing.
    news: Callable[[], JobNews] | None = None


_ending: Ending | None = None
_runtime: Runtime | None = None  # of the same job, once it is made
_exit_status = 0
# Held by the first thread that ends this process: one reason is enough.
_last_words = threading.Lock()
_LAST_WORDS_S = 5.0
_watch: threading.Thread | None = None


def begin(ending: Ending, finalize: Callable[[], None]) -> None:
    """From here on the end of this process is the end of the job; `finalize` ends it well."""
    global _ending, _runtime
    if _ending is None:
        sys.excepthook = _end_by_exception
        sys.exit = _exit
        atexit.register(_end_at_exit, finalize)
    _ending = ending
    _runtime = None


def watch(runtime: Runtime) -> None:
    """Starts the thread that ends this process when the job is lost and it does not notice."""
    global _runtime, _watch
    _runtime = runtime
    _watch = threading.Thread(target=_end_when_told, args=[runtime], daemon=True)
    _watch.start()


def watch_ended() -> None:
    """Waits for that thread, which ends at finalize and must not outlive the interpreter."""
    if _watch is not None:
        _watch.join()


def end(code: int, text: str, why: str) -> NoReturn:
    """Ends every process of the job with this exit code; `text` goes to stderr as it is.

    Where another PE has ended the job already, its exit code is everybody's.
    """
    _last_words.acquire(timeout=_LAST_WORDS_S)
    told = _aborted_by_another()
    status = told.code if told else exit_code(code)
    sys.stdout.flush()
    sys.stderr.write(text)  # one write: PEs do not tear each other's lines
    sys.stderr.flush()
    if _ending is not None:
        time.sleep(_ending.output_s if text else 0)
        _ending.abort(status, why)
    os._exit(status)


def exit_code(code: int) -> int:
    """0 to 255, as processes can end with; no failure becomes a success by losing its high bits."""
    return code & 0xFF or (1 if code else 0)


def _aborted_by_another() -> JobNews | None:
    news = _ending.news() if _ending and _ending.news else None
    return news if news and news.kind == JobNews.Kind.ABORTED else None


def _is_over() -> bool:
    return _ending is None or (_runtime is not None and _runtime.finalized)


def _end_by_exception(
    kind: type[BaseException], value: BaseException, trace: TracebackType | None
) -> None:
    lines = traceback.format_exception(kind, value, trace)
    if _ending is None or _is_over():
        sys.stderr.write("".join(lines))
        return
    told = _aborted_by_another()
    if told and isinstance(value, JobAborted):  # why is what the other PE said
        _end_with(_ending.rank, told)
    name = f"PE {_ending.rank}"
    text = "".join(f"{name}: {line}\n" for line in "".join(lines).splitlines())
    text += f"{name}: {kind.__name__} was not caught: ending the job\n"
    end(1, text, f"an exception was not caught: {lines[-1].strip()}")


class _Exit(SystemExit):
    """What sys.exit raises in a job.

    Exit handlers are not told the status, and finalize would wait there for PEs that wait for this
    one. So the exception itself notices that it ends the process: then the interpreter drops it
    while no Python code is running. One that somebody caught is dropped by that code.
    """

    def __del__(self) -> None:
        global _exit_status
        main = threading.current_thread() is threading.main_thread()
        if main and sys._getframe().f_back is None:
            is_status = self.code is None or isinstance(self.code, int)
            _exit_status = int(self.code or 0) if is_status else 1


def _exit(status: Any = None, /) -> NoReturn:
    """Ends the process by raising SystemExit; in a job, a status other than 0 ends the job."""
    raise _Exit(*([] if status is None else [status]))


def _end_at_exit(finalize: Callable[[], None]) -> None:
    global _runtime
    name = f"PE {_ending.rank if _ending else '?'}"
    if _exit_status and not _is_over():
        why = f"the program ended with status {_exit_status}"
        end(_exit_status, f"{name}: {why}: ending the job\n", why)
    try:
        finalize()
    except RailshmemError as error:
        why = f"at exit: {type(error).__name__}: {error}"
        end(1, f"{name}: {why}\n", why)
    finally:
        # The runtime holds Python objects: it must go while there is an interpreter.
        _runtime = None
        _core.set_default(None)


def _end_when_told(watched: Runtime) -> None:
    """A thread that sleeps: ends a PE that is outside of this library, say in an MPI call."""
    kinds = JobNews.Kind
    lost: JobNews | None = None
    grace_ends = math.inf
    while True:
        news = watched.wait_for_news(max(0.0, grace_ends - time.monotonic()))
        if news.kind == kinds.ABORTED:
            if news.rank != watched.my_pe:
                _end_with(watched.my_pe, news)
            return
        if news.kind == kinds.LOST:
            lost = news
            grace_ends = time.monotonic() + LOSS_GRACE_S
        elif lost is None or time.monotonic() < grace_ends:
            return  # finalized: there is nothing more to be told
        else:
            if not watched.loss_reported:
                who = f"PE {lost.rank}" if lost.rank >= 0 else "the maker of the job's id"
                why = f"the process of {who} has ended, and no operation of this PE noticed"
                end(1, f"PE {watched.my_pe}: {why}: ending the job\n", why)
            grace_ends = math.inf  # this PE deals with it; another may still end the job


def _end_with(me: int, news: JobNews) -> NoReturn:
    """Another PE has told everybody to end."""
    _last_words.acquire(timeout=_LAST_WORDS_S)
    sys.stdout.flush()
    if news.code != 0:
        sys.stderr.write(f"PE {me}: ending, because PE {news.rank} ends the job: {news.why}\n")
        sys.stderr.flush()
    os._exit(news.code)
