"""A read that answers from what it has just folded, before that is in the tables.

A turn's read finds new rows alone, nearly always, and few of them: it keeps them in memory, and
saves many at once. No answer depends on it. A fold is pure, so whoever lacks what another process
has kept, or was killed with, folds the same events once more and says the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar
from uuid import UUID

from sqlalchemy import Connection

from eventstore.erasure import erasure_count, erasure_lock
from eventstore.errors import DatabaseBusy
from eventstore.sql.backend import AnyConnection, DriverConnection
from projections.engine import heads
from projections.engine.catch_up import Begin, CatchUp
from projections.engine.generations import Generation
from projections.engine.heads import Head
from projections.tokens.counts import TokenCounts

__all__ = ["MOST_UNSAVED", "Answer", "BeginRead", "Besides", "Query", "answered_ahead"]

C = TypeVar("C", Connection, DriverConnection)
T = TypeVar("T")
Query = Callable[[C, Sequence[Generation], Sequence[Head]], T]

MOST_UNSAVED = 16
"""Events of a conversation at which a read saves what it has folded, in a transaction of its own.

Fewer are kept in memory, for the next read to go on from; another process folds them again.
"""


class Besides(Protocol):
    """What a query makes besides its answer, to be kept for others."""

    @property
    def waits(self) -> bool:
        """Whether there is something to write."""

    def write(self, connection: AnyConnection) -> None:
        """Write it, in a transaction that has found everything as the query has."""


@dataclass(frozen=True, slots=True)
class BeginRead(Begin[C]):
    """How a read, of one snapshot, begins its transactions; ``besides`` goes in with the rows."""

    snapshot: Callable[[], AbstractContextManager[C]]
    besides: Besides | None = None


def answered_ahead(
    begin: BeginRead[C], catching_up: CatchUp, conversation_id: UUID, query: Query[C, T]
) -> Answer[T] | None:
    """Answer in the snapshot in which a conversation is folded; save that once it is much.

    None if the query needs the tables as they are afterwards, or others have come between.
    """
    answer: Answer[T] | None = None
    with begin.snapshot() as connection:
        with catching_up.blamed():
            catching_up.fold(connection)
        if (head := catching_up.ahead) is not None:
            with suppress(heads.NotSaved):
                made, counts = [head.generation], catching_up.counts
                answer = Answer.of(connection, made, conversation_id, query, [head], counts)
            besides = begin.besides is not None and begin.besides.waits
            if answer is not None and catching_up.pending < MOST_UNSAVED and not besides:
                return answer
            with catching_up.blamed():
                catching_up.bind(connection)
    if catching_up.pending:
        with catching_up.blamed(), begin.writing() as connection:
            catching_up.save(connection)
            if answer is not None and catching_up.done and begin.besides is not None:
                begin.besides.write(connection)
    return answer if catching_up.done else None


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What a query has answered, and the tokens that it has counted."""

    value: T
    conversation_id: UUID
    counts: TokenCounts
    erasures: int

    @classmethod
    def of(
        cls,
        connection: C,
        generations: Sequence[Generation],
        conversation_id: UUID,
        query: Query[C, T],
        found: Sequence[Head] = (),
        counts: TokenCounts | None = None,
    ) -> Answer[T]:
        """Ask, in a transaction that sees one state of the database.

        What is counted joins ``counts``, if there are some already.
        """
        counts = counts or TokenCounts(conversation_id)
        counts.look_in(connection)
        with counts.active():
            value = query(connection, generations, found)
        erasures = found[0].erasures if found else None
        if erasures is None:
            erasures = erasure_count(connection, [conversation_id]) if counts.has_new else 0
        return cls(value, conversation_id, counts, erasures)

    def kept(self, begin: BeginRead[C]) -> T:
        """Store what was counted; a busy database is no reason for the read to fail."""
        if self.counts.has_new:
            with suppress(DatabaseBusy), begin.writing() as connection:
                erasure_lock(connection, self.conversation_id)
                # What was erased since it was read must leave nothing.
                if erasure_count(connection, [self.conversation_id]) == self.erasures:
                    self.counts.write(connection)
        return self.value
