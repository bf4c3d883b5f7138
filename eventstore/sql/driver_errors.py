"""Translates drivers' errors to this project's own, by error code.

Used around every transaction, so that callers see the same error class on both databases; the
driver's error is the ``__cause__``. Within a transaction, code sees the driver's own errors and
decides what they mean.

The tables below are the whole decision. Errors that they do not list become `StatementRefused`: the
database works, and would refuse the same statement again.
"""

from __future__ import annotations

import re
import sqlite3
from typing import Self

import psycopg
from sqlalchemy.exc import (
    DisconnectionError,
    PendingRollbackError,
    ResourceClosedError,
    SQLAlchemyError,
    StatementError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout

from eventstore.errors import (
    CannotConnect,
    DatabaseBusy,
    ErrorType,
    EventStoreError,
    ForkedStore,
    InvalidUrl,
    NotADatabase,
    NotWritable,
    ServerSilent,
    StatementRefused,
    StoreUnavailable,
    Traceback,
)
from eventstore.sql.waits import NoAnswer

__all__ = ["driver_error", "is_away", "lacks_connection", "translated"]

_SQLITE: dict[int, tuple[type[StoreUnavailable], str]] = {
    sqlite3.SQLITE_BUSY: (
        DatabaseBusy,
        "another writer held the lock beyond the timeout: try again, or raise busy_timeout_ms",
    ),
    sqlite3.SQLITE_LOCKED: (DatabaseBusy, "the database is locked: try again"),
    sqlite3.SQLITE_PROTOCOL: (DatabaseBusy, "too much contention for the lock: try again"),
    sqlite3.SQLITE_INTERRUPT: (DatabaseBusy, "the statement was interrupted: try again"),
    sqlite3.SQLITE_CANTOPEN: (
        NotWritable,
        "the file cannot be opened: check that it exists, and its and its directory's permissions",
    ),
    sqlite3.SQLITE_READONLY: (
        NotWritable,
        "the file or its directory is read-only: open it with read_only=True (--read-only)",
    ),
    sqlite3.SQLITE_PERM: (NotWritable, "access to the file is denied"),
    sqlite3.SQLITE_FULL: (NotWritable, "the disk is full: nothing was written"),
    sqlite3.SQLITE_IOERR: (
        NotWritable,
        "the file cannot be read or written: check whether the disk is full or failing",
    ),
    sqlite3.SQLITE_AUTH: (
        ForkedStore,
        "the transaction belongs to the process that forked this one; nothing was committed",
    ),
    sqlite3.SQLITE_NOTADB: (NotADatabase, "the file is not a SQLite database"),
    sqlite3.SQLITE_CORRUPT: (NotADatabase, "the database file is damaged: restore a backup"),
}
"""By primary result code."""

_POSTGRESQL: dict[str, tuple[type[StoreUnavailable], str]] = {
    "": (CannotConnect, "{}"),
    "08": (CannotConnect, "{}"),
    "25006": (
        NotWritable,
        "the server or the login is read-only: open it with read_only=True (--read-only)",
    ),
    "25P03": (CannotConnect, "nothing was committed: {}"),
    "25P04": (CannotConnect, "nothing was committed: {}"),
    "28": (CannotConnect, "{}"),
    "3D": (CannotConnect, "{}"),
    "40": (DatabaseBusy, "the transaction was rolled back in favour of another one: try again"),
    "42501": (
        NotWritable,
        "{}: `eventstore db grant` gives rights on rows; only the owner has all others",
    ),
    "53100": (NotWritable, "the server's disk is full: nothing was written"),
    "53300": (CannotConnect, "{}"),
    "55006": (DatabaseBusy, "another session is using it: try again"),
    "55P03": (
        DatabaseBusy,
        "another transaction held the lock beyond the timeout: try again (lock_timeout)",
    ),
    "57": (CannotConnect, "{}"),
    "57014": (DatabaseBusy, "the server cancelled the statement: {}"),
    "58": (NotWritable, "the server cannot read or write its files: {}"),
    "XX001": (NotADatabase, "the server's files are damaged: {}"),
    "XX002": (NotADatabase, "the server's files are damaged: {}"),
}
"""By SQLSTATE, or else by its class; ``{}`` is the first line of the server's message.

The empty key is for a lost connection, which has no SQLSTATE.
"""

_SQLALCHEMY: tuple[tuple[type[SQLAlchemyError], type[StoreUnavailable], str], ...] = (
    (PoolTimeout, DatabaseBusy, "all connections are in use: raise pool_size"),
    (ResourceClosedError, CannotConnect, "the connection is closed"),
    (PendingRollbackError, CannotConnect, "the connection was lost in this transaction"),
    (DisconnectionError, CannotConnect, "the connection was lost"),
)

_WRONG_OPTIONS = ("no such access mode", "no such cache mode", "no such vfs")
_CLOSED = "Cannot operate on a closed"
_NO_TEXT = "Could not decode to UTF-8"
_NO_SCHEMA = b"malformed database schema"
_TOO_LARGE = "SQLite INTEGER"
_MOVING = re.compile(
    r"^could not find valid entry for shard|^relation \"[^\"]+_[0-9]{6,}\" does not exist"
)
"""What a query over all shards of a distributed store meets while their list changes."""
_NODE_LOST = re.compile("^could not commit transaction for shard|^failure on connection marked as")
"""Whether it was committed is not known, as with any lost connection."""
_OUT_OF_RANGE = "22003"


class translated:
    """Replace drivers' errors in the block with this project's.

    A class rather than a generator, because every append passes through it.

    Raises:
        StoreUnavailable: One of its subclasses, see `eventstore.errors`.
        StatementRefused: The driver's error is any other.
    """

    __slots__ = ("_own", "_url")

    def __init__(self, url: str) -> None:
        self._url = url
        self._own: BaseException | None = None

    def __enter__(self) -> Self:
        """Return this object; pass errors that must stay unchanged to `leave`."""
        return self

    def leave(self, error: BaseException) -> None:
        """Let an error of the caller's own statements through unchanged."""
        self._own = error

    def __exit__(self, kind: ErrorType, error: BaseException | None, trace: Traceback) -> None:
        """Raise the project's own error for a driver's error."""
        if error is None or error is self._own:
            return
        known = driver_error(self._url, error)
        if known is not None:
            raise known from _cause(error)


def driver_error(url: str, error: BaseException) -> StoreUnavailable | StatementRefused | None:
    """Return this project's error for a driver's or SQLAlchemy's; None for any other."""
    error = _cause(error)
    if isinstance(error, psycopg.Error):
        return _of_psycopg(url, error)
    if isinstance(error, sqlite3.Error):
        return _of_sqlite(url, error)
    if isinstance(error, OverflowError) and str(error).endswith(_TOO_LARGE):
        # The driver has no error of its own for a number of more than 64 bits.
        return StatementRefused(url, _OUT_OF_RANGE, "a number is out of range")
    if isinstance(error, UnicodeDecodeError) and error.object.startswith(_NO_SCHEMA):
        # SQLite's message quotes what is not text, and Python cannot create its error from that.
        damaged, reason = _SQLITE[sqlite3.SQLITE_CORRUPT]
        return damaged(url, reason)
    if not isinstance(error, SQLAlchemyError):
        return None
    for kind, ours, message in _SQLALCHEMY:
        if isinstance(error, kind):
            return ours(url, message)
    return StatementRefused(url, type(error).__name__, _first_line(error))


def lacks_connection(error: DatabaseBusy) -> bool:
    """Whether the pool had no connection left, as opposed to a lock being held."""
    return isinstance(error.__cause__, PoolTimeout)


def is_away(error: BaseException) -> bool:
    """Whether an error says that the database is away, busy, full or damaged.

    Such an error is not about a statement or a value: any statement might have failed with it.
    """
    known = error if isinstance(error, EventStoreError) else driver_error("", error)
    return isinstance(known, StoreUnavailable)


def _cause(error: BaseException) -> BaseException:
    """Return the driver's error that SQLAlchemy has wrapped, or the error itself."""
    return (isinstance(error, StatementError) and error.orig) or error


def _of_psycopg(url: str, error: psycopg.Error) -> StoreUnavailable | StatementRefused:
    if isinstance(error, NoAnswer):
        return ServerSilent(url, str(error))
    code = error.sqlstate or ""
    # The driver's internal error: both the server and a pooler reported the server's end.
    kinds = psycopg.OperationalError | psycopg.InterfaceError | psycopg.InternalError
    lost = bool(code) or isinstance(error, kinds)
    if _MOVING.search(_first_line(error)):
        return DatabaseBusy(url, "a shard has just been moved or split: try again")
    if _NODE_LOST.search(_first_line(error)):
        return CannotConnect(url, f"a server of the store went away: {_first_line(error)}")
    found = (_POSTGRESQL.get(code) or _POSTGRESQL.get(code[:2])) if lost else None
    if found is None:
        return StatementRefused(url, code or type(error).__name__, _first_line(error))
    kind, reason = found
    return kind(url, reason.format(_first_line(error)))


def _of_sqlite(url: str, error: sqlite3.Error) -> StoreUnavailable | StatementRefused:
    message = str(error)
    # The low byte is the primary result code; the rest only refines it.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if message.startswith(_NO_TEXT):
        # Python's own error, without a code: SQLite accepts any bytes as text.
        code = sqlite3.SQLITE_CORRUPT
    if message.startswith(_WRONG_OPTIONS):
        return InvalidUrl(url, message)
    if message.startswith(_CLOSED):
        return CannotConnect(url, message)
    if code in _SQLITE:
        kind, reason = _SQLITE[code]
        return kind(url, reason)
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    return StatementRefused(url, name, _first_line(error))


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
