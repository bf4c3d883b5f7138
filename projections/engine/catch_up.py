"""Catch-up: the single code path that brings a projection's tables up to date with the events.

`CatchUp` reads the events after a conversation's head and folds them. It then writes rows, state
and the new head in one transaction, provided that the head has not moved; many events take several
transactions. A read does so for its conversation, the worker for those that the feed names, and the
rebuild for all, so their results cannot differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from uuid import UUID

import psycopg
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from eventstore.database import END, AnyConnection, DriverConnection, backend_of
from eventstore.erasure.erase import erasure_count, erasure_lock
from eventstore.errors import StatementRefused
from eventstore.events import RecordedEvent
from eventstore.telemetry.operations import operation
from projections.engine import heads
from projections.engine.folds import BoundFolds, Fold, begin, go_on, is_own_fault
from projections.engine.generations import IN_MEMORY, Generation
from projections.engine.head_cache import CachedHead, current_head
from projections.engine.heads import FoldHead
from projections.engine.pages import PAGE, page_of
from projections.engine.projection import Projection
from projections.errors import ProjectionFailed
from projections.tokens.counts import BoundCounts, TokenCounts

__all__ = [
    "PATIENCE_MS",
    "PIECE",
    "Begin",
    "CatchUp",
    "Pause",
    "at_once",
    "catch_up",
    "fold_from_start",
    "in_pieces",
    "is_current",
    "resume",
]

C = TypeVar("C", Connection, DriverConnection)
Pause = Callable[[float], None]
"""Called after each write transaction, with its duration in seconds.

To end the catch-up, raise a `BaseException` that is not an `Exception`: an `Exception` would be
attributed to the conversation.
"""

PIECE = 1_000
"""Events after which a catch-up should commit: until then others wait, on SQLite all writers."""

PATIENCE_MS = 500
"""How long a read waits for a lock, which it needs to save what it folded but not to answer."""

_FEW = 64  # events; messages of so few new events have not been counted before
_ATTEMPTS = 3  # in which other processes may interfere between folding and writing


def at_once(_: float) -> None:
    """Continue without a pause."""


def is_current(connection: AnyConnection, generation: Generation, conversation_id: UUID) -> bool:
    """Whether the generation has folded every event of the conversation, which must exist."""
    return not heads.behind(connection, [generation], [conversation_id])


@dataclass(frozen=True, slots=True)
class Begin(Generic[C]):
    """How a catch-up begins its read and its write transactions."""

    reading: Callable[[], AbstractContextManager[C]]
    writing: Callable[[], AbstractContextManager[C]]


class CatchUp:
    """The catch-up of one conversation in some generations, piece by piece.

    `fold` folds a piece without locking or writing anything. `save` then writes it, unless another
    process has interfered.

    Attributes:
        done: Whether the conversation is caught up to its end.
        version: Version of the last folded event.
        erasures: How often the conversation had been erased by then.
        pending: Number of events that are folded but not saved.
        counts: New token counts; a reader in the same transaction may add more.
        stood: Version and chain of the heads that `save` must find, by generation.
        ahead: With ``last``, the head that `save` will write, with the rows that the tables lack
            until then; None unless everything was folded and only added rows to the first table.
    """

    def __init__(
        self,
        generations: Sequence[Generation],
        conversation_id: UUID,
        *,
        before: int = END,
        last: FoldHead | None = None,
    ) -> None:
        """Prepare a catch-up to the end, or with ``before`` only of events below that version.

        Args:
            generations: The generations to catch up.
            conversation_id: The conversation.
            before: The version.
            last: The only generation's head as this process kept it, to go `ahead` from.
        """
        self.done = False
        self.version = self.erasures = 0
        self._generations = generations
        self._conversation_id = conversation_id
        self._before = before
        self.counts = TokenCounts(conversation_id)
        self._counting = False
        self._folds: list[Fold] = []
        self._bound: BoundFolds | None = None
        self._bound_counts: BoundCounts | None = None
        self.found_at: list[tuple[int, bytes | None]] = []
        self.pending = self._missed = 0
        self._most, self._at_end = PIECE, False
        self._last = last
        self.ahead: FoldHead | None = None
        self._chain: bytes | None = None

    def fold(
        self, connection: AnyConnection, most: int = PIECE, new: CachedHead | None = None
    ) -> int:
        """Fold the next events in memory, those of ``new`` if given; return how many.

        Pass a read transaction: all work that long texts make slow happens here. If fewer than
        ``most`` events are returned, they are the last. One pass over the events serves every
        generation.

        Raises:
            ProjectionFailed: A fold raised, an event cannot be read, or rows cannot be converted.
        """
        stream = self._conversation_id
        with operation(
            "projections", "catch_up", tell_slow=True, conversation_id=stream
        ) as caught_up:
            found = self._take_up(connection, new)
            hindmost = min(self._folds, key=lambda fold: fold.version)
            self.version, self._chain = hindmost.version, hindmost.chain
            bounds = (self.version, self._before, most)
            page = new.events if new else page_of(connection, self._folds, stream, *bounds)
            if page:
                self.version, self._chain = page[-1].version, page[-1].chain
                self._look_for_counts(connection, page)
                for fold in self._folds:
                    fold.feed(page)
                    fold.fill(self.counts, stream)
            self._most, self._at_end, self.done = most, len(page) < most, not page
            self.pending = self.version - min(version for version, _ in self.found_at)
            self.ahead = self._folded(found[0]) if self._last is not None else None
            if self.pending and self.ahead is None:
                self.bind(connection)
            caught_up.note(version=self.version, events=len(page))
        return len(page)

    def save(self, connection: AnyConnection) -> None:
        """Write what was folded, in the caller's write transaction.

        Only runs statements whose values are already bound.

        If another process has folded or erased since, nothing is written: call `fold` again. After
        some attempts, `save` folds under the lock itself, so that it cannot lose forever. A second
        caller for the same conversation waits for the first.

        Raises:
            ProjectionFailed: As in `fold`, or the rows cannot be written. The caller's transaction
                must be rolled back, and this object not used again. With pipelined statements, the
                error may come later, as the driver's error.
        """
        if self.pending and not self._stands(connection):
            self._missed += 1
            if self._missed < _ATTEMPTS:
                return
            self._last = None
            self.fold(connection, self._most)
        if self.pending:
            assert self._bound is not None  # noqa: S101 - where it was folded
            assert self._bound_counts is not None  # noqa: S101 - likewise
            self._bound.write(connection)
            self._bound_counts.write(connection)
            self.done = self._at_end

    def bind(self, connection: AnyConnection) -> None:
        """Bind what `save` writes; with `ahead`, the caller does so once its reader has counted."""
        self._bound = BoundFolds.of(connection, self._folds, self._conversation_id)
        self._bound_counts = self.counts.bind(backend_of(connection))

    def piece(self, connection: AnyConnection) -> None:
        """Fold and save the next events in one write transaction.

        Raises:
            ProjectionFailed: As in `save`.
        """
        erasure_lock(connection, self._conversation_id)
        heads.lock(connection, self._generations, self._conversation_id)
        self.fold(connection)
        self.save(connection)

    def _folded(self, found: FoldHead) -> FoldHead | None:
        fold, saved = self._folds[0], self.found_at[0]
        if not (saved[0] and self.pending and self._at_end):
            return None
        new = fold.buffer.only_new(fold.generation.projection.tables[0].name, saved[0])
        if new is None:
            return None
        return FoldHead(
            fold.generation,
            fold.version,
            fold.state,
            fold.chain,
            (found.version, found.chain),
            heads.Unsaved(saved, new, self.counts.new),
            self.erasures,
        )

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Raise `ProjectionFailed` if a piece's pipelined statement fails in the block."""
        try:
            yield
        except (DBAPIError, psycopg.Error, StatementRefused) as error:
            if not is_own_fault(error):
                raise
            name = self._generations[0].projection.name
            raise ProjectionFailed(name, self._conversation_id, self.version) from error

    def _take_up(self, connection: AnyConnection, new: CachedHead | None) -> list[FoldHead]:
        """Begin at the heads, and return them."""
        stream = self._conversation_id
        # Before events are read, so that an erasure in between is noticed at the end.
        if self._last is None:
            found = heads.of(connection, self._generations, stream)
        else:
            found = [new.head if new else current_head(connection, self._last, stream)]
        known = [head.erasures for head in found if head.erasures is not None]
        erasures = known[0] if known else erasure_count(connection, [stream])
        if erasures != self.erasures:
            # The counts may belong to erased events.
            self.counts, self.erasures, self._counting = TokenCounts(stream), erasures, False
        self._folds, self.found_at = [go_on(head) for head in found], []
        for head in found:
            if head.unsaved is not None:
                self.counts.know_new(head.unsaved.counts)
            at = (head.version, head.chain) if head.unsaved is None else head.unsaved.saved
            self.found_at.append(at)
        return found

    def _look_for_counts(self, connection: AnyConnection, page: Sequence[RecordedEvent]) -> None:
        self.counts.go_on_in(connection)
        if not self._counting and (page[0].version == 1 or len(page) > _FEW):
            # Another generation may have folded and counted them.
            self.counts.look_in(connection)
            self.counts.read_ahead()
        self._counting = True

    def _stands(self, connection: AnyConnection) -> bool:
        """Whether nothing has changed since the fold; locks it, so that nothing will.

        This includes the folded events: a database restored to an older state may lack them.
        """
        stream = self._conversation_id
        erasure_lock(connection, stream)
        found, *rest = heads.lock_at(connection, self._generations, stream, self.version)
        stands = [(head.version, head.chain) for head in found]
        return (stands, rest) == (self.found_at, [self.erasures, self._chain])


def in_pieces(several: Sequence[CatchUp], begin: Begin[Any], pause: Pause = at_once) -> None:
    """Catch conversations up, in order, each to its end, in many short transactions.

    Each piece of events, possibly of several conversations, is folded in a read transaction, and
    written in a transaction that does little else. Processes that wait for it (on SQLite, all
    writers) therefore do not wait for folds, tokenizers or long texts.

    Raises:
        ProjectionFailed: As in `CatchUp.save`. Pieces written before it stay.
    """
    waiting = list(several)
    while waiting:
        folded, room = [], PIECE
        with begin.reading() as connection:
            for each in waiting:
                room -= each.fold(connection, room)
                folded.append(each)
                if not room:
                    break
        started = time.monotonic()
        if any(each.pending for each in folded):
            with begin.writing() as connection:
                for each in folded:
                    each.save(connection)
        waiting = [each for each in waiting if not each.done]
        pause(time.monotonic() - started)


def catch_up(
    connection: AnyConnection,
    generations: Sequence[Generation],
    conversation_id: UUID,
    *,
    before: int = END,
) -> None:
    """Fold all new events of a conversation, in the caller's write transaction.

    With ``before``, only the events below that version.

    Raises:
        ProjectionFailed: As in `CatchUp.save`.
    """
    catching_up = CatchUp(generations, conversation_id, before=before)
    while not catching_up.done:
        catching_up.piece(connection)


def fold_from_start(
    connection: AnyConnection,
    generations: Sequence[Generation],
    conversation_id: UUID,
    *,
    before: int = END,
    counts: TokenCounts | None = None,
) -> list[Fold]:
    """Return folds of the whole conversation, or of the versions below ``before``, in memory.

    Only reads, in the caller's transaction. Token counts are taken from ``counts``, and new counts
    are added to it; without it all tokens are counted again.

    Raises:
        ProjectionFailed: A fold raised, or an event cannot be read.
    """
    folds, after = [begin(generation) for generation in generations], 0
    while page := page_of(connection, folds, conversation_id, after, before):
        for fold in folds:
            fold.feed(page)
        after = page[-1].version
        if len(page) < PAGE:
            break
    counts = counts or TokenCounts()
    counts.read_ahead()
    for fold in folds:
        fold.fill(counts, conversation_id)
    return folds


def resume(
    connection: AnyConnection,
    projection: Projection,
    live: Generation | None,
    conversation_id: UUID,
    counts: TokenCounts,
) -> Fold:
    """Return the fold of a conversation, from the head of ``live`` to the end, in memory.

    Locks and writes nothing, for read-only connections. Call it in a snapshot. Token counts are
    taken from ``counts``.

    Raises:
        ProjectionFailed: The fold raised, or an event cannot be read.
    """
    fold = begin(live or Generation(projection, IN_MEMORY, None))
    if live is not None:
        for head in heads.read(connection, [live], conversation_id).values():
            fold = go_on(head)
    while page := page_of(connection, [fold], conversation_id, fold.version):
        if fold.version == 0 or len(page) > _FEW:
            counts.read_ahead()
        fold.feed(page)
    fold.fill(counts, conversation_id)
    return fold
