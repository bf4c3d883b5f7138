"""Drivers' errors to this project's own: told apart by code, never by luck.

Used around every transaction, so that a caller meets the same error class on both databases; the
driver's error stays as the ``__cause__``. Integrity errors pass through: who writes knows best
what they mean.
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
    NotADatabase,
    NotWritable,
    StoreUnavailable,
)

__all__ = ["translated"]

_SQLITE = {
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
    sqlite3.SQLITE_NOTADB: (NotADatabase, "the file is no SQLite database"),
    sqlite3.SQLITE_CORRUPT: (NotADatabase, "the database file is damaged: restore a backup"),
}


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
        elif isinstance(error, (sqlite3.Error, psycopg.Error)):
            known = _known(self._url, error)
            if known is not None:
                raise known from error


def _known(url: str, error: BaseException | None) -> StoreUnavailable | None:
    if isinstance(error, sqlite3.Error):
        # The low byte is the primary result code; the rest only refines it.
        found = _SQLITE.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
        if found is None and str(error).startswith("Could not decode to UTF-8"):
            # Python's own error, without a code: SQLite takes any bytes for text.
            found = _SQLITE[sqlite3.SQLITE_CORRUPT]
        return None if found is None else found[0](url, found[1])
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        return NotWritable(url, "the server or the login allows reading only")
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return NotWritable(url, _first_line(error))
    if isinstance(error, psycopg.errors.DiskFull):
        return NotWritable(url, "the server's disk is full: nothing was written")
    if isinstance(error, psycopg.errors.DataCorrupted | psycopg.errors.IndexCorrupted):
        return NotADatabase(url, f"the server's files are damaged: {_first_line(error)}")
    if isinstance(error, psycopg.errors.LockNotAvailable):
        return DatabaseBusy(url, "another transaction held the lock beyond the timeout")
    if isinstance(error, psycopg.errors.DeadlockDetected | psycopg.errors.SerializationFailure):
        return DatabaseBusy(url, "the transaction was given up for another one: try again")
    if isinstance(error, psycopg.OperationalError):
        return CannotConnect(url, _first_line(error))
    return None


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
