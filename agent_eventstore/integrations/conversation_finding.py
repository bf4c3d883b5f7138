"""Which conversations keep events of a type, and in which of them an event stands."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from sqlalchemy import select

from eventstore import EventStore
from eventstore.ids import uuid_in
from eventstore.sql.schema import metadata_for

__all__ = ["keys_with", "place_of"]


def keys_with(store: EventStore, event_type: str, *, begins: str = "") -> Iterator[str]:
    """Iterate over the keys, or else ids, of all conversations with an event of a type.

    With ``begins``, of those alone whose key begins so.
    """
    with store.reading() as connection:
        tables = metadata_for(connection.dialect.name).tables
        events, streams = tables["events"].c, tables["conversations"].c
        query = (
            select(streams.conversation_id, streams.key)
            .where(
                select(events.version)
                .where(events.conversation_id == streams.conversation_id)
                .where(events.type == event_type)
                .exists()
            )
            .order_by(streams.conversation_id)
        )
        if begins:
            query = query.where(streams.key.startswith(begins, autoescape=True))
        found = connection.execute(store.owner.limit(query, streams)).all()
    return (row[1] or str(row[0]) for row in found)


def place_of(store: EventStore, event_id: str) -> tuple[UUID, int] | None:
    """Return in which of the owner's conversations an event stands, and where; None if in none."""
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
