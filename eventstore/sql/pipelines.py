"""Transactions on PostgreSQL: their settings, pipelining, and single-statement transactions."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from typing import Any

import psycopg
from psycopg import IsolationLevel, Pipeline

from eventstore.errors import ErrorType, Trace
from eventstore.sql.backend import DriverConnection, Pooled
from eventstore.sql.sessions import BRIEF

__all__ = ["EACH", "PIPELINES", "OnPostgresql", "settings"]

EACH = "eventstore_each_transaction"
"""Key in a connection's ``info``: the first statement of each transaction, behind a pooler."""

PIPELINES = Pipeline.is_supported()
"""Whether the driver's library can send several statements at once."""


class OnPostgresql:
    """A transaction on PostgreSQL, whose driver begins it with the first statement."""

    __slots__ = (
        "_at_hand",
        "_autocommit",
        "_before",
        "_isolation",
        "_pipeline",
        "_pipelined",
        "_pooled",
        "_settings",
    )

    def __init__(
        self,
        at_hand: Pooled,
        *,
        isolation: IsolationLevel | None = None,
        pipelined: bool = False,
        settings: str = "",
        autocommit: bool = False,
    ) -> None:
        self._at_hand = at_hand
        self._isolation = isolation
        self._pipelined = pipelined
        self._settings = settings
        self._autocommit = autocommit
        self._before: IsolationLevel | None = None
        self._pipeline: AbstractContextManager[Pipeline] | None = None
        self._pooled: Any = None

    def __enter__(self) -> DriverConnection:
        """Take a connection, and apply the settings of this transaction."""
        try:
            return self._begin()
        except BaseException:
            self._give_up()
            raise

    def _begin(self) -> DriverConnection:
        self._pooled = self._at_hand.take()
        raw: psycopg.Connection[Any] = self._pooled.dbapi_connection
        if self._isolation is not None:
            self._before = raw.isolation_level
            raw.isolation_level = self._isolation
        first = self._pooled.info.get(EACH)
        if first is not None:
            # The settings need a transaction, and a pooler may not support pipelines.
            self._autocommit = self._pipelined = False
            raw.execute(first)
        own = self._at_hand.speaks_for
        if own is not None:
            self._pipelined = self._pipelined or (self._autocommit and PIPELINES and first is None)
            self._autocommit = False
        if self._pipelined:
            pipeline = raw.pipeline()
            pipeline.__enter__()  # Python exits it if the next line is not reached.
            self._pipeline = pipeline
        if own is not None:
            raw.execute(own)
        if self._settings:
            raw.execute(self._settings)
        if self._autocommit:
            raw.autocommit = True
        return DriverConnection(raw, self._at_hand.backend, self._at_hand.keys)

    def __exit__(self, kind: ErrorType, error: BaseException | None, trace: Trace) -> None:
        """Commit, or roll back on an error."""
        if error is not None:
            self._give_up()
            return
        try:
            self._pooled.dbapi_connection.commit()
            self._end_pipeline()
            self._as_it_was(self._pooled.dbapi_connection)
        except BaseException:
            self._give_up()
            raise
        pooled, self._pooled = self._pooled, None
        self._at_hand.put_back(pooled)

    def _end_pipeline(self) -> None:
        if self._pipeline is not None:
            pipeline, self._pipeline = self._pipeline, None
            pipeline.__exit__(None, None, None)

    def _as_it_was(self, raw: psycopg.Connection[Any]) -> None:
        if self._isolation is not None:
            raw.rollback()
            raw.isolation_level = self._before
        if self._autocommit:
            raw.autocommit = False

    def _give_up(self) -> None:
        """Return the connection to the pool, which rolls back; discard a broken one."""
        pooled = self._pooled
        if pooled is None:
            return
        with suppress(psycopg.Error):  # The failure is already known.
            self._end_pipeline()
        self._pooled = None
        raw = pooled.dbapi_connection
        with suppress(psycopg.Error):  # If the connection was lost, it is closed.
            self._as_it_was(raw)
        if raw.closed:
            pooled.invalidate()
        pooled.close()


def settings(*, durable: bool = True, patience_ms: int | None = None, brief: bool = False) -> str:
    """Return the statement that applies these settings on PostgreSQL; empty if none is needed.

    A ``brief`` transaction only runs statements; the server ends it early if its process stops.
    """
    chosen = [] if durable else ["set_config('synchronous_commit', 'off', true)"]
    if brief:
        chosen.append(BRIEF)
    if patience_ms is not None:
        chosen.append(f"set_config('lock_timeout', '{patience_ms}', true)")
    return f"SELECT {', '.join(chosen)}" if chosen else ""
