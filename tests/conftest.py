"""What every test has: a time limit that ends the whole job, and skips that are counted and judged.

A skipped test is a hole in the suite. `--expect-skips REGEX` makes every skip whose reason the
expression does not match a failure of the run; `--expect-skips ''` allows none.
"""

from __future__ import annotations

import faulthandler
import os
import re
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("railshmem")
    group.addoption("--expect-skips", metavar="REGEX", help="fail on a skip for another reason")
    group.addoption("--counts", metavar="FILE", help="append 'passed failed skipped' to FILE")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(TimeLimit(), "railshmem-time-limit")
    config.pluginmanager.register(Tally(config), "railshmem-tally")


class TimeLimit:
    """pytest-timeout's limits, enforced on a job: the late PE says where it is and ends all PEs.

    pytest-timeout by itself writes into the terminal reporter, which only PE 0 shows.
    """

    def __init__(self) -> None:
        self._stderr = os.dup(2)  # pytest captures what is written to 2 while a test runs

    @pytest.hookimpl(tryfirst=True)
    def pytest_timeout_set_timer(self, item: pytest.Item, settings: Any) -> bool:
        timer = threading.Timer(settings.timeout, self._expire, (item.nodeid, settings.timeout))
        timer.daemon = True

        def cancel() -> None:
            timer.cancel()
            faulthandler.cancel_dump_traceback_later()

        item.cancel_timeout = cancel  # type: ignore[attr-defined]
        timer.start()
        # For a thread that never gives the interpreter's lock back.
        faulthandler.dump_traceback_later(settings.timeout + 10, exit=True, file=self._stderr)
        return True

    def _expire(self, nodeid: str, limit: float) -> None:
        self.say(f"\nTimeout: {nodeid} took more than {limit:g} s on {process_name()}\n")
        faulthandler.dump_traceback(file=self._stderr, all_threads=True)
        end_job()

    def say(self, text: str) -> None:
        os.write(self._stderr, text.encode())


def process_name() -> str:
    mpi = _running_mpi()
    return f"rank {mpi.COMM_WORLD.rank} of {mpi.COMM_WORLD.size}" if mpi else "the only process"


def end_job() -> None:
    """Ends every process of the job, as a launcher may leave the others waiting."""
    if mpi := _running_mpi():
        time.sleep(1)  # for the other ranks to say where they are
        mpi.COMM_WORLD.Abort(1)
    os._exit(1)


def _running_mpi() -> Any:
    mpi = sys.modules.get("mpi4py.MPI")
    return mpi if mpi and mpi.Is_initialized() and not mpi.Is_finalized() else None


class Tally:
    """Counts results, prints why tests were skipped and fails the run for a skip nobody expects."""

    def __init__(self, config: pytest.Config) -> None:
        self._expected: str | None = config.getoption("--expect-skips")
        self._file: str | None = config.getoption("--counts")
        self._passed = 0
        self._failed = 0
        self._skips: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed += report.failed
        self._passed += report.passed and report.when == "call"
        if hasattr(report, "wasxfail"):
            self._passed += report.skipped  # it failed as it should
        elif report.skipped:
            self._count_skip(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._failed += report.failed
        if report.skipped:
            self._count_skip(report)

    def _count_skip(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        self._skips[reason.removeprefix("Skipped: ")] += 1

    def _unexpected(self) -> Counter[str]:
        if self._expected is None:
            return Counter()
        allowed = re.compile(self._expected or r"(?!)")
        return Counter({why: n for why, n in self._skips.items() if not allowed.search(why)})

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        unexpected = self._unexpected().total()
        good = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if unexpected and session.exitstatus in good:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        mpi = _running_mpi()
        if self._file and (mpi is None or mpi.COMM_WORLD.rank == 0):
            counts = (self._passed, self._failed + unexpected, self._skips.total() - unexpected)
            with Path(self._file).open("a") as file:
                print(*counts, file=file)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        unexpected = self._unexpected()
        if self._skips and self._expected is not None:
            terminalreporter.section(
                f"{self._skips.total()} skipped, {unexpected.total()} of them unexpectedly"
            )
            for reason, times in sorted(self._skips.items()):
                terminalreporter.write_line(f"{times} x {reason}", red=reason in unexpected)
