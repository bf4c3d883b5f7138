"""The floor: the bare driver writes the same rows to a table with the columns of ``events``.

There is no index except the primary key, no chain, no generating of ids and no encoding of JSON:
the rows are ready before the clock starts.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol
from uuid import UUID

import psycopg
from sqlalchemy import make_url

from eventstore import NewEvent, new_id
from eventstore.events.base import Payload

__all__ = ["Bare", "BarePostgres", "BareSqlite", "Row", "bare", "conninfo", "rows_of"]

Row = tuple[Any, ...]

_COLUMNS = (
    *("conversation_id", "version", "event_id", "type", "schema_version", "recorded_at", "data"),
    *("meta", "salt", "data_digest", "chain"),
)
_NAMES = ", ".join(_COLUMNS)


class Bare(Protocol):
    """A connection of the driver, and a table that it uses."""

    name: str

    def insert(self, rows: Sequence[Row]) -> None:
        """Insert rows with ``INSERT``, in one durable transaction."""

    def pages(self, table: str, size: int) -> Iterator[list[Row]]:
        """Yield the position, data and meta of all rows, in pages."""

    def newest(self, count: int) -> list[str]:
        """Return the data of the floor's newest rows."""

    def close(self) -> None:
        """Close the connection."""


class BareSqlite:
    """``sqlite3`` on a file, with a write-ahead log."""

    name = "bare sqlite3"

    def __init__(self, path: str, synchronous: str = "FULL") -> None:
        self.connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.connection.execute("PRAGMA journal_mode=WAL")
        self.connection.execute(f"PRAGMA synchronous={synchronous}")
        self.connection.execute(
            "CREATE TABLE IF NOT EXISTS bare_events (position INTEGER PRIMARY KEY AUTOINCREMENT, "
            "conversation_id TEXT, version INTEGER, event_id TEXT, type TEXT, "
            "schema_version INTEGER, recorded_at TEXT, data TEXT, meta TEXT, salt BLOB, "
            "data_digest BLOB, chain BLOB)"
        )
        marks = ", ".join("?" * len(_COLUMNS))
        self._insert = f"INSERT INTO bare_events ({_NAMES}) VALUES ({marks})"

    def insert(self, rows: Sequence[Row]) -> None:
        """Insert rows with ``INSERT``, in one durable transaction."""
        self.connection.execute("BEGIN IMMEDIATE")
        if len(rows) == 1:
            self.connection.execute(self._insert, rows[0])
        else:
            self.connection.executemany(self._insert, rows)
        self.connection.execute("COMMIT")

    def pages(self, table: str, size: int) -> Iterator[list[Row]]:
        """Yield the position, data and meta of all rows, in pages."""
        query = (
            f"SELECT position, data, meta FROM {table} WHERE position > ? "
            f"ORDER BY position LIMIT {size}"
        )
        last = 0
        while page := self.connection.execute(query, (last,)).fetchall():
            yield page
            last = page[-1][0]

    def newest(self, count: int) -> list[str]:
        """Return the data of the floor's newest rows."""
        query = "SELECT data FROM bare_events ORDER BY position DESC LIMIT ?"
        return [row[0] for row in self.connection.execute(query, (count,))]

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


class BarePostgres:
    """psycopg on a server."""

    name = "bare psycopg"

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(conninfo(url), autocommit=True)
        self.connection.execute(
            "CREATE TABLE IF NOT EXISTS bare_events (position BIGINT GENERATED ALWAYS AS IDENTITY "
            "PRIMARY KEY, conversation_id UUID, version BIGINT, event_id UUID, type TEXT, "
            "schema_version INTEGER, recorded_at TIMESTAMPTZ, data JSON, meta JSON, salt BYTEA, "
            "data_digest BYTEA, chain BYTEA)"
        )
        marks = ", ".join(["%s"] * len(_COLUMNS))
        self._insert = f"INSERT INTO bare_events ({_NAMES}) VALUES ({marks})"
        self._copy = f"COPY bare_events ({_NAMES}) FROM STDIN"

    def insert(self, rows: Sequence[Row]) -> None:
        """Insert rows with ``INSERT``, in one durable transaction."""
        if len(rows) == 1:
            self.connection.execute(self._insert, rows[0], prepare=True)
            return
        with self.connection.transaction(), self.connection.cursor() as cursor:
            cursor.executemany(self._insert, rows)

    def copy(self, rows: Sequence[Row]) -> None:
        """Insert rows with ``COPY``, in one durable transaction."""
        with self.connection.cursor() as cursor, cursor.copy(self._copy) as stream:
            for row in rows:
                stream.write_row(row)

    def pages(self, table: str, size: int) -> Iterator[list[Row]]:
        """Yield the position, data and meta of all rows, in pages; JSON is not parsed."""
        query = f"SELECT position, data::text, meta::text FROM {table} ORDER BY position"
        with self.connection.transaction(), self.connection.cursor("pages") as cursor:
            cursor.execute(query)
            while page := cursor.fetchmany(size):
                yield page

    def newest(self, count: int) -> list[str]:
        """Return the data of the floor's newest rows."""
        query = "SELECT data::text FROM bare_events ORDER BY position DESC LIMIT %s"
        return [row[0] for row in self.connection.execute(query, (count,), prepare=True)]

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


def bare(url: str, synchronous: str = "FULL") -> BareSqlite | BarePostgres:
    """Return the floor in the database at this URL."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        return BareSqlite(str(parsed.database), synchronous)
    return BarePostgres(url)


def conninfo(url: str) -> str:
    """Return a SQLAlchemy URL of PostgreSQL in the form that its drivers accept."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def rows_of(events: Sequence[NewEvent], postgresql: bool, stream: UUID | None = None) -> list[Row]:
    """Return events as rows of the floor's table, which can be inserted repeatedly."""
    of = stream or new_id()
    now = datetime.now(UTC)
    made = []
    for version, event in enumerate(events, 1):
        assert isinstance(event.data, Payload)
        ids = (of, new_id()) if postgresql else (str(of), str(new_id()))
        at = now if postgresql else now.isoformat()
        data, meta = event.data.model_dump_json(), event.meta.model_dump_json(exclude_defaults=True)
        made.append(
            (
                *(ids[0], version, ids[1], event.data.type, 1, at, data, meta),
                *(os.urandom(size) for size in (16, 32, 32)),
            )
        )
    return made
