"""Catch-up: the one path by which a projection's tables come to say what the events say.

`catch_up` reads the events after a conversation's head, folds them, and writes rows, state and new
head in one transaction. A read calls it for the conversation it is asked about, the worker for
those that the feed names, and the rebuild for all; so they cannot differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Select, and_, or_, select
from sqlalchemy.dialects import postgresql, sqlite

from eventstore.erasure import erasure_lock
from eventstore.errors import ProjectionFailed
from eventstore.events import RecordedEvent, codec
from eventstore.sql.read import END, read_page
from eventstore.sql.schema import metadata_for
from projections.base import Projection, State
from projections.changes import RowBuffer
from projections.generations import Generation

__all__ = [
    "Fold",
    "begin",
    "catch_up",
    "fold_anew",
    "is_current",
    "resume",
    "save_folds",
    "untouched",
]

_PAGE = 1_000


@dataclass(slots=True)
class Fold:
    """A generation's fold of one conversation, as far as it has come."""

    generation: Generation
    version: int
    state: State
    buffer: RowBuffer

    def feed(self, event: RecordedEvent) -> None:
        """Fold one event; events at or below the fold's version are passed over.

        Raises:
            ProjectionFailed: The projection's fold raised.
        """
        if event.version <= self.version:
            return
        projection = self.generation.projection
        try:
            self.state, changes = projection.fold(self.state, event)
            self.buffer.add(changes)
        except Exception as error:
            raise ProjectionFailed(projection.name, event.conversation_id, event.version) from error
        self.version = event.version


def begin(generation: Generation) -> Fold:
    """Return the fold of a conversation of which nothing has been folded."""
    projection: Projection = generation.projection
    return Fold(generation, 0, projection.initial(), RowBuffer(projection, fresh=True))


def is_current(
    connection: Connection, generation: Generation, conversation_id: UUID
) -> bool | None:
    """Whether the generation has folded every event of the conversation; None if there is none."""
    tables = metadata_for(connection.dialect.name).tables
    streams, heads = tables["conversations"], tables["projection_heads"]
    head = (
        select(heads.c.version)
        .where(
            heads.c.conversation_id == conversation_id,
            heads.c.projection == generation.projection.name,
            heads.c.generation == generation.number,
        )
        .scalar_subquery()
    )
    row = connection.execute(
        select(streams.c.version, head).where(streams.c.conversation_id == conversation_id)
    ).first()
    return None if row is None else bool(row[0] == row[1])


def catch_up(
    connection: Connection,
    generations: Sequence[Generation],
    conversation_id: UUID,
    *,
    before: int = END,
) -> int:
    """Fold what a conversation has gained into the generations' tables; return the events read.

    In the caller's transaction, which must be one for writing. A second caller for the same
    conversation waits for the first, and then finds nothing to do. One pass over the events
    serves every generation; memory is bounded by a page of them.

    Raises:
        ProjectionFailed: A fold raised; the caller's transaction must be rolled back.
    """
    erasure_lock(connection, conversation_id)
    folds = _lock_folds(connection, generations, conversation_id)
    after, count = min(fold.version for fold in folds), 0
    while page := read_page(connection, conversation_id, after=after, before=before, limit=_PAGE):
        for event in page:
            for fold in folds:
                fold.feed(event)
        save_folds(connection, folds, conversation_id)
        after, count = page[-1].version, count + len(page)
        if len(page) < _PAGE:
            break
    return count


def fold_anew(
    connection: Connection,
    generations: Sequence[Generation],
    conversation_id: UUID,
    *,
    before: int = END,
) -> list[Fold]:
    """Return folds of the whole conversation, or of the versions below ``before``, in memory.

    Reads events alone, in the caller's transaction, and writes nothing.

    Raises:
        ProjectionFailed: A fold raised.
    """
    folds, after = [begin(generation) for generation in generations], 0
    while page := read_page(connection, conversation_id, after=after, before=before, limit=_PAGE):
        for event in page:
            for fold in folds:
                fold.feed(event)
        after = page[-1].version
        if len(page) < _PAGE:
            break
    return folds


def resume(
    connection: Connection,
    projection: Projection,
    live: Generation | None,
    conversation_id: UUID,
) -> Fold:
    """Return the fold of a conversation, from where ``live`` stands to the end, in memory.

    Locks and writes nothing: for connections that may only read. Run it in a snapshot.

    Raises:
        ProjectionFailed: The fold raised.
    """
    fold = begin(live or Generation(projection, 0, None))
    if live is not None:
        row = connection.execute(_head_query(connection, [live], conversation_id)).first()
        fold = _fold(live, row)
    while page := read_page(connection, conversation_id, after=fold.version, limit=_PAGE):
        for event in page:
            fold.feed(event)
    return fold


def untouched(
    connection: Connection, generations: Sequence[Generation], conversation_id: UUID
) -> bool:
    """Lock the conversation's heads; return whether none of the generations holds any of it."""
    return all(fold.version == 0 for fold in _lock_folds(connection, generations, conversation_id))


def _lock_folds(
    connection: Connection, generations: Sequence[Generation], conversation_id: UUID
) -> list[Fold]:
    """Return the folds at their heads, locked against others until the transaction ends."""
    query = _head_query(connection, generations, conversation_id).with_for_update()
    rows = connection.execute(query).all()
    if len(rows) < len(generations) and connection.dialect.name == "postgresql":
        # A row that does not exist cannot be locked: make it, and wait for who made it first.
        _insert_heads(connection, generations, conversation_id)
        rows = connection.execute(query).all()
    found = {(row[0], row[1]): row for row in rows}
    return [_fold(generation, found.get(_key(generation))) for generation in generations]


def _head_query(
    connection: Connection, generations: Sequence[Generation], conversation_id: UUID
) -> Select[Any]:
    heads = metadata_for(connection.dialect.name).tables["projection_heads"]
    wanted = or_(
        *(
            and_(
                heads.c.projection == generation.projection.name,
                heads.c.generation == generation.number,
            )
            for generation in generations
        )
    )
    return (
        select(heads.c.projection, heads.c.generation, heads.c.version, heads.c.state)
        .where(heads.c.conversation_id == conversation_id, wanted)
        .order_by(heads.c.projection, heads.c.generation)
    )


def save_folds(connection: Connection, folds: Sequence[Fold], conversation_id: UUID) -> None:
    """Write the rows, states and heads of folds, in the caller's transaction."""
    heads = metadata_for(connection.dialect.name).tables["projection_heads"]
    for fold in folds:
        fold.buffer.write(connection, fold.generation.tables, conversation_id)
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    statement = insert(heads)
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=["conversation_id", "projection", "generation"],
            set_={"version": statement.excluded.version, "state": statement.excluded.state},
        ),
        [
            {
                "conversation_id": conversation_id,
                "projection": fold.generation.projection.name,
                "generation": fold.generation.number,
                "version": fold.version,
                "state": codec.dumps(fold.state),
            }
            for fold in folds
        ],
    )


def _insert_heads(
    connection: Connection, generations: Sequence[Generation], conversation_id: UUID
) -> None:
    heads = metadata_for(connection.dialect.name).tables["projection_heads"]
    connection.execute(
        postgresql.insert(heads).on_conflict_do_nothing(),
        [
            {
                "conversation_id": conversation_id,
                "projection": generation.projection.name,
                "generation": generation.number,
                "version": 0,
                "state": "{}",
            }
            for generation in sorted(generations, key=_key)
        ],
    )


def _key(generation: Generation) -> tuple[str, int]:
    return generation.projection.name, generation.number


def _fold(generation: Generation, row: Any) -> Fold:
    if row is None or row[2] == 0:
        return begin(generation)
    buffer = RowBuffer(generation.projection, fresh=False)
    return Fold(generation, row[2], codec.loads(row[3]), buffer)
