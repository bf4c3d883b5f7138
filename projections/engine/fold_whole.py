"""Many conversations folded from their first events, in memory, as a rebuild does page by page.

Most of them are folded outside any transaction: SQLite's write-ahead log begins anew only where
nobody reads what is in it, and would grow for as long as the rebuild takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from uuid import UUID

from sqlalchemy import Connection

from eventstore import EventStore
from eventstore.erasure import erasure_count
from eventstore.events import RecordedEvent
from eventstore.sql.read_whole import WholeStreams
from projections.engine.catch_up import fold_anew
from projections.engine.folds import Fold, begin
from projections.engine.generations import Generation
from projections.engine.pages import DAMAGED
from projections.tokens.counts import TokenCounts, known_of

__all__ = ["fold_whole"]


def fold_whole(
    store: EventStore, generations: Sequence[Generation], ids: Sequence[UUID]
) -> tuple[int, Mapping[UUID, TokenCounts], Mapping[UUID, list[Fold]]]:
    """Return how often these had been erased, what was counted of each, and the folds of each.

    Raises:
        ProjectionFailed: A fold raised, or an event cannot be read.
    """
    with store.reading() as connection:
        erasures = erasure_count(connection, ids)
        counts = known_of(connection, ids)
        streams = WholeStreams.read(connection, ids)
    folded: dict[UUID, list[Fold]] = {}
    others: list[UUID] = []
    for each, known in counts.items():
        events = None if known.looks else _taken(streams, each)
        if events is None:
            others.append(each)
        else:
            folded[each] = _fold(generations, each, events, known)
    if others:
        with store.reading() as connection:
            folded.update(_fold_others(connection, generations, streams, counts, others))
    return erasures, counts, {each: folded[each] for each in counts}


def _fold_others(
    connection: Connection,
    generations: Sequence[Generation],
    streams: WholeStreams,
    counts: Mapping[UUID, TokenCounts],
    ids: Sequence[UUID],
) -> Iterator[tuple[UUID, list[Fold]]]:
    """Yield the folds of those that are sealed, in blobs, forked, damaged, or have many counts."""
    for each in ids:
        known = counts[each]
        known.go_on_in(connection)
        events = _taken(streams, each, connection)
        if events is None:
            yield each, fold_anew(connection, generations, each, counts=known)
        else:
            yield each, _fold(generations, each, events, known)


def _taken(
    streams: WholeStreams, conversation_id: UUID, connection: Connection | None = None
) -> list[RecordedEvent] | None:
    with suppress(*DAMAGED):  # Read once more, it is told which event it is.
        return streams.take(conversation_id, connection)
    return None


def _fold(
    generations: Sequence[Generation],
    conversation_id: UUID,
    events: Sequence[RecordedEvent],
    counts: TokenCounts,
) -> list[Fold]:
    folds = [begin(generation) for generation in generations]
    counts.read_ahead()
    for fold in folds:
        fold.feed(events)
        fold.fill(counts, conversation_id)
    return folds
