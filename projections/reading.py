"""How a read finds its rows: catch up first, or fold in memory.

`Views` decides what to ask; this module decides which tables answer. Reads of several projections
share one snapshot, so that all are of the same version; the query runs in a transaction that only
reads. If a lock is not granted within half a second, new events are folded in memory instead, as on
a replica.

A read within a turn nearly always finds only new rows, and few of them. It answers from the rows
that it has just folded, keeps them in memory, and saves many at once. No answer depends on this:
folds are pure, so a process that lacks rows that another process kept, or lost when it was killed,
folds them again with the same result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar
from uuid import UUID
from weakref import WeakSet

from sqlalchemy import Connection

from eventstore import EventStore
from eventstore.database import (
    AnyConnection,
    DriverConnection,
    driver_transaction,
    lacks_connection,
    seen_version,
    standby_of,
)
from eventstore.erasure.erase import erasure_count, erasure_lock
from eventstore.errors import DatabaseBusy
from eventstore.owners import ANY_OWNER, Owner
from eventstore.standby import StandbyBehind
from eventstore.telemetry.log import get_logger
from projections.engine import heads
from projections.engine.catch_up import PATIENCE_MS, PIECE, Begin, CatchUp, catch_up, in_pieces
from projections.engine.follower import catch_up_behind, due_again, retry_set_aside
from projections.engine.generations import Generation, all_live, find_all_live, gone
from projections.engine.head_cache import current_head_and_events, snapshot_later
from projections.engine.heads import FoldHead
from projections.engine.projection import Projection
from projections.engine.set_aside import FoldFailure, noted
from projections.engine.setup import install_all
from projections.errors import GenerationGone
from projections.replica import Copy, read_replica, statuses_of
from projections.tokens.counts import TokenCounts

__all__ = [
    "MOST_UNSAVED",
    "DriverReading",
    "Reading",
    "read_current",
    "read_on_driver",
    "read_shown",
    "save_current",
]

C = TypeVar("C", Connection, DriverConnection)
T = TypeVar("T")
Reading = Callable[[Sequence[Copy]], T]
"""A query; takes a connection and a generation of each projection, in the requested order."""
DriverReading = Callable[[AnyConnection, Generation, FoldHead | None], T]
"""A query that uses the driver directly; it gets the head if that was just written."""
_Query = Callable[[C, Sequence[Generation], Sequence[FoldHead]], T]


_log = get_logger("projections")
_TOLD: WeakSet[EventStore] = WeakSet()
_LOOKS = 10
"""How many cut-overs in a row a read tolerates."""

MOST_UNSAVED = 16
"""Number of a conversation's events from which a read saves what it folded, in its own transaction.

Fewer events stay in memory, where the next read continues; another process folds them again.
"""

SAVED_TOGETHER = 250
"""Number of events that `save_current` writes in one transaction."""

SAVES_S = 1.0
"""After how many seconds `save_current` begins no further transaction."""


def read_current(
    store: EventStore,
    projections: Sequence[Projection],
    conversation_id: UUID | None,
    read: Reading[T],
    *,
    owned_by: Owner = ANY_OWNER,
) -> T:
    """Return a query's answer about the current state of one conversation, or of all of them.

    ``owned_by`` says that the query reads only this owner's conversations: if much is behind, only
    they are caught up.

    Raises:
        ConversationNotFound: No conversation has this id.
        ProjectionFailed: A fold raised.
    """
    return _looking(
        store, projections, lambda: _read_once(store, projections, conversation_id, read, owned_by)
    )


def read_shown(
    store: EventStore,
    projections: Sequence[Projection],
    conversation_id: UUID | None,
    read: Reading[T],
    *,
    owned_by: Owner = ANY_OWNER,
) -> T:
    """Return a query's answer for a screen or a report: from the store's standby, if it has one.

    The standby may lack what other processes wrote last, but nothing that this store wrote. What a
    writer decides by needs `read_current`.

    Raises:
        ConversationNotFound: No conversation has this id.
        ProjectionFailed: A fold raised.
    """
    if (standby := standby_of(store)) is not None:

        def look(replica: EventStore, version: int) -> T:
            if (owner := store.owner).asks:
                replica = replica.for_owner(tenant_id=owner.tenant_id, user_id=owner.user_id)
            return read_replica(replica, projections, conversation_id, read, at_least=version)

        with suppress(StandbyBehind, GenerationGone), gone():
            return standby.answered(conversation_id, look)
    return read_current(store, projections, conversation_id, read, owned_by=owned_by)


def read_on_driver(
    store: EventStore,
    projection: Projection,
    conversation_id: UUID,
    read: DriverReading[T],
    *,
    last: FoldHead | None = None,
) -> T:
    """Do what `read_current` does for one conversation, with driver calls only.

    Args:
        store: The store.
        projection: The projection to read.
        conversation_id: The conversation.
        read: The query.
        last: The conversation's head when this process last read it. If this store has appended
            since, the conversation is caught up without checking for new events first. ``read``
            may then get a head with ``unsaved`` rows, which it may keep as the next ``last``, or
            it raises `NotSaved` to be called again once they are saved.

    Raises:
        ConversationNotFound: No conversation has this id.
        ProjectionFailed: A fold raised.
    """
    projections = (projection,)

    def on_copy(copies: Sequence[Copy]) -> T:
        return read(*copies[0], None)

    if store.read_only:
        return read_current(store, projections, conversation_id, on_copy)

    def query(
        connection: DriverConnection, generations: Sequence[Generation], heads: Sequence[FoldHead]
    ) -> T:
        return read(connection, generations[0], heads[0] if heads else None)

    def beside_a_lock(look: Callable[[], T]) -> T:
        return _or_in_memory(store, projections, conversation_id, on_copy, look)

    begin = _Begin(
        partial(driver_transaction, store),
        partial(driver_transaction, store, write=True, durable=False, patience_ms=PATIENCE_MS),
        partial(driver_transaction, store, snapshot=True),
    )
    if last is not None and (
        last.unsaved is not None or seen_version(store, conversation_id) > last.version
    ):
        with suppress(GenerationGone), gone():
            generations = [last.generation]
            return beside_a_lock(
                lambda: _read_new(begin, generations, conversation_id, query, last)
            )
    return _looking(
        store,
        projections,
        lambda: beside_a_lock(lambda: _read_one(begin, projections, conversation_id, query)),
    )


def save_current(
    store: EventStore, projections: Sequence[Projection], conversation_id: UUID
) -> bool:
    """Write into the tables what is not folded of a conversation, for readers with plain SQL.

    One transaction that reads and one that writes for every `SAVED_TOGETHER` events, which wait
    neither for the disk nor long for a lock. What cannot be written within `SAVES_S` seconds is
    left to the next read or to the worker.

    Returns:
        Whether the tables now have all events.

    Raises:
        ProjectionFailed: A fold raised.
        DatabaseBusy: A lock was not granted; nothing more was written.
    """
    until = time.monotonic() + SAVES_S
    begin = partial(driver_transaction, store, write=True, durable=False, patience_ms=PATIENCE_MS)
    with gone():
        with driver_transaction(store) as connection:
            statuses = statuses_of(connection, projections, conversation_id)
            live = all_live(projections, [each.generation for each in statuses])
            lacking = [
                each for each, found in zip(live, statuses, strict=True) if not found.current
            ]
            if not lacking:
                return True
            catching_up = CatchUp(lacking, conversation_id)
            with catching_up.blamed():
                catching_up.fold(connection, SAVED_TOGETHER)
        while catching_up.pending:
            with catching_up.blamed(), begin() as connection:
                catching_up.save(connection)
            if catching_up.done or time.monotonic() >= until:
                break
            with catching_up.blamed(), driver_transaction(store) as connection:
                catching_up.fold(connection, SAVED_TOGETHER)
    return catching_up.done


def _looking(store: EventStore, projections: Sequence[Projection], look: Callable[[], T]) -> T:
    for _ in range(_LOOKS):
        with suppress(GenerationGone), gone():
            return look()
        # A cut-over came between two queries. If it was to another version, ours is gone too.
        install_all(store, projections)
    return look()


def _read_once(
    store: EventStore,
    projections: Sequence[Projection],
    conversation_id: UUID | None,
    read: Reading[T],
    owned_by: Owner,
) -> T:
    if store.read_only:
        return read_replica(store, projections, conversation_id, read)
    if conversation_id is None:
        return _or_in_memory(
            store, projections, None, read, lambda: _read_across(store, projections, read, owned_by)
        )
    begin = _Begin(
        store.reading,
        partial(store.writing, durable=False, patience_ms=PATIENCE_MS),
        partial(store.reading, snapshot=True),
    )

    def query(
        connection: Connection, generations: Sequence[Generation], _: Sequence[FoldHead]
    ) -> T:
        return read([(connection, each) for each in generations])

    return _or_in_memory(
        store,
        projections,
        conversation_id,
        read,
        lambda: _read_one(begin, projections, conversation_id, query),
    )


def _or_in_memory(
    store: EventStore,
    projections: Sequence[Projection],
    conversation_id: UUID | None,
    read: Reading[T],
    look: Callable[[], T],
) -> T:
    """Return the answer of ``look``; if a lock prevents catching up, read as a replica does."""
    try:
        return look()
    except DatabaseBusy as busy:
        if lacks_connection(busy):
            raise
        log = _log.debug if store in _TOLD else _log.info
    _TOLD.add(store)
    log("folded in memory", reason="a lock is held", conversation_id=str(conversation_id or "all"))
    return read_replica(store, projections, conversation_id, read)


@dataclass(frozen=True, slots=True)
class _Begin(Begin[C]):
    """How a read begins its transactions, one of them a snapshot."""

    snapshot: Callable[[], AbstractContextManager[C]]


def _read_one(
    begin: _Begin[C],
    projections: Sequence[Projection],
    conversation_id: UUID,
    query: _Query[C, T],
) -> T:
    # A snapshot, because all queries of a view must read the same version.
    with begin.snapshot() as connection:
        statuses = statuses_of(connection, projections, conversation_id)
        generations = all_live(projections, [each.generation for each in statuses])
        current = all(each.current for each in statuses)
        if current:
            answer = _Answer.of(connection, generations, conversation_id, query)
    if current:
        return answer.saved(begin)
    # Use the generations found above: after a cut-over, their missing tables raise an error.
    return _read_new(begin, generations, conversation_id, query)


def _read_new(
    begin: _Begin[C],
    generations: Sequence[Generation],
    conversation_id: UUID,
    query: _Query[C, T],
    last: FoldHead | None = None,
) -> T:
    """Catch a conversation up, and read once all generations are at the same version.

    With ``last``, the query does not need events folded since then to be in the tables.
    """
    for attempt in range(_LOOKS):
        catching_up = CatchUp(generations, conversation_id, last=None if attempt else last)
        if last is not None and not attempt:
            early = _answered_ahead(begin, catching_up, conversation_id, query, last)
            if early is not None:
                return early.value
        if not catching_up.done:
            with catching_up.blamed():
                in_pieces([catching_up], begin)
        with begin.snapshot() as connection:
            found = _heads_after(connection, generations, conversation_id, catching_up)
            version = found[0].version
            # Another process may have caught up one of them since, or erased.
            together = version >= catching_up.version and all(
                head.version == version for head in found
            )
            if together:
                answer = _Answer.of(connection, generations, conversation_id, query, found)
        if together:
            return answer.saved(begin)
    with begin.writing() as connection:
        catch_up(connection, generations, conversation_id)
        found = heads.of(connection, generations, conversation_id)
        answer = _Answer.of(connection, generations, conversation_id, query, found)
    return answer.saved(begin)


def _heads_after(
    connection: AnyConnection,
    generations: Sequence[Generation],
    conversation_id: UUID,
    catching_up: CatchUp,
) -> list[FoldHead]:
    """Return the heads, each with the place from which a catch-up continued."""
    found = heads.of(connection, generations, conversation_id)
    places = zip(found, catching_up.found_at, strict=True)
    return [replace(head, before=place) for head, place in places]


def _answered_ahead(
    begin: _Begin[C],
    catching_up: CatchUp,
    conversation_id: UUID,
    query: _Query[C, T],
    last: FoldHead,
) -> _Answer[T] | None:
    """Answer in the snapshot in which a conversation is folded; save once enough has accumulated.

    That snapshot is a single statement, as long as the query asks the database for nothing else.

    None if the query needs the saved tables, or another process has interfered.
    """
    answer: _Answer[T] | None = None
    with begin.reading() as connection:
        new = current_head_and_events(connection, last, conversation_id, PIECE)
    snapshot = begin.snapshot
    if new is not None:
        now = lambda: catching_up.ahead or last  # noqa: E731
        snapshot = partial(snapshot_later, connection, begin.snapshot, now, conversation_id)
    with snapshot() as connection:
        with catching_up.blamed():
            catching_up.fold(connection, new=new)
        if (head := catching_up.ahead) is not None:
            with suppress(heads.NotSaved):
                made, counts = [head.generation], catching_up.counts
                answer = _Answer.of(connection, made, conversation_id, query, [head], counts)
            if answer is not None and catching_up.pending < MOST_UNSAVED:
                return answer
            with catching_up.blamed():
                catching_up.bind(connection)
    if catching_up.pending:
        with catching_up.blamed(), begin.writing() as connection:
            catching_up.save(connection)
    return answer if catching_up.done else None


@dataclass(frozen=True, slots=True)
class _Answer(Generic[T]):
    """A query's answer, and the tokens that the query counted."""

    value: T
    conversation_id: UUID
    counts: TokenCounts
    erasures: int

    @classmethod
    def of(
        cls,
        connection: C,
        generations: Sequence[Generation],
        conversation_id: UUID,
        query: _Query[C, T],
        found: Sequence[FoldHead] = (),
        counts: TokenCounts | None = None,
    ) -> _Answer[T]:
        """Run the query, in a transaction that sees one state of the database.

        New token counts are added to ``counts``, if given.
        """
        counts = counts or TokenCounts(conversation_id)
        counts.look_in(connection)
        with counts.active():
            value = query(connection, generations, found)
        erasures = found[0].erasures if found else None
        if erasures is None:
            erasures = erasure_count(connection, [conversation_id]) if counts.has_new else 0
        return cls(value, conversation_id, counts, erasures)

    def saved(self, begin: _Begin[C]) -> T:
        """Store the token counts and return the answer; a busy database does not fail the read."""
        if self.counts.has_new:
            with suppress(DatabaseBusy), begin.writing() as connection:
                erasure_lock(connection, self.conversation_id)
                # Events erased since the read must leave nothing behind.
                if erasure_count(connection, [self.conversation_id]) == self.erasures:
                    self.counts.write(connection)
        return self.value


def _read_across(
    store: EventStore, projections: Sequence[Projection], read: Reading[T], owned_by: Owner
) -> T:
    with store.reading() as connection:
        found = all_live(projections, find_all_live(connection, projections))
        before = [each.number for each in found]
    catch_up_behind(store, projections, patience_ms=PATIENCE_MS, owned_by=owned_by)
    retried = False
    while True:
        with store.reading(snapshot=True) as connection:
            generations = all_live(projections, find_all_live(connection, projections))
            if before != [each.number for each in generations]:
                # The new generation may lack events that were appended while it was built.
                raise GenerationGone(", ".join(each.projection.name for each in generations))
            lacking = noted(connection, generations)
            if retried or not due_again(lacking):
                _tell_of_set_aside(lacking)
                return read([(connection, each) for each in generations])
        retry_set_aside(store, projections, due_again)
        retried = True


def _tell_of_set_aside(lacking: Sequence[FoldFailure]) -> None:
    """Log how many conversations lack their newest events."""
    if count := len({each.conversation_id for each in lacking}):
        _log.warning("read without what is set aside", conversations=count)
