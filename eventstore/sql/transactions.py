"""The transactions in which a store runs its functions: its own, or the caller's.

SQLAlchemy's connections serve queries of any kind; the driver's own (`connection_cache`)
serve the hot paths of every turn. A transaction ends with its block.

Appending in the caller's transaction requires one that is open, and durable once committed. Without
a transaction, an append would be written piece by piece or never committed; and a power cut can
undo a SQLite commit that does not wait for the disk. Both are refused.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from typing import Any, Self, Unpack

import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy import Connection, Engine, text
from sqlalchemy.pool import QueuePool

from eventstore.errors import ErrorType, Traceback, UnsafeTransaction
from eventstore.sql.append import append
from eventstore.sql.append_requests import Append, Appended
from eventstore.sql.backend import DriverConnection, TransactionOptions, cursor
from eventstore.sql.connection_cache import ConnectionCache
from eventstore.sql.driver_errors import translated
from eventstore.sql.engines import BUSY_TIMEOUT_MS, SYNCHRONOUS, begin_write, snapshot_of
from eventstore.sql.pools import close_pool
from eventstore.sql.row_security import OWNER, is_limited
from eventstore.sql.sessions import ConnectionSettings, quoted
from eventstore.sql.urls import is_in_memory
from eventstore.telemetry.log import masked

__all__ = ["Transactions", "append_within", "empty_log", "require_connection"]


_PATIENCE_MS = 500  # how long to wait for readers of the log that should be emptied

_LEVELS = ("OFF", "NORMAL", "FULL", "EXTRA")
"""The levels of ``PRAGMA synchronous``, by number."""

_HOME = text(
    "SELECT current_database(), nspname FROM pg_class "
    "JOIN pg_namespace AS n ON n.oid = relnamespace WHERE pg_class.oid = 'conversations'::regclass"
)
_ENTER = """
    SELECT current_setting('search_path'), current_database(), set_config('search_path', %s, true),
        CASE WHEN array_position(levels, current_setting('synchronous_commit'))
            < array_position(levels, %s) THEN set_config('synchronous_commit', %s, true) END
    FROM (SELECT ARRAY['off', 'local', 'remote_write', 'on', 'remote_apply'] AS levels) AS known
"""
_LEAVE = "SELECT set_config('search_path', %s, true)"


class Transactions:
    """The transactions of one database; safe to share between threads."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.url = masked(engine.url)
        self.session = ConnectionSettings.of(engine.url)
        busy_timeout_ms = engine.get_execution_options().get(BUSY_TIMEOUT_MS)
        self.patience_s: float = (
            (self.session.patience_ms or math.inf) if busy_timeout_ms is None else busy_timeout_ms
        ) / 1000
        """How long to wait for a conversation's lock on PostgreSQL, and for SQLite's lock."""
        self._home: tuple[str, str] | None = None
        self._limited: bool | None = None
        # At most half of the pool, so that the other half is always available.
        size = engine.pool.size() if isinstance(engine.pool, QueuePool) else 0
        self._at_hand = ConnectionCache(engine, keep=size // 2)

    @contextmanager
    def reading(self, *, snapshot: bool = False) -> Iterator[Connection]:
        """Yield a connection in a transaction for reading; ``snapshot`` freezes what it sees.

        Here and in `writing` and `_driver_transaction`, drivers' errors in the block become this
        project's errors.
        """
        engine = snapshot_of(self.engine) if snapshot else self.engine
        with translated(self.url), engine.begin() as connection:
            yield connection

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Yield a connection in the caller's own transaction, for its rows and for ``append``.

        The transaction is durable and holds SQLite's write lock from the start. It is committed at
        the end of the block and rolled back on an error. Exceptions of the block pass through
        unchanged, including SQLAlchemy's errors of the caller's own statements. Others wait for the
        locks of the transaction, so PostgreSQL ends one that is idle for longer than five minutes,
        or than the limit in the URL (`docs/running.md`).

        Raises:
            StoreUnavailable: The database cannot be used, or another writer held the lock for too
                long; nothing was committed.
            StatementRefused: The commit was refused; nothing was committed.
            UnsafeTransaction: An error that the block caught had already ended the transaction;
                nothing was committed.
        """
        with translated(self.url) as translating, begin_write(self.engine) as connection:
            try:
                yield connection
            except BaseException as error:
                translating.leave(error)
                raise
            _require_going_on(connection)

    def _find_home(self) -> tuple[str, str]:
        """Return the database and the schema of the tables, or SQLite's file; looked up once."""
        if self._home is None:
            with self.reading() as connection:
                on_server = connection.dialect.name == "postgresql"
                home = tuple(connection.execute(_HOME).one()) if on_server else None
                self._home = home or (_file_of(connection), "")
        return self._home

    def _is_limited(self) -> bool:
        """Whether row-level security shows the login only one owner's rows; looked up once."""
        if self._limited is None:
            with self.reading() as connection:
                self._limited = is_limited(connection)
        return self._limited

    @contextmanager
    def writing(
        self, *, durable: bool = True, patience_ms: int | None = None
    ) -> Iterator[Connection]:
        """Yield a connection in a transaction for writing, committed at the end of the block.

        With ``durable`` false a power cut may undo the commit as a whole: for data that can be
        rebuilt. ``patience_ms`` limits how long it waits for a lock before `DatabaseBusy`.
        """
        transaction = begin_write(self.engine, durable=durable, patience_ms=patience_ms)
        with translated(self.url), transaction as connection:
            yield connection

    @contextmanager
    def _driver_transaction(
        self, **options: Unpack[TransactionOptions]
    ) -> Iterator[DriverConnection]:
        """Yield the driver's connection in such a transaction, for the hot paths of every turn.

        On PostgreSQL writing transactions are pipelined: the error of a statement may be raised at
        a later one.
        """
        options.setdefault("pipelined", options.get("write", False))
        transaction = self._at_hand.transaction(**options)
        with translated(self.url), transaction as connection:
            yield connection

    def close(self) -> None:
        """Close every connection, those in use once they are returned; keep no others."""
        close_pool(self.engine.pool)
        self._at_hand.close()

    def __enter__(self) -> Self:
        """Return the object itself."""
        return self

    def __exit__(self, kind: ErrorType, error: BaseException | None, trace: Traceback) -> None:
        """Close every connection."""
        self.close()


def _require_going_on(connection: Connection) -> None:
    """Raise if the database has ended a transaction that the caller believes to be open.

    PostgreSQL answers its commit with a rollback and no error; SQLite has already rolled back.
    """
    if not connection.in_transaction() or connection.invalidated:
        return
    driver = connection.connection.driver_connection
    if isinstance(driver, psycopg.Connection):
        ended = driver.info.transaction_status == TransactionStatus.INERROR
    else:
        ended = driver is not None and not driver.in_transaction
    if ended:
        reason = "an error ended the transaction, but its block caught the error"
        raise UnsafeTransaction(reason, "nothing was committed; let database errors propagate")


def empty_log(transactions: Transactions) -> bool:
    """Truncate SQLite's write-ahead log and its erased pages; return whether this succeeded.

    SQLite cannot truncate the log while a reader uses it. Writers are blocked while it waits, so it
    waits only briefly.
    """
    if transactions.engine.dialect.name != "sqlite":
        return True
    # SQLAlchemy's connections begin a transaction; one set to begin none loses its place in the
    # pool if an error occurs while it is returned.
    with (
        translated(transactions.url),
        closing(transactions.engine.raw_connection()) as pooled,
        closing(pooled.cursor()) as run,  # An open one would keep VACUUM from working.
    ):
        pooled.info["timeout"] = None  # The next transaction sets its own.
        run.execute(f"PRAGMA busy_timeout={min(_PATIENCE_MS, pooled.info['busy_timeout_ms'])}")
        return not run.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]


def append_within(
    store: Transactions, connection: Connection, request: Append, now: datetime
) -> Appended:
    """Append in a connection's transaction, with the durability of the store's engine.

    On PostgreSQL a product's transaction gets the store's ``synchronous_commit``, unless its own is
    stronger, and the store's schema during the append.

    Raises:
        UnsafeTransaction: The connection is not in a transaction, or its commit would not be
            durable.
        EventStoreError: See `append`.
    """
    require_connection(connection)
    with translated(store.url), ExitStack() as stack:
        if isinstance(connection, Connection):
            _require_durable(store, connection)
            stack.enter_context(_in_schema(store, connection))
            for each in store.engine.get_execution_options().get(OWNER, ()):
                cursor(connection).execute(each)
        return append(connection, request, now)


def require_connection(connection: object) -> None:
    """Refuse an object that is not a SQLAlchemy connection, such as a session or the driver's.

    Raises:
        UnsafeTransaction: It is not a connection.
    """
    if not isinstance(connection, Connection | DriverConnection):
        kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
        problem = "is not a SQLAlchemy connection; pass for example session.connection()"
        raise UnsafeTransaction(f"{kind} {problem}")


@contextmanager
def _in_schema(store: Transactions, connection: Connection) -> Iterator[None]:
    """Resolve unqualified names to the store's tables, on a product's connection."""
    if connection.dialect.name == "sqlite" or connection.engine.pool is store.engine.pool:
        yield
        return
    level = store.session.synchronous_commit or "on"
    run = cursor(connection)
    database, schema = store._find_home()
    run.execute(_ENTER, [quoted(schema), level, level])
    before, found = run.fetchone()[:2]
    try:
        if database != found:
            raise UnsafeTransaction(f"the connection is to {found}, but the store is in {database}")
        yield
    finally:
        # A transaction that an error has ended resets the setting by itself.
        driver: Any = connection.connection.driver_connection
        if driver.info.transaction_status != TransactionStatus.INERROR:
            run.execute(_LEAVE, [before])
        run.close()


def _file_of(connection: Connection) -> str:
    """Return the file of a connection to SQLite, without links; empty if it is in memory."""
    found = cursor(connection).execute("PRAGMA database_list").fetchone()[2]
    return os.path.realpath(found) if found else ""


def _require_durable(store: Transactions, connection: Connection) -> None:
    if not connection.in_transaction():
        raise UnsafeTransaction("the connection is not in a transaction")
    if connection.dialect.is_async and connection.dialect.driver != "psycopg":
        raise UnsafeTransaction(
            f"an asynchronous connection must use the driver psycopg, not "
            f"{connection.dialect.driver}"
        )
    if connection.dialect.name != "sqlite":
        return
    driver: Any = connection.connection.dbapi_connection
    run = cursor(connection)
    if not driver.in_transaction:
        if driver.isolation_level is None:
            raise UnsafeTransaction("the driver commits each statement separately")
        run.execute("BEGIN IMMEDIATE")  # As the driver would, before it writes the first row.
    found = run.execute("PRAGMA synchronous").fetchone()[0]
    run.close()
    if connection.engine.pool is not store.engine.pool:
        own, there = store._find_home()[0], _file_of(connection)
        if is_in_memory(store.engine.url) or own != there:
            memory = "a database in memory"
            raise UnsafeTransaction(
                f"the connection is to {there or memory}, but the store is in {own or memory}"
            )
    promised = store.engine.get_execution_options().get(SYNCHRONOUS, "FULL")
    if found < _LEVELS.index(promised):
        raise UnsafeTransaction(
            f"its commit would use synchronous={_LEVELS[found]}, but the store's commits use "
            f"{promised}, to survive a power cut"
        )
