"""Erasure: the payloads of a conversation, its blobs and every row derived from them, for good.

Headers, digests and chain stay, so that `verify` still proves order and completeness. What a
projection made of the payloads is deleted in the same transaction, from the tables of every
generation, and is folded anew from the erased events when it is next read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import (
    Connection,
    column,
    delete,
    insert,
    inspect,
    select,
    table,
    update,
)
from sqlalchemy import Table as SqlTable

from eventstore.blobs import stub_of
from eventstore.errors import ConversationNotFound, InvalidEvent
from eventstore.events import BlobRef, Erasure, ToolResult
from eventstore.events.codec import decode
from eventstore.events.records import NewEvent
from eventstore.ids import new_id
from eventstore.sql.append import append
from eventstore.sql.dialect import AnyConnection, Statement, cursor, dialect_of
from eventstore.sql.migrate import schema_stays
from eventstore.sql.requests import ANY, Append, prepare
from eventstore.sql.schema import metadata_for
from eventstore.sql.types import Id

__all__ = ["ErasureReceipt", "erase", "erasure_count", "erasure_lock"]

_DIGEST = re.compile("[0-9a-f]{64}")
_SHARED = (
    "projection_failures",
    "token_counts",
    "search_rows",
    "search_vectors",
    "search_heads",
)
"""The tables of projections that no generation owns, and no registry row names; the heads last,
as deleting one clears what an index may still hold of the rows."""

_ERASURES = Statement(
    "SELECT count(*) FROM erasures WHERE conversation_id IN (SELECT value FROM json_each(:ids))",
    "SELECT count(*) FROM erasures WHERE conversation_id = ANY(:ids)",
)


@dataclass(frozen=True, slots=True)
class ErasureReceipt:
    """What was erased; the same facts stand in the stream as an ``erasure`` event.

    ``versions`` lost their payload, ``blobs`` their bytes; ``version`` is the receipt's own.
    """

    conversation_id: UUID
    erasure_id: UUID
    erased_at: datetime
    reason: str
    versions: tuple[int, ...]
    blobs: tuple[BlobRef, ...]
    version: int


def erasure_lock(connection: AnyConnection, *conversations: UUID, exclusive: bool = False) -> None:
    """Keep erasing and projecting of conversations apart until the transaction ends.

    Without it a projection could write, after the erasure, what it had read before. SQLite needs
    none: it has one writer at a time.
    """
    if dialect_of(connection).is_sqlite:
        return
    function = "pg_advisory_xact_lock" if exclusive else "pg_advisory_xact_lock_shared"
    run = cursor(connection)
    run.execute(
        f"SELECT {function}(hashtextextended(key, 7)) FROM unnest(%s::text[]) AS key",  # noqa: S608 - one of two names
        [[str(conversation_id) for conversation_id in conversations]],
    )
    run.close()


def erasure_count(connection: AnyConnection, conversations: Sequence[UUID]) -> int:
    """Return how often any of these was erased: the same as before, if nothing is gone since."""
    dialect, run = dialect_of(connection), cursor(connection)
    ids = [dialect.from_id(conversation_id) for conversation_id in conversations]
    run.execute(_ERASURES.on(dialect), {"ids": json.dumps(ids) if dialect.is_sqlite else ids})
    [(found,)] = run.fetchall()
    run.close()
    return int(found)


def erase(
    connection: Connection,
    conversation_id: UUID,
    *,
    reason: str,
    now: datetime,
    versions: Iterable[int] | None = None,
    requested_by: str | None = None,
) -> ErasureReceipt:
    """Erase payloads of a conversation, all or those of ``versions``, in the caller's transaction.

    Earlier receipts are kept. Erasing again finds nothing and leaves another receipt.

    Raises:
        ConversationNotFound: There is none of this id.
        InvalidEvent: No reason was given.
    """
    if not reason.strip():
        raise InvalidEvent("an erasure needs a reason")
    tables = metadata_for(connection.dialect.name).tables
    streams = tables["conversations"]
    schema_stays(connection)
    erasure_lock(connection, conversation_id, exclusive=True)
    locked = connection.execute(
        select(streams.c.version)
        .where(streams.c.conversation_id == conversation_id)
        .with_for_update()
    ).first()
    if locked is None:
        raise ConversationNotFound(conversation_id)
    erasure_id = new_id()
    connection.execute(
        insert(tables["erasures"]).values(
            conversation_id=conversation_id,
            erasure_id=erasure_id,
            erased_at=now,
            reason=reason,
            requested_by=requested_by,
        )
    )
    erased = _erase_events(connection, tables["events"], conversation_id, versions)
    blobs = _erase_blobs(connection, tables, conversation_id)
    _erase_projected(connection, tables, conversation_id)
    receipt = Erasure(
        erasure_id=str(erasure_id),
        reason=reason,
        versions=erased,
        event_count=len(erased),
        blobs=blobs,
        requested_by=requested_by,
    )
    request = Append(conversation_id, prepare([NewEvent(receipt)], None, 1 << 30), ANY)
    done = append(connection, request, now)
    return ErasureReceipt(conversation_id, erasure_id, now, reason, erased, blobs, done.version)


def _erase_events(
    connection: Connection,
    events: SqlTable,
    conversation_id: UUID,
    versions: Iterable[int] | None,
) -> tuple[int, ...]:
    query = (
        select(events.c.version)
        .where(
            events.c.conversation_id == conversation_id,
            events.c.data.is_not(None),
            events.c.type != Erasure.type,
        )
        .order_by(events.c.version)
    )
    present = connection.execute(query).scalars().all()
    wanted = None if versions is None else set(versions)
    chosen = tuple(version for version in present if wanted is None or version in wanted)
    for start in range(0, len(chosen), 500):
        connection.execute(
            update(events)
            .where(
                events.c.conversation_id == conversation_id,
                events.c.version.in_(chosen[start : start + 500]),
            )
            .values(data=None, salt=None)
        )
    return chosen


def _erase_blobs(
    connection: Connection, tables: Mapping[str, SqlTable], conversation_id: UUID
) -> tuple[BlobRef, ...]:
    """Delete the blobs that no remaining payload refers to."""
    blobs, events = tables["blobs"], tables["events"]
    kept = connection.execute(
        select(blobs.c.digest, blobs.c.size_bytes).where(blobs.c.conversation_id == conversation_id)
    ).all()
    if not kept:
        return ()
    rows = connection.execute(
        select(events.c.type, events.c.schema_version, events.c.data).where(
            events.c.conversation_id == conversation_id, events.c.data.is_not(None)
        )
    )
    used = {digest for row in rows for digest in _digests(*row)}
    gone = tuple(
        BlobRef(digest=digest, size_bytes=size) for digest, size in kept if digest not in used
    )
    for blob in gone:
        connection.execute(
            delete(blobs).where(
                blobs.c.conversation_id == conversation_id, blobs.c.digest == blob.digest
            )
        )
    return gone


def _digests(kind: str, schema_version: int, data: str) -> list[str]:
    stub = stub_of(data)
    if stub is not None:
        return [stub.digest]
    if kind != ToolResult.type:
        return []
    payload = decode(kind, schema_version, data)
    if isinstance(payload, ToolResult):
        return [payload.blob.digest] if payload.blob else []
    # Of a version that this code does not know: keep whatever it may refer to.
    return _DIGEST.findall(data)


def _erase_projected(
    connection: Connection, tables: Mapping[str, SqlTable], conversation_id: UUID
) -> None:
    heads, projections = tables["projection_heads"], tables["projections"]
    connection.execute(delete(heads).where(heads.c.conversation_id == conversation_id))
    registered = connection.execute(select(projections.c.tables)).scalars().all()
    derived = [name for names in registered for name in json.loads(names)]
    inspector = inspect(connection)
    derived += [name for name in _SHARED if inspector.has_table(name)]
    for name in derived:
        rows = table(name, column("conversation_id", Id))
        connection.execute(delete(rows).where(rows.c.conversation_id == conversation_id))
