"""A generation's fold of one conversation: events in, and then statements that write its rows.

Folding, converting values and encoding texts hold no lock; what is written is bound beforehand, so
that the transaction that writes only runs statements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from eventstore.errors import KeyUnavailable, ProjectionFailed
from eventstore.events import RecordedEvent
from eventstore.sql.dialect import AnyConnection, Bound, dialect_of
from eventstore.sql.failures import is_away
from projections import heads
from projections.base import Projection, State
from projections.changes import RowBuffer
from projections.generations import Generation, is_gone
from projections.heads import Head

__all__ = ["BoundFolds", "Fold", "begin", "blamed", "go_on", "is_own_fault"]


@dataclass(slots=True)
class Fold:
    """A generation's fold of one conversation, as far as it has come."""

    generation: Generation
    version: int
    state: State
    buffer: RowBuffer
    chain: bytes | None = None

    def feed(self, events: Sequence[RecordedEvent]) -> None:
        """Fold events, in order; those at or below the fold's version are passed over.

        Raises:
            ProjectionFailed: The projection's fold raised.
        """
        projection, add = self.generation.projection, self.buffer.add
        fold = projection.fold
        state, version, chain = self.state, self.version, self.chain
        try:
            for event in events:
                if event.version > version:
                    state, changes = fold(state, event)
                    if changes:
                        add(changes)
                    version, chain = event.version, event.chain
        except Exception as error:
            if not is_own_fault(error):
                raise  # A fold asks for token counts that are kept.
            raise ProjectionFailed(projection.name, event.conversation_id, event.version) from error
        finally:
            self.state, self.version, self.chain = state, version, chain


def is_own_fault(error: Exception) -> bool:
    """Whether an error lies in what is folded or written: no waiting and no second look helps.

    Whatever is not known to be the database's own state, that of the keys, or a cut-over, counts
    as that.
    """
    if isinstance(error, KeyUnavailable):
        return error.lasting
    return not is_away(error) and not is_gone(error)


def begin(generation: Generation) -> Fold:
    """Return the fold of a conversation of which nothing has been folded."""
    projection: Projection = generation.projection
    return Fold(generation, 0, projection.initial(), RowBuffer(projection, fresh=True))


def go_on(head: Head) -> Fold:
    """Return the fold of a conversation from where its head stands."""
    if head.version == 0:
        return begin(head.generation)
    buffer = RowBuffer(head.generation.projection, fresh=False)
    return Fold(head.generation, head.version, head.state, buffer, head.chain)


@dataclass(frozen=True, slots=True)
class BoundFolds:
    """The statements that write rows, states and heads of folds of one conversation."""

    conversation_id: UUID
    _steps: Sequence[tuple[Generation, int, Sequence[Bound]]]

    @classmethod
    def of(
        cls, connection: AnyConnection, folds: Sequence[Fold], conversation_id: UUID
    ) -> BoundFolds:
        """Bind what was folded, in a transaction that reads; the folds are not used again.

        Raises:
            ProjectionFailed: What a fold has made cannot be converted.
        """
        steps: list[tuple[Generation, int, Sequence[Bound]]] = []
        for fold in folds:
            generation = fold.generation
            with blamed(generation, conversation_id, fold.version):
                bound = fold.buffer.bind(connection, generation.tables, conversation_id)
            steps.append((generation, fold.version, bound))
        first = folds[0]
        with blamed(first.generation, conversation_id, first.version):
            reached = [Head(each.generation, each.version, each.state) for each in folds]
            saved = heads.save(dialect_of(connection), conversation_id, reached)
        return cls(conversation_id, [*steps, (first.generation, first.version, [saved])])

    def write(self, connection: AnyConnection) -> None:
        """Run the statements, in the caller's transaction, which must be one for writing.

        Raises:
            ProjectionFailed: The database, or its driver, does not take what a fold has made.
        """
        for generation, version, statements in self._steps:
            with blamed(generation, self.conversation_id, version):
                for each in statements:
                    each.run(connection)


@contextmanager
def blamed(generation: Generation, conversation_id: UUID, version: int) -> Iterator[None]:
    """Raise `ProjectionFailed` for any error that lies in what the block does."""
    try:
        yield
    except ProjectionFailed:
        raise
    except Exception as error:
        if not is_own_fault(error):
            raise
        raise ProjectionFailed(generation.projection.name, conversation_id, version) from error
