"""Short transactions on the driver's connection, for the paths that every turn takes.

Same pool, same settings and same isolation as `eventstore.sql.engines`, without SQLAlchemy's
connection object, and with a few connections kept at hand: measured, taking one from the pool and
wrapping it is half of what an append costs outside the database.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import Any

import psycopg
from psycopg import IsolationLevel, Pipeline
from sqlalchemy import Engine, event

from eventstore.sql.dialect import DriverConnection, dialect_named

__all__ = ["AtHand", "begin", "statement", "transaction"]

_FRESH_S = 1.0
_TURN_S = 1.0
_PIPELINES = Pipeline.is_supported()


class AtHand:
    """A store's connections for `transaction`: taken from the pool, and kept for a while.

    Safe to share between threads. A connection of a server that has rested for longer than a
    second goes back to the pool, which tests it before it hands it out again.
    """

    def __init__(self, engine: Engine, keep: int) -> None:
        self.engine = engine
        self.dialect = dialect_named(engine.dialect.name)
        self._keep = keep
        self._idle: deque[tuple[Any, float]] = deque()
        self.turn = threading.Lock()
        """Held by the thread that writes to SQLite."""
        event.listen(engine, "invalidate", self._doubt)

    def take(self) -> Any:
        """Return a pooled connection."""
        while self._idle:
            try:
                pooled, since = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if self.dialect.is_sqlite or time.monotonic() - since < _FRESH_S:
                return pooled
            pooled.close()
        return self.engine.raw_connection()

    def put_back(self, pooled: Any) -> None:
        """Keep a connection that has no transaction open, or return it to the pool."""
        if len(self._idle) < self._keep:
            self._idle.append((pooled, time.monotonic()))
        else:
            pooled.close()

    def _doubt(self, *_: Any) -> None:
        """Let the pool test every connection, since one of the engine's was found broken."""
        self.close()

    def close(self) -> None:
        """Return every connection to the pool."""
        while self._idle:
            self._idle.pop()[0].close()


def transaction(
    at_hand: AtHand,
    *,
    write: bool,
    durable: bool = True,
    snapshot: bool = False,
    pipelined: bool = False,
) -> AbstractContextManager[DriverConnection]:
    """Return a context manager: a connection in a transaction, committed at the block's end.

    Args:
        at_hand: The store's connections.
        write: Hold SQLite's write lock from the first moment.
        durable: Whether the commit waits for the disk; without, a power cut may undo it as a whole.
        snapshot: Whether all queries see the database as it was at the first.
        pipelined: Whether PostgreSQL is sent a statement together with the next one whose rows are
            fetched, or with the commit; it fails there. Saves a round trip for each.
    """
    if at_hand.dialect.is_sqlite:
        return _OnSqlite(at_hand, "IMMEDIATE" if write else "DEFERRED", durable)
    return _OnPostgresql(
        at_hand,
        isolation=IsolationLevel.REPEATABLE_READ if snapshot else None,
        pipelined=pipelined and _PIPELINES,
        lazy=write and not durable,
    )


def statement(at_hand: AtHand) -> AbstractContextManager[DriverConnection]:
    """Return a durable `transaction` for a single statement that writes.

    On PostgreSQL it is its own transaction, which saves the round trips of BEGIN and COMMIT.
    """
    if at_hand.dialect.is_sqlite:
        return _OnSqlite(at_hand, "IMMEDIATE", True)
    return _OnPostgresql(at_hand, autocommit=True)


class _OnSqlite:
    """A transaction on SQLite, where every query sees one state of the database anyway.

    Threads of one store that write take turns at a lock of its own: SQLite would have each sleep
    and try again, up to 0.1 s at a time, and whoever is awake goes first. It decides all the same
    where a turn does not come within a second.
    """

    __slots__ = ("_at_hand", "_durable", "_has_turn", "_mode", "_pooled")

    def __init__(self, at_hand: AtHand, mode: str, durable: bool) -> None:
        self._at_hand = at_hand
        self._mode = mode
        self._durable = durable

    def __enter__(self) -> DriverConnection:
        """Take a connection and begin."""
        at_hand = self._at_hand
        self._has_turn = self._mode == "IMMEDIATE" and at_hand.turn.acquire(timeout=_TURN_S)
        try:
            pooled = self._pooled = at_hand.take()
            try:
                begin(pooled, self._mode, durable=self._durable)
            except BaseException:
                pooled.close()
                raise
        except BaseException:
            self._end_turn()
            raise
        return DriverConnection(pooled.dbapi_connection, at_hand.dialect)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commit; on an error, give the connection to the pool, which rolls back."""
        pooled, committed = self._pooled, False
        try:
            if error is None:
                pooled.dbapi_connection.commit()
                committed = True
        finally:
            if committed:
                self._at_hand.put_back(pooled)
            else:
                pooled.close()
            self._end_turn()

    def _end_turn(self) -> None:
        if self._has_turn:
            self._has_turn = False
            self._at_hand.turn.release()


class _OnPostgresql:
    """A transaction on PostgreSQL, whose driver begins it with the first statement."""

    __slots__ = (
        "_at_hand",
        "_autocommit",
        "_isolation",
        "_lazy",
        "_pipeline",
        "_pipelined",
        "_pooled",
    )

    def __init__(
        self,
        at_hand: AtHand,
        *,
        isolation: IsolationLevel | None = None,
        pipelined: bool = False,
        lazy: bool = False,
        autocommit: bool = False,
    ) -> None:
        self._at_hand = at_hand
        self._isolation = isolation
        self._pipelined = pipelined
        self._lazy = lazy
        self._autocommit = autocommit
        self._pipeline: AbstractContextManager[Pipeline] | None = None

    def __enter__(self) -> DriverConnection:
        """Take a connection, and set what is for this transaction alone."""
        pooled = self._pooled = self._at_hand.take()
        raw: psycopg.Connection[Any] = pooled.dbapi_connection
        try:
            if self._isolation is not None:
                raw.isolation_level = self._isolation
            if self._pipelined:
                pipeline = raw.pipeline()
                pipeline.__enter__()
                self._pipeline = pipeline
            if self._lazy:
                raw.execute("SET LOCAL synchronous_commit = off")
            if self._autocommit:
                raw.autocommit = True
        except BaseException:
            self._give_up()
            raise
        return DriverConnection(raw, self._at_hand.dialect)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commit, or roll back on an error."""
        if error is not None:
            self._give_up()
            return
        try:
            self._pooled.dbapi_connection.commit()
            self._end_pipeline()
            self._as_it_was()
        except BaseException:
            self._give_up()
            raise
        self._at_hand.put_back(self._pooled)

    def _end_pipeline(self) -> None:
        if self._pipeline is not None:
            pipeline, self._pipeline = self._pipeline, None
            pipeline.__exit__(None, None, None)

    def _as_it_was(self) -> None:
        raw = self._pooled.dbapi_connection
        if self._isolation is not None:
            raw.rollback()
            raw.isolation_level = None
        if self._autocommit:
            raw.autocommit = False

    def _give_up(self) -> None:
        """Return the connection to the pool, which rolls back; a broken one is thrown away."""
        with suppress(psycopg.Error):  # What had failed is known already.
            self._end_pipeline()
        if self._pooled.dbapi_connection.broken:
            self._pooled.invalidate()
        else:
            self._as_it_was()
        self._pooled.close()


def begin(pooled: Any, mode: str, *, durable: bool) -> None:
    """Begin a transaction on SQLite, at the sync level that its durability asks for."""
    info, connection = pooled.info, pooled.dbapi_connection
    if mode == "IMMEDIATE":
        level = info["synchronous"] if durable else "NORMAL"
        if info.get("current") != level:
            connection.execute(f"PRAGMA synchronous={level}")
            info["current"] = level
    connection.execute("BEGIN IMMEDIATE" if mode == "IMMEDIATE" else f"BEGIN {mode}")
