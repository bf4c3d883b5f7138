"""The rows of `conversations`: looking streams up, listing them, and fencing their writers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from secrets import randbits
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Double, Select, cast, func, select, update

from eventstore.errors import ConversationDamaged, ConversationNotFound
from eventstore.sql.schema import metadata_for

__all__ = [
    "StreamInfo",
    "count_events",
    "get_stream",
    "list_streams",
    "next_ids",
    "raise_writer_epoch",
    "without_row",
]

# What decoding a value raises that SQLite keeps in a column of another type.
_UNREADABLE = (AttributeError, TypeError, ValueError)
_RANDOM_BITS = 32


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """What the store knows of a conversation without reading its events."""

    conversation_id: UUID
    version: int
    writer_epoch: int
    tenant_id: str | None
    user_id: str | None
    created_at: datetime
    last_active_at: datetime
    parent_conversation_id: UUID | None
    parent_version: int | None


def get_stream(connection: Connection, conversation_id: UUID) -> StreamInfo:
    """Return one conversation.

    Raises:
        ConversationNotFound: There is none of this id.
        ConversationDamaged: Its row holds what no append has written.
    """
    query, table = _query(connection)
    try:
        rows = _infos(connection, query.where(table.c.conversation_id == conversation_id))
    except _UNREADABLE as error:
        raise ConversationDamaged(conversation_id) from error
    if not rows:
        raise ConversationNotFound(conversation_id)
    return rows[0]


def list_streams(
    connection: Connection,
    *,
    tenant_id: str | None = None,
    user_id: str | None = None,
    after: UUID | None = None,
    limit: int = 100,
) -> list[StreamInfo]:
    """Return conversations in order of id, which for ids of `new_id` is the order of creation.

    Args:
        connection: In a transaction of the caller's.
        tenant_id: Only this tenant's.
        user_id: Only this user's.
        after: Only ids above this one; pass the last id of a page to get the next.
        limit: The most to return.

    Raises:
        ConversationDamaged: A row holds what no append has written.
    """
    query, table = _query(connection)
    if tenant_id is not None:
        query = query.where(table.c.tenant_id == tenant_id)
    if user_id is not None:
        query = query.where(table.c.user_id == user_id)
    if after is not None:
        query = query.where(table.c.conversation_id > after)
    query = query.order_by(table.c.conversation_id).limit(limit)
    try:
        return _infos(connection, query)
    except _UNREADABLE:
        # One by one, which finds out whose row it is.
        ids = connection.execute(query.with_only_columns(table.c.conversation_id)).scalars().all()
        return [get_stream(connection, conversation_id) for conversation_id in ids]


def next_ids(connection: Connection, after: UUID | None, limit: int) -> list[UUID]:
    """Return the ids above ``after`` in order, up to ``limit``."""
    column = metadata_for(connection.dialect.name).tables["conversations"].c.conversation_id
    query = select(column).order_by(column).limit(limit)
    if after is not None:
        query = query.where(column > after)
    return list(connection.execute(query).scalars())


def count_events(connection: Connection) -> int:
    """Return how many events there are by the conversations' own rows: cheap, for progress."""
    version = metadata_for(connection.dialect.name).tables["conversations"].c.version
    # Rows that were altered may hold anything; a sum of doubles does not overflow.
    return int(connection.execute(select(func.sum(cast(version, Double)))).scalar() or 0)


def without_row(connection: Connection) -> list[UUID]:
    """Return the conversations that have events but no row, which only tampering brings about."""
    tables = metadata_for(connection.dialect.name).tables
    events, streams = tables["events"].c, tables["conversations"].c
    row = select(streams.conversation_id).where(streams.conversation_id == events.conversation_id)
    query = select(events.conversation_id).distinct().where(~row.exists())
    return list(connection.execute(query.order_by(events.conversation_id)).scalars())


def raise_writer_epoch(connection: Connection, conversation_id: UUID) -> int:
    """Fence every earlier writer of the conversation and return the new writer's epoch.

    Its upper bits count the writers, its lower 32 bits are random: a count that is given out twice,
    since the database went back to an older state, makes another epoch.

    Raises:
        ConversationNotFound: There is none of this id.
    """
    table = metadata_for(connection.dialect.name).tables["conversations"]
    last, one = table.c.writer_epoch, 1 << _RANDOM_BITS
    epoch = connection.execute(
        update(table)
        .where(table.c.conversation_id == conversation_id)
        .values(writer_epoch=last - last % one + one + randbits(_RANDOM_BITS))
        .returning(last)
    ).scalar()
    if epoch is None:
        raise ConversationNotFound(conversation_id)
    return int(epoch)


def _infos(connection: Connection, query: Select[Any]) -> list[StreamInfo]:
    infos = [StreamInfo(*row) for row in connection.execute(query)]
    if not all(isinstance(info.version + info.writer_epoch, int) for info in infos):
        raise TypeError
    return infos


def _query(connection: Connection) -> tuple[Select[Any], Any]:
    table = metadata_for(connection.dialect.name).tables["conversations"]
    columns = table.c
    return (
        select(
            columns.conversation_id,
            columns.version,
            columns.writer_epoch,
            columns.tenant_id,
            columns.user_id,
            columns.created_at,
            columns.last_active_at,
            columns.parent_conversation_id,
            columns.parent_version,
        ),
        table,
    )
