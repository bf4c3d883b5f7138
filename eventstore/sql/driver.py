"""Short transactions on the driver's connection, for the paths that every turn takes.

Same pool, same settings and same isolation as `eventstore.sql.engines`, without SQLAlchemy's
connection object, and with a few connections kept at hand: measured, taking one from the pool and
wrapping it is half of what an append costs outside the database.
"""

from __future__ import annotations

import time
from collections import deque
from types import TracebackType
from typing import Any

from sqlalchemy import Engine

from eventstore.sql.dialect import DriverConnection, dialect_named

__all__ = ["AtHand", "DriverTransaction", "begin"]

_FRESH_S = 1.0


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

    def close(self) -> None:
        """Return every connection to the pool."""
        while self._idle:
            self._idle.pop()[0].close()


class DriverTransaction:
    """A context manager: a `DriverConnection` in a transaction, committed at the block's end.

    With ``write``, SQLite's write lock is held from the first moment; such a commit is durable.
    """

    __slots__ = ("_at_hand", "_pooled", "_write")

    def __init__(self, at_hand: AtHand, *, write: bool) -> None:
        self._at_hand = at_hand
        self._write = write
        self._pooled: Any = None

    def __enter__(self) -> DriverConnection:
        """Take a connection and begin; PostgreSQL's driver begins with the first statement."""
        self._pooled = self._at_hand.take()
        if self._at_hand.dialect.is_sqlite:
            try:
                begin(self._pooled, "IMMEDIATE" if self._write else "DEFERRED", durable=True)
            except BaseException:
                self._pooled.close()
                raise
        return DriverConnection(self._pooled.dbapi_connection, self._at_hand.dialect)

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
        except BaseException:
            self._give_up()
            raise
        if error is None:
            self._at_hand.put_back(self._pooled)
        else:
            self._give_up()

    def _give_up(self) -> None:
        """Return the connection to the pool, which rolls back; a broken one is thrown away."""
        if getattr(self._pooled.dbapi_connection, "broken", False):
            self._pooled.invalidate()
        self._pooled.close()


def begin(pooled: Any, mode: str, *, durable: bool) -> None:
    """Begin a transaction on SQLite, at the sync level that its durability asks for."""
    info = pooled.info
    cursor = pooled.dbapi_connection.cursor()
    if mode == "IMMEDIATE":
        level = info["synchronous"] if durable else "NORMAL"
        if info.get("current") != level:
            cursor.execute(f"PRAGMA synchronous={level}")
            info["current"] = level
    cursor.execute(f"BEGIN {mode}")
    cursor.close()
