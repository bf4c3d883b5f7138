"""Following the feed: catching up every conversation that has gained events.

A generation remembers in its ``cursor`` the place in the feed up to which nothing is behind; so
finding those that are costs what has happened since, and nothing when nothing has. Readers across
conversations and the worker share this path, and any number of them may run at once: each
conversation is folded under its own lock, and the cursor only moves on from where it was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Connection, update

from eventstore import EventStore
from eventstore.errors import ProjectionFailed
from eventstore.sql import feed
from eventstore.sql.schema import metadata_for
from projections import heads
from projections.base import Projection
from projections.engine import catch_up, is_current
from projections.generations import Generation, find_all_live

__all__ = ["catch_up_behind", "late"]

_LOOK = 2_000
_TOGETHER = 20


def catch_up_behind(store: EventStore, projections: Sequence[Projection]) -> int:
    """Catch up every conversation that is behind; return how many were.

    Many short transactions: up to 20 conversations each, then one for the cursor.

    Raises:
        ProjectionFailed: A fold raised; the conversations before it stay caught up.
    """
    with store.reading() as connection:
        found = find_all_live(connection, projections)
    by_cursor: dict[str | None, list[Generation]] = {}
    for generation in found:
        if generation is not None:
            by_cursor.setdefault(generation.cursor, []).append(generation)
    return sum(_follow(store, group, cursor) for cursor, group in by_cursor.items())


def _follow(store: EventStore, generations: list[Generation], cursor: str | None) -> int:
    looked_at, count = cursor, 0
    failed: ProjectionFailed | None = None
    while True:
        with store.reading() as connection:
            page = feed.behind(connection, looked_at, _LOOK)
            late = [
                (conversation, behind)
                for conversation in page.conversations
                if (behind := heads.behind(connection, generations, conversation))
            ]
        for start in range(0, len(late), _TOGETHER):
            # In one order everywhere, so that two followers cannot wait for each other.
            part = sorted(late[start : start + _TOGETHER], key=lambda pair: pair[0])
            try:
                _catch_up(store, part)
            except ProjectionFailed:
                # One that cannot be folded must not hold up the others.
                for alone in part:
                    try:
                        _catch_up(store, [alone])
                    except ProjectionFailed as error:
                        failed = failed or error
        count += len(late)
        # A conversation that failed stays behind, and so must the cursor.
        if failed is None and page.safe != cursor:
            with store.writing(durable=False) as connection:
                for generation in generations:
                    _advance(connection, generation, cursor, page.safe)
            cursor = page.safe
        looked_at = page.seen
        if not page.more:
            break
    if failed is not None:
        raise failed
    return count


def _catch_up(store: EventStore, part: Sequence[tuple[UUID, list[Generation]]]) -> None:
    with store.writing(durable=False) as connection:
        for conversation, behind in part:
            catch_up(connection, behind, conversation)


def late(connection: Connection, generation: Generation | None) -> list[UUID]:
    """Return every conversation that the generation has not folded to its end.

    Looks at all conversations that have gained events since the generation's cursor, in the
    caller's transaction, and moves nothing: for connections that may only read.
    """
    looked_at = None if generation is None else generation.cursor
    found: dict[UUID, None] = {}
    while True:
        page = feed.behind(connection, looked_at, _LOOK)
        for conversation in page.conversations:
            if generation is None or not is_current(connection, generation, conversation):
                found[conversation] = None
        looked_at = page.seen
        if not page.more:
            return list(found)


def _advance(
    connection: Connection, generation: Generation, before: str | None, after: str
) -> None:
    """Move the cursor, unless somebody else has moved it since it was read."""
    registry = metadata_for(connection.dialect.name).tables["projections"]
    connection.execute(
        update(registry)
        .where(
            registry.c.name == generation.projection.name,
            registry.c.generation == generation.number,
            registry.c.cursor.is_not_distinct_from(before),
        )
        .values(cursor=after)
    )
