"""Heads: how far each generation has folded a conversation, and its fold's state there.

Every read asks for them, so they are read and written in the driver's own calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from uuid import UUID

from sqlalchemy import Connection

from eventstore.events.codec import dumps, loads
from eventstore.sql.dialect import Dialect, Statement, cursor, dialect_of
from projections.base import Projection, State
from projections.generations import Generation, LiveRow, newest

__all__ = ["Head", "Standing", "behind", "lock", "read", "save", "standing"]

_Key = tuple[str, int]

_VERSIONS = Statement(
    """
    SELECT stream.version, head.projection, head.generation, head.version
    FROM conversations AS stream
    LEFT JOIN projection_heads AS head ON head.conversation_id = stream.conversation_id
    WHERE stream.conversation_id = :conversation_id
    """
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
_MAKE = Statement(
    """
    INSERT INTO projection_heads (conversation_id, projection, generation, version, state)
    VALUES (:conversation_id, :projection, :generation, 0, '{}')
    ON CONFLICT DO NOTHING
    """
)


@dataclass(frozen=True, slots=True)
class Head:
    """The last version that a generation has folded of a conversation, and the state there."""

    generation: Generation
    version: int
    state: State


@dataclass(frozen=True, slots=True)
class Standing:
    """The live generation of a projection, if any, and whether it holds all of a conversation."""

    generation: Generation | None
    current: bool


def standing(
    connection: Connection, projections: Sequence[Projection], conversation_id: UUID
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
            "names": dumps(names) if dialect.is_sqlite else names,
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
    connection: Connection, generations: Sequence[Generation], conversation_id: UUID
) -> list[Generation]:
    """Return the generations that have not folded every event of a conversation.

    All of them for one whose row is lost: then there is no knowing.
    """
    dialect, run = dialect_of(connection), cursor(connection)
    run.execute(_VERSIONS.on(dialect), {"conversation_id": dialect.from_id(conversation_id)})
    rows = run.fetchall()
    run.close()
    current = {(name, number) for version, name, number, folded in rows if folded == version}
    return [each for each in generations if _key(each) not in current]


def read(
    connection: Connection, generations: Sequence[Generation], conversation_id: UUID
) -> dict[_Key, Head]:
    """Return the heads of generations that have one, by projection and number."""
    return _select(connection, generations, conversation_id, locked=False)


def lock(
    connection: Connection, generations: Sequence[Generation], conversation_id: UUID
) -> list[Head]:
    """Return the generations' heads, locked against others until the transaction ends.

    One that has folded nothing has the version 0.
    """
    found = _select(connection, generations, conversation_id, locked=True)
    if len(found) < len(generations) and not dialect_of(connection).is_sqlite:
        # A row that does not exist cannot be locked: make it, and wait for who made it first.
        ordered = sorted(generations, key=_key)
        _write(connection, _MAKE, conversation_id, [Head(each, 0, {}) for each in ordered])
        found = _select(connection, generations, conversation_id, locked=True)
    return [found.get(_key(each)) or Head(each, 0, {}) for each in generations]


def save(connection: Connection, conversation_id: UUID, heads: Iterable[Head]) -> None:
    """Write heads, in the caller's transaction, which has locked them."""
    _write(connection, _SAVE, conversation_id, heads)


def _write(
    connection: Connection, statement: Statement, conversation_id: UUID, heads: Iterable[Head]
) -> None:
    dialect, run = dialect_of(connection), cursor(connection)
    owner = dialect.from_id(conversation_id)
    run.executemany(
        statement.on(dialect),
        [
            {
                "conversation_id": owner,
                "projection": head.generation.projection.name,
                "generation": head.generation.number,
                "version": head.version,
                "state": dumps(head.state),
            }
            for head in heads
        ],
    )
    run.close()


def _select(
    connection: Connection,
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
    return {
        (name, number): Head(by_key[name, number], version, loads(state))
        for name, number, version, state in rows
    }


@lru_cache(maxsize=128)
def _heads_query(dialect: Dialect, count: int, locked: bool) -> str:
    mark = "?" if dialect.is_sqlite else "%s"
    wanted = " OR ".join([f"projection = {mark} AND generation = {mark}"] * count)
    # In one order everywhere, so that two that lock cannot wait for each other.
    return f"""
        SELECT projection, generation, version, state FROM projection_heads
        WHERE conversation_id = {mark} AND ({wanted}) ORDER BY projection, generation
        {"FOR UPDATE" if locked and not dialect.is_sqlite else ""}
        """  # noqa: S608 - marks alone


def _key(generation: Generation) -> _Key:
    return generation.projection.name, generation.number
