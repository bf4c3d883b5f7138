"""Rows of `conversations`: finding, listing and fencing streams, and marking their heads.

A mark is a conversation's version and chain value; a checkpoint stores one for each conversation.

An imported source without its own id is identified by a digest of its content, in a row that names
the conversation created from it. A digest lets anyone who guesses the content confirm the guess, so
the row lives no longer than the content: erasing any part of the conversation deletes it. The ids
of the conversation and its events reveal nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from secrets import randbits
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from sqlalchemy import (
    Connection,
    Double,
    Select,
    cast,
    delete,
    func,
    insert,
    select,
)

from eventstore.errors import ConversationArchived, ConversationDamaged, ConversationNotFound
from eventstore.security.hash_chain import Problem
from eventstore.sql.backend import AnyConnection, Statement, backend_of, text_out
from eventstore.sql.schema import metadata_for

__all__ = [
    "ARCHIVED",
    "MOST_ANCESTORS",
    "Mark",
    "Shared",
    "StreamInfo",
    "absent",
    "ancestors",
    "archived_owner",
    "claim",
    "count_events",
    "descendants",
    "differences",
    "find",
    "forget",
    "fork_point",
    "get_stream",
    "lineage",
    "list_streams",
    "next_ids",
    "next_marks",
    "owner_of",
    "pages",
    "raise_writer_epoch",
    "store_id_of",
    "version_of",
    "without_row",
]


# Errors of decoding a value of the wrong type, which SQLite accepts in any column.
_UNREADABLE = (AttributeError, TypeError, ValueError)


_RANDOM_BITS = 32


_FIRST = Statement(
    "SELECT conversation_id, version, chain FROM conversations "
    "ORDER BY conversation_id LIMIT :page_size"
)


_NEXT = Statement(
    "SELECT conversation_id, version, chain FROM conversations "
    "WHERE conversation_id > :after ORDER BY conversation_id LIMIT :page_size"
)


_OWNER = Statement(
    "SELECT tenant_id, user_id FROM conversations WHERE conversation_id = :conversation_id"
)


ARCHIVED = "archived"
"""The state of a conversation in the archive, whose rows are in its file alone."""


_ARCHIVED = Statement(
    """
    SELECT tenant_id, user_id FROM archives
    WHERE conversation_id = :conversation_id AND state = 'archived'
    """
)


_RAISE = Statement(
    """
    UPDATE conversations
    SET writer_epoch = (writer_epoch / :one + 1) * :one + :chance
    WHERE conversation_id = :conversation_id RETURNING writer_epoch
    """
)


_COMPARED = Statement(
    """
    SELECT
        (SELECT chain FROM events
            WHERE conversation_id = :conversation_id AND version = :version),
        (SELECT max(version) FROM events WHERE conversation_id = :conversation_id),
        (SELECT count(*) FROM purges WHERE conversation_id = :conversation_id)
    """
)


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A conversation's facts that are known without reading its events."""

    conversation_id: UUID
    version: int
    writer_epoch: int
    tenant_id: str | None
    user_id: str | None
    created_at: datetime
    last_active_at: datetime
    parent_conversation_id: UUID | None
    parent_version: int | None
    key: str | None = None
    """The product's own key for the conversation."""


def absent(
    connection: AnyConnection, conversation_id: UUID
) -> ConversationArchived | ConversationNotFound:
    """Return the error that says where a conversation without a row is: archived, or nowhere."""
    if archived_owner(connection, conversation_id) is None:
        return ConversationNotFound(conversation_id)
    return ConversationArchived(conversation_id)


def archived_owner(
    connection: AnyConnection, conversation_id: UUID
) -> tuple[str | None, str | None] | None:
    """Return tenant and user of a conversation in the archive; None if it is not there."""
    for tenant_id, user_id in _ARCHIVED.rows(connection, conversation_id=conversation_id):
        return text_out(tenant_id), text_out(user_id)
    return None


def get_stream(connection: Connection, conversation_id: UUID) -> StreamInfo:
    """Return one conversation.

    Raises:
        ConversationNotFound: No conversation has this id.
        ConversationDamaged: Its row holds values that no append has written.
    """
    query, table = _query(connection)
    try:
        rows = _infos(connection, query.where(table.c.conversation_id == conversation_id))
    except _UNREADABLE as error:
        raise ConversationDamaged(conversation_id) from error
    if not rows:
        raise absent(connection, conversation_id)
    return rows[0]


def owner_of(
    connection: AnyConnection, conversation_id: UUID
) -> tuple[str | None, str | None] | None:
    """Return the tenant and the user of a conversation; None if it does not exist."""
    rows = _OWNER.rows(connection, conversation_id=conversation_id)
    return (text_out(rows[0][0]), text_out(rows[0][1])) if rows else None


def version_of(connection: Connection, conversation_id: UUID, event_id: UUID) -> int | None:
    """Return the version of the conversation's own event with this id, or None."""
    events = metadata_for(connection.dialect.name).tables["events"].c
    query = select(events.version).where(
        events.event_id == event_id, events.conversation_id == conversation_id
    )
    found: int | None = connection.execute(query).scalar()
    return found


def list_streams(
    connection: Connection,
    *,
    limit_to: Callable[[Select[Any], Any], Select[Any]],
    after: UUID | None = None,
    limit: int = 100,
) -> list[StreamInfo]:
    """Return conversations in order of id, which for ids of `new_id` is the order of creation.

    Args:
        connection: In a transaction of the caller's.
        limit_to: Adds the owner's condition to the query, given the table's columns.
        after: Only ids above this one; pass the last id of a page to get the next.
        limit: The most conversations to return.

    Raises:
        ConversationDamaged: A row holds values that no append has written.
    """
    query, table = _query(connection)
    query = limit_to(query, table.c)
    if after is not None:
        query = query.where(table.c.conversation_id > after)
    query = query.order_by(table.c.conversation_id).limit(limit)
    try:
        return _infos(connection, query)
    except _UNREADABLE:
        # One by one, so that the error names the conversation.
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
    """Return the number of events by the conversations' own rows: cheap, for progress."""
    version = metadata_for(connection.dialect.name).tables["conversations"].c.version
    # Altered rows may hold anything; a sum of doubles does not overflow.
    return int(connection.execute(select(func.sum(cast(version, Double)))).scalar() or 0)


def without_row(connection: Connection) -> list[UUID]:
    """Return the conversations that have events but no row; only tampering causes this."""
    tables = metadata_for(connection.dialect.name).tables
    events, streams = tables["events"].c, tables["conversations"].c
    row = select(streams.conversation_id).where(streams.conversation_id == events.conversation_id)
    query = select(events.conversation_id).distinct().where(~row.exists())
    return list(connection.execute(query.order_by(events.conversation_id)).scalars())


def raise_writer_epoch(connection: AnyConnection, conversation_id: UUID) -> int:
    """Fence every earlier writer of the conversation and return the new writer's epoch.

    Its upper bits count the writers, its lower 32 bits are random: if the database was restored to
    an older state and the count repeats, the epoch still differs.

    Raises:
        ConversationNotFound: No conversation has this id.
    """
    chance = {"one": 1 << _RANDOM_BITS, "chance": randbits(_RANDOM_BITS)}
    found = _RAISE.rows(connection, conversation_id=conversation_id, **chance)
    if not found:
        raise absent(connection, conversation_id)
    return int(found[0][0])


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
            columns.key,
        ),
        table,
    )


def find(connection: Connection, source: str) -> UUID | None:
    """Return the conversation imported from a source; None if never imported, or erased since."""
    table = metadata_for(connection.dialect.name).tables["import_sources"]
    query = select(table.c.conversation_id).where(table.c.source == source)
    return connection.execute(query).scalars().first()


def claim(connection: Connection, source: str) -> UUID:
    """Return the conversation of a source, or a new id for it, in the caller's transaction."""
    # A unique index would lack the conversation's id, by which tables are distributed.
    backend_of(connection).lock(connection, "import_sources", [source], exclusive=True)
    found = find(connection, source)
    if found is None:
        # Not `new_id`: ids of one import would begin alike, and people type only the beginning.
        found = uuid4()
        table = metadata_for(connection.dialect.name).tables["import_sources"]
        connection.execute(insert(table).values(conversation_id=found, source=source))
    return found


def pages(conversations: Sequence[UUID], size: int = 500) -> Iterator[Sequence[UUID]]:
    """Yield ids in pieces that fit into one statement, or one transaction."""
    for start in range(0, len(conversations), size):
        yield conversations[start : start + size]


def forget(connection: Connection, conversations: Sequence[UUID]) -> None:
    """Delete the records of conversations' sources, in the caller's transaction."""
    table = metadata_for(connection.dialect.name).tables["import_sources"]
    for some in pages(conversations):
        connection.execute(delete(table).where(table.c.conversation_id.in_(some)))


class Mark(NamedTuple):
    """A conversation's version and its chain value there."""

    conversation_id: UUID
    version: int
    chain: bytes


def store_id_of(connection: Connection) -> UUID:
    """Return the store's random id, created with its schema; copies of the store share it."""
    table = metadata_for(connection.dialect.name).tables["store_identity"]
    found: UUID = connection.execute(select(table.c.store_id)).scalar_one()
    return found


def next_marks(connection: Connection, after: UUID | None, limit: int) -> list[Mark]:
    """Return the marks of the conversations above ``after`` in order of id, up to ``limit``.

    Raises:
        ConversationDamaged: A row holds values that no append has written.
    """
    if after is None:
        rows = _FIRST.rows(connection, page_size=limit)
    else:
        rows = _NEXT.rows(connection, page_size=limit, after=after)
    found: list[Mark] = []
    for key, version, chain in rows:
        conversation_id = backend_of(connection).to_id(key)
        if not isinstance(version, int) or not isinstance(chain, bytes):
            raise ConversationDamaged(conversation_id)
        found.append(Mark(conversation_id, version, chain))
    return found


def differences(connection: Connection, marks: Iterable[Mark]) -> Iterator[Problem]:
    """Yield the marks that the log no longer matches, except those of purged conversations."""
    for conversation_id, version, chain in marks:
        [(found, last, purges)] = _COMPARED.rows(
            connection, conversation_id=conversation_id, version=version
        )
        if found == chain or version == 0 or purges:
            continue
        if last is None:
            detail = f"the conversation is gone; it had {version} events at the checkpoint"
            yield Problem(conversation_id, 1, "conversation_missing", detail)
        elif found is None and last < version:
            detail = f"the last event is {last}; it was {version} at the checkpoint"
            yield Problem(conversation_id, last + 1, "tail_missing", detail)
        else:
            detail = "the history differs from the one at the checkpoint"
            yield Problem(conversation_id, version, "history_differs", detail)


MOST_ANCESTORS = 100


"""The most ancestors that a fork can have: reading it costs a query for each."""


_PARENT = Statement(
    """
    SELECT parent_conversation_id, parent_version FROM conversations
    WHERE conversation_id = :conversation_id AND parent_version IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM events WHERE conversation_id = :conversation_id AND version = 1)
    """
)


_CHILDREN = Statement(
    """
    SELECT conversation_id, parent_version FROM conversations AS fork
    WHERE parent_conversation_id = :conversation_id AND NOT EXISTS (
        SELECT 1 FROM events WHERE conversation_id = fork.conversation_id AND version = 1)
    """
)


class Shared(NamedTuple):
    """Events that a conversation shares with another: the versions up to ``version``."""

    conversation_id: UUID
    version: int


def lineage(connection: AnyConnection, conversation_id: UUID) -> list[Shared]:
    """Return what a fork shares with its parent, its parent's parent and so on, nearest first.

    Returns nothing for a conversation that is not a fork. Each ancestor holds the rows above the
    version of the next. Runs a query for each, in the caller's transaction; ancestors never change.

    Raises:
        ConversationDamaged: A row names an invalid parent.
    """
    found: list[Shared] = []
    for parent in ancestors(connection, conversation_id):
        version = parent.version
        if found and version >= found[-1].version:
            # Forked from events that the parent itself shares: no row of the parent is read.
            version = found.pop().version
        found.append(Shared(parent.conversation_id, version))
    return found


def ancestors(connection: AnyConnection, conversation_id: UUID) -> list[Shared]:
    """Return a fork's parent, its parent's parent and so on, each with the version of the fork.

    Raises:
        ConversationDamaged: A row names an invalid parent.
    """
    found: list[Shared] = []
    parent = fork_point(connection, conversation_id)
    while parent is not None and len(found) <= MOST_ANCESTORS:
        found.append(parent)
        parent = fork_point(connection, parent.conversation_id)
    if parent is not None:
        raise ConversationDamaged(conversation_id)
    return found


def fork_point(connection: AnyConnection, conversation_id: UUID) -> Shared | None:
    """Return a fork's parent and the last version that they share; None if it is not a fork.

    Raises:
        ConversationDamaged: Its row names an invalid parent.
    """
    rows = _PARENT.rows(connection, conversation_id=conversation_id)
    if not rows:
        return None
    try:
        return Shared(backend_of(connection).to_id(rows[0][0]), int(rows[0][1]))
    except (AttributeError, TypeError, ValueError) as error:
        raise ConversationDamaged(conversation_id) from error


def descendants(connection: AnyConnection, conversation_id: UUID) -> list[Shared]:
    """Return all forks of a conversation and of its forks, each after the one it was forked from.

    Each with the last version that it shares with the conversation itself.
    """
    to_id = backend_of(connection).to_id
    found: dict[UUID, int] = {}
    waiting = [Shared(conversation_id, 2**62)]
    while waiting:
        parent = waiting.pop()
        for key, version in _CHILDREN.rows(connection, conversation_id=parent.conversation_id):
            child = Shared(to_id(key), min(int(version), parent.version))
            if child.conversation_id not in found:
                found[child.conversation_id] = child.version
                waiting.append(child)
    return [Shared(*each) for each in found.items()]
