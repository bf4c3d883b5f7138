"""A store's appends in their own transactions: the short way if possible, otherwise the plain way.

The short way continues from the heads that the store remembers, for many streams at once. It takes
the head from memory instead of querying it: an append that follows the remembered head is written
at once, and the database refuses it if the stream has moved. It leaves everything else undone:
unknown streams, conflicts, fenced writers, retries, large payloads. Those appends take the plain
way (`eventstore.sql.append`), which finds the reason.

This module also decides what an error means for the other appends of its group: if one append is
refused, the others are not affected.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from datetime import datetime
from uuid import UUID

from eventstore.errors import CannotConnect, DatabaseBusy, EventStoreError, StoreUnavailable
from eventstore.events.base import Clock
from eventstore.log import get_logger
from eventstore.sealing import SealingKey
from eventstore.sql.append import append
from eventstore.sql.at_hand import AtHand
from eventstore.sql.backend import AnyConnection, DriverConnection, backend_of, cursor
from eventstore.sql.failures import lacks_connection, translated
from eventstore.sql.requests import ANY, Anchor, Append, Appended
from eventstore.sql.steps import Head, Heads, Step

__all__ = ["Appending", "Group"]

_log = get_logger("eventstore")
_MOMENT_MS = 100


class Appending:
    """Runs appends on a store's connections, and remembers the resulting heads.

    Safe to share between threads.
    """

    def __init__(self, url: str, at_hand: AtHand, clock: Clock) -> None:
        self._url = url
        self._clock = clock
        self._at_hand = at_hand
        self._heads = Heads()

    def within(self, at_hand: AtHand) -> Appending:
        """Return a copy that uses other connections and shares the remembered heads."""
        made = copy(self)
        made._at_hand = at_hand
        return made

    def run(self, requests: Sequence[Append], *, wait: bool = True) -> list[Appended | Exception]:
        """Run appends and return their outcomes in the order of the requests, once all are durable.

        Appends whose streams are at their remembered heads share one transaction, all others a
        second one. Without ``wait``, an append to a locked stream fails with `DatabaseBusy` at
        once, as do later appends to that stream; on SQLite after a tenth of a second.
        """
        outcomes = self._from_heads(requests, wait)
        left = [place for place, outcome in enumerate(outcomes) if outcome is None]
        if left:
            # The same order everywhere, so that two groups cannot wait for each other's streams.
            left.sort(key=lambda place: requests[place].conversation_id)
            plain = self._locked([requests[place] for place in left], wait, set())
            for place, outcome in zip(left, plain, strict=True):
                outcomes[place] = outcome
        return [outcome for outcome in outcomes if outcome is not None]

    def seen_version(self, conversation_id: UUID) -> int:
        """Return the version that this store last appended to a stream; 0 if none is remembered.

        The stream's real version is higher if others append to it, and lower if a commit failed.
        """
        known = self._heads.get(conversation_id.int)
        return 0 if known is None else known.version

    def seen_key(self, conversation_id: UUID) -> SealingKey | None:
        """Return the key that sealed a stream's events at its remembered head, if any."""
        known = self._heads.get(conversation_id.int)
        return None if known is None else known.key

    def _from_heads(
        self, requests: Sequence[Append], wait: bool
    ) -> list[Appended | Exception | None]:
        """Run the appends that follow remembered heads, and return None for the rest."""
        try:
            group = Group(requests, self._heads, self._clock())
            if group:
                patience_ms = self._patience_ms(wait)
                begun = self._at_hand.statement(patience_ms=patience_ms)
                with translated(self._url), begun as connection:
                    return [*group.write(connection, wait=wait)]
        except StoreUnavailable as error:
            # After a lost connection it is unknown whether they were committed: callers decide.
            if len(requests) == 1 or self._concerns_all(error):
                return [error] * len(requests)
        except Exception as error:
            # Not the error's text, in which a driver may quote the data.
            _log.debug("append_plainly", appends=len(requests), error=type(error).__name__)
        return [None] * len(requests)

    def _locked(
        self, requests: Sequence[Append], wait: bool, busy: set[UUID]
    ) -> list[Appended | Exception]:
        """Append in one transaction, locking each stream's row first; if that fails, in many."""
        patience_ms = self._patience_ms(wait)
        begun = self._at_hand.transaction(write=True, patience_ms=patience_ms)
        try:
            with translated(self._url), begun as connection:
                return [self._append(connection, request, busy, wait) for request in requests]
        except Exception as error:
            if len(requests) == 1 or self._concerns_all(error):
                return [error] * len(requests)
        return [outcome for request in requests for outcome in self._locked([request], wait, busy)]

    def _patience_ms(self, wait: bool) -> int | None:
        """Return how long to wait for SQLite's lock, or None for the default."""
        return None if wait or not self._at_hand.backend.locks_all else _MOMENT_MS

    def _concerns_all(self, error: Exception) -> bool:
        """Whether each append of a group would fail the same way alone, after the same wait."""
        if isinstance(error, DatabaseBusy):
            # SQLite locks the whole database; on PostgreSQL a single stream may be locked.
            return self._at_hand.backend.locks_all or lacks_connection(error)
        return isinstance(error, CannotConnect)

    def _append(
        self, connection: DriverConnection, request: Append, busy: set[UUID], wait: bool
    ) -> Appended | Exception:
        stream = request.conversation_id
        try:
            locked = connection.backend.is_locked
            if not wait and (stream in busy or locked(cursor(connection), stream)):
                busy.add(stream)
                raise DatabaseBusy(self._url, f"conversation {stream} is being written: try again")
            return append(connection, request, self._clock(), self._heads)
        except EventStoreError as error:
            # Raised before anything was written, so the others of the group are not affected.
            return error


class Group:
    """Appends, chained to remembered heads if possible.

    Appends to one stream keep their order: once one of them has to take the plain way, later ones
    do as well.
    """

    def __init__(self, requests: Sequence[Append], heads: Heads, now: datetime) -> None:
        self._heads = heads
        self._steps: dict[int, Step] = {}
        self._places: list[tuple[Step, slice] | None] = []
        plain: set[int] = set()
        for request in requests:
            stream = request.conversation_id.int
            step = self._steps.get(stream)
            if step is None and (known := heads.get(stream)) is not None:
                step = Step(request.conversation_id, known, now)
            if step is None or stream in plain or not _may_follow(request, step.head):
                plain.add(stream)
                self._places.append(None)
                continue
            self._steps[stream] = step
            self._places.append((step, step.add(request)))

    def __bool__(self) -> bool:
        """Whether any append can take the short way."""
        return bool(self._steps)

    def write(self, connection: AnyConnection, *, wait: bool = True) -> list[Appended | None]:
        """Write the appends that can be written, and return None for the others.

        On PostgreSQL this is one statement, which needs no transaction around it. If a stream
        already holds one of the event ids, the driver raises its integrity error. With several
        streams, locked ones are left out; with a single one, wait for its lock if ``wait``.
        """
        steps = list(self._steps.values())
        backend_of(connection).advance(cursor(connection), steps, wait=wait)
        for stream, step in self._steps.items():
            if step.positions is None:
                self._heads.pop(stream, None)
            else:
                self._heads.reach(step)
        return [
            None if place is None or place[0].positions is None else place[0].appended(place[1])
            for place in self._places
        ]


def _may_follow(request: Append, head: Head) -> bool:
    return (
        (request.expected is ANY or request.expected == head.version)
        and (request.writer_epoch is None or request.writer_epoch == head.epoch)
        and request.owns(head.tenant_id, head.user_id)
        and not request.has_blobs
        and request.key is head.key
        and (request.anchor is None or _descends(head, request.anchor))
    )


def _descends(head: Head, anchor: Anchor) -> bool:
    # The database compares the head's chain, which covers all earlier events.
    return anchor.line is head.line or anchor.chain == head.chain
