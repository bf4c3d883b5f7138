"""Reading without writing, on a replica or beside a lock: what is missing is folded in memory.

The rows that are needed are copied into an in-memory SQLite database, the tail is folded into it
by the ordinary path, and the ordinary queries run there; so a replica answers as the primary does,
but for the ranks and the order of what a search finds, which are SQLite's.
Reading one conversation costs its rows and its tail; reading across conversations copies the
whole projection, but only when something is behind. In the same way a conversation is read as it
once was: nothing is copied then, and its events are folded from the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TypeVar
from uuid import UUID

from sqlalchemy import Connection, create_engine, select
from sqlalchemy.pool import StaticPool

from eventstore import EventStore
from eventstore.errors import ConversationNotFound
from eventstore.log import get_logger
from eventstore.sql.backend import AnyConnection
from eventstore.sql.schema import metadata_for
from eventstore.sql.streams import get_stream
from projections.engine import heads, tables
from projections.engine.catch_up import fold_anew, resume
from projections.engine.folds import blamed
from projections.engine.follower import late
from projections.engine.generations import IN_MEMORY, Generation, find_live
from projections.engine.projection import Projection
from projections.errors import ProjectionFailed
from projections.tokens.counts import TokenCounts, is_there

__all__ = ["Copy", "in_memory", "known_counts", "read_past", "read_replica", "standing_of"]

T = TypeVar("T")
Copy = tuple[Connection, Generation]

_log = get_logger("projections.replica")
_BESIDE = ("conversations", "writer_leases")
"""Tables of the log that queries of views look at."""


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
        everything: Copy the rows of all conversations, not only of those; one that cannot be
            folded keeps the rows that it had, and is logged.

    Raises:
        ProjectionFailed: One cannot be folded, and not everything was asked for.
    """
    with _memory([projection]) as (memory, [copy]):
        for name in _BESIDE:
            table, own = (
                metadata_for(dialect).tables[name]
                for dialect in (connection.dialect.name, "sqlite")
            )
            own.create(memory)
            query = select(table)
            if not everything:
                query = query.where(table.c.conversation_id.in_(conversations))
            if rows := [dict(row._mapping) for row in connection.execute(query)]:
                memory.execute(own.insert(), rows)
        if live is not None:
            _copy_rows(connection, memory, live, copy, None if everything else conversations)
        for conversation_id in conversations:
            counts = known_counts(connection, conversation_id)
            try:
                fold = resume(connection, projection, live, conversation_id, counts)
                with blamed(copy, conversation_id, fold.version), memory.begin_nested():
                    fold.buffer.write(memory, copy.tables, conversation_id)
            except ProjectionFailed as error:
                if not everything:
                    raise
                _log.warning(
                    "left out",
                    conversation_id=str(conversation_id),
                    projection=error.projection,
                    version=error.version,
                    error=type(error.__cause__ or error).__name__,
                )
        yield memory, copy


def known_counts(connection: Connection, conversation_id: UUID) -> TokenCounts:
    """Return the stored token counts of a conversation, on a connection that may lack the table."""
    return TokenCounts(conversation_id, connection if is_there(connection) else None)


@contextmanager
def _memory(projections: Sequence[Projection]) -> Iterator[tuple[Connection, list[Generation]]]:
    engine = create_engine("sqlite://", poolclass=StaticPool, hide_parameters=True)
    copies = [Generation(projection, IN_MEMORY, None) for projection in projections]
    try:
        with engine.begin() as memory:
            for projection in projections:
                tables.create(memory, projection, IN_MEMORY)
            yield memory, copies
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
        query = tables.shown(table, connection.dialect.name)
        if conversations is not None:
            query = query.where(table.c.conversation_id.in_(conversations))
        rows = [dict(row._mapping) for row in connection.execute(query)]
        if rows:
            memory.execute(copy.tables[name].insert(), rows)


def read_replica(
    store: EventStore,
    projections: Sequence[Projection],
    conversation_id: UUID | None,
    read: Callable[[Sequence[Copy]], T],
) -> T:
    """Return what a query answers where nothing may be written; arguments as of `read_current`."""
    with store.reading(snapshot=True) as connection, ExitStack() as stack:
        copies = [
            _replica_copy(stack, connection, projection, conversation_id)
            for projection in projections
        ]
        if conversation_id is not None:
            stack.enter_context(known_counts(connection, conversation_id).active())
        return read(copies)


def _replica_copy(
    stack: ExitStack, connection: Connection, projection: Projection, conversation_id: UUID | None
) -> Copy:
    if conversation_id is not None:
        [standing] = standing_of(connection, [projection], conversation_id)
        live, behind = standing.generation, [] if standing.current else [conversation_id]
    else:
        live = find_live(connection, projection)
        behind = late(connection, live)
    if live is not None and not behind:
        return connection, live
    everything = conversation_id is None
    return stack.enter_context(
        in_memory(connection, projection, live, behind, everything=everything)
    )


def standing_of(
    connection: AnyConnection, projections: Sequence[Projection], conversation_id: UUID
) -> list[heads.Standing]:
    """Return how the live generation of each projection stands.

    Raises:
        ConversationNotFound: There is no such conversation.
    """
    found = heads.standing(connection, projections, conversation_id)
    if found is None:
        raise ConversationNotFound(conversation_id)
    return found


def read_past(
    store: EventStore,
    projections: Sequence[Projection],
    conversation_id: UUID,
    version: int,
    read: Callable[[Sequence[Copy]], T],
) -> T:
    """Return what a query would have answered when the conversation was at a version.

    The events up to and including it are folded anew in memory: nothing is written, and it costs
    what they cost. What was erased since is missing, as it is from the present.

    Raises:
        ConversationNotFound: No conversation has this id.
        ValueError: The conversation has not come to this version.
        ProjectionFailed: A fold raised.
    """
    with store.reading(snapshot=True) as connection:
        current = get_stream(connection, conversation_id).version
        if not 0 <= version <= current:
            raise ValueError(
                f"conversation {conversation_id} has no version {version}: "
                f"ask for one from 0 to {current}"
            )
        counts, before = known_counts(connection, conversation_id), version + 1
        with _memory(projections) as (memory, copies), counts.active():
            for fold in fold_anew(
                connection, copies, conversation_id, before=before, counts=counts
            ):
                fold.buffer.write(memory, fold.generation.tables, conversation_id)
            return read([(memory, copy) for copy in copies])
