"""Reading one stream, in order of version, in pages; and decoding rows to events."""

from __future__ import annotations

from functools import lru_cache
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from eventstore.blobs import resolve
from eventstore.events.codec import decode, loads
from eventstore.events.meta import Meta
from eventstore.events.records import RecordedEvent
from eventstore.sql.dialect import AnyConnection, Dialect, Statement, cursor, dialect_of

__all__ = ["COLUMNS", "END", "decode_meta", "decode_row", "read_page"]

COLUMNS = {
    "sqlite": """position, conversation_id, version, event_id, type, schema_version, recorded_at,
        data, meta, data_digest, chain""",
    "postgresql": """position, conversation_id, version, event_id, type, schema_version,
        recorded_at, data::text, meta::text, data_digest, chain""",
}
"""The columns of an event row, in the order in which `decode_row` takes them."""


def _page(order: str) -> Statement:
    sqlite, postgresql = (
        f"""
        SELECT {COLUMNS[name]} FROM events
        WHERE conversation_id = :conversation_id AND version > :after AND version < :before
        ORDER BY version {order} LIMIT :page_size
        """  # noqa: S608 - built from constants of this module
        for name in ("sqlite", "postgresql")
    )
    return Statement(sqlite, postgresql)


_FORWARD = _page("ASC")
_BACKWARD = _page("DESC")
END = 2**62
"""A version that no stream reaches."""


def read_page(
    connection: AnyConnection,
    conversation_id: UUID,
    *,
    after: int = 0,
    before: int = END,
    backward: bool = False,
    limit: int = 1_000,
) -> list[RecordedEvent]:
    """Return up to ``limit`` events of a stream with ``after < version < before``.

    Args:
        connection: In a transaction of the caller's.
        conversation_id: The stream; one that does not exist has no events.
        after: The version before the first one wanted.
        before: The version after the last one wanted.
        backward: Newest first.
        limit: The most events to return.
    """
    dialect, cur = dialect_of(connection), cursor(connection)
    cur.execute(
        (_BACKWARD if backward else _FORWARD).on(dialect),
        {
            "conversation_id": dialect.from_id(conversation_id),
            "after": after,
            "before": before,
            "page_size": limit,
        },
    )
    rows = cur.fetchall()
    return [decode_row(cur, dialect, row) for row in rows]


def decode_row(cur: Any, dialect: Dialect, row: Any) -> RecordedEvent:
    """Return the event of a row of `COLUMNS`; a payload in a blob is fetched with ``cur``."""
    position, stream, version, event_id, kind, schema_version, at, data, meta, digest, chain = row
    conversation_id = dialect.to_id(stream)
    payload = None
    if data is not None:
        if data.startswith('{"$blob":'):
            data = resolve(cur, dialect, conversation_id, data)
        payload = decode(kind, schema_version, data)
    return RecordedEvent(
        conversation_id,
        version,
        dialect.to_id(event_id),
        position,
        kind,
        schema_version,
        dialect.to_time(at),
        payload,
        decode_meta(meta),
        bytes(digest),
        bytes(chain),
    )


@lru_cache(maxsize=4096)
def decode_meta(text: str) -> Meta:
    """Return the metadata of its JSON text; fields from the future are left out."""
    try:
        return Meta.model_validate_json(text)
    except ValidationError:
        known = {key: value for key, value in loads(text).items() if key in Meta.model_fields}
        return Meta.model_validate(known)
