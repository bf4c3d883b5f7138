"""A plain SQL client, as an auditor or an attacker would use it: nothing of this project in it."""

from __future__ import annotations

import sqlite3
from types import TracebackType
from typing import Any, Self

import psycopg
from sqlalchemy import make_url

UNPROTECTED = {
    "sqlite": (
        "DROP TRIGGER events_refuse_update",
        "DROP TRIGGER events_refuse_delete",
        "DROP TRIGGER events_refuse_replace",
    ),
    "postgresql": ("ALTER TABLE events DISABLE TRIGGER USER",),
}
"""How the owner of the tables takes away what protects the events."""
REFUSED = (sqlite3.IntegrityError, psycopg.IntegrityError)
"""What a driver raises when a trigger refuses."""


class PlainClient:
    """A connection of `sqlite3` or `psycopg`, each statement its own transaction."""

    def __init__(self, url: str) -> None:
        self.address = make_url(url)
        self.dialect = self.address.get_backend_name()
        self._connection: Any
        if self.dialect == "sqlite":
            self._connection = sqlite3.connect(self.address.database or "", isolation_level=None)
        else:
            conninfo = self.address.set(drivername="postgresql")
            self._connection = psycopg.connect(
                conninfo.render_as_string(hide_password=False), autocommit=True
            )

    def execute(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run a statement with ``?`` for parameters; return its rows, if it has any."""
        if self.dialect == "postgresql":
            sql = sql.replace("?", "%s")
        values = tuple(p if isinstance(p, int | bytes) else str(p) for p in parameters)
        cursor = self._connection.execute(sql, values)
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    def disarm(self) -> None:
        """Take the triggers away, as only the owner of the tables can."""
        for statement in UNPROTECTED[self.dialect]:
            self.execute(statement)

    def tables(self) -> list[str]:
        """Return the names of all tables."""
        sqlite = "SELECT name FROM sqlite_master WHERE type = 'table'"
        # Those with partitions too, and the partitions as a part of these.
        postgresql = (
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace "
            "AND relkind IN ('r', 'p') AND NOT relispartition"
        )
        rows = self.execute(sqlite if self.dialect == "sqlite" else postgresql)
        return sorted(row[0] for row in rows)

    def dump(self) -> bytes:
        """Return every value of every table, one after the other, as bytes."""
        values = [
            value
            for name in self.tables()
            for row in self.execute(f'SELECT * FROM "{name}"')
            for value in row
        ]
        return b"\n".join(_as_bytes(value) for value in values)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _as_bytes(value: Any) -> bytes:
    if isinstance(value, bytes | memoryview):
        return bytes(value)
    return str(value).encode()
