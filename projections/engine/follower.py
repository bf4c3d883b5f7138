"""Following the feed: catching up every conversation that has gained events.

A generation's ``cursor`` is the place in the feed up to which nothing is behind. Finding the
conversations that are behind therefore costs only what has happened since. Readers across
conversations and the worker share this code, and any number of them can run at once: each
conversation is folded under its own lock, and the cursor only moves if it is where it was read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from operator import attrgetter, itemgetter
from uuid import UUID

from sqlalchemy import Connection, and_, exists, not_, select

from eventstore import EventStore
from eventstore.database import (
    DriverConnection,
    Statement,
    driver_transaction,
    feed,
    metadata_for,
    run_each,
)
from eventstore.owners import ANY_OWNER, Owner
from projections.engine import heads
from projections.engine.catch_up import Begin, CatchUp, Pause, at_once, in_pieces
from projections.engine.folds import is_own_fault
from projections.engine.generations import Generation, find_all_live
from projections.engine.members import EVERYTHING, WorkShare
from projections.engine.projection import Projection
from projections.engine.set_aside import UNAVAILABLE, FoldFailure, catch_up_or_set_aside, noted

__all__ = ["RETRY_S", "catch_up_behind", "due_again", "late", "left_behind", "retry_set_aside"]

Gained = Callable[[Sequence[UUID]], None]
_Part = Sequence[tuple[UUID, list[Generation]]]
_LOOK = 2_000
RETRY_S = 10.0
"""How long after a failure the key of a conversation is requested again."""
_MOST_RETRIED = 100
_TOGETHER = 20  # conversations; fewer if they have gained more than a piece of events
_MOVE = Statement(
    """
    UPDATE projections SET cursor = :after
    WHERE name = :name AND generation = :generation AND cursor IS NOT DISTINCT FROM :before
    """
)


def catch_up_behind(
    store: EventStore,
    projections: Sequence[Projection],
    pause: Pause = at_once,
    *,
    patience_ms: int | None = None,
    owned_by: Owner = ANY_OWNER,
    gained: Gained = lambda conversations: None,
    share: Callable[[], WorkShare] = lambda: EVERYTHING,
) -> int:
    """Catch up every conversation that is behind; return their number.

    Of several workers each catches up what is in its ``share`` at the time. The one with the first
    share moves the cursor, past what all of them have caught up.

    With ``owned_by``, if more than a page of the feed is behind, only this owner's conversations
    are caught up: a reader of its own list need not wait for everyone else's conversations.

    Uses many short transactions: up to 20 conversations or 1,000 events each, then one for the
    cursor. A conversation that cannot be folded is set aside and not counted; it is retried when it
    gains events. ``patience_ms`` limits how long a transaction waits for a lock. ``gained`` is
    called with conversations that have gained events, once these are folded, by any process.
    """
    way = _Way(store, pause, patience_ms, gained, share)
    with driver_transaction(store) as connection:
        found = [each for each in find_all_live(connection, projections) if each is not None]
    # A conversation found behind is caught up in all generations, so its events are read once.
    cursors = dict.fromkeys(each.cursor for each in found)
    if not owned_by.asks:
        return sum(_follow(way, found, cursor) for cursor in cursors)
    return sum(_follow_owner(way, found, cursor, owned_by) for cursor in cursors)


@dataclass(frozen=True, slots=True)
class _Way:
    """How conversations are caught up: the store, the pauses, and the patience."""

    store: EventStore
    pause: Pause = at_once
    patience_ms: int | None = None
    gained: Gained = lambda conversations: None
    share: Callable[[], WorkShare] = lambda: EVERYTHING

    def on_driver(self) -> AbstractContextManager[DriverConnection]:
        """Return a transaction for data that can be rebuilt, and so need not be durable."""
        return driver_transaction(
            self.store, write=True, durable=False, patience_ms=self.patience_ms
        )

    def writing(self) -> AbstractContextManager[Connection]:
        """Return the same, as a SQLAlchemy connection."""
        return self.store.writing(durable=False, patience_ms=self.patience_ms)


def _follow_owner(
    way: _Way, generations: list[Generation], cursor: str | None, owned_by: Owner
) -> int:
    with driver_transaction(way.store) as connection:
        much = feed.behind(connection, cursor, _LOOK).more
    if not much:
        return _follow(way, generations, cursor)
    with way.store.reading() as connection:
        owned = _behind_of(connection, generations, owned_by)
    with driver_transaction(way.store) as connection:
        late = sorted(heads.behind(connection, generations, owned).items(), key=itemgetter(0))
    return _catch_up_each(way, late)


def _behind_of(
    connection: Connection, generations: Sequence[Generation], owned_by: Owner
) -> list[UUID]:
    """Return the owner's conversations that some generation has not folded to the end."""
    tables = metadata_for(connection.dialect.name).tables
    streams, folded = tables["conversations"], tables["projection_heads"]
    current = [
        exists().where(
            folded.c.conversation_id == streams.c.conversation_id,
            folded.c.projection == each.projection.name,
            folded.c.generation == each.number,
            folded.c.version == streams.c.version,
        )
        for each in generations
    ]
    query = select(streams.c.conversation_id).where(not_(and_(*current)))
    return list(connection.execute(owned_by.limit(query, streams.c)).scalars())


def _follow(way: _Way, generations: list[Generation], cursor: str | None) -> int:
    """Catch up events since a cursor, and move it; return how many conversations were behind."""
    looked_at, count, moves = cursor, 0, True
    moved = [each for each in generations if each.cursor == cursor]
    while True:
        with driver_transaction(way.store) as connection:
            page = feed.behind(connection, looked_at, _LOOK)
            behind = heads.behind(connection, generations, page.conversations)
        # The same order everywhere, so that two followers cannot deadlock.
        others = _Others(way)
        count += _catch_up_each(way, others.without(sorted(behind.items(), key=itemgetter(0))))
        way.gained(sorted(each for each in page.conversations if way.share().has(each)))
        # Move past conversations that were set aside too: they must not hold up the others.
        moves = moves and way.share().number == 0 and not others.lack(generations)
        if moves and page.safe != cursor:
            _advance(way, moved, cursor, page.safe)
            cursor = page.safe
        looked_at = page.seen
        if not page.more:
            break
    return count


class _Others:
    """The conversations of a page that are left to other workers."""

    def __init__(self, way: _Way) -> None:
        self._way = way
        self._conversations: list[UUID] = []

    def without(self, behind: _Part) -> Iterator[tuple[UUID, list[Generation]]]:
        """Yield those in this worker's share, which may change meanwhile, and note the others."""
        for conversation_id, lacking in behind:
            if self._way.share().has(conversation_id):
                yield conversation_id, lacking
            else:
                self._conversations.append(conversation_id)

    def lack(self, generations: Sequence[Generation]) -> bool:
        """Whether any of them is still behind, and not set aside."""
        if not self._conversations:
            return False
        with self._way.store.reading() as connection:
            return bool(_unfolded(connection, generations, self._conversations))


def retry_set_aside(
    store: EventStore,
    projections: Sequence[Projection],
    chosen: Callable[[Sequence[FoldFailure]], Sequence[FoldFailure]] = lambda every: every,
) -> None:
    """Retry conversations that were set aside: the code may have been fixed since."""
    with store.reading() as connection:
        live = find_all_live(connection, projections)
        by_key = {(each.projection.name, each.number): each for each in live if each is not None}
        found = noted(connection)
    for failure in chosen(found):
        generation = by_key.get((failure.projection, failure.generation))
        if generation is not None:
            _catch_up_alone(_Way(store), failure.conversation_id, [generation])


def due_again(failures: Sequence[FoldFailure]) -> list[FoldFailure]:
    """Return those whose key was not available, if the last attempt is some time ago."""
    latest = datetime.now(UTC) - timedelta(seconds=RETRY_S)
    found = [each for each in failures if each.error.startswith(UNAVAILABLE)]
    return sorted(
        (each for each in found if each.failed_at <= latest), key=attrgetter("failed_at")
    )[:_MOST_RETRIED]


def _catch_up_each(way: _Way, late: Iterable[tuple[UUID, list[Generation]]]) -> int:
    rest = iter(late)
    count = 0
    while part := [*islice(rest, _TOGETHER)]:
        count += _catch_up(way, part)
    return count


def _catch_up(way: _Way, part: _Part) -> int:
    several = [CatchUp(behind, conversation) for conversation, behind in part]
    try:
        in_pieces(several, Begin(partial(driver_transaction, way.store), way.on_driver), way.pause)
    except Exception as error:
        if not is_own_fault(error):
            raise
        return sum(_catch_up_alone(way, *each) for each in part)
    return len(part)


def _catch_up_alone(way: _Way, conversation: UUID, behind: list[Generation]) -> bool:
    begin = Begin(way.store.reading, way.writing)
    return not catch_up_or_set_aside(begin, behind, conversation)


def left_behind(store: EventStore, projections: Sequence[Projection]) -> int:
    """Return how many conversations some generation has not folded to its end, nor set aside."""
    left: set[UUID] = set()
    with store.reading() as connection:
        found = [each for each in find_all_live(connection, projections) if each is not None]
        for cursor in {each.cursor for each in found}:
            same = [each for each in found if each.cursor == cursor]
            left |= _unfolded(connection, same, feed.gained(connection, cursor))
    return len(left)


def _unfolded(
    connection: Connection, generations: Sequence[Generation], conversations: Sequence[UUID]
) -> set[UUID]:
    """Return those that some of the generations has not folded to the end, nor set aside."""
    behind = heads.behind(connection, generations, conversations)
    if not behind:
        return set()
    aside = {
        (each.conversation_id, each.projection, each.generation)
        for each in noted(connection, generations)
    }
    return {
        conversation
        for conversation, lacking in behind.items()
        if any((conversation, each.projection.name, each.number) not in aside for each in lacking)
    }


def late(connection: Connection, generation: Generation | None) -> list[UUID]:
    """Return every conversation that the generation has not folded to its end.

    Checks all conversations that have gained events since the generation's cursor, in the caller's
    transaction. Does not move the cursor, for read-only connections.
    """
    if generation is None:
        return feed.gained(connection, None)
    gained = feed.gained(connection, generation.cursor)
    return list(heads.behind(connection, [generation], gained))


def _advance(way: _Way, generations: Sequence[Generation], before: str | None, after: str) -> None:
    """Move the cursors, except those that another process has moved since they were read.

    Moves none if the log was restored to an older state that does not have the new position.
    """
    with way.on_driver() as connection:
        if not feed.holds(connection, after):
            return
        run_each(
            connection,
            _MOVE.on(connection.backend),
            [
                {
                    "name": generation.projection.name,
                    "generation": generation.number,
                    "before": before,
                    "after": after,
                }
                for generation in generations
            ],
        )
