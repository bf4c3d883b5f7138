"""Following the feed: catching up every conversation that has gained events.

A generation remembers in its ``cursor`` the place in the feed up to which nothing is behind; so
finding those that are costs what has happened since, and nothing when nothing has. Readers across
conversations and the worker share this path, and any number of them may run at once: each
conversation is folded under its own lock, and the cursor only moves on from where it was read.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from uuid import UUID

from sqlalchemy import Connection

from eventstore import EventStore
from eventstore.errors import ProjectionFailed
from eventstore.sql import feed
from eventstore.sql.dialect import Statement, run_each
from projections import heads
from projections.base import Projection
from projections.engine import PIECE, CatchUp
from projections.failures import catch_up_or_set_aside, noted
from projections.generations import Generation, find_all_live

__all__ = ["Pause", "catch_up_behind", "late", "retry_set_aside"]

Pause = Callable[[float], None]
"""Called after each transaction that folds, with the seconds that it took; may raise to end it."""

_Part = Sequence[tuple[UUID, list[Generation]]]
_LOOK = 2_000
_TOGETHER = 20  # conversations; fewer where they have gained more than a piece of events
_MOVE = Statement(
    *(
        f"""
        UPDATE projections SET cursor = :after
        WHERE name = :name AND generation = :generation AND cursor {same} :before
        """  # noqa: S608 - one of two operators
        for same in ("IS", "IS NOT DISTINCT FROM")
    )
)


def _at_once(_: float) -> None:
    """Go on without a pause."""


def catch_up_behind(
    store: EventStore, projections: Sequence[Projection], pause: Pause = _at_once
) -> int:
    """Catch up every conversation that is behind; return how many were.

    Many short transactions: up to 20 conversations or 1,000 events each, then one for the cursor.
    A conversation that cannot be folded is set aside and not counted; it is tried again when it
    gains events.
    """
    with store.on_driver() as connection:
        found = find_all_live(connection, projections)
    by_cursor: dict[str | None, list[Generation]] = {}
    for generation in found:
        if generation is not None:
            by_cursor.setdefault(generation.cursor, []).append(generation)
    return sum(_follow(store, group, cursor, pause) for cursor, group in by_cursor.items())


def _follow(
    store: EventStore, generations: list[Generation], cursor: str | None, pause: Pause
) -> int:
    looked_at, count = cursor, 0
    while True:
        with store.on_driver() as connection:
            page = feed.behind(connection, looked_at, _LOOK)
            behind = heads.behind(connection, generations, page.conversations)
        # In one order everywhere, so that two followers cannot wait for each other.
        late = sorted(behind.items(), key=lambda pair: pair[0])
        for start in range(0, len(late), _TOGETHER):
            count += _catch_up(store, late[start : start + _TOGETHER], pause)
        # Also past a conversation that was set aside: it must not hold up the others.
        if page.safe != cursor:
            _advance(store, generations, cursor, page.safe)
            cursor = page.safe
        looked_at = page.seen
        if not page.more:
            break
    return count


def retry_set_aside(store: EventStore, projections: Sequence[Projection]) -> None:
    """Try again what was set aside, each by itself: the code may have been mended since."""
    with store.reading() as connection:
        live = find_all_live(connection, projections)
        by_key = {(each.projection.name, each.number): each for each in live if each is not None}
        found = noted(connection)
    for failure in found:
        generation = by_key.get((failure.projection, failure.generation))
        if generation is not None:
            _catch_up_alone(store, failure.conversation_id, [generation], _at_once)


def _catch_up(store: EventStore, part: _Part, pause: Pause) -> int:
    try:
        _by_pieces(store, part, pause)
    except ProjectionFailed:
        return sum(_catch_up_alone(store, *each, pause) for each in part)
    return len(part)


def _by_pieces(store: EventStore, part: _Part, pause: Pause) -> None:
    """Catch conversations up, in order; each transaction folds a piece of events."""
    waiting = deque(CatchUp(behind, conversation) for conversation, behind in part)
    while waiting:
        started = time.monotonic()
        with store.on_driver(write=True, durable=False) as connection:
            room = PIECE
            while waiting and (room := room - waiting[0].piece(connection, room)):
                waiting.popleft()
        pause(time.monotonic() - started)


def _catch_up_alone(
    store: EventStore, conversation: UUID, behind: list[Generation], pause: Pause
) -> bool:
    for generation in behind:
        # Whatever comes before the piece that cannot be folded.
        with suppress(ProjectionFailed):
            _by_pieces(store, [(conversation, [generation])], pause)
    with store.writing(durable=False) as connection:
        return not catch_up_or_set_aside(connection, behind, conversation)


def late(connection: Connection, generation: Generation | None) -> list[UUID]:
    """Return every conversation that the generation has not folded to its end.

    Looks at all conversations that have gained events since the generation's cursor, in the
    caller's transaction, and moves nothing: for connections that may only read.
    """
    if generation is None:
        return feed.gained(connection, None)
    gained = feed.gained(connection, generation.cursor)
    return list(heads.behind(connection, [generation], gained))


def _advance(
    store: EventStore, generations: Sequence[Generation], before: str | None, after: str
) -> None:
    """Move the cursors, but for those that somebody else has moved since they were read."""
    with store.on_driver(write=True, durable=False) as connection:
        run_each(
            connection,
            _MOVE.on(connection.dialect),
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
