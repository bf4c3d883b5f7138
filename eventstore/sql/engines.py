"""Engines for the two databases, with the settings that durability and isolation depend on.

SQLite: write-ahead log, ``synchronous=FULL`` by default, a busy timeout, and explicit ``BEGIN``
(``BEGIN IMMEDIATE`` for writers), because transactions begun implicitly by the driver would let two
writers read the same version. PostgreSQL: psycopg 3, READ COMMITTED.

The feed's order on PostgreSQL depends on transaction ids, which start over when a dump is restored
into another cluster. The log therefore counts epochs, one for each cluster that it has lived in:
every new connection of every store checks the cluster, and the first one to find another cluster
begins a new epoch before anything can be appended through it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, quote, unquote, urlsplit

import psycopg
from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import ArgumentError

from eventstore.errors import InvalidUrl, NotWritable
from eventstore.sql.backend import BACKENDS, backend_of
from eventstore.sql.citus import CITUS
from eventstore.sql.distributed import DISTRIBUTED, find_backend
from eventstore.sql.pools import ClosablePool
from eventstore.sql.postgresql import EACH, POSTGRESQL
from eventstore.sql.row_security import OWNER
from eventstore.sql.sessions import NAMES, ConnectionSettings
from eventstore.sql.sqlite import SQLITE
from eventstore.sql.sqlite import begin as begin_sqlite
from eventstore.sql.urls import is_in_memory, parse
from eventstore.telemetry.log import masked

__all__ = [
    "BUSY_TIMEOUT_MS",
    "IMMUTABLE",
    "SYNCHRONOUS",
    "Synchronous",
    "begin_with_options",
    "begin_with_settings",
    "begin_write",
    "open_engine",
    "renew_epoch",
    "snapshot_of",
    "writer_of",
]

_LARGEST_LOG = 4 * 2**20  # bytes; about as much as SQLite writes between two checkpoints
SYNCHRONOUS = "eventstore_synchronous"
"""The engine's execution option with its sync level on SQLite."""
BUSY_TIMEOUT_MS = "eventstore_busy_timeout_ms"
"""The engine's execution option with how long it waits for SQLite's lock."""
IMMUTABLE = "eventstore_immutable"
"""The engine's execution option whether SQLite takes the file for one that nobody changes."""
_IMMUTABLE = "&immutable=1"

Synchronous = Literal["FULL", "NORMAL", "EXTRA", "OFF"]

_APPLICATION = "agent-eventstore"

_MOVED = """
    SELECT last.epoch + 1, now.system_identifier::text
    FROM pg_control_system() AS now,
        (SELECT epoch, system_identifier FROM store_epochs ORDER BY epoch DESC LIMIT 1) AS last
    WHERE last.system_identifier <> now.system_identifier::text
        AND current_setting('transaction_read_only') = 'off'
"""
_BEGIN = """
    INSERT INTO store_epochs (epoch, system_identifier, started_at) VALUES (%s, %s, %s)
    ON CONFLICT (epoch) DO NOTHING
"""

BACKENDS.update({SQLITE.name: SQLITE, POSTGRESQL.name: POSTGRESQL, DISTRIBUTED: CITUS})


def renew_epoch(connection: psycopg.Connection[Any]) -> None:
    """Begin a new epoch if the log is now in another cluster; commits.

    A read-only connection leaves this to the first writing one: until then nothing is appended, and
    the feed returns no event whose place is uncertain.
    """
    try:
        moved = connection.execute(_MOVED).fetchone()
    except (psycopg.errors.UndefinedTable, psycopg.errors.InsufficientPrivilege):
        connection.rollback()  # The log does not exist, or this login cannot append to it.
        return
    if moved is not None:
        connection.execute(_BEGIN, (*moved, datetime.now(UTC)))
    connection.commit()


def open_engine(
    url: str | URL,
    *,
    schema: str | None = None,
    synchronous: Synchronous = "FULL",
    busy_timeout_ms: int = 30_000,
    read_only: bool = False,
    pool_size: int = 5,
) -> Engine:
    """Return an engine for the URL; PostgreSQL is not contacted yet.

    Args:
        url: ``sqlite:///path`` or ``postgresql+psycopg://...`` (``postgresql://`` means the same).
        schema: On PostgreSQL, the schema of the store's tables; same as ``?schema=`` in the URL.
        synchronous: SQLite's sync level; FULL survives a power cut, NORMAL only a crash.
        busy_timeout_ms: How long a SQLite writer waits for another one, in milliseconds.
        read_only: Refuse to write: open SQLite's file or PostgreSQL's transactions read-only.
        pool_size: Connections that are kept open; up to twice as many may be open at a time.

    Raises:
        InvalidUrl: The URL does not name a supported database.
        NotWritable: SQLite's directory does not exist.
    """
    parsed = parse(url, schema)
    if parsed.get_backend_name() == "postgresql":
        return _postgresql_engine(parsed, read_only, pool_size)
    return _sqlite_engine(parsed, synchronous, busy_timeout_ms, read_only, pool_size)


def writer_of(engine: Engine, durable: bool, patience_ms: int | None = None) -> Engine:
    """Return the engine's variant for writing transactions; it shares the connections."""
    return engine.execution_options(
        sqlite_begin="IMMEDIATE", durable=durable, patience_ms=patience_ms
    )


def snapshot_of(engine: Engine) -> Engine:
    """Return the engine's variant whose transactions see one state of the database throughout."""
    return engine.execution_options(**backend_of(engine).snapshot)


@contextmanager
def begin_write(
    engine: Engine, *, durable: bool = True, patience_ms: int | None = None
) -> Iterator[Connection]:
    """Yield a connection in a transaction that may write, committed at the end of the block.

    On SQLite the transaction holds the write lock from the start. With ``durable`` false the commit
    does not wait for the disk: a power cut may undo it, but only as a whole. ``patience_ms`` limits
    how long it waits for a lock.
    """
    usual_ms = ConnectionSettings.of(engine.url).patience_ms
    chosen = backend_of(engine).settings(
        durable=durable, patience_ms=patience_ms, usual_ms=usual_ms
    )
    with writer_of(engine, durable, patience_ms).begin() as connection:
        for each in chosen:
            connection.exec_driver_sql(each)
        yield connection


def _postgresql_engine(url: URL, read_only: bool, pool_size: int) -> Engine:
    session = ConnectionSettings.of(url)
    engine = create_engine(
        url,
        poolclass=ClosablePool,
        pool_size=pool_size,
        max_overflow=pool_size,
        pool_pre_ping=True,
        hide_parameters=True,
        isolation_level="READ COMMITTED",
        # Otherwise each engine would first query the server for the type.
        use_native_hstore=False,
        # The name in `pg_stat_activity`, unless the URL or PGAPPNAME has another one.
        connect_args=session.arguments(_APPLICATION),
    )

    @event.listens_for(engine, "do_connect")
    def without_own_options(_: Any, __: Any, ___: Any, arguments: dict[str, Any]) -> None:
        for name in NAMES:
            arguments.pop(name, None)

    @event.listens_for(engine, "connect")
    def configure(connection: Any, record: Any) -> None:
        first = record.info[EACH] = session.begin(connection, read_only=read_only)
        if first is not None:
            connection.execute(first)
        find_backend(connection, engine.dialect, masked(url))
        renew_epoch(connection)

    event.listen(engine, "begin", begin_with_settings)
    return engine


def begin_with_settings(connection: Connection) -> None:
    """Set up a transaction on PostgreSQL, if this is not done once for the connection."""
    first = connection.info.get(EACH)
    own = connection.get_execution_options().get(OWNER, ())
    for each in (first, *own):
        if each is not None and not connection.connection.autocommit:
            connection.connection.cursor().execute(each)


def _sqlite_engine(
    url: URL, synchronous: str, busy_timeout_ms: int, read_only: bool, pool_size: int
) -> Engine:
    in_memory = is_in_memory(url)
    to_read = "" if in_memory else _checked_file(url, read_only)
    try:
        engine = create_engine(
            url,
            # An in-memory database lives in one connection, so all users take turns on it.
            poolclass=ClosablePool,
            pool_size=1 if in_memory else pool_size,
            max_overflow=0 if in_memory else pool_size,
            hide_parameters=True,
            execution_options={
                SYNCHRONOUS: synchronous,
                BUSY_TIMEOUT_MS: busy_timeout_ms,
                IMMUTABLE: to_read.endswith(_IMMUTABLE),
            },
            connect_args={
                "isolation_level": None,
                "check_same_thread": False,
                "timeout": busy_timeout_ms / 1000,
            },
        )
    except (ArgumentError, ValueError) as error:  # an option's value
        raise InvalidUrl(masked(url), str(error)) from error

    if not in_memory and not read_only:
        # Only once: a file that is lost later must not be recreated silently.
        event.listen(engine, "do_connect", partial(_make_private, url), once=True)

    if to_read:

        @event.listens_for(engine, "do_connect")
        def only_read(_: Any, __: Any, arguments: list[Any], options: dict[str, Any]) -> None:
            arguments[0], options["uri"] = to_read, True

    @event.listens_for(engine, "connect")
    def configure(connection: Any, record: Any) -> None:
        record.info["synchronous"] = synchronous
        record.info["busy_timeout_ms"] = busy_timeout_ms
        cursor = connection.cursor()
        cursor.execute("PRAGMA foreign_keys=ON")
        # On macOS, without these, a sync does not flush the disk's own cache.
        cursor.execute("PRAGMA fullfsync=ON")
        cursor.execute("PRAGMA checkpoint_fullfsync=ON")
        # Erasure relies on overwriting deleted data, which not every SQLite build does by default.
        cursor.execute("PRAGMA secure_delete=ON")
        # A large transaction, such as an import, would leave a log file of its size behind.
        cursor.execute(f"PRAGMA journal_size_limit={_LARGEST_LOG}")
        cursor.close()

    @event.listens_for(engine, "invalidate")
    def roll_back(connection: Any, record: Any, error: BaseException | None) -> None:
        # A closed connection keeps its lock while anything refers to one of its unfinished
        # statements, as the traceback of an interruption does.
        with suppress(sqlite3.Error):
            connection.rollback()

    event.listen(engine, "begin", begin_with_options)
    return engine


def begin_with_options(connection: Connection) -> None:
    """Begin a transaction on SQLite with the options of the engine's variant."""
    options = connection.get_execution_options()
    begin_sqlite(
        connection.connection,
        options.get("sqlite_begin", "DEFERRED"),
        durable=options.get("durable", True),
        patience_ms=options.get("patience_ms"),
    )


def _make_private(url: URL, *_: Any) -> None:
    """Create a missing file, accessible only to its owner; its log and index get the same mode.

    An existing file is not even opened: closing it again would release the SQLite locks of every
    other connection of this process ("How To Corrupt An SQLite Database File", sqlite.org, 2.2).
    """
    if (url.database or "").startswith("file:"):
        named = urlsplit(str(url.database))
        if {**parse_qs(named.query), **url.query}.get("mode") not in (None, "rwc", ["rwc"]):
            return
        path = unquote(named.path)
    else:
        path = url.database or ""
    if path in ("", ":memory:"):
        return
    with suppress(OSError):  # It exists, or SQLite will report what is wrong.
        # SQLite follows a link, also one to a file that does not exist yet.
        path = os.path.realpath(path)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _checked_file(url: URL, read_only: bool) -> str:
    """Return SQLite's own URI for a file that is only read, otherwise an empty text.

    Raises:
        NotWritable: There is no such file to read, or no place for it.
    """
    path = Path(url.database or "")
    if str(path).startswith("file:"):
        return ""
    try:
        # Unlike `is_dir` and `exists`, this raises for names that no file can have.
        found = path.parent.stat() and path.stat()
    except FileNotFoundError:
        found = None
    except OSError as error:
        raise NotWritable(masked(url), f"{path}: {error.strerror}") from error
    if path.is_dir():
        raise NotWritable(masked(url), f"{path} is a directory, not a file")
    if found and not path.is_file():  # SQLite would wait for a writer of a pipe.
        raise NotWritable(masked(url), f"{path} is not a regular file")
    if not path.parent.is_dir():
        raise NotWritable(masked(url), f"the directory {path.parent} does not exist")
    if read_only:
        if found is None:
            raise NotWritable(masked(url), "the file does not exist")
        # Absolute, as SQLAlchemy makes other paths: later connections must open the same file.
        uri = f"file:{quote(str(path.absolute()))}?mode=ro"
        if not os.access(path.parent, os.W_OK) and not path.with_name(f"{path.name}-wal").exists():
            # Otherwise SQLite would create an empty log and a file for its locks.
            return uri + _IMMUTABLE
        return uri
    return ""
