"""Which conversation an imported source became, for sources that state no id of their own.

Such a source is known by a digest of its content alone. A digest lets whoever guesses the content
be sure of it, so the row lives no longer than the content: erasing any part of the conversation
deletes it, and the ids of conversation and events tell nothing.
"""

from __future__ import annotations

from uuid import UUID, uuid4

from sqlalchemy import Connection, delete, insert, select, text

from eventstore.sql.schema import metadata_for

__all__ = ["claim", "find", "forget"]


def find(connection: Connection, source: str) -> UUID | None:
    """Return the conversation that a source became; None if it became none, or that was erased."""
    table = metadata_for(connection.dialect.name).tables["import_sources"]
    query = select(table.c.conversation_id).where(table.c.source == source)
    return connection.execute(query).scalars().first()


def claim(connection: Connection, source: str) -> UUID:
    """Return the conversation of a source, in the caller's transaction; a new id for a new one."""
    if connection.dialect.name == "postgresql":
        # A unique index would not hold the conversation's id, by which tables are distributed.
        lock = text("SELECT pg_advisory_xact_lock(hashtextextended(:source, 11))")
        connection.execute(lock, {"source": source})
    found = find(connection, source)
    if found is None:
        # Not one of `new_id`: those of one import begin alike, and people name ids by beginnings.
        found = uuid4()
        table = metadata_for(connection.dialect.name).tables["import_sources"]
        connection.execute(insert(table).values(conversation_id=found, source=source))
    return found


def forget(connection: Connection, conversation_id: UUID) -> None:
    """Delete what tells the source of a conversation, in the caller's transaction."""
    table = metadata_for(connection.dialect.name).tables["import_sources"]
    connection.execute(delete(table).where(table.c.conversation_id == conversation_id))
