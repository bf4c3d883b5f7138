"""Catch-up: the one path by which a projection's tables come to say what the events say.

`CatchUp` reads the events after a conversation's head, folds them, and writes rows, state and new
head in one transaction; a long way it goes in several. A read does so for the conversation it is
asked about, the worker for those that the feed names, and the rebuild for all; so they cannot
differ.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from uuid import UUID

import psycopg
from sqlalchemy.exc import SQLAlchemyError

from eventstore.erasure import erasure_lock
from eventstore.errors import BlobDamaged, ProjectionFailed
from eventstore.events import RecordedEvent
from eventstore.sql.dialect import AnyConnection
from eventstore.sql.read import END, read_page
from eventstore.telemetry import operation
from projections import heads
from projections.base import Projection, State
from projections.changes import RowBuffer
from projections.generations import Generation
from projections.heads import Head
from projections.token_counts import TokenCounts

__all__ = [
    "PIECE",
    "CatchUp",
    "Fold",
    "begin",
    "catch_up",
    "fold_anew",
    "is_current",
    "resume",
    "save_folds",
]

PIECE = 1_000
"""Events after which a catch-up should commit: until then others wait, on SQLite all that write."""

_PAGE = 1_000
_DAMAGED = (BlobDamaged, ValueError, TypeError, LookupError, RecursionError)
"""What reading a row raises whose payload, blob or metadata is damaged; no error of a driver."""
_FEW = 64  # events; of so few new ones no message has been counted before


@dataclass(slots=True)
class Fold:
    """A generation's fold of one conversation, as far as it has come."""

    generation: Generation
    version: int
    state: State
    buffer: RowBuffer

    def feed(self, events: Sequence[RecordedEvent]) -> None:
        """Fold events, in order; those at or below the fold's version are passed over.

        Raises:
            ProjectionFailed: The projection's fold raised.
        """
        projection, add = self.generation.projection, self.buffer.add
        fold = projection.fold
        state, version = self.state, self.version
        try:
            for event in events:
                if event.version > version:
                    state, changes = fold(state, event)
                    if changes:
                        add(changes)
                    version = event.version
        except (SQLAlchemyError, sqlite3.Error, psycopg.Error):
            raise  # A fold asks for token counts that are kept; a lost connection is not its fault.
        except Exception as error:
            raise ProjectionFailed(projection.name, event.conversation_id, event.version) from error
        finally:
            self.state, self.version = state, version


def begin(generation: Generation) -> Fold:
    """Return the fold of a conversation of which nothing has been folded."""
    projection: Projection = generation.projection
    return Fold(generation, 0, projection.initial(), RowBuffer(projection, fresh=True))


def is_current(connection: AnyConnection, generation: Generation, conversation_id: UUID) -> bool:
    """Whether the generation has folded every event of the conversation, which exists."""
    return not heads.behind(connection, [generation], [conversation_id])


class CatchUp:
    """The catching up of one conversation in some generations, piece by piece.

    Attributes:
        heads: Where the generations stand since the last piece.
    """

    def __init__(
        self, generations: Sequence[Generation], conversation_id: UUID, *, before: int = END
    ) -> None:
        self.heads: list[Head] = []
        self._generations = generations
        self._conversation_id = conversation_id
        self._before = before
        self._counts = TokenCounts(conversation_id)
        self._begun = False

    def piece(self, connection: AnyConnection, most: int = PIECE) -> int:
        """Fold the next events into the generations' tables; return how many were read.

        In the caller's transaction, which must be one for writing. Fewer than ``most`` are the
        last; otherwise the next piece may come in a transaction of its own, since heads, rows and
        states are those of the events up to here. A second caller for the same conversation waits
        for the first, and goes on from where that one came to. One pass over the events serves
        every generation; memory is bounded by a page of them.

        Raises:
            ProjectionFailed: A fold raised, or an event cannot be read; the caller's transaction
                must be rolled back, and this object not used again.
        """
        stream = self._conversation_id
        with operation(
            "projections", "catch_up", tell_slow=True, conversation_id=stream
        ) as caught_up:
            erasure_lock(connection, stream)
            folds = [_fold(head) for head in heads.lock(connection, self._generations, stream)]
            after, count = min(fold.version for fold in folds), 0
            self._counts.go_on_in(connection)
            while limit := min(_PAGE, most - count):
                page = _page(connection, folds, stream, after, self._before, limit)
                if page:
                    self._fold_page(connection, folds, page)
                    after, count = page[-1].version, count + len(page)
                if len(page) < limit:
                    break
            self._counts.write(connection)
            self.heads = [Head(fold.generation, fold.version, fold.state) for fold in folds]
            caught_up.note(version=after, events=count)
        return count

    def _fold_page(
        self, connection: AnyConnection, folds: Sequence[Fold], page: Sequence[RecordedEvent]
    ) -> None:
        counts, begun = self._counts, self._begun
        self._begun = True
        if not begun and (page[0].version == 1 or len(page) > _FEW):
            # Another generation may have folded them.
            counts.look_in(connection)
            counts.read_ahead()
        with counts.active():
            for fold in folds:
                fold.feed(page)
        save_folds(connection, folds, self._conversation_id)
        if counts.is_full:
            counts.write(connection)


def catch_up(
    connection: AnyConnection,
    generations: Sequence[Generation],
    conversation_id: UUID,
    *,
    before: int = END,
) -> int:
    """Fold all that a conversation has gained, in the caller's transaction; return how many events.

    With ``before``, only those below that version.

    Raises:
        ProjectionFailed: As `CatchUp.piece` does.
    """
    return CatchUp(generations, conversation_id, before=before).piece(connection, END)


def fold_anew(
    connection: AnyConnection,
    generations: Sequence[Generation],
    conversation_id: UUID,
    *,
    before: int = END,
    counts: TokenCounts | None = None,
) -> list[Fold]:
    """Return folds of the whole conversation, or of the versions below ``before``, in memory.

    Reads events alone, in the caller's transaction, and writes nothing. Tokens are taken from
    ``counts``, which then holds what was counted; without it they are counted anew.

    Raises:
        ProjectionFailed: A fold raised, or an event cannot be read.
    """
    folds, after = [begin(generation) for generation in generations], 0
    if counts is not None:
        counts.read_ahead()
    with counts.active() if counts else nullcontext():
        while page := _page(connection, folds, conversation_id, after, before):
            for fold in folds:
                fold.feed(page)
            after = page[-1].version
            if len(page) < _PAGE:
                break
    return folds


def resume(
    connection: AnyConnection,
    projection: Projection,
    live: Generation | None,
    conversation_id: UUID,
    counts: TokenCounts,
) -> Fold:
    """Return the fold of a conversation, from where ``live`` stands to the end, in memory.

    Locks and writes nothing: for connections that may only read. Run it in a snapshot.
    Tokens are taken from ``counts``.

    Raises:
        ProjectionFailed: The fold raised, or an event cannot be read.
    """
    fold = begin(live or Generation(projection, 0, None))
    if live is not None:
        for head in heads.read(connection, [live], conversation_id).values():
            fold = _fold(head)
    while page := _page(connection, [fold], conversation_id, fold.version):
        if fold.version == 0 or len(page) > _FEW:
            counts.read_ahead()
        with counts.active():
            fold.feed(page)
    return fold


def save_folds(connection: AnyConnection, folds: Sequence[Fold], conversation_id: UUID) -> None:
    """Write the rows, states and heads of folds, in the caller's transaction."""
    for fold in folds:
        fold.buffer.write(connection, fold.generation.tables, conversation_id)
    reached = [Head(fold.generation, fold.version, fold.state) for fold in folds]
    heads.save(connection, conversation_id, reached)


def _page(
    connection: AnyConnection,
    folds: Sequence[Fold],
    conversation_id: UUID,
    after: int,
    before: int = END,
    limit: int = _PAGE,
) -> list[RecordedEvent]:
    try:
        return read_page(connection, conversation_id, after=after, before=before, limit=limit)
    except _DAMAGED as error:
        version = _damaged(connection, conversation_id, after)
        name = folds[0].generation.projection.name
        raise ProjectionFailed(name, conversation_id, version) from error


def _damaged(connection: AnyConnection, conversation_id: UUID, after: int) -> int:
    """Return the first version after that one which cannot be read."""
    version = after + 1
    with suppress(*_DAMAGED):
        while read_page(connection, conversation_id, after=version - 1, limit=1):
            version += 1
    return version


def _fold(head: Head) -> Fold:
    if head.version == 0:
        return begin(head.generation)
    buffer = RowBuffer(head.generation.projection, fresh=False)
    return Fold(head.generation, head.version, head.state, buffer)
