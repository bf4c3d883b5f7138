"""Drivers' errors to this project's own: told apart by code, never by luck.

Used around every transaction, so that a caller meets the same error class on both databases; the
driver's error stays as the ``__cause__``. Errors of values, constraints and syntax (SQLSTATE 22, 23
and 42) pass through: who writes knows best what they mean. No waiting mends these, nor a limit of
the server's that is exceeded (53 and 54).
"""

from __future__ import annotations

import sqlite3
from types import TracebackType

import psycopg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from eventstore.errors import (
    CannotConnect,
    DatabaseBusy,
    EventStoreError,
    ForkedStore,
    InvalidUrl,
    NotADatabase,
    NotWritable,
    StatementRefused,
    StoreUnavailable,
)

__all__ = ["is_away", "lacks_connection", "translated"]

_SQLITE: dict[int, tuple[type[StoreUnavailable], str]] = {
    sqlite3.SQLITE_BUSY: (
        DatabaseBusy,
        "another writer held the lock beyond the timeout: try again, or raise busy_timeout_ms",
    ),
    sqlite3.SQLITE_LOCKED: (DatabaseBusy, "the database is locked: try again"),
    sqlite3.SQLITE_CANTOPEN: (
        NotWritable,
        "the file cannot be opened: check that it exists and the permissions of its directory",
    ),
    sqlite3.SQLITE_READONLY: (NotWritable, "the file, or its directory, is read-only"),
    sqlite3.SQLITE_PERM: (NotWritable, "access to the file is refused"),
    sqlite3.SQLITE_FULL: (NotWritable, "the disk is full: nothing was written"),
    sqlite3.SQLITE_IOERR: (NotWritable, "the file cannot be read or written"),
    sqlite3.SQLITE_AUTH: (
        ForkedStore,
        "the transaction is that of the process that forked this one; nothing was committed",
    ),
    sqlite3.SQLITE_NOTADB: (NotADatabase, "the file is no SQLite database"),
    sqlite3.SQLITE_CORRUPT: (NotADatabase, "the database file is damaged: restore a backup"),
}

_WRONG_OPTIONS = ("no such access mode", "no such cache mode", "no such vfs")


_OUT_OF_RANGE = "22003"
_LIMITS = ("53", "54")
"""Classes of SQLSTATE: the driver counts them as operational errors, but waiting does not help."""
_ENDED = ("25P03", "25P04")
"""A transaction rested, or went on, for longer than the server lets one: its session is ended."""


class translated:
    """Raise this project's error in place of a driver's, within the block.

    A class rather than a generator, because every append passes through it.

    Raises:
        StoreUnavailable: One of its subclasses, see `eventstore.errors`.
    """

    __slots__ = ("_url",)

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Raise the project's own error, if there is one for what has passed."""
        if error is None:
            return
        if isinstance(error, DBAPIError):
            known = _known(self._url, error.orig)
            if known is not None:
                raise known from error.orig
        elif isinstance(error, PoolTimeout):
            reason = "all connections are in use: raise pool_size"
            raise DatabaseBusy(self._url, reason) from error
        elif isinstance(error, (sqlite3.Error, psycopg.Error, OverflowError)):
            known = _known(self._url, error)
            if known is not None:
                raise known from error


def lacks_connection(error: DatabaseBusy) -> bool:
    """Whether the pool had no connection left, rather than somebody else the lock."""
    return isinstance(error.__cause__, PoolTimeout)


def is_away(error: BaseException) -> bool:
    """Whether an error says that the database is away, busy, full or damaged.

    Then it is of no statement and no value: any other statement might have met it.
    """
    if isinstance(error, EventStoreError | PoolTimeout):
        return isinstance(error, StoreUnavailable | PoolTimeout)
    cause = error.orig if isinstance(error, DBAPIError) else error
    # The driver's words for a connection that is closed already.
    return isinstance(cause, psycopg.InterfaceError) or isinstance(
        _known("", cause), StoreUnavailable
    )


def _known(url: str, error: BaseException | None) -> StoreUnavailable | StatementRefused | None:
    if isinstance(error, sqlite3.Error):
        # The low byte is the primary result code; the rest only refines it.
        found = _SQLITE.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
        if found is None and str(error).startswith("Could not decode to UTF-8"):
            # Python's own error, without a code: SQLite takes any bytes for text.
            found = _SQLITE[sqlite3.SQLITE_CORRUPT]
        if str(error).startswith(_WRONG_OPTIONS):
            return InvalidUrl(url, str(error))
        return None if found is None else found[0](url, found[1])
    if isinstance(error, OverflowError):
        # Raised by the driver, which has no error of its own for a number of more than 64 bits.
        known = str(error).endswith("SQLite INTEGER")
        return StatementRefused(url, _OUT_OF_RANGE, "a number is out of range") if known else None
    if isinstance(error, psycopg.DataError):
        return StatementRefused(url, str(error.sqlstate), _first_line(error))
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        return NotWritable(url, "the server or the login allows reading only")
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return NotWritable(url, _first_line(error))
    if isinstance(error, psycopg.errors.DiskFull):
        return NotWritable(url, "the server's disk is full: nothing was written")
    if isinstance(error, psycopg.errors.DataCorrupted | psycopg.errors.IndexCorrupted):
        return NotADatabase(url, f"the server's files are damaged: {_first_line(error)}")
    if isinstance(error, psycopg.errors.LockNotAvailable):
        return DatabaseBusy(
            url, "another transaction held the lock beyond the timeout: try again (lock_timeout)"
        )
    if isinstance(error, psycopg.errors.QueryCanceled):
        return DatabaseBusy(url, f"the server gave the statement up: {_first_line(error)}")
    if isinstance(error, psycopg.Error) and error.sqlstate in _ENDED:
        return CannotConnect(url, f"nothing was committed: {_first_line(error)}")
    if isinstance(error, psycopg.errors.DeadlockDetected | psycopg.errors.SerializationFailure):
        return DatabaseBusy(url, "the transaction was given up for another one: try again")
    if isinstance(error, psycopg.OperationalError) and (error.sqlstate or "")[:2] in _LIMITS:
        return StatementRefused(url, str(error.sqlstate), _first_line(error))
    if isinstance(error, psycopg.OperationalError):
        return CannotConnect(url, _first_line(error))
    return None


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
