"""Engines for the two databases, with the settings that durability and isolation rest on.

SQLite: write-ahead log, ``synchronous=FULL`` unless asked otherwise, a busy timeout, and explicit
``BEGIN`` (``BEGIN IMMEDIATE`` for writers), because the driver's own idea of when a transaction
starts would let two writers read the same version. PostgreSQL: psycopg 3, READ COMMITTED.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import QueuePool

from eventstore.errors import InvalidUrl, NotWritable
from eventstore.sql.driver import begin as begin_sqlite

__all__ = ["Synchronous", "begin_write", "open_engine", "snapshot_of", "writer_of"]

_APPLICATION = "agent-eventstore"
Synchronous = Literal["FULL", "NORMAL", "EXTRA", "OFF"]
_DRIVERS = {
    "sqlite": "sqlite+pysqlite",
    "sqlite+pysqlite": "sqlite+pysqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}


def open_engine(
    url: str | URL,
    *,
    synchronous: Synchronous = "FULL",
    busy_timeout_ms: int = 30_000,
    read_only: bool = False,
    pool_size: int = 5,
) -> Engine:
    """Return an engine for the URL; PostgreSQL is not contacted yet.

    Args:
        url: ``sqlite:///path`` or ``postgresql+psycopg://...`` (``postgresql://`` means the same).
        synchronous: SQLite's sync level; FULL survives a power cut, NORMAL only a crash.
        busy_timeout_ms: How long a SQLite writer waits for another one, in milliseconds.
        read_only: Refuse to write: SQLite's file is opened so, PostgreSQL's transactions are.
        pool_size: Connections that are kept open; twice as many may be open at a time.

    Raises:
        InvalidUrl: The URL names no database that is supported.
        NotWritable: SQLite's directory does not exist.
    """
    parsed = _parse(url)
    if parsed.get_backend_name() == "postgresql":
        return _postgresql_engine(parsed, read_only, pool_size)
    return _sqlite_engine(parsed, synchronous, busy_timeout_ms, read_only, pool_size)


@lru_cache(maxsize=32)
def writer_of(engine: Engine, durable: bool) -> Engine:
    """Return the engine's variant for transactions that write; it shares the connections."""
    return engine.execution_options(sqlite_begin="IMMEDIATE", durable=durable)


@lru_cache(maxsize=32)
def snapshot_of(engine: Engine) -> Engine:
    """Return the engine's variant whose transactions see one state of the database throughout."""
    if engine.dialect.name == "sqlite":
        return engine
    return engine.execution_options(isolation_level="REPEATABLE READ")


@contextmanager
def begin_write(engine: Engine, *, durable: bool = True) -> Iterator[Connection]:
    """Yield a connection in a transaction that may write, committed at the end of the block.

    On SQLite the transaction holds the write lock from its first moment. With ``durable`` false
    the commit does not wait for the disk: a power cut may undo it, but never half of it.
    """
    with writer_of(engine, durable).begin() as connection:
        if not durable and engine.dialect.name == "postgresql":
            connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
        yield connection


def _parse(url: str | URL) -> URL:
    shown = str(url)
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        reason = "no database URL; write sqlite:///file.db or postgresql://user@host/database"
        # What cannot be parsed may still hold a password before an "@".
        raise InvalidUrl(repr(re.sub(r":[^:/@][^@]*@", ":***@", shown)), reason) from error
    driver = _DRIVERS.get(parsed.drivername)
    if driver is None:
        reason = f"unknown database {parsed.drivername!r}: use sqlite or postgresql"
        raise InvalidUrl(parsed.render_as_string(), reason)
    return parsed.set(drivername=driver)


def _postgresql_engine(url: URL, read_only: bool, pool_size: int) -> Engine:
    # What `pg_stat_activity` shows, unless the URL or PGAPPNAME has another name.
    settings = {"fallback_application_name": _APPLICATION}
    if read_only:
        settings["options"] = "-c default_transaction_read_only=on"
    return create_engine(
        url,
        pool_size=pool_size,
        max_overflow=pool_size,
        pool_pre_ping=True,
        connect_args=settings,
    )


def _sqlite_engine(
    url: URL, synchronous: str, busy_timeout_ms: int, read_only: bool, pool_size: int
) -> Engine:
    in_memory = url.database in (None, "", ":memory:")
    if not in_memory:
        url = _sqlite_file(url, read_only)
    try:
        engine = create_engine(
            url,
            # One connection holds an in-memory database, so everybody takes turns on it.
            poolclass=QueuePool,
            pool_size=1 if in_memory else pool_size,
            max_overflow=0 if in_memory else pool_size,
            connect_args={
                "isolation_level": None,
                "check_same_thread": False,
                "timeout": busy_timeout_ms / 1000,
            },
        )
    except (NoSuchModuleError, ArgumentError) as error:  # pragma: no cover - a broken SQLAlchemy
        raise InvalidUrl(url.render_as_string(), str(error)) from error

    @event.listens_for(engine, "connect")
    def configure(connection: Any, record: Any) -> None:
        record.info["synchronous"] = synchronous
        cursor = connection.cursor()
        cursor.execute("PRAGMA foreign_keys=ON")
        # Not every build of SQLite overwrites by default what is deleted; erasure relies on it.
        cursor.execute("PRAGMA secure_delete=ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        options = connection.get_execution_options()
        mode = options.get("sqlite_begin", "DEFERRED")
        begin_sqlite(connection.connection, mode, durable=options.get("durable", True))

    return engine


def _sqlite_file(url: URL, read_only: bool) -> URL:
    path = Path(url.database or "")
    if str(path).startswith("file:"):
        return url
    if path.is_dir():
        raise NotWritable(url.render_as_string(), f"{path} is a directory, not a file")
    if not path.parent.is_dir():
        raise NotWritable(url.render_as_string(), f"the directory {path.parent} does not exist")
    if read_only:
        if not path.exists():
            raise NotWritable(url.render_as_string(), "there is no such file to read")
        return url.set(database=f"file:{path}", query={"mode": "ro", "uri": "true"})
    return url
