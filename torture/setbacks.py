"""Disturbances of a run: killing and stopping its processes, putting its database back.

Processes are forked from a fork server that has already imported everything. Only processes started
here are ever killed; none outlives the run, even if the run itself is killed.

Each database that goes back is a context manager with a constant URL. It goes back on request: a
lagging standby is promoted, a dump is restored, or a backup replaces a file.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sqlite3
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from random import Random
from typing import Any, Protocol, Self

from sqlalchemy import URL

from eventstore import EventStore
from torture.plan import Plan
from torture.server import PostgresServer

__all__ = [
    "READER",
    "REBUILDER",
    "WRITER",
    "Copied",
    "Crew",
    "Dumped",
    "FailedOver",
    "Role",
    "Setback",
]


_DATABASE = "torture"
_RESTORED = "restored"
_BOTH = ("one", "other")
_LONGEST_LAG_S = 2.0
_CAUGHT_UP_S = 30.0


class Setback(Protocol):
    """A database that can go back to an older state."""

    url: str

    def strike(self, choose: Random) -> None:
        """Take a state, let the database acknowledge more, and put it back to that state."""

    def __enter__(self) -> Self:
        """Start the database."""

    def __exit__(self, *_: object) -> None:
        """Delete the database."""


class _OnServers:
    """A database on one of two servers, which take turns."""

    def __init__(self, directory: Path) -> None:
        self._stack = ExitStack()
        home = Path(tempfile.mkdtemp(prefix="eventstore-torture-", dir=directory))
        self._stack.callback(shutil.rmtree, home, ignore_errors=True)
        home.chmod(0o711)  # The servers may run as another user.
        self._one, self._other = (home / name for name in _BOTH)
        self.server = PostgresServer(directory=self._place(self._one))
        # As products name a primary and its standby; the one that takes writes is used.
        self.url = URL.create(
            "postgresql+psycopg",
            "postgres",
            self.server.password,
            database=_DATABASE,
            query={"host": f"{self._one},{self._other}", "target_session_attrs": "read-write"},
        ).render_as_string(hide_password=False)

    def __enter__(self) -> Self:
        """Start the first server, and create the database."""
        self._stack.callback(lambda: self.server.close())
        self.server.start()
        self.server.execute(f"CREATE DATABASE {_DATABASE}")
        EventStore.open(self.url).close()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the servers, and delete them."""
        self._stack.close()

    def _next_place(self) -> Path:
        return self._place(self._other if self.server.directory == self._one else self._one)

    def _place(self, directory: Path) -> Path:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(mode=0o700)
        return directory


class FailedOver(_OnServers):
    """A primary that crashes; its standby is promoted without the last acknowledged events."""

    def strike(self, choose: Random) -> None:
        """Cut the standby off, let the primary continue for a while, and fail over."""
        standby = self.server.standby(self._next_place())
        standby.start()
        try:
            self.server.wait_for_standby(_CAUGHT_UP_S)
            time.sleep(_lag_s(choose))
            standby.stop_following()
            time.sleep(_lag_s(choose))
            self.server.close()
            standby.promote()
        finally:
            self.server = standby


class Dumped(_OnServers):
    """A dump restored into another server, or into another database of the same server."""

    def strike(self, choose: Random) -> None:
        """Dump the database while it is in use, and restore the dump after a while."""
        self.server.dump(_DATABASE)
        dump = self.server.directory / "dump.sql"
        time.sleep(_lag_s(choose))
        if choose.random() < 1 / 2:
            self.server.restore(_RESTORED)
            self.server.execute(f"DROP DATABASE {_DATABASE} WITH (FORCE)")
        else:
            successor = PostgresServer(directory=self._next_place())
            successor.password = self.server.password
            successor.start()
            try:
                successor.restore(_RESTORED, dump)
                self.server.close()
            finally:
                self.server = successor
        self.server.execute(f"ALTER DATABASE {_RESTORED} RENAME TO {_DATABASE}")


class Copied:
    """An SQLite file that is overwritten with an earlier copy of it, by the backup API."""

    def __init__(self, directory: Path) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="eventstore-torture-", dir=directory))
        self._file = self._home / "torture.db"
        self.url = f"sqlite:///{self._file}"

    def strike(self, choose: Random) -> None:
        """Copy the file while it is in use, and write the copy back after a while."""
        copy = self._home / "backup.db"
        _copy(self._file, copy)
        time.sleep(_lag_s(choose))
        _copy(copy, self._file)
        copy.unlink()

    def __enter__(self) -> Self:
        """Create the file."""
        EventStore.open(self.url).close()
        return self

    def __exit__(self, *_: object) -> None:
        """Delete the file."""
        shutil.rmtree(self._home, ignore_errors=True)


def _lag_s(choose: Random) -> float:
    """Return a lag in seconds, more often short than long: a recorder remembers 256 events."""
    return float(_LONGEST_LAG_S * choose.random() ** 3)


def _copy(source: Path, target: Path) -> None:
    with (
        closing(sqlite3.connect(source, timeout=60)) as old,
        closing(sqlite3.connect(target, timeout=60)) as new,
    ):
        old.backup(new)


READER = "reader"
WRITER = "writer"
REBUILDER = "rebuilder"

Role = tuple[str, Callable[..., None], tuple[Any, ...]]
"""The kind of a process, its function, and the function's arguments after the plan."""

_PRELOADED = ["torture.setbacks", "sqlalchemy.dialects.postgresql.psycopg"]


@dataclass(slots=True)
class _Member:
    """One process.

    ``killed`` is true from its kill to its restart; ``stopped`` is the time until which it stays
    stopped, or None.
    """

    kind: str
    function: Callable[..., None]
    arguments: tuple[Any, ...]
    process: ForkServerProcess
    killed: bool = False
    stopped: float | None = None

    def goes_on(self) -> None:
        """Resume the process if it is stopped."""
        if self.stopped is not None and self.process.pid is not None:
            self.stopped = None
            os.kill(self.process.pid, signal.SIGCONT)


class Crew:
    """All processes of a run; leaving the block kills those that remain."""

    def __init__(self, plan: Plan, roles: Sequence[Role]) -> None:
        self._plan = plan
        self._context: ForkServerContext = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(_PRELOADED)
        self._members: list[_Member] = []
        self.counts: Counter[str] = Counter()
        self.failed = 0
        for kind, function, arguments in roles:
            self._add(kind, function, *arguments)

    def tend(self) -> bool:
        """Restart killed processes, resume stopped ones; return whether a writer is running."""
        for member in list(self._members):
            if member.stopped is not None and member.stopped < time.monotonic():
                member.goes_on()
            if member.process.is_alive():
                continue
            ended = member.process.exitcode
            self._members.remove(member)
            if member.killed:
                self._add(member.kind, member.function, *member.arguments)
            elif ended:
                self.failed += 1
        return any(member.kind == WRITER for member in self._members)

    def kill(self, choose: Random, spared: Sequence[str] = (READER,)) -> None:
        """Kill a random process; readers are spared because the check relies on their notes."""
        if able := [each for each in self._members if not (each.killed or each.kind in spared)]:
            self._kill(choose.choice(able))

    def stop(self, choose: Random, longest_s: float) -> None:
        """Stop a random process for a while, at any point; `tend` resumes it."""
        able = [each for each in self._members if each.stopped is None and each.process.is_alive()]
        if able:
            member = choose.choice(able)
            if member.process.pid is not None:
                member.stopped = time.monotonic() + longest_s * choose.random()
                os.kill(member.process.pid, signal.SIGSTOP)
                self.counts["stops"] += 1

    def _kill(self, member: _Member) -> None:
        if member.process.is_alive():
            member.process.kill()
            member.process.join()
            # It may have ended by itself just before.
            member.killed = member.process.exitcode == -signal.SIGKILL
            self.counts["kills"] += member.killed

    def wait(self, patience_s: float, *, readers: bool) -> None:
        """Wait until the readers, or all others, have ended; those that do not count as failed.

        The rebuilder is killed: its work takes longer the larger the log is.
        """
        until = time.monotonic() + patience_s
        for member in self._members:
            member.goes_on()
        for member in self._members:
            if (member.kind == READER) != readers:
                continue
            if member.kind == REBUILDER:
                self._kill(member)
            member.process.join(max(0.0, until - time.monotonic()))
            if member.killed and not member.process.is_alive():
                continue
            self.failed += member.process.exitcode != 0

    def _add(self, kind: str, function: Callable[..., None], *arguments: Any) -> None:
        process = self._context.Process(
            target=_live, args=(function, self._plan, *arguments), daemon=True
        )
        process.start()
        self._members.append(_Member(kind, function, arguments, process))

    def __enter__(self) -> Self:
        """Return the crew."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill all remaining processes."""
        for member in self._members:
            member.process.kill()
            member.process.join()


def _live(function: Callable[..., None], *arguments: Any) -> None:
    # Ctrl-C is for the run itself, which then ends its processes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    function(*arguments)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
