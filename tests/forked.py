"""Tests in several processes, forked once all tests are imported: ``-p tests.forked --workers 3``.

To import the tests and all that they test takes ten seconds, which workers that are started anew
spend each. These have it from their parent, which is left with nothing but to count what they
report. They take the tests file by file, those first that take longest (`LONG`), so that none has
to wait for another in the end. A worker that dies fails the test that it was at, and the run.
"""

from __future__ import annotations

import itertools
import os
import signal
import struct
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from types import SimpleNamespace
from typing import Any

import pytest

LONG = (
    "crash/test_torture.py",
    "products/test_chat_backend.py",
    "failures/test_every_error.py",
    "cli/test_doctor.py",
    "crash/test_matrix.py",
    "projections/test_worker.py",
    "crash/test_postgresql.py",
    "cli/test_hostile_arguments.py",
    "scheduling/test_killed.py",
    "failures/",
    "crash/",
    "projections/",
    "integrations/",
    "products/",
    "cli/",
    "agents/",
    "integration/",
    "scheduling/",
    "properties/",
    "unit/test_",
    "docs/",
    "cohabitation/",
)
"""Files and folders whose tests take longest, which are begun with."""

_WAITED = pytest.StashKey[list[float]]()
_NUMBER = struct.Struct("i")
_ELSEWHERE = SimpleNamespace(gateway=SimpleNamespace(id="forked"), _workerinfocache="")
"""Where a test ran, as the terminal's plugin knows it of pytest-xdist: it writes no file's name."""


class Hooks:
    """What the project's own plugins are told."""

    @pytest.hookspec
    def pytest_before_workers(self, config: pytest.Config, count: int) -> None:
        """So many workers are about to be forked."""

    @pytest.hookspec
    def pytest_in_worker(self, config: pytest.Config, number: int) -> None:
        """This process is that worker."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the number of workers."""
    parser.addoption("--workers", type=int, default=0, help="fork so many processes for the tests")


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Add hooks of this project's own."""
    pluginmanager.add_hookspecs(Hooks)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run all tests in workers, if any were asked for."""
    config, count = session.config, session.config.option.workers
    if not count or config.option.collectonly or session.testsfailed:
        return None
    config.hook.pytest_before_workers(config=config, count=count)
    files = _files(session.items)
    waiting = _queue(len(files))
    workers = {}
    for number in range(count):
        reports, reporting = Pipe(duplex=False)
        child = os.fork()
        if child == 0:
            _work(session, number, _taken(waiting, files), reporting)
        reporting.close()
        workers[reports] = child
    try:
        _count(session, {**workers})
    except BaseException:
        for child in workers.values():
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        raise
    finally:
        for child in workers.values():
            os.waitpid(child, 0)
    return True


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Tell for how long each worker had nothing to do, by which `LONG` is put in order."""
    if waited := config.stash.get(_WAITED, []):
        said = ", ".join(f"{each:.1f}" for each in waited)
        terminalreporter.write_line(f"seconds that each worker waited for the last: {said}")


def _files(items: list[pytest.Item]) -> list[list[pytest.Item]]:
    """Return the tests of each file, those of the longest first."""
    files = [list(found) for _, found in itertools.groupby(items, key=lambda item: item.path)]
    return sorted(files, key=lambda found: _place(found[0].path.as_posix()))


def _place(path: str) -> int:
    return next((place for place, part in enumerate(LONG) if f"tests/{part}" in path), len(LONG))


def _queue(count: int) -> int:
    """Return a pipe with the numbers of the files, which each worker takes from."""
    reading, writing = os.pipe()
    os.write(writing, b"".join(map(_NUMBER.pack, range(count))))  # 64 KB are there at once
    os.close(writing)
    return reading


def _taken(waiting: int, files: list[list[pytest.Item]]) -> Iterator[pytest.Item]:
    while number := os.read(waiting, _NUMBER.size):
        yield from files[_NUMBER.unpack(number)[0]]


class _Reports:
    """Sends on what a worker's tests report."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config, self._connection = config, connection

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        self._connection.send(("begun", nodeid, location))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        told = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(("report", told, None))


def _work(
    session: pytest.Session, number: int, items: Iterator[pytest.Item], reporting: Connection
) -> None:
    """Run tests until there are no more, and end this process."""
    config: Any = session.config
    status, plugins = 1, config.pluginmanager
    capturing = plugins.getplugin("capturemanager")
    try:
        capturing.stop_global_capturing()  # into files that its siblings write to as well
        capturing.start_global_capturing()
        plugins.unregister(name="terminalreporter")
        os.environ["PYTEST_XDIST_WORKER"] = f"worker{number}"  # for tests.cli.once
        plugins.register(_Reports(config, reporting))
        places = config._tmp_path_factory
        places._basetemp = places.getbasetemp() / f"worker{number}"
        places._basetemp.mkdir(mode=0o700)
        config.hook.pytest_in_worker(config=config, number=number)
        current = next(items, None)
        while current is not None:
            following = next(items, None)
            config.hook.pytest_runtest_protocol(item=current, nextitem=following)
            current = following
        reporting.send(("ended", None, None))
        status = 0
    except BaseException:
        capturing.suspend_global_capture(in_=True)
        traceback.print_exc()
    finally:
        os._exit(status)


def _count(session: pytest.Session, workers: dict[Connection, int]) -> None:
    """Report what the workers report, until all have ended."""
    hook, missing = session.config.hook, len(session.items)
    begun: dict[Any, tuple[str, Any]] = {}
    ended: list[float] = []
    while workers:
        for reports in wait(list(workers)):
            assert isinstance(reports, Connection)
            try:
                kind, told, location = reports.recv()
            except EOFError:
                kind, told, location = "died", *begun.get(reports, ("none", ("", 0, "none")))
            if kind == "begun":
                missing -= 1
                begun[reports] = (told, location)
                continue
            if kind == "report":
                report = hook.pytest_report_from_serializable(config=session.config, data=told)
                report.node = _ELSEWHERE
                hook.pytest_runtest_logreport(report=report)
            else:
                del workers[reports]
                ended.append(time.monotonic())
                if kind == "died":
                    hook.pytest_runtest_logreport(report=_death(told, location))
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
    session.config.stash[_WAITED] = [ended[-1] - each for each in ended]
    if missing:
        session.shouldfail = f"{missing} tests were not run, since a worker died"
        raise session.Failed(session.shouldfail)


def _death(nodeid: str, location: Any) -> pytest.TestReport:
    return pytest.TestReport(nodeid, location, {}, "failed", "the worker died in this test", "call")
