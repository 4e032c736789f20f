"""Parallel tests: every rank of `mpirun -n N pytest --with-mpi tests/parallel` runs the same tests.

Only rank 0 reports. After each test the ranks meet and exchange what did not pass, so that a
failure on any rank is rank 0's too, and a test that fails on one rank cannot make the next test's
collectives pair up with its own. A rank that does not come ends the job.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Hashable, Sequence
from typing import Any, NamedTuple

import pytest
from mpi4py import MPI

from jobs import DEVICE, EMULATION_PARAMETERS, ON_HOSTS

collect_ignore = ["gpu"] if DEVICE == "cpu" else []

# Longer than any test's own limit, which reports where the late rank is.
MEETING_LIMIT_S = 900.0


@pytest.fixture(scope="session")
def comm() -> MPI.Intracomm:
    return MPI.COMM_WORLD


@pytest.hookimpl(trylast=True)  # after the plugins that the ranks silence
def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("--with-mpi") or MPI.COMM_WORLD.size == 1:
        return
    config.pluginmanager.register(Ranks(config), "railshmem-ranks")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On hosts, shapes differ in name only: one item of each test stays, for each value of the
    parameters that are about something else."""
    if not ON_HOSTS:
        return
    kept: dict[Hashable, pytest.Item] = {}
    for item in items:
        parameters = item.callspec.params.items() if hasattr(item, "callspec") else ()
        others = [(name, repr(value)) for name, value in parameters]
        others = [each for each in others if each[0] not in EMULATION_PARAMETERS]
        kept.setdefault((item.nodeid.partition("[")[0], *others), item)
    staying = set(kept.values())
    repeats = [item for item in items if item not in staying]
    items[:] = kept.values()
    config.hook.pytest_deselected(items=repeats)


class Miss(NamedTuple):
    """A test that did not pass on some rank."""

    outcome: str
    when: str
    text: str
    message: str  # equal on two ranks where the same thing went wrong


class Ranks:
    def __init__(self, config: pytest.Config) -> None:
        self._comm = MPI.COMM_WORLD.Dup()
        self._stderr = os.dup(2)  # pytest captures what is written to 2 while a test runs
        self._misses: list[Miss] = []
        self._uncollected: dict[str, str] = {}
        self._speak_with_one_voice(config)

    # ---- one voice ----

    def _speak_with_one_voice(self, config: pytest.Config) -> None:
        manager = config.pluginmanager
        for plugin in manager.get_plugins():
            if type(plugin).__name__ == "MPIPlugin":
                plugin._is_testing_mpi = False  # pytest-mpi's 25 lines about the MPI library
        if self._comm.rank != 0:
            manager.unregister(name="terminalreporter")
            silent = pytest.TerminalReporter(config, open(os.devnull, "w"))  # noqa: PTH123, SIM115
            manager.register(silent, "terminalreporter")

    def _say(self, text: str) -> None:
        text = f"\nrank {self._comm.rank} of {self._comm.size}: {text}\n"
        os.write(self._stderr, text.encode())  # one write: ranks do not tear each other's lines

    # ---- the same tests everywhere ----

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._uncollected[report.nodeid] = report.longreprtext

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        mine = [item.nodeid for item in session.items]
        everyone = self._exchange("collection", (mine, sorted(self._uncollected)))
        if any(found != everyone[0] for found in everyone):
            for nodeid, text in self._uncollected.items():
                self._say(f"cannot collect {nodeid}\n{text}")
            differing = [rank for rank, found in enumerate(everyone) if found != everyone[0]]
            pytest.exit(f"ranks {differing} collected other tests than rank 0", returncode=3)

    # ---- meeting after each test ----

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.passed or hasattr(report, "wasxfail"):
            return
        crash = getattr(report.longrepr, "reprcrash", None)
        if isinstance(report.longrepr, tuple):
            message = report.longrepr[2]
        else:
            message = crash.message if crash else report.longreprtext or "failed without a word"
        sections = "".join(f"\n--- {title} ---\n{text}" for title, text in report.sections)
        text = report.longreprtext + sections
        self._misses.append(Miss(report.outcome, report.when or "call", text, message))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self._misses = []
        result = yield
        mine = self._misses
        theirs = self._exchange(item.nodeid, mine)
        known = {miss.message for miss in mine}
        for message in dict.fromkeys(miss.message for misses in theirs for miss in misses):
            if message not in known:
                self._report(item, message, theirs)
        return result

    def _report(self, item: pytest.Item, message: str, theirs: Sequence[Sequence[Miss]]) -> None:
        """Reports here what went wrong elsewhere, so that every rank counts the same failures."""
        ranks = [rank for rank, found in enumerate(theirs) if message in {m.message for m in found}]
        miss = next(miss for miss in theirs[ranks[0]] if miss.message == message)
        where = f"on rank {', '.join(map(str, ranks))}"
        path, line, _ = item.location
        skipped = miss.outcome == "skipped"
        report = pytest.TestReport(
            nodeid=f"{item.nodeid} [{where}]",
            location=item.location,
            keywords={},
            outcome=miss.outcome,  # type: ignore[arg-type]
            longrepr=(path, line or 0, f"{message} [{where}]")
            if skipped
            else f"{where}: {message.splitlines()[0]}\n{miss.text}",
            when=miss.when,  # type: ignore[arg-type]
        )
        item.ihook.pytest_runtest_logreport(report=report)

    def _exchange(self, occasion: str, mine: Any) -> list[Any]:
        """Collective: [rank] what each gave. Waits asleep, as ranks may share a core."""
        self._meet(occasion)
        return self._comm.allgather(mine)

    def _meet(self, occasion: str) -> None:
        request = self._comm.Ibarrier()
        started = time.monotonic()
        while not request.Test():
            time.sleep(0.001)
            if time.monotonic() - started > MEETING_LIMIT_S:
                self._say(f"the other ranks did not come to the end of {occasion}")
                self._comm.Abort(1)

    # ---- leaving ----

    def pytest_internalerror(self, excrepr: Any) -> None:
        self._say(f"pytest itself failed\n{excrepr}")
        MPI.COMM_WORLD.Abort(3)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        # Some launchers kill the others when one exits with an error: first all have reported.
        self._meet("the session")
