"""Connections that a process must not use: its parent's, and those of a file that is another now.

PostgreSQL's are cut off in a forked child, without a word to the server, and it opens others.
SQLite keeps the locks of a file by process and by file, for all its connections together: so the
parent closes those that rest before it forks, and a child that has inherited one all the same is
refused, also as it opens the file again.
"""

from __future__ import annotations

import os
import socket
import sqlite3
from contextlib import suppress
from threading import get_ident
from typing import Any
from weakref import WeakSet

import psycopg
from sqlalchemy import Engine, event
from sqlalchemy.exc import DisconnectionError

from eventstore.errors import DatabaseReplaced, ForkedStore
from eventstore.masking import masked

__all__ = ["USER", "Opened"]

USER = "thread"
"""Where a pooled connection's ``info`` has the thread that has taken it last."""

_File = tuple[int, int]

_inherited: set[_File] = set()
"""Device and inode of SQLite's files that the parent used as it forked this process."""

_kept: list[Any] = []
"""Their connections, never to be closed: that would undo what the parent is about to commit."""


class Opened:
    """The connections that an engine has opened, and whether this process may use them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._url = masked(engine.url)
        self._process = os.getpid()
        self._records: WeakSet[Any] = WeakSet()
        self._path = ""
        self._file: _File | None = None
        self._lost = False
        event.listen(engine, "do_connect", self._before_connecting)
        event.listen(engine, "connect", self._connected)
        event.listen(engine, "checkout", self._taken)

    @property
    def on_file(self) -> bool:
        """Whether it is known to be a file of SQLite's, and not a database in memory."""
        return self._path != ""

    @property
    def is_parents(self) -> bool:
        """Whether this process was forked in a way that nobody was told of, as by C code."""
        return self._process != os.getpid()

    def check(self) -> None:
        """Raise unless the connections lead to the database that they were opened for.

        Raises:
            DatabaseReplaced: SQLite's file was deleted or replaced.
            ForkedStore: This process was forked while its parent used SQLite's database.
        """
        if self._path and self._file is None:
            self._file = _identity(self._path)  # SQLite makes a new one when it first writes.
        if self._file is not None:
            if self._file in _inherited:
                raise ForkedStore(
                    self._url,
                    "this process was forked while its parent used the database, and SQLite's "
                    "locks cannot be shared: fork between uses, or start processes with spawn",
                )
            if _identity(self._path) != self._file:
                raise DatabaseReplaced(
                    self._url,
                    "the file was deleted or replaced while the store was open: close the store, "
                    "and open it again once the right file is there",
                )
        elif self._lost:
            raise ForkedStore(
                self._url,
                "a database in memory stays with the process that made it: use a file, or open "
                "another database in this process",
            )

    def in_child(self) -> None:
        """Let go of the parent's connections, so that it does not notice."""
        self._process = os.getpid()
        for record in list(self._records):
            connection, record.fairy_ref = record.dbapi_connection, None  # Nobody is to return it.
            if connection is not None:
                self._let_go(connection, used_here=record.info.get(USER) == get_ident())
        self._records.clear()
        self._engine.dispose(close=False)

    def _let_go(self, connection: Any, *, used_here: bool) -> None:
        if not isinstance(connection, sqlite3.Connection):
            with suppress(psycopg.Error, OSError):
                _cut(connection.fileno())
            connection.close()
            return
        if used_here:
            # Those that another thread of the parent used are not touched, and have nobody who
            # could use them here: SQLite's lock on one may be held by that thread, for ever.
            connection.set_authorizer(_deny)
        _kept.append(connection)
        if self._file is not None:
            _inherited.add(self._file)
        self._lost = True

    def _before_connecting(self, *_: Any) -> None:
        self.check()  # SQLite would make a new file in the place of a lost one.

    def _connected(self, connection: Any, record: Any) -> None:
        self._records.add(record)
        if isinstance(connection, sqlite3.Connection) and not self._path:
            self._path = connection.execute("PRAGMA database_list").fetchone()[2]
        self.check()

    def _taken(self, _connection: Any, record: Any, _pooled: Any) -> None:
        record.info[USER] = get_ident()
        if self.is_parents:
            self.in_child()
            raise DisconnectionError("forked")  # Upon which the pool opens another.
        self.check()


def _identity(path: str) -> _File | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _deny(*_: object) -> int:
    """Refuse every statement: a child's commit would write what its parent has not committed."""
    return sqlite3.SQLITE_DENY


def _cut(number: int) -> None:
    """Put a socket whose other end is closed in a socket's place: nothing is sent any more."""
    near, far = socket.socketpair()
    far.close()
    os.dup2(near.fileno(), number, inheritable=False)
    near.close()
