"""How a read finds its rows: caught up first, or folded in memory, or as they once were.

`Views` says what is asked; this says of which tables. What is read of several projections is read
in one snapshot, so that it is of one version.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import TypeVar
from uuid import UUID

from sqlalchemy import Connection

from eventstore import EventStore
from eventstore.errors import ConversationNotFound
from eventstore.sql.streams import get_stream
from projections.base import Projection
from projections.engine import catch_up, is_current
from projections.following import catch_up_behind, late
from projections.generations import Generation, GenerationGone, find_live, gone
from projections.replica import Copy, as_of, in_memory
from projections.setup import install_all

__all__ = ["Reading", "read_current", "read_past"]

T = TypeVar("T")
Reading = Callable[[Sequence[Copy]], T]
"""A query: given a connection and a generation of each projection, in the order asked for."""

_LOOKS = 10
"""How many cut-overs in a row a read may meet."""


def read_current(
    store: EventStore,
    projections: Sequence[Projection],
    conversation_id: UUID | None,
    read: Reading[T],
) -> T:
    """Return what a query answers about one conversation as it is now, or about all of them.

    Raises:
        ConversationNotFound: There is none of this id.
        ProjectionFailed: A fold raised.
    """
    for _ in range(_LOOKS):
        with suppress(GenerationGone), gone():
            return _read_once(store, projections, conversation_id, read)
        # A cut-over came between two looks. If it was to another version, ours is gone too.
        install_all(store)
    return _read_once(store, projections, conversation_id, read)


def read_past(
    store: EventStore,
    projections: Sequence[Projection],
    conversation_id: UUID,
    version: int,
    read: Reading[T],
) -> T:
    """Return what a query would have answered when the conversation was at a version.

    The events up to and including it are folded anew in memory: nothing is written, and it costs
    what they cost. What was erased since is missing, as it is from the present.

    Raises:
        ConversationNotFound: There is none of this id.
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
        with as_of(connection, projections, conversation_id, version) as copies:
            return read(copies)


def _read_once(
    store: EventStore,
    projections: Sequence[Projection],
    conversation_id: UUID | None,
    read: Reading[T],
) -> T:
    if store.read_only:
        return _read_replica(store, projections, conversation_id, read)
    if conversation_id is None:
        return _read_across(store, projections, read)
    # A snapshot, since what a view reads in several queries must be of one version.
    with store.reading(snapshot=True) as connection:
        generations = [_live(connection, projection) for projection in projections]
        if all(_known(connection, each, conversation_id) for each in generations):
            return read([(connection, each) for each in generations])
    with store.writing(durable=False) as connection:
        generations = [_live(connection, projection) for projection in projections]
        catch_up(connection, generations, conversation_id)
        return read([(connection, each) for each in generations])


def _read_across(store: EventStore, projections: Sequence[Projection], read: Reading[T]) -> T:
    with store.reading() as connection:
        before = [_live(connection, projection).number for projection in projections]
    catch_up_behind(store, projections)
    with store.reading(snapshot=True) as connection:
        generations = [_live(connection, projection) for projection in projections]
        if before != [each.number for each in generations]:
            # The new one may lack what was appended while it was built.
            raise GenerationGone(", ".join(each.projection.name for each in generations))
        return read([(connection, each) for each in generations])


def _read_replica(
    store: EventStore,
    projections: Sequence[Projection],
    conversation_id: UUID | None,
    read: Reading[T],
) -> T:
    with store.reading(snapshot=True) as connection, ExitStack() as stack:
        return read(
            [
                _replica_copy(stack, connection, projection, conversation_id)
                for projection in projections
            ]
        )


def _replica_copy(
    stack: ExitStack, connection: Connection, projection: Projection, conversation_id: UUID | None
) -> Copy:
    live = find_live(connection, projection)
    if conversation_id is not None:
        get_stream(connection, conversation_id)
        behind = [conversation_id]
        if live is not None and is_current(connection, live, conversation_id):
            behind = []
    else:
        behind = late(connection, live)
    if live is not None and not behind:
        return connection, live
    everything = conversation_id is None
    return stack.enter_context(
        in_memory(connection, projection, live, behind, everything=everything)
    )


def _live(connection: Connection, projection: Projection) -> Generation:
    found = find_live(connection, projection)
    if found is None:
        raise GenerationGone(projection.name)
    return found


def _known(connection: Connection, generation: Generation, conversation_id: UUID) -> bool:
    """Whether the conversation is caught up; raise if there is none of this id."""
    current = is_current(connection, generation, conversation_id)
    if current is None:
        raise ConversationNotFound(conversation_id)
    return current
