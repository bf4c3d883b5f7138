"""Connections: the settings of PostgreSQL sessions, and connections that a process must not use.

Correctness depends on some settings (isolation, durable commits, how values are written as text).
Others keep a stopped process from blocking the rest (how long to wait for a lock, how long a
transaction may be idle). They are set once per connection, whatever defaults the role or the
database has. Behind a pooler that gives each transaction a different server session, as PgBouncer
does in transaction mode, they are set for each transaction instead, statements are not prepared,
and nothing is left behind in a session.

A process must not use its parent's connections, nor connections to a file that has been replaced.
In a forked child, PostgreSQL connections are cut off without notifying the server, and the child
opens new ones. SQLite keeps a file's locks per process and file, shared by all its connections: so
the parent closes idle connections before it forks, and a child that has inherited one anyway is
refused, even if it opens the file again.
"""

from __future__ import annotations

import math
import os
import re
import socket
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import get_ident
from typing import Any
from weakref import WeakSet

import psycopg
from sqlalchemy import URL, Engine, event
from sqlalchemy.exc import DisconnectionError

from eventstore.errors import DatabaseReplaced, ForkedStore
from eventstore.sql.waits import limit_waits
from eventstore.telemetry.log import masked

__all__ = [
    "BRIEF",
    "NAMES",
    "USER",
    "ConnectionSettings",
    "Opened",
    "literal",
    "problem_of",
    "quoted",
]


LOCK_TIMEOUT_MS = 5_000
RESPONSE_TIMEOUT_MS = 300_000
"""How long the server may neither take nor send a byte, beyond its wait for a lock."""
IDLE_TIMEOUT_MS = 300_000
"""How long any transaction may be idle, including one in which your code or a fold runs."""

_COMMITS = ("on", "remote_apply", "remote_write", "local", "off")
_POOLERS = ("auto", "transaction", "none")
_LOCK, _IDLE = "lock_timeout", "idle_in_transaction_session_timeout"
_COMMIT, _POOLER, _SCHEMA = "synchronous_commit", "pooler", "schema"
_RESPONSE = "response_timeout"
NAMES = frozenset((_LOCK, _IDLE, _COMMIT, _POOLER, _SCHEMA, _RESPONSE))
"""The URL options that belong to this project and not to the driver."""

USER = "thread"
"""Key in a pooled connection's ``info``: the thread that last checked it out."""

_DURATION = re.compile(r"(\d{1,9}) ?(ms|s|min|h)?")
_MS = {None: 1, "ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000}
_MOST_MS = 2**31 - 1  # PostgreSQL's limit
_MOST_NAME_BYTES = 63  # PostgreSQL's limit: it would silently truncate a longer name

_LIMITS: dict[str, str | int] = {
    # Notice a server that is gone, or a network that drops everything, within a minute.
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
_FIXED = {
    "TimeZone": "UTC",
    "DateStyle": "ISO",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "standard_conforming_strings": "on",
}


BRIEF = (
    "set_config('idle_in_transaction_session_timeout', CASE "
    "current_setting('idle_in_transaction_session_timeout') WHEN '5min' THEN '30s' "
    "ELSE current_setting('idle_in_transaction_session_timeout') END, true)"
)
"""For a transaction that only runs statements: it is idle for moments, unless its process stops."""

_File = tuple[int, int]

_inherited: set[_File] = set()
"""Device and inode of SQLite files that the parent was using when it forked this process."""

_unclosed: list[Any] = []
"""Their connections, which must never be closed: that would undo what the parent will commit."""


def problem_of(query: Mapping[str, Any]) -> str | None:
    """Return what is wrong with this project's own options in a URL, if anything."""
    for name in NAMES.intersection(query):
        value = query[name]
        if not isinstance(value, str):
            return f"the option {name!r} is given more than once"
        if name == _SCHEMA:
            # Within a search_path, "$user" means the current user, even if it is quoted.
            refused = value.startswith("pg_") or value == "$user"
            if refused or not 0 < len(value.encode()) <= _MOST_NAME_BYTES:
                what = "must have 1 to 63 bytes, not begin with pg_ and not be $user"
                return f"the option {name!r} {what}"
            continue
        allowed = {_COMMIT: _COMMITS, _POOLER: _POOLERS}.get(name)
        if allowed is None and _milliseconds(value) is None:
            return f"the option {name!r} must be a duration: 500 (ms), 5s, 2min, or 0 for none"
        if allowed is not None and value not in allowed:
            return f"the option {name!r} must be one of {', '.join(allowed)}"
    return None


def _milliseconds(value: str) -> int | None:
    found = _DURATION.fullmatch(value)
    if found is None:
        return None
    duration = int(found[1]) * _MS[found[2]]
    return duration if duration <= _MOST_MS else None


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """The session settings in a URL.

    Durations are in milliseconds; None if the URL has none, 0 for no limit.
    """

    lock_timeout_ms: int | None
    idle_timeout_ms: int | None
    synchronous_commit: str | None
    pooler: str
    schema: str | None
    response_timeout_ms: int | None
    url_options: frozenset[str]

    @classmethod
    def of(cls, url: URL) -> ConnectionSettings:
        """Read the settings from a URL in which `problem_of` finds no problem."""
        query = url.query
        lock, idle, response = query.get(_LOCK), query.get(_IDLE), query.get(_RESPONSE)
        commit = query.get(_COMMIT)
        return cls(
            None if lock is None else _milliseconds(str(lock)),
            None if idle is None else _milliseconds(str(idle)),
            None if commit is None else str(commit),
            str(query.get(_POOLER, "auto")),
            None if _SCHEMA not in query else str(query[_SCHEMA]),
            None if response is None else _milliseconds(str(response)),
            frozenset(query),
        )

    @property
    def patience_ms(self) -> int:
        """How long to wait for a lock, by the URL or the default; 0 means no limit."""
        return LOCK_TIMEOUT_MS if self.lock_timeout_ms is None else self.lock_timeout_ms

    def silence_s(self, lock_timeout: str | None = None) -> float:
        """Return how long to wait for a server that neither takes nor sends a byte, in seconds.

        Longer by default than the server may wait for a lock. ``lock_timeout`` is the session's, if
        it is known by now: a limit set for the role or the database may be longer than the URL's.
        """
        if self.response_timeout_ms is not None:
            return self.response_timeout_ms / 1000 or math.inf
        patience_ms = self.patience_ms if lock_timeout is None else _milliseconds(lock_timeout)
        # PostgreSQL writes a limit of days in a unit that no URL has.
        return (RESPONSE_TIMEOUT_MS + patience_ms) / 1000 if patience_ms else math.inf

    def arguments(self, application: str) -> dict[str, str | int]:
        """Return the driver's connection arguments in addition to the URL's."""
        limits = {
            name: value
            for name, value in _LIMITS.items()
            if name not in self.url_options and f"PG{name.upper()}" not in os.environ
        }
        encoding = {} if "client_encoding" in self.url_options else {"client_encoding": "utf8"}
        return {"fallback_application_name": application, **encoding, **limits}

    def begin(self, connection: psycopg.Connection[Any], *, read_only: bool) -> bytes | None:
        """Set up a new connection; behind a pooler, return the first statement of each transaction.

        A pooler is detected by the process id: the server process has another id than the one that
        the pooler reported.
        """
        limit_waits(connection, self.silence_s())
        connection.read_only = True if read_only else None
        settings = self._settings()
        pooled = {"none": "false", "transaction": "true"}.get(
            self.pooler, f"pg_backend_pid() <> {connection.info.backend_pid}"
        )
        defaults = {"default_transaction_isolation": "'read committed'"}
        if read_only:
            defaults["default_transaction_read_only"] = "'on'"
        connection.autocommit = True
        found = connection.execute(_select(settings | defaults, pooled, pooled)).fetchone()
        connection.autocommit = False
        if found is not None:
            limit_waits(connection, self.silence_s(found[1 + [*settings].index(_LOCK)]))
        if found is None or not found[0]:
            return None
        connection.prepare_threshold = None
        return self.each()

    def each(self) -> bytes:
        """Return the statement that sets up one transaction and leaves the session unchanged."""
        return _select(self._settings(), "true")

    def _settings(self) -> dict[str, str]:
        """Return the value of each setting, as a SQL expression."""
        settings = {name: f"'{value}'" for name, value in _FIXED.items()}
        settings[_LOCK] = _timeout(_LOCK, self.lock_timeout_ms, LOCK_TIMEOUT_MS)
        settings[_IDLE] = _timeout(_IDLE, self.idle_timeout_ms, IDLE_TIMEOUT_MS)
        # Keep an administrator's stronger setting; only the URL can choose a weaker one.
        settings[_COMMIT] = (
            f"CASE current_setting('{_COMMIT}') WHEN 'remote_apply' THEN 'remote_apply' "
            "ELSE 'on' END"
            if self.synchronous_commit is None
            else f"'{self.synchronous_commit}'"
        )
        if self.schema is not None:
            # Only this schema: missing tables must not be found in another one.
            settings["search_path"] = literal(quoted(self.schema))
        return settings


def quoted(name: str) -> str:
    """Return a quoted identifier for PostgreSQL's statements and ``search_path``."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a string literal for PostgreSQL's statements."""
    return "'" + text.replace("'", "''") + "'"


def _timeout(name: str, requested_ms: int | None, usual_ms: int) -> str:
    """Return the expression of a timeout; a limit set for the role or the database is kept."""
    if requested_ms is not None:
        return f"'{requested_ms}'"
    current = f"current_setting('{name}')"
    return f"CASE {current} WHEN '0' THEN '{usual_ms}' ELSE {current} END"


def _select(settings: Mapping[str, str], is_local: str, *first: str) -> bytes:
    sets = [f"set_config('{name}', {value}, {is_local})" for name, value in settings.items()]
    return f"SELECT {', '.join([*first, *sets])}".encode()


class Opened:
    """The connections opened by an engine, and whether this process may use them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._url = masked(engine.url)
        self._process = os.getpid()
        self._records: WeakSet[Any] = WeakSet()
        self._path = ""
        self._file: _File | None = None
        self._lost = False
        # SQLite would create a new file in place of a lost one.
        event.listen(engine, "do_connect", lambda *_: self.check())
        event.listen(engine, "connect", self._connected)
        event.listen(engine, "checkout", self._taken)

    @property
    def on_file(self) -> bool:
        """Whether the database is known to be a SQLite file and not in memory."""
        return self._path != ""

    @property
    def is_parents(self) -> bool:
        """Whether this process was forked without calling Python's fork hooks, as by C code."""
        return self._process != os.getpid()

    def check(self) -> None:
        """Raise unless the connections still belong to the database that they were opened for.

        Raises:
            DatabaseReplaced: SQLite's file was deleted or replaced.
            ForkedStore: This process was forked while its parent was using the SQLite database.
        """
        if self._path and self._file is None:
            self._file = _identity(self._path)  # SQLite creates a new file at its first write.
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
                    "put the right file in place, and open it again",
                )
        elif self._lost:
            raise ForkedStore(
                self._url,
                "an in-memory database belongs to the process that created it: use a file, or open "
                "another database in this process",
            )

    def in_child(self) -> None:
        """Drop the parent's connections without the parent noticing."""
        self._process = os.getpid()
        for record in list(self._records):
            connection, record.fairy_ref = record.dbapi_connection, None  # Prevents its return.
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
            # Connections of the parent's other threads are left alone, and nothing here can use
            # them: such a thread may hold SQLite's lock on its connection, forever in this process.
            connection.set_authorizer(_deny)
        _unclosed.append(connection)
        if self._file is not None:
            _inherited.add(self._file)
        self._lost = True

    def _connected(self, connection: Any, record: Any) -> None:
        self._records.add(record)
        if isinstance(connection, sqlite3.Connection) and not self._path:
            self._path = connection.execute("PRAGMA database_list").fetchone()[2]
        self.check()

    def _taken(self, _connection: Any, record: Any, _pooled: Any) -> None:
        record.info[USER] = get_ident()
        if self.is_parents:
            self.in_child()
            raise DisconnectionError("forked")  # Makes the pool open another one.
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
    """Replace a socket by one whose other end is closed, so that nothing more is sent."""
    near, far = socket.socketpair()
    far.close()
    os.dup2(near.fileno(), number, inheritable=False)
    near.close()
