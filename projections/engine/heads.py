"""Heads: how far each generation has folded a conversation, and its fold's state at that version.

Every read needs them, so they are read and written with direct driver calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from uuid import UUID

from eventstore.database import (
    AnyConnection,
    Backend,
    Bound,
    Statement,
    backend_of,
    chain_at,
    fetch,
)
from eventstore.erasure.erase import ERASURES, erasure_count
from eventstore.errors import InvalidEvent
from eventstore.events.codec import dumps_json, loads_json
from projections.engine.generations import Generation, LiveRow, newest
from projections.engine.projection import Projection, State
from projections.errors import ProjectionFailed
from projections.tokens import Count

__all__ = [
    "BoundHead",
    "FoldHead",
    "HeadStatus",
    "NotSaved",
    "Unsaved",
    "behind",
    "bind",
    "insert",
    "lock",
    "lock_at",
    "of",
    "reached",
    "read",
    "save",
    "statuses",
]

BoundHead = tuple[Any, str, int, int, str]
"""A head in the driver's form: conversation, projection, generation, version, state."""

_Key = tuple[str, int]

_CURRENT = Statement(
    """
    SELECT stream.conversation_id, head.projection, head.generation
    FROM conversations AS stream
    JOIN projection_heads AS head ON head.conversation_id = stream.conversation_id
        AND head.version = stream.version
    WHERE stream.conversation_id = ANY(:ids)
    """
)
_STANDING = Statement(
    """
    SELECT live.name, live.version, live.generation, live.cursor, stream.version, head.version
    FROM conversations AS stream
    LEFT JOIN projections AS live ON live.status = 'live' AND live.name = ANY(:names)
    LEFT JOIN projection_heads AS head ON head.conversation_id = stream.conversation_id
        AND head.projection = live.name AND head.generation = live.generation
    WHERE stream.conversation_id = :conversation_id
    """
)
_COLUMNS = {
    "conversation_id": "uuid",
    "projection": "text",
    "generation": "int",
    "version": "bigint",
    "state": "text",
}
_MOVING = (
    "(conversation_id, projection, generation) "
    "DO UPDATE SET version = excluded.version, state = excluded.state"
)
_REACHED = Statement(
    """
    SELECT version FROM projection_heads WHERE conversation_id = :conversation_id
        AND projection = :projection AND generation = :generation
    """
)


@dataclass(frozen=True, slots=True)
class Unsaved:
    """The result of folding beyond the head in the table: only new rows.

    Attributes:
        saved: Version and chain of the head in the table.
        rows: The new rows of the generation's first table, by key.
        counts: The token counts for these rows and for requests, by digest.
    """

    saved: tuple[int, bytes | None]
    rows: Mapping[tuple[Any, ...], dict[str, Any]]
    counts: Mapping[bytes, Count]


@dataclass(frozen=True, slots=True)
class FoldHead:
    """The last version of a conversation that a generation has folded, and the state there.

    Attributes:
        generation: The generation.
        version: The version.
        state: The fold's state.
        chain: The chain of the event at that version in the log; None if it has none.
        before: Version and chain from which the current read continued folding, if it did.
        unsaved: Rows that have been folded and are not in the tables yet, if any.
        erasures: How often the conversation had been erased when it was read; None if the
            generation has folded nothing.
    """

    generation: Generation
    version: int
    state: State
    chain: bytes | None = None
    before: tuple[int, bytes | None] | None = None
    unsaved: Unsaved | None = None
    erasures: int | None = field(default=None, compare=False)


class NotSaved(Exception):
    """A read needs rows that its own fold has made and that are not in the tables yet."""


@dataclass(frozen=True, slots=True)
class HeadStatus:
    """A projection's live generation, if any, and whether it has folded all of a conversation.

    ``version`` is the conversation's.
    """

    generation: Generation | None
    current: bool
    version: int


def statuses(
    connection: AnyConnection, projections: Sequence[Projection], conversation_id: UUID
) -> list[HeadStatus] | None:
    """Return the standing of each projection's live generation; None for an unknown conversation.

    Uses one query for all of them.
    """
    names = [projection.name for projection in projections]
    rows = _STANDING.rows(connection, conversation_id=conversation_id, names=names)
    if not rows:
        return None
    live: list[LiveRow] = [tuple(row[:4]) for row in rows]
    folded = {(row[0], row[2]): row[5] for row in rows}
    version = rows[0][4]
    found = [newest(live, projection) for projection in projections]
    return [
        HeadStatus(each, each is not None and folded[_key(each)] == version, version)
        for each in found
    ]


def behind(
    connection: AnyConnection, generations: Sequence[Generation], conversations: Sequence[UUID]
) -> dict[UUID, list[Generation]]:
    """Return the conversations with unfolded events, and the generations that lack these events.

    Uses one query for all of them. A conversation whose row is lost counts as behind in every
    generation, because its version is unknown.
    """
    if not conversations:
        return {}
    rows, to_id = _CURRENT.rows(connection, ids=list(conversations)), backend_of(connection).to_id
    current = {(to_id(owner), name, number) for owner, name, number in rows}
    lacking = (
        (stream, [each for each in generations if (stream, *_key(each)) not in current])
        for stream in conversations
    )
    return {stream: found for stream, found in lacking if found}


def of(
    connection: AnyConnection, generations: Sequence[Generation], conversation_id: UUID
) -> list[FoldHead]:
    """Return the generations' heads; a generation that has folded nothing is at version 0."""
    return _each(generations, read(connection, generations, conversation_id))


def read(
    connection: AnyConnection, generations: Sequence[Generation], conversation_id: UUID
) -> dict[_Key, FoldHead]:
    """Return the heads of those generations that have one, by projection and number.

    A row at version 0 is none: it only holds the place of a fold that has not come to an end.
    """
    found = _select(connection, generations, conversation_id)[0]
    return {key: head for key, head in found.items() if head.version}


def reached(connection: AnyConnection, generation: Generation, conversation_id: UUID) -> int:
    """Return the version that a generation has folded, without reading its state; 0 for none."""
    key = dict(zip(("projection", "generation"), _key(generation), strict=True))
    rows = _REACHED.rows(connection, conversation_id=conversation_id, **key)
    return int(rows[0][0]) if rows else 0


def lock(
    connection: AnyConnection, generations: Sequence[Generation], conversation_id: UUID
) -> list[FoldHead]:
    """Return the generations' heads, locked against others until the transaction ends.

    A generation that has folded nothing is at version 0. The states are not read: the caller only
    checks whether the heads have moved.
    """
    return lock_at(connection, generations, conversation_id, 0)[0]


def lock_at(
    connection: AnyConnection, generations: Sequence[Generation], conversation_id: UUID, at: int
) -> tuple[list[FoldHead], int, bytes | None]:
    """Return the result of `lock`, the number of erasures, and the chain of the event at ``at``.

    Uses one query, for a transaction that already holds the erasure lock.
    """
    backend_of(connection).pin(connection, conversation_id)
    found, chain = _select(connection, generations, conversation_id, locked_at=at)
    if len(found) < len(generations) and not backend_of(connection).locks_all:
        # A missing row cannot be locked: insert it, and wait for another process that inserts it.
        made = [FoldHead(each, 0, {}) for each in sorted(generations, key=_key)]
        backend = backend_of(connection)
        insert(connection, bind(backend.from_id(conversation_id), made))
        found, chain = _select(connection, generations, conversation_id, locked_at=at)
    if chain is None and at:  # A fork finds shared events through its lineage.
        chain = chain_at(connection, conversation_id, at)
    known = [each.erasures for each in found.values()]
    erasures = known[0] if known else None
    if erasures is None:
        erasures = erasure_count(connection, [conversation_id])
    return _each(generations, found), erasures, chain


def save(backend: Backend, conversation_id: UUID, heads: Iterable[FoldHead]) -> Bound:
    """Return the statement that writes heads, for a transaction that has locked them."""
    rows = bind(backend.from_id(conversation_id), heads)
    return backend.insert("projection_heads", _COLUMNS, rows, otherwise=_MOVING)


def bind(owner: Any, heads: Iterable[FoldHead]) -> list[BoundHead]:
    """Return a conversation's heads as rows; pass its id in the driver's form."""
    return [
        (owner, each.generation.projection.name, each.generation.number, each.version, state)
        for each in heads
        for state in (dumps_json(each.state),)
    ]


def insert(connection: AnyConnection, heads: Sequence[BoundHead]) -> bool:
    """Insert heads of many conversations, in the caller's transaction; whether none existed.

    Pass them in order of conversation. Waits for other processes that write the same heads.
    """
    if not heads:
        return True
    return backend_of(connection).insert("projection_heads", _COLUMNS, heads).run(
        connection
    ) == len(heads)


def _select(
    connection: AnyConnection,
    generations: Sequence[Generation],
    conversation_id: UUID,
    locked_at: int | None = None,
) -> tuple[dict[_Key, FoldHead], bytes | None]:
    """Return heads; with ``locked_at``, lock them and return the chain at that version too."""
    backend = backend_of(connection)
    by_key = {_key(each): each for each in generations}
    wanted = [part for key in by_key for part in key]
    locked = locked_at is not None
    at = [locked_at] if locked else []
    query, owner = _heads_query(backend, len(by_key), locked), backend.from_id(conversation_id)
    later = [owner, *at] if locked else []
    rows = fetch(connection, query, [owner, owner, owner, *later, owner, *wanted])
    found = {}
    for name, number, version, text, chain, erasures, _ in rows:
        try:
            state = loads_json(text)
        except InvalidEvent as error:
            # No fold can continue from a damaged state; a rebuild does not need it.
            raise ProjectionFailed(name, conversation_id, version + 1) from error
        generation = by_key[name, number]
        found[name, number] = FoldHead(generation, version, state, chain, erasures=int(erasures))
    return found, rows[0][-1] if rows else None


@lru_cache(maxsize=64)
def _heads_query(backend: Backend, count: int, locked: bool) -> str:
    mark, state = backend.mark, "'{}'" if locked else "state"
    erased = ERASURES.format(f"= {mark}")
    chain = f"SELECT chain FROM events WHERE conversation_id = {mark}"  # noqa: S608 - a mark
    later = f"({chain} AND version = {mark})" if locked else "NULL"
    wanted = " OR ".join([f"projection = {mark} AND generation = {mark}"] * count)
    # The same order everywhere, so that two transactions cannot deadlock.
    query = f"""
        SELECT projection, generation, version, {state},
            ({chain} AND version = projection_heads.version), {erased}, {later}
        FROM projection_heads
        WHERE conversation_id = {mark} AND ({wanted}) ORDER BY projection, generation
        """  # noqa: S608 - marks alone
    return query + backend.for_update if locked else query


def _each(generations: Sequence[Generation], found: dict[_Key, FoldHead]) -> list[FoldHead]:
    return [found.get(_key(each)) or FoldHead(each, 0, {}) for each in generations]


def _key(generation: Generation) -> _Key:
    return generation.projection.name, generation.number
