"""Databases of a run's own that go back to an older state while its processes live on.

Each is used as a context manager, has a URL that stays the same, and goes back when it is told to:
a standby that lags is promoted, a dump is restored, or a backup is put in a file's place.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from random import Random
from typing import Protocol, Self

from sqlalchemy import URL

from agent_eventstore.torture.server import PostgresServer
from eventstore import EventStore

__all__ = ["Copied", "Dumped", "FailedOver", "Setback"]

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
