"""Reading on a read-only connection: what the stored tables lack is folded in memory.

The rows that are needed are copied into an in-memory SQLite database, the tail is folded into it
by the ordinary path, and the ordinary queries run there; so a replica answers as the primary does.
Reading one conversation costs its rows and its tail; reading across conversations copies the
whole projection, but only when something is behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from sqlalchemy import Connection, create_engine, select
from sqlalchemy.pool import StaticPool

from eventstore.sql.schema import metadata_for
from projections import tables
from projections.base import Projection
from projections.engine import resume
from projections.generations import Generation

__all__ = ["Copy", "in_memory"]

Copy = tuple[Connection, Generation]


@contextmanager
def in_memory(
    connection: Connection,
    projection: Projection,
    live: Generation | None,
    conversations: list[UUID],
    *,
    everything: bool,
) -> Iterator[Copy]:
    """Yield a connection to a database in memory that holds these conversations up to date.

    Args:
        connection: The read-only one, in a transaction.
        projection: What to fold.
        live: The generation whose rows to start from, or None to fold from the first event.
        conversations: Those to catch up.
        everything: Copy the rows of all conversations, not only of those.
    """
    engine = create_engine("sqlite://", poolclass=StaticPool)
    copy = Generation(projection, 0, None)
    streams = metadata_for(connection.dialect.name).tables["conversations"]
    own_streams = metadata_for("sqlite").tables["conversations"]
    try:
        with engine.begin() as memory:
            own_streams.create(memory)
            tables.create(memory, projection, 0)
            query = select(streams)
            if not everything:
                query = query.where(streams.c.conversation_id.in_(conversations))
            if rows := [dict(row._mapping) for row in connection.execute(query)]:
                memory.execute(own_streams.insert(), rows)
            if live is not None:
                _copy_rows(connection, memory, live, copy, None if everything else conversations)
            for conversation_id in conversations:
                fold = resume(connection, projection, live, conversation_id)
                fold.buffer.write(memory, copy.tables, conversation_id)
            yield memory, copy
    finally:
        engine.dispose()


def _copy_rows(
    connection: Connection,
    memory: Connection,
    live: Generation,
    copy: Generation,
    conversations: list[UUID] | None,
) -> None:
    for name, table in live.tables.items():
        query = select(table)
        if conversations is not None:
            query = query.where(table.c.conversation_id.in_(conversations))
        rows = [dict(row._mapping) for row in connection.execute(query)]
        if rows:
            memory.execute(copy.tables[name].insert(), rows)
