"""Transactions on PostgreSQL: what each sets for itself, pipelined or as a single statement."""

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
"""In a connection's ``info``: the statement that each transaction begins with, behind a pooler."""

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
        """Take a connection, and set what is for this transaction alone."""
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
            # What the settings need is a transaction, and a pipeline is more than a pooler may do.
            self._autocommit = self._pipelined = False
            raw.execute(first)
        own = self._at_hand.speaks_for
        if own is not None:
            self._pipelined = self._pipelined or (self._autocommit and PIPELINES and first is None)
            self._autocommit = False
        if self._pipelined:
            pipeline = raw.pipeline()
            pipeline.__enter__()  # Python leaves it, should the next line not be reached.
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
        """Return the connection to the pool, which rolls back; a broken one is thrown away."""
        pooled = self._pooled
        if pooled is None:
            return
        with suppress(psycopg.Error):  # What had failed is known already.
            self._end_pipeline()
        self._pooled = None
        raw = pooled.dbapi_connection
        with suppress(psycopg.Error):  # Lost meanwhile, it is closed.
            self._as_it_was(raw)
        if raw.closed:
            pooled.invalidate()
        pooled.close()


def settings(*, durable: bool = True, patience_ms: int | None = None, brief: bool = False) -> str:
    """Return the statement that makes PostgreSQL's transaction so; empty if none is needed.

    One that is ``brief`` runs statements alone, and is ended early should its process be stopped.
    """
    chosen = [] if durable else ["set_config('synchronous_commit', 'off', true)"]
    if brief:
        chosen.append(BRIEF)
    if patience_ms is not None:
        chosen.append(f"set_config('lock_timeout', '{patience_ms}', true)")
    return f"SELECT {', '.join(chosen)}" if chosen else ""
