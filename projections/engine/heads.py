"""Heads: how far each generation has folded a conversation, and its fold's state there.

Every read asks for them, so they are read and written in the driver's own calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from uuid import UUID

from eventstore.erasure import ERASURES, erasure_count
from eventstore.errors import InvalidEvent
from eventstore.events.codec import dumps_json, loads_json
from eventstore.sql.backend import AnyConnection, Backend, Bound, Statement, backend_of, fetch
from eventstore.sql.read import chain_at
from projections.engine.generations import Generation, LiveRow, newest
from projections.engine.projection import Projection, State
from projections.errors import ProjectionFailed
from projections.tokens import Count

__all__ = [
    "BoundHead",
    "Head",
    "NotSaved",
    "Standing",
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
    "standing",
]

BoundHead = tuple[Any, str, int, int, str]
"""A head as the driver takes it: owner, projection, generation, version, state."""

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
_SAVE = Statement(
    """
    INSERT INTO projection_heads (conversation_id, projection, generation, version, state)
    VALUES (:conversation_id, :projection, :generation, :version, :state)
    ON CONFLICT (conversation_id, projection, generation)
    DO UPDATE SET version = excluded.version, state = excluded.state
    """
)
_COLUMNS = {
    "conversation_id": "uuid",
    "projection": "text",
    "generation": "int",
    "version": "bigint",
    "state": "text",
}
_REACHED = Statement(
    """
    SELECT version FROM projection_heads WHERE conversation_id = :conversation_id
        AND projection = :projection AND generation = :generation
    """
)
_MAKE = Statement(
    """
    INSERT INTO projection_heads (conversation_id, projection, generation, version, state)
    VALUES (:conversation_id, :projection, :generation, 0, '{}')
    ON CONFLICT DO NOTHING
    """
)


@dataclass(frozen=True, slots=True)
class Unsaved:
    """What has been folded beyond the head that the table has: new rows alone.

    Attributes:
        saved: Version and chain of that head.
        rows: The rows of the generation's first table, by key.
        counts: What was counted for them and for requests, by digest.
    """

    saved: tuple[int, bytes | None]
    rows: Mapping[tuple[Any, ...], dict[str, Any]]
    counts: Mapping[bytes, Count]


@dataclass(frozen=True, slots=True)
class Head:
    """The last version that a generation has folded of a conversation, and the state there.

    Attributes:
        generation: The generation.
        version: The version.
        state: The fold's state.
        chain: The chain of the event at that version, as the log has it; None if it has none.
        before: Version and chain from which the read at hand has folded on, if it has.
        unsaved: What has been folded and is not in the tables yet, if anything.
        erasures: How often the conversation had been erased when it was read; None where the
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
    """A read asks for what its own fold has made, and is not in the tables yet."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The live generation of a projection, if any, and whether it holds all of a conversation."""

    generation: Generation | None
    current: bool


def standing(
    connection: AnyConnection, projections: Sequence[Projection], conversation_id: UUID
) -> list[Standing] | None:
    """Return how the live generation of each projection stands; None without such a conversation.

    One query for all of them.
    """
    names = [projection.name for projection in projections]
    rows = _STANDING.rows(connection, conversation_id=conversation_id, names=names)
    if not rows:
        return None
    live: list[LiveRow] = [tuple(row[:4]) for row in rows]
    folded = {(row[0], row[2]): row[5] for row in rows}
    version = rows[0][4]
    found = [newest(live, projection) for projection in projections]
    return [Standing(each, each is not None and folded[_key(each)] == version) for each in found]


def behind(
    connection: AnyConnection, generations: Sequence[Generation], conversations: Sequence[UUID]
) -> dict[UUID, list[Generation]]:
    """Return which conversations have events that generations have not folded, and which these are.

    One query for all of them. A conversation whose row is lost is behind in every generation:
    there is no knowing.
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
) -> list[Head]:
    """Return the generations' heads; one that has folded nothing has the version 0."""
    return _each(generations, read(connection, generations, conversation_id))


def read(
    connection: AnyConnection, generations: Sequence[Generation], conversation_id: UUID
) -> dict[_Key, Head]:
    """Return the heads of generations that have one, by projection and number."""
    return _select(connection, generations, conversation_id)[0]


def reached(connection: AnyConnection, generation: Generation, conversation_id: UUID) -> int:
    """Return the version that a generation has folded, whatever its state holds; 0 for none."""
    key = dict(zip(("projection", "generation"), _key(generation), strict=True))
    rows = _REACHED.rows(connection, conversation_id=conversation_id, **key)
    return int(rows[0][0]) if rows else 0


def lock(
    connection: AnyConnection, generations: Sequence[Generation], conversation_id: UUID
) -> list[Head]:
    """Return the generations' heads, locked against others until the transaction ends.

    One that has folded nothing has the version 0. The states are not read: whoever locks asks
    whether the heads stand where they did.
    """
    return lock_at(connection, generations, conversation_id, 0)[0]


def lock_at(
    connection: AnyConnection, generations: Sequence[Generation], conversation_id: UUID, at: int
) -> tuple[list[Head], int, bytes | None]:
    """Return what `lock` does, how often it was erased, and the chain of the event at a version.

    One query, for a transaction that keeps erasures away already.
    """
    found, chain = _select(connection, generations, conversation_id, locked_at=at)
    if len(found) < len(generations) and not backend_of(connection).locks_all:
        # A row that does not exist cannot be locked: make it, and wait for who made it first.
        ordered = sorted(generations, key=_key)
        made = [Head(each, 0, {}) for each in ordered]
        _bound(backend_of(connection), _MAKE, conversation_id, made).run(connection)
        found, chain = _select(connection, generations, conversation_id, locked_at=at)
    if chain is None and at:  # A fork finds those that it shares by its lineage.
        chain = chain_at(connection, conversation_id, at)
    known = [each.erasures for each in found.values()]
    erasures = known[0] if known else None
    if erasures is None:
        erasures = erasure_count(connection, [conversation_id])
    return _each(generations, found), erasures, chain


def save(backend: Backend, conversation_id: UUID, heads: Iterable[Head]) -> Bound:
    """Return the statement that writes heads, for a transaction that has locked them."""
    return _bound(backend, _SAVE, conversation_id, heads)


def bind(owner: Any, heads: Iterable[Head]) -> list[BoundHead]:
    """Return the heads of a conversation for `insert`; its id is given as the driver takes it."""
    return [
        (owner, each.generation.projection.name, each.generation.number, each.version, state)
        for each in heads
        for state in (dumps_json(each.state),)
    ]


def insert(connection: AnyConnection, heads: Sequence[BoundHead]) -> bool:
    """Write heads of many conversations, in the caller's transaction; whether none was there.

    Give them in order of conversation. Waits for others that write the same heads.
    """
    if not heads:
        return True
    return backend_of(connection).insert("projection_heads", _COLUMNS, heads).run(
        connection
    ) == len(heads)


def _bound(
    backend: Backend, statement: Statement, conversation_id: UUID, heads: Iterable[Head]
) -> Bound:
    owner = backend.from_id(conversation_id)
    return Bound(
        statement.on(backend),
        [
            {
                "conversation_id": owner,
                "projection": head.generation.projection.name,
                "generation": head.generation.number,
                "version": head.version,
                "state": dumps_json(head.state),
            }
            for head in heads
        ],
    )


def _select(
    connection: AnyConnection,
    generations: Sequence[Generation],
    conversation_id: UUID,
    locked_at: int | None = None,
) -> tuple[dict[_Key, Head], bytes | None]:
    """Return heads, and the chain at ``locked_at`` if they are to be locked and there are any."""
    backend = backend_of(connection)
    by_key = {_key(each): each for each in generations}
    wanted = [part for key in by_key for part in key]
    locked = locked_at is not None
    at = [locked_at] if locked else []
    query = _heads_query(backend, len(by_key), locked)
    rows = fetch(connection, query, [*at, backend.from_id(conversation_id), *wanted])
    found = {}
    for name, number, version, text, chain, erasures, _ in rows:
        try:
            state = loads_json(text)
        except InvalidEvent as error:
            # No fold can go on after it; a rebuild does not need it.
            raise ProjectionFailed(name, conversation_id, version + 1) from error
        generation = by_key[name, number]
        found[name, number] = Head(generation, version, state, chain, erasures=int(erasures))
    return found, rows[0][-1] if rows else None


@lru_cache(maxsize=64)
def _heads_query(backend: Backend, count: int, locked: bool) -> str:
    mark, state = backend.mark, "'{}'" if locked else "state"
    erased = ERASURES.format("= projection_heads.conversation_id")
    chain = "SELECT chain FROM events WHERE conversation_id = projection_heads.conversation_id"
    later = f"({chain} AND version = {mark})" if locked else "NULL"
    wanted = " OR ".join([f"projection = {mark} AND generation = {mark}"] * count)
    # In one order everywhere, so that two that lock cannot wait for each other.
    query = f"""
        SELECT projection, generation, version, {state},
            ({chain} AND version = projection_heads.version), {erased}, {later}
        FROM projection_heads
        WHERE conversation_id = {mark} AND ({wanted}) ORDER BY projection, generation
        """  # noqa: S608 - marks alone
    return query + backend.for_update if locked else query


def _each(generations: Sequence[Generation], found: dict[_Key, Head]) -> list[Head]:
    return [found.get(_key(each)) or Head(each, 0, {}) for each in generations]


def _key(generation: Generation) -> _Key:
    return generation.projection.name, generation.number
