"""Whole streams, many in one query: a rebuild reads every event of a page of conversations.

A query a stream costs as much as some of its events, and a server that is busy answers each late.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Self
from uuid import UUID

from eventstore.events.records import RecordedEvent
from eventstore.sql.backend import (
    EVENT_COLUMNS,
    AnyConnection,
    Backend,
    Statement,
    backend_of,
    keys_of,
)
from eventstore.sql.decoding import decode_rows, decoded, is_closed

__all__ = ["WholeStreams"]

_ROWS = Statement(
    f"SELECT {EVENT_COLUMNS} FROM events WHERE conversation_id = ANY(:ids) "  # noqa: S608 - constants
    "ORDER BY conversation_id, version"
)
_STREAM, _VERSION = 1, 2  # among the columns


class WholeStreams:
    """Rows of streams, of which each becomes events when it is asked for."""

    def __init__(self, backend: Backend, rows: Sequence[Any]) -> None:
        self._backend = backend
        self._rows: dict[Any, list[Any]] = {}
        for row in rows:
            self._rows.setdefault(row[_STREAM], []).append(row)

    @classmethod
    def read(cls, connection: AnyConnection, ids: Sequence[UUID]) -> Self:
        """Return all rows of these streams."""
        backend = backend_of(connection)
        cur = backend.reading(connection)
        wanted = {"ids": backend.array([backend.from_id(each) for each in ids])}
        try:
            cur.execute(_ROWS.on(backend), wanted)
            rows = cur.fetchall()
        except sqlite3.OperationalError as error:
            if hasattr(error, "sqlite_errorcode"):
                raise
            rows = []  # One holds bytes that are not text; who reads its stream alone finds it.
        finally:
            cur.close()
        return cls(backend, rows)

    def take(
        self, conversation_id: UUID, connection: AnyConnection | None = None
    ) -> list[RecordedEvent] | None:
        """Return a stream's events, and forget them; None if `read_page` has to find them.

        That is so where it has none of its own, or shares its first ones as a fork. Without a
        connection nothing that is sealed or in blobs can be opened: None, and nothing is forgotten.

        Raises:
            EventDamaged, BlobNotFound, BlobDamaged, KeyUnavailable: As of `read_page`.
        """
        stream = self._backend.from_id(conversation_id)
        rows = self._rows.get(stream)
        if rows is None or rows[0][_VERSION] != 1:
            return None
        if connection is None:
            if self._must_be_opened(rows):
                return None
            del self._rows[stream]
            return [*decoded(self._backend, rows)]
        del self._rows[stream]
        cur = self._backend.reading(connection)
        try:
            return decode_rows(cur, self._backend, rows, keys_of(connection))
        finally:
            cur.close()

    @staticmethod
    def _must_be_opened(rows: Sequence[Any]) -> bool:
        try:
            return any(map(is_closed, rows))
        except (AttributeError, TypeError):  # SQLite takes any value in any column.
            return True
