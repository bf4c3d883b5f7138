"""What happens to a run: its processes are killed, and its database goes back to an older state.

The processes are forked from a server that has imported everything already. Only those that were
started here are ever killed; none outlives the run, also when that is killed itself.

Each database that goes back is a context manager, has a URL that stays the same, and goes back when
it is told to: a standby that lags is promoted, a dump is restored, or a backup is put in a file's
place.
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

from agent_eventstore.torture.plan import Plan
from agent_eventstore.torture.server import PostgresServer
from eventstore import EventStore

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
    """A database that can go back."""

    url: str

    def strike(self, choose: Random) -> None:
        """Let it acknowledge some more, and put it back to where it was before."""

    def __enter__(self) -> Self:
        """Begin to run it."""

    def __exit__(self, *_: object) -> None:
        """Delete it."""


class _OnServers:
    """A database on one of two servers, which take turns."""

    def __init__(self, directory: Path) -> None:
        self._stack = ExitStack()
        home = Path(tempfile.mkdtemp(prefix="eventstore-torture-", dir=directory))
        self._stack.callback(shutil.rmtree, home, ignore_errors=True)
        home.chmod(0o711)  # The servers may be another user's.
        self._one, self._other = (home / name for name in _BOTH)
        self.server = PostgresServer(directory=self._place(self._one))
        # Whichever of the two takes writes: as products name a primary and its standby.
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
    """A primary that crashes, and a standby that is promoted without the last it acknowledged."""

    def strike(self, choose: Random) -> None:
        """Cut the standby off, let the primary go on for a while, and change over."""
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
    """A dump that is restored into another server, or into another database of the same one."""

    def strike(self, choose: Random) -> None:
        """Dump it while it is in use, and restore the dump a while later."""
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
    """A file of SQLite's that an earlier copy of it is written over, by the backup API."""

    def __init__(self, directory: Path) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="eventstore-torture-", dir=directory))
        self._file = self._home / "torture.db"
        self.url = f"sqlite:///{self._file}"

    def strike(self, choose: Random) -> None:
        """Copy it while it is in use, and put the copy in its place a while later."""
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
        """Delete it."""
        shutil.rmtree(self._home, ignore_errors=True)


def _lag_s(choose: Random) -> float:
    """Return a time that is short more often than long: a recorder remembers 256 events."""
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
"""What a process is, and what it calls with the plan and these arguments."""

_PRELOADED = ["agent_eventstore.torture.setbacks", "sqlalchemy.dialects.postgresql.psycopg"]


@dataclass(slots=True)
class _Member:
    """One process, by what it does.

    ``killed`` until it is started again, ``stopped`` until this time while it is.
    """

    kind: str
    function: Callable[..., None]
    arguments: tuple[Any, ...]
    process: ForkServerProcess
    killed: bool = False
    stopped: float | None = None

    def goes_on(self) -> None:
        """Let it go on."""
        if self.stopped is not None and self.process.pid is not None:
            self.stopped = None
            os.kill(self.process.pid, signal.SIGCONT)


class Crew:
    """All processes of a run; leaving the block ends those that are left."""

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
        """Restart what was killed, let go on what was stopped; tell whether a writer is at work."""
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
        """Kill one of the processes; readers are spared, since they are what is believed."""
        if able := [each for each in self._members if not (each.killed or each.kind in spared)]:
            self._kill(choose.choice(able))

    def stop(self, choose: Random, longest_s: float) -> None:
        """Stop one of the processes for a while, wherever it is; `tend` lets it go on."""
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
        """Wait until the readers, or all others, have ended; those that do not have failed.

        The rebuilder is killed: what it is at takes longer the larger the log.
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
        """Kill whoever still runs."""
        for member in self._members:
            member.process.kill()
            member.process.join()


def _live(function: Callable[..., None], *arguments: Any) -> None:
    # Ctrl-C is for the run, which then ends its processes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    function(*arguments)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
