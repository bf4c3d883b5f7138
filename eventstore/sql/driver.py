"""Short transactions on the driver's connection, for the paths that every turn takes.

Same pool, same settings and same isolation as `eventstore.sql.engines`, without SQLAlchemy's
connection object, and with a few connections kept at hand: measured, taking one from the pool and
wrapping it is half of what an append costs outside the database.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import Any

import psycopg
from psycopg import IsolationLevel, Pipeline
from sqlalchemy import Engine, event

from eventstore.sql.dialect import DriverConnection, dialect_named

__all__ = ["AtHand", "DriverStatement", "DriverTransaction", "begin"]

_FRESH_S = 1.0
_PIPELINES = Pipeline.is_supported()


class AtHand:
    """A store's connections for `DriverTransaction`: taken from the pool, and kept for a while.

    Safe to share between threads. A connection of a server that has rested for longer than a
    second goes back to the pool, which tests it before it hands it out again.
    """

    def __init__(self, engine: Engine, keep: int) -> None:
        self.engine = engine
        self.dialect = dialect_named(engine.dialect.name)
        self._keep = keep
        self._idle: deque[tuple[Any, float]] = deque()
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


class DriverTransaction:
    """A context manager: a `DriverConnection` in a transaction, committed at the block's end.

    Args:
        at_hand: The store's connections.
        write: Hold SQLite's write lock from the first moment.
        durable: Whether the commit waits for the disk; without, a power cut may undo it as a whole.
        snapshot: Whether all queries see the database as it was at the first.
        pipelined: Whether PostgreSQL is sent a statement together with the next one whose rows are
            fetched, or with the commit; it fails there. Saves a round trip for each.
    """

    __slots__ = (
        "_at_hand",
        "_durable",
        "_pipeline",
        "_pipelined",
        "_pooled",
        "_snapshot",
        "_write",
    )

    def __init__(
        self,
        at_hand: AtHand,
        *,
        write: bool,
        durable: bool = True,
        snapshot: bool = False,
        pipelined: bool = False,
    ) -> None:
        self._at_hand = at_hand
        self._write = write
        self._durable = durable
        self._snapshot = snapshot
        self._pipelined = pipelined and _PIPELINES
        self._pipeline: AbstractContextManager[Pipeline] | None = None
        self._pooled: Any = None

    def __enter__(self) -> DriverConnection:
        """Take a connection and begin; PostgreSQL's driver begins with the first statement."""
        self._pooled = self._at_hand.take()
        raw = self._pooled.dbapi_connection
        try:
            if self._at_hand.dialect.is_sqlite:
                mode = "IMMEDIATE" if self._write else "DEFERRED"
                begin(self._pooled, mode, durable=self._durable)
            else:
                self._set_up(raw)
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
        try:
            if error is None:
                self._pooled.dbapi_connection.commit()
                self._end_pipeline()
                self._as_it_was()
        except BaseException:
            self._give_up()
            raise
        if error is None:
            self._at_hand.put_back(self._pooled)
        else:
            self._give_up()

    def _set_up(self, raw: psycopg.Connection[Any]) -> None:
        if self._snapshot:
            raw.isolation_level = IsolationLevel.REPEATABLE_READ
        if self._pipelined:
            pipeline = raw.pipeline()
            pipeline.__enter__()
            self._pipeline = pipeline
        if self._write and not self._durable:
            raw.execute("SET LOCAL synchronous_commit = off")

    def _end_pipeline(self) -> None:
        if self._pipeline is not None:
            pipeline, self._pipeline = self._pipeline, None
            pipeline.__exit__(None, None, None)

    def _as_it_was(self) -> None:
        """Take back what was set for this transaction alone."""
        if self._snapshot and not self._at_hand.dialect.is_sqlite:
            self._pooled.dbapi_connection.rollback()
            self._pooled.dbapi_connection.isolation_level = None

    def _give_up(self) -> None:
        """Return the connection to the pool, which rolls back; a broken one is thrown away."""
        with suppress(psycopg.Error):  # What had failed is known already.
            self._end_pipeline()
        if getattr(self._pooled.dbapi_connection, "broken", False):
            self._pooled.invalidate()
        else:
            self._as_it_was()
        self._pooled.close()


class DriverStatement(DriverTransaction):
    """A `DriverTransaction` for a single statement that writes.

    On PostgreSQL it is its own transaction, which saves the round trips of BEGIN and COMMIT.
    """

    __slots__ = ()

    def __init__(self, at_hand: AtHand) -> None:
        super().__init__(at_hand, write=True)

    def __enter__(self) -> DriverConnection:
        """Take a connection; on SQLite, begin."""
        connection = super().__enter__()
        if not connection.dialect.is_sqlite:
            connection.raw.autocommit = True
        return connection

    def _as_it_was(self) -> None:
        super()._as_it_was()
        if not self._at_hand.dialect.is_sqlite:
            self._pooled.dbapi_connection.autocommit = False


def begin(pooled: Any, mode: str, *, durable: bool) -> None:
    """Begin a transaction on SQLite, at the sync level that its durability asks for."""
    info, connection = pooled.info, pooled.dbapi_connection
    if mode == "IMMEDIATE":
        level = info["synchronous"] if durable else "NORMAL"
        if info.get("current") != level:
            connection.execute(f"PRAGMA synchronous={level}")
            info["current"] = level
    connection.execute("BEGIN IMMEDIATE" if mode == "IMMEDIATE" else f"BEGIN {mode}")
