"""Checks whether anything was committed, for processes that follow the store and mostly wait.

One short query, however large the store is, so that it can run many times a second. On PostgreSQL
it runs on its own connection, which is kept, each time as a separate transaction.
"""

from __future__ import annotations

from typing import Any, Self

from sqlalchemy import Engine

from eventstore.errors import ErrorType, Traceback
from eventstore.sql import vector_feed
from eventstore.sql.backend import DriverConnection, backend_of
from eventstore.sql.driver_errors import translated
from eventstore.sql.postgresql import EACH
from eventstore.telemetry.log import masked

__all__ = ["Watch"]


class Watch:
    """Checks whether events were committed since the last check; not safe for several threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._backend = backend_of(engine)
        self._url = masked(engine.url)
        self._connection: Any = None
        self._seen: Any = ()
        self._known: Any = ()

    def moved(self) -> bool:
        """Whether there may be events that the last check did not see; true the first time.

        On PostgreSQL also true when an event has become safe to pass, see `eventstore.sql.feed`.

        Raises:
            StoreUnavailable: The database cannot be reached; the next check connects again.
        """
        before, self._seen = self._seen, ()
        self._known = before
        self._seen = self._look()
        return bool(before != self._seen)

    def _look(self) -> Any:
        with translated(self._url):
            pooled = self._connection or self._connect()
            try:
                found = self._newest(pooled)
            except BaseException:
                self._connection = None
                pooled.invalidate()
                raise
            if pooled is not self._connection:
                pooled.close()
            return found

    def _newest(self, pooled: Any) -> Any:
        connection, first = pooled.dbapi_connection, pooled.info.get(EACH)
        if first is not None:
            connection.execute(first)
        nodes = self._backend.nodes(DriverConnection(connection, self._backend))
        if nodes is None:
            found = connection.execute(self._backend.feed.newest).fetchone()
        else:
            found = vector_feed.newest(nodes, self._known)
        if first is not None:
            connection.rollback()
        return found

    def _connect(self) -> Any:
        pooled: Any = self._engine.raw_connection()
        if not self._backend.locks_all:
            # SQLite's file is local, and an in-memory database has no second connection.
            pooled.dbapi_connection.autocommit = pooled.info.get(EACH) is None
            self._connection = pooled
        return pooled

    def close(self) -> None:
        """Close the connection; another check opens a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()

    def __enter__(self) -> Self:
        """Return the watch itself."""
        return self

    def __exit__(self, kind: ErrorType, error: BaseException | None, trace: Traceback) -> None:
        """Close the connection."""
        self.close()
