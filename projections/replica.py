"""Reading without writing, on a replica or while a lock is held: missing events fold in memory.

The required rows are copied into an in-memory SQLite database, the regular code folds the tail into
it, and the regular queries run on it. A replica therefore answers as the primary does, except that
the ranks and the order of search hits are SQLite's.
Reading one conversation costs its rows and its tail. Reading across conversations copies the whole
projection, but only if something is behind. A conversation's past is read the same way: nothing is
copied, and its events are folded from the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TypeVar
from uuid import UUID

from sqlalchemy import Connection, create_engine, select
from sqlalchemy.pool import StaticPool

from eventstore import EventStore
from eventstore.database import AnyConnection, absent, get_stream, metadata_for
from eventstore.standby import StandbyBehind
from eventstore.telemetry.log import get_logger
from projections.engine import heads, tables
from projections.engine.catch_up import fold_from_start, resume
from projections.engine.folds import blamed
from projections.engine.follower import late
from projections.engine.generations import IN_MEMORY, Generation, find_live
from projections.engine.projection import Projection
from projections.errors import ProjectionFailed
from projections.tokens.counts import TokenCounts, is_there

__all__ = ["Copy", "in_memory", "known_counts", "read_past", "read_replica", "statuses_of"]

T = TypeVar("T")
Copy = tuple[Connection, Generation]

_log = get_logger("projections.replica")
_BESIDE = ("conversations", "writer_leases")
"""The log's tables that queries of views use."""


@contextmanager
def in_memory(
    connection: Connection,
    projection: Projection,
    live: Generation | None,
    conversations: list[UUID],
    *,
    everything: bool,
) -> Iterator[Copy]:
    """Yield a connection to an in-memory database in which these conversations are up to date.

    Args:
        connection: The read-only connection, in a transaction.
        projection: The projection to fold.
        live: The generation whose rows to start from, or None to fold from the first event.
        conversations: The conversations to catch up.
        everything: Copy the rows of all conversations, not only of those. A conversation that
            cannot be folded keeps its old rows, and is logged.

    Raises:
        ProjectionFailed: A conversation cannot be folded, and ``everything`` is false.
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
    """Return a conversation's stored token counts; the table may be missing."""
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
    *,
    at_least: int | None = None,
) -> T:
    """Return a query's answer without writing anything; arguments as in `read_current`.

    With ``at_least`` there is a primary that may be asked instead: for a conversation that is not
    at this version here, and for a read across conversations that would copy a whole projection.

    Raises:
        StandbyBehind: The primary has to be asked.
    """
    with store.reading(snapshot=True) as connection, ExitStack() as stack:
        copies = [
            _replica_copy(stack, connection, projection, conversation_id, at_least)
            for projection in projections
        ]
        if conversation_id is not None:
            stack.enter_context(known_counts(connection, conversation_id).active())
        return read(copies)


def _replica_copy(
    stack: ExitStack,
    connection: Connection,
    projection: Projection,
    conversation_id: UUID | None,
    at_least: int | None,
) -> Copy:
    if conversation_id is not None:
        [status] = statuses_of(connection, [projection], conversation_id)
        if status.version < (at_least or 0):
            raise StandbyBehind(f"conversation {conversation_id} is at version {status.version}")
        live, behind = status.generation, [] if status.current else [conversation_id]
    else:
        live = find_live(connection, projection)
        behind = late(connection, live)
    if live is not None and not behind:
        return connection, live
    everything = conversation_id is None
    if everything and at_least is not None:
        raise StandbyBehind(f"{projection.name} lacks events of {len(behind)} conversations")
    return stack.enter_context(
        in_memory(connection, projection, live, behind, everything=everything)
    )


def statuses_of(
    connection: AnyConnection, projections: Sequence[Projection], conversation_id: UUID
) -> list[heads.HeadStatus]:
    """Return how far the live generation of each projection has folded the conversation.

    Raises:
        ConversationNotFound: No conversation has this id.
    """
    found = heads.statuses(connection, projections, conversation_id)
    if found is None:
        raise absent(connection, conversation_id)
    return found


def read_past(
    store: EventStore,
    projections: Sequence[Projection],
    conversation_id: UUID,
    version: int,
    read: Callable[[Sequence[Copy]], T],
) -> T:
    """Return what a query would have answered when the conversation was at a version.

    The events up to and including that version are folded from scratch in memory. Nothing is
    written; the cost grows with the number of events. Events erased since then are missing, as they
    are from the present.

    Raises:
        ConversationNotFound: No conversation has this id.
        ValueError: The conversation has not reached this version.
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
            for fold in fold_from_start(
                connection, copies, conversation_id, before=before, counts=counts
            ):
                fold.buffer.write(memory, fold.generation.tables, conversation_id)
            return read([(memory, copy) for copy in copies])
