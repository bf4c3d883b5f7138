"""Queries across conversations: by event type, by key prefix, and by event id."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Text, case, cast, select

from eventstore import EventStore
from eventstore.ids import uuid_in
from eventstore.sql.backend import Statement
from eventstore.sql.decoding import SPECIAL
from eventstore.sql.lineage import lineage
from eventstore.sql.read import EventText, read_texts
from eventstore.sql.schema import metadata_for

__all__ = ["ends_with", "events_with", "forks_with", "keys_with", "place_of"]

_PAGE = 1_000  # rows held in memory at once

_HAS = Statement(
    """
    SELECT 1 FROM events
    WHERE conversation_id = :conversation_id AND version <= :version AND type = :type LIMIT 1
    """
)


def keys_with(store: EventStore, event_type: str, *, begins: str = "") -> Iterator[str]:
    """Yield the key, or else the id, of every conversation with an event of a type.

    With ``begins``, only conversations whose key has this prefix. Forks without such an event of
    their own come last.
    """
    with store.reading() as connection:
        streams, has_own = _owning(connection, event_type)
        found = _named(store, connection, streams, begins, has_own)
    yield from (key or str(stream) for stream, key in found)
    yield from forks_with(store, event_type, begins=begins)


def forks_with(store: EventStore, event_type: str, *, begins: str = "") -> list[str]:
    """Return the key, or else the id, of each fork that only shares events of a type.

    With ``begins``, only forks whose key has this prefix. Runs a few queries for each fork without
    such an event of its own.
    """
    with store.reading() as connection:
        streams, has_own = _owning(connection, event_type)
        is_fork = streams.parent_conversation_id.is_not(None)  # has a sparse index
        return [
            key or str(fork)
            for fork, key in _named(store, connection, streams, begins, is_fork, ~has_own)
            if any(
                _HAS.rows(connection, **shared._asdict(), type=event_type)
                for shared in lineage(connection, fork)
            )
        ]


def _owning(connection: Connection, event_type: str) -> tuple[Any, ColumnElement[bool]]:
    """Return the columns of conversations, and the condition that one has an event of a type."""
    tables = metadata_for(connection.dialect.name).tables
    events, streams = tables["events"].c, tables["conversations"].c
    typed = (
        select(events.version)
        .where(events.conversation_id == streams.conversation_id)
        .where(events.type == event_type)
    )
    return streams, typed.exists()


def _payload(events: Any) -> ColumnElement[str | None]:
    """Return a payload's text; NULL once it is erased, also if someone has put another there."""
    return case((events.salt.is_not(None), cast(events.data, Text)))


def _named(
    store: EventStore,
    connection: Connection,
    streams: Any,
    begins: str,
    *conditions: ColumnElement[bool],
) -> list[tuple[UUID, str | None]]:
    """Return the id and key of the owner's conversations that fulfil conditions, by id."""
    query = select(streams.conversation_id, streams.key).where(*conditions)
    if begins:
        query = query.where(streams.key.startswith(begins, autoescape=True))
    # Sorted here: SQLite would scan all conversations by id instead of only the forks.
    found = sorted(connection.execute(store.owner.limit(query, streams)), key=itemgetter(0))
    # SQLite's LIKE ignores case.
    return [(stream, key) for stream, key in found if (key or "").startswith(begins)]


def ends_with(
    store: EventStore, event_type: str, *, begins: str = ""
) -> Iterator[tuple[str, list[EventText]]]:
    """Yield for each conversation its key and its events back to the newest one of a type.

    Runs one query and fetches its rows as they are consumed. Events come newest first. An erased
    event does not count as one of the type.

    Args:
        store: The store.
        event_type: The type; conversations without such an event are skipped.
        begins: Yield only conversations whose key has this prefix.
    """
    with store.reading() as connection:
        tables = metadata_for(connection.dialect.name).tables
        streams, events = tables["conversations"].c, tables["events"].alias().c
        typed = tables["events"].alias().c
        newest = (
            select(typed.version)
            .where(typed.conversation_id == streams.conversation_id)
            .where(typed.type == event_type, typed.data.is_not(None))
            .order_by(typed.version.desc())
            .limit(1)
            .scalar_subquery()
        )
        texts = (_payload(events), cast(events.meta, Text))
        query = (
            select(streams.conversation_id, streams.key)
            .add_columns(events.version, events.type, events.schema_version, *texts)
            .where(events.conversation_id == streams.conversation_id, events.version >= newest)
            .order_by(streams.conversation_id, events.version.desc())
        )
        if begins:
            query = query.where(streams.key.startswith(begins, autoescape=True))
        query = store.owner.limit(query, streams)
        rows = connection.execute(query, execution_options={"yield_per": _PAGE})
        for (stream, key), found in groupby(rows, key=lambda row: (row[0], row[1])):
            if not (key or "").startswith(begins):  # SQLite's LIKE ignores case
                continue
            ends = [EventText(*row[2:]) for row in found]
            if any(event.text and event.text.startswith(SPECIAL) for event in ends):
                last, first = ends[0].version, ends[-1].version
                ends = read_texts(
                    connection, stream, after=first - 1, before=last + 1, backward=True
                )
            yield key or str(stream), ends


def events_with(store: EventStore, event_type: str) -> Iterator[tuple[str, bool, list[EventText]]]:
    """Yield each conversation with an event of a type: its key, whether it is a fork, its events.

    Runs one query and fetches its rows as they are consumed. A fork's shared events are missing,
    and sealed text and blobs are not opened (`SPECIAL`).
    """
    with store.reading() as connection:
        tables = metadata_for(connection.dialect.name).tables
        streams, events = tables["conversations"].c, tables["events"].c
        typed = tables["events"].alias().c
        texts = (_payload(events), cast(events.meta, Text))
        query = (
            select(streams.conversation_id, streams.key)
            .add_columns(streams.parent_conversation_id.is_not(None))
            .add_columns(events.version, events.type, events.schema_version, *texts)
            .where(events.conversation_id == streams.conversation_id)
            .where(
                select(typed.version)
                .where(typed.conversation_id == streams.conversation_id)
                .where(typed.type == event_type)
                .exists()
            )
            .order_by(streams.conversation_id, events.version)
        )
        query = store.owner.limit(query, streams)
        rows = connection.execute(query, execution_options={"yield_per": _PAGE})
        for (stream, key, is_fork), found in groupby(rows, key=lambda row: tuple(row[:3])):
            yield key or str(stream), is_fork, [EventText(*row[3:]) for row in found]


def place_of(store: EventStore, event_id: str) -> tuple[UUID, int] | None:
    """Return the conversation and version of an event of the store's owner; None if not found."""
    wanted = uuid_in(event_id)
    if wanted is None:
        return None
    with store.reading() as connection:
        tables = metadata_for(connection.dialect.name).tables
        events, streams = tables["events"].c, tables["conversations"].c
        query = (
            select(events.conversation_id, events.version)
            .where(events.event_id == wanted)
            .where(streams.conversation_id == events.conversation_id)
        )
        row = connection.execute(store.owner.limit(query, streams)).first()
    return None if row is None else (row[0], row[1])
