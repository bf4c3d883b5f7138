"""Verification: read a stream row by row, as it is stored, and recompute its chain."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from eventstore.blobs import read_blob, stub_of
from eventstore.errors import BlobDamaged, BlobNotFound
from eventstore.events import BlobRef, ToolResult
from eventstore.events.codec import decode
from eventstore.integrity import (
    Problem,
    ProblemKind,
    Verification,
    chain_start,
    chain_step,
    commit_to,
    microseconds_of,
)
from eventstore.sql.dialect import AnyConnection, Dialect, Statement, cursor, dialect_of
from eventstore.sql.streams import get_stream, next_ids, without_row
from eventstore.sql.transactions import Transactions

__all__ = ["verify", "verify_stream"]

_PAGE = 500
_IDS = 1_000
# What was altered may no longer be text, so SQLite is asked for bytes.
_COLUMNS = (
    """
    version, CAST(event_id AS BLOB), CAST(type AS BLOB), schema_version,
    CAST(recorded_at AS BLOB), CAST(data AS BLOB), CAST(meta AS BLOB), salt, data_digest, chain
    """,
    """
    version, event_id, type, schema_version, recorded_at, data::text, meta::text, salt,
    data_digest, chain
    """,
)
_ROWS = Statement(
    *(
        f"""
        SELECT {columns} FROM events
        WHERE conversation_id = :conversation_id AND version > :after
        ORDER BY version LIMIT :page_size
        """  # noqa: S608 - built from constants of this module
        for columns in _COLUMNS
    )
)
_HEAD = Statement(
    """
    SELECT version, chain,
        EXISTS (SELECT 1 FROM erasures WHERE conversation_id = conversations.conversation_id)
    FROM conversations WHERE conversation_id = :conversation_id
    """
)


def verify(transactions: Transactions, conversation_id: UUID | None) -> Verification:
    """Verify one conversation, or all; each in one transaction with a snapshot of its own.

    Raises:
        ConversationNotFound: There is none of this id.
    """
    count, events, problems = 0, 0, []
    ids = _all_ids(transactions) if conversation_id is None else [conversation_id]
    for stream in ids:
        with transactions.reading(snapshot=True) as connection:
            seen, found = verify_stream(connection, stream)
            if not seen and not found and conversation_id is not None:
                get_stream(connection, stream)
        count, events = count + 1, events + seen
        problems.extend(found)
    return Verification(count, events, tuple(problems))


def _all_ids(transactions: Transactions) -> Iterator[UUID]:
    after: UUID | None = None
    while True:
        with transactions.reading() as connection:
            page = next_ids(connection, after, _IDS)
            lost = [] if page else without_row(connection)
        yield from page or lost
        if not page:
            return
        after = page[-1]


def verify_stream(connection: AnyConnection, conversation_id: UUID) -> tuple[int, list[Problem]]:
    """Return how many events the stream has, and what is wrong with them.

    Reading stops at the first break of the chain: what follows it cannot be judged. Run it in one
    transaction with a snapshot, so that an append meanwhile does not look like a difference.
    """
    dialect, cur = dialect_of(connection), cursor(connection)
    cur.execute(_HEAD.on(dialect), {"conversation_id": dialect.from_id(conversation_id)})
    head = cur.fetchone()
    version, chain = 0, chain_start(conversation_id)
    problems: list[Problem] = []

    def found(at: int, kind: ProblemKind, detail: str) -> None:
        problems.append(Problem(conversation_id, at, kind, detail))

    for row in _rows(cur, dialect, conversation_id):
        version += 1
        if row[0] != version:
            found(version, "gap", f"version {version} is missing, the next one is {row[0]}")
            return version, problems
        for kind, detail in _row_problems(connection, conversation_id, row, bool(head and head[2])):
            found(version, kind, detail)
        link = _step(dialect, chain, row)
        if link is None or row[9] != link:
            found(version, "header_altered", "the chain value does not follow from the event")
            return version, problems
        chain = link
    if head is None:
        if version:
            found(version, "head_differs", "the events have no row in conversations")
    elif head[0] != version:
        detail = f"the conversation is at version {head[0]}, its last event is {version}"
        lowest = min(head[0], version) if isinstance(head[0], int) else version
        found(lowest + 1, "head_differs", detail)
    elif head[1] != chain:
        found(version, "head_differs", "the conversation's chain value is not its last event's")
    return version, problems


def _rows(cur: Any, dialect: Dialect, conversation_id: UUID) -> Iterator[Any]:
    after = 0
    while True:
        cur.execute(
            _ROWS.on(dialect),
            {
                "conversation_id": dialect.from_id(conversation_id),
                "after": after,
                "page_size": _PAGE,
            },
        )
        rows = cur.fetchall()
        yield from rows
        if len(rows) < _PAGE:
            return
        after = rows[-1][0]


def _step(dialect: Dialect, chain: bytes, row: Any) -> bytes | None:
    """Return the chain value that follows from a row, or None if no event can look like it."""
    version, event_id, kind, schema_version, at, _data, meta, _salt, digest, _chain = row
    try:
        return chain_step(
            chain,
            version,
            dialect.to_id(_text(event_id)).bytes,
            _text(kind),
            schema_version,
            microseconds_of(dialect.to_time(_text(at))),
            _text(meta),
            bytes(digest),
        )
    except (AttributeError, TypeError, ValueError):
        return None


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _commits(salt: Any, data: Any, digest: Any) -> bool:
    try:
        return commit_to(bytes(salt), _text(data)) == bytes(digest)
    except (TypeError, ValueError):
        return False


def _row_problems(
    connection: AnyConnection, conversation_id: UUID, row: Any, erasable: bool
) -> Iterator[tuple[ProblemKind, str]]:
    data, salt, digest = row[5], row[7], row[8]
    if data is None or salt is None:
        if not erasable:
            yield "data_missing", "the payload is gone, but no erasure was recorded"
        return
    if not _commits(salt, data, digest):
        yield "data_altered", "the payload is not the one that the digest commits to"
        return
    blob = _blob_of(row[2], row[3], _text(data))
    if blob is None:
        return
    try:
        content = read_blob(connection, conversation_id, blob.digest)
    except BlobNotFound:
        yield "blob_missing", f"blob {blob.digest} is gone"
        return
    except BlobDamaged:
        content = b""
    if hashlib.sha256(content).hexdigest() != blob.digest:
        yield "blob_altered", f"blob {blob.digest} holds other bytes than its name says"


def _blob_of(kind: str | bytes, schema_version: int, data: str) -> BlobRef | None:
    stub = stub_of(data)
    tool_result = kind in (ToolResult.type, ToolResult.type.encode())
    if stub is None and tool_result and '"blob":' in data:
        payload = decode(ToolResult.type, schema_version, data)
        return payload.blob if isinstance(payload, ToolResult) else None
    return stub
