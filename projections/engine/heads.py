"""Heads: how far each generation has folded a conversation, and its fold's state there.

Every read asks for them, so they are read and written in the driver's own calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

from eventstore.errors import InvalidEvent
from eventstore.events.codec import dumps_json, loads_json
from eventstore.sql.dialect import AnyConnection, Bound, Dialect, Statement, cursor, dialect_of
from projections.engine.generations import Generation, LiveRow, newest
from projections.engine.projection import Projection, State
from projections.errors import ProjectionFailed

__all__ = [
    "BoundHead",
    "Head",
    "Standing",
    "behind",
    "bind",
    "insert",
    "lock",
    "of",
    "reached",
    "read",
    "save",
    "standing",
]

BoundHead = tuple[Any, str, int, int, str]
"""A head as the driver takes it: owner, projection, generation, version, state."""

_Key = tuple[str, int]

_VERSIONS = """
    SELECT stream.conversation_id, head.projection, head.generation
    FROM conversations AS stream
    JOIN projection_heads AS head ON head.conversation_id = stream.conversation_id
        AND head.version = stream.version
    WHERE stream.conversation_id {named}
    """
_CURRENT = Statement(
    _VERSIONS.format(named="IN (SELECT value FROM json_each(:ids))"),
    _VERSIONS.format(named="= ANY(:ids)"),
)
_LIVE = """
    SELECT live.name, live.version, live.generation, live.cursor, stream.version, head.version
    FROM conversations AS stream
    LEFT JOIN projections AS live ON live.status = 'live' AND live.name {named}
    LEFT JOIN projection_heads AS head ON head.conversation_id = stream.conversation_id
        AND head.projection = live.name AND head.generation = live.generation
    WHERE stream.conversation_id = :conversation_id
    """
_STANDING = Statement(
    _LIVE.format(named="IN (SELECT value FROM json_each(:names))"),
    _LIVE.format(named="= ANY(:names)"),
)
_SAVE = Statement(
    """
    INSERT INTO projection_heads (conversation_id, projection, generation, version, state)
    VALUES (:conversation_id, :projection, :generation, :version, :state)
    ON CONFLICT (conversation_id, projection, generation)
    DO UPDATE SET version = excluded.version, state = excluded.state
    """
)
_NEW = """
    INSERT INTO projection_heads (conversation_id, projection, generation, version, state)
    {rows} ON CONFLICT DO NOTHING
    """
_INSERT = {
    "sqlite": _NEW.format(rows="VALUES (?, ?, ?, ?, ?)"),
    # One statement for all: they are locked in the order given.
    "postgresql": _NEW.format(
        rows="SELECT * FROM unnest(%s::uuid[], %s::text[], %s::int[], %s::bigint[], %s::text[])"
    ),
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
class Head:
    """The last version that a generation has folded of a conversation, and the state there.

    Attributes:
        generation: The generation.
        version: The version.
        state: The fold's state.
        chain: The chain of the event at that version, as the log has it; None if it has none.
        before: Version and chain from which the read at hand has folded on, if it has.
    """

    generation: Generation
    version: int
    state: State
    chain: bytes | None = None
    before: tuple[int, bytes | None] | None = None


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
    dialect, run = dialect_of(connection), cursor(connection)
    names = [projection.name for projection in projections]
    run.execute(
        _STANDING.on(dialect),
        {
            "conversation_id": dialect.from_id(conversation_id),
            "names": dialect.array(names),
        },
    )
    rows = run.fetchall()
    run.close()
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
    dialect, run = dialect_of(connection), cursor(connection)
    ids = [dialect.from_id(each) for each in conversations]
    run.execute(_CURRENT.on(dialect), {"ids": dialect.array(ids)})
    current = {(dialect.to_id(owner), name, number) for owner, name, number in run.fetchall()}
    run.close()
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
    return _select(connection, generations, conversation_id, locked=False)


def reached(connection: AnyConnection, generation: Generation, conversation_id: UUID) -> int:
    """Return the version that a generation has folded, whatever its state holds; 0 for none."""
    run = cursor(connection)
    dialect = dialect_of(connection)
    owner = {"conversation_id": dialect.from_id(conversation_id)}
    key = dict(zip(("projection", "generation"), _key(generation), strict=True))
    run.execute(_REACHED.on(dialect), owner | key)
    row = run.fetchone()
    run.close()
    return 0 if row is None else int(row[0])


def lock(
    connection: AnyConnection, generations: Sequence[Generation], conversation_id: UUID
) -> list[Head]:
    """Return the generations' heads, locked against others until the transaction ends.

    One that has folded nothing has the version 0.
    """
    found = _select(connection, generations, conversation_id, locked=True)
    if len(found) < len(generations) and not dialect_of(connection).is_sqlite:
        # A row that does not exist cannot be locked: make it, and wait for who made it first.
        ordered = sorted(generations, key=_key)
        made = [Head(each, 0, {}) for each in ordered]
        _bound(dialect_of(connection), _MAKE, conversation_id, made).run(connection)
        found = _select(connection, generations, conversation_id, locked=True)
    return _each(generations, found)


def save(dialect: Dialect, conversation_id: UUID, heads: Iterable[Head]) -> Bound:
    """Return the statement that writes heads, for a transaction that has locked them."""
    return _bound(dialect, _SAVE, conversation_id, heads)


def bind(dialect: Dialect, conversation_id: UUID, heads: Iterable[Head]) -> list[BoundHead]:
    """Return a conversation's heads for `insert`."""
    owner = dialect.from_id(conversation_id)
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
    run = cursor(connection)
    if dialect_of(connection).is_sqlite:
        run.executemany(_INSERT["sqlite"], heads)
    else:
        run.execute(_INSERT["postgresql"], [list(column) for column in zip(*heads, strict=True)])
    written = run.rowcount
    run.close()
    return bool(written == len(heads))


def _bound(
    dialect: Dialect, statement: Statement, conversation_id: UUID, heads: Iterable[Head]
) -> Bound:
    owner = dialect.from_id(conversation_id)
    return Bound(
        statement.on(dialect),
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
    *,
    locked: bool,
) -> dict[_Key, Head]:
    dialect, run = dialect_of(connection), cursor(connection)
    by_key = {_key(each): each for each in generations}
    wanted = [part for key in by_key for part in key]
    run.execute(
        _heads_query(dialect, len(by_key), locked), [dialect.from_id(conversation_id), *wanted]
    )
    rows = run.fetchall()
    run.close()
    found = {}
    for name, number, version, text, chain in rows:
        try:
            state = loads_json(text)
        except InvalidEvent as error:
            # No fold can go on after it; a rebuild does not need it.
            raise ProjectionFailed(name, conversation_id, version + 1) from error
        found[name, number] = Head(by_key[name, number], version, state, chain)
    return found


@lru_cache(maxsize=128)
def _heads_query(dialect: Dialect, count: int, locked: bool) -> str:
    mark = dialect.mark
    wanted = " OR ".join([f"projection = {mark} AND generation = {mark}"] * count)
    # In one order everywhere, so that two that lock cannot wait for each other.
    return f"""
        SELECT projection, generation, version, state, (
            SELECT chain FROM events WHERE conversation_id = projection_heads.conversation_id
            AND version = projection_heads.version)
        FROM projection_heads
        WHERE conversation_id = {mark} AND ({wanted}) ORDER BY projection, generation
        {"FOR UPDATE" if locked and not dialect.is_sqlite else ""}
        """  # noqa: S608 - marks alone


def _each(generations: Sequence[Generation], found: dict[_Key, Head]) -> list[Head]:
    return [found.get(_key(each)) or Head(each, 0, {}) for each in generations]


def _key(generation: Generation) -> _Key:
    return generation.projection.name, generation.number
