"""A store's appends, in transactions of their own: the short way where it can be, else the plain.

Here it is decided what an error means for the other appends of its group: what one of them is
refused, the others do not notice.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from eventstore.errors import CannotConnect, DatabaseBusy, EventStoreError, StoreUnavailable
from eventstore.events.base import Clock
from eventstore.log import get_logger
from eventstore.sealing import SealingKey
from eventstore.sql.append import Group, Heads, append, is_locked
from eventstore.sql.at_hand import AtHand
from eventstore.sql.dialect import DriverConnection
from eventstore.sql.driver import statement, transaction
from eventstore.sql.failures import lacks_connection, translated
from eventstore.sql.requests import Append, Appended

__all__ = ["Appending"]

_log = get_logger("eventstore")
_MOMENT_MS = 100


class Appending:
    """Runs appends on a store's connections, and remembers the heads that they lead to.

    Safe to share between threads.
    """

    def __init__(self, url: str, at_hand: AtHand, clock: Clock) -> None:
        self._url = url
        self._clock = clock
        self._at_hand = at_hand
        self._heads: Heads = {}

    def run(self, requests: Sequence[Append], *, wait: bool = True) -> list[Appended | Exception]:
        """Run appends, and return what came of each at its place, once all of it is durable.

        Those whose streams are where this store saw them last share one transaction, all others
        a second one. Without ``wait`` an append to a stream that somebody has locked comes to
        `DatabaseBusy` at once, and so do those after it; on SQLite after a tenth of a second.
        """
        outcomes = self._from_heads(requests, wait)
        left = [place for place, outcome in enumerate(outcomes) if outcome is None]
        if left:
            # In one order everywhere, so that two groups cannot wait for each other's streams.
            left.sort(key=lambda place: requests[place].conversation_id)
            plain = self._locked([requests[place] for place in left], wait, set())
            for place, outcome in zip(left, plain, strict=True):
                outcomes[place] = outcome
        return [outcome for outcome in outcomes if outcome is not None]

    def seen_version(self, conversation_id: UUID) -> int:
        """Return the version that an append of this store led a stream to; 0 if none is remembered.

        The stream has come further if others append to it, and not so far if a commit failed.
        """
        known = self._heads.get(conversation_id.int)
        return 0 if known is None else known.version

    def seen_key(self, conversation_id: UUID) -> SealingKey | None:
        """Return what a stream's events were sealed with at its remembered head, if with any."""
        known = self._heads.get(conversation_id.int)
        return None if known is None else known.key

    def _from_heads(
        self, requests: Sequence[Append], wait: bool
    ) -> list[Appended | Exception | None]:
        """Append what follows from the heads that are remembered, and leave None for the rest."""
        try:
            group = Group(requests, self._heads, self._clock())
            if group:
                patience_ms = self._patience_ms(wait)
                begun = statement(self._at_hand, patience_ms=patience_ms)
                with translated(self._url), begun as connection:
                    return [*group.write(connection, wait=wait)]
        except StoreUnavailable as error:
            # A lost connection leaves open whether they were committed: each caller must decide.
            if len(requests) == 1 or self._concerns_all(error):
                return [error] * len(requests)
        except Exception as error:
            # Not its text, in which a driver may quote what was to be written.
            _log.debug("append_plainly", appends=len(requests), error=type(error).__name__)
        return [None] * len(requests)

    def _locked(
        self, requests: Sequence[Append], wait: bool, busy: set[UUID]
    ) -> list[Appended | Exception]:
        """Append in one transaction, each stream's row locked first; if that fails, in many."""
        patience_ms = self._patience_ms(wait)
        begun = transaction(self._at_hand, write=True, patience_ms=patience_ms)
        try:
            with translated(self._url), begun as connection:
                return [self._append(connection, request, busy, wait) for request in requests]
        except Exception as error:
            if len(requests) == 1 or self._concerns_all(error):
                return [error] * len(requests)
        return [outcome for request in requests for outcome in self._locked([request], wait, busy)]

    def _patience_ms(self, wait: bool) -> int | None:
        """Return how long SQLite's lock is waited for, if less long than usually."""
        return None if wait or not self._at_hand.dialect.is_sqlite else _MOMENT_MS

    def _concerns_all(self, error: Exception) -> bool:
        """Whether each append of a group would meet the same by itself, having waited as long."""
        if isinstance(error, DatabaseBusy):
            # SQLite's lock is for the whole database; on PostgreSQL one stream may be locked.
            return self._at_hand.dialect.is_sqlite or lacks_connection(error)
        return isinstance(error, CannotConnect)

    def _append(
        self, connection: DriverConnection, request: Append, busy: set[UUID], wait: bool
    ) -> Appended | Exception:
        stream = request.conversation_id
        try:
            if not wait and (stream in busy or is_locked(connection, stream)):
                busy.add(stream)
                raise DatabaseBusy(self._url, f"conversation {stream} is being written: try again")
            return append(connection, request, self._clock(), self._heads)
        except EventStoreError as error:
            # Raised before anything was written, so the others of the group are not touched.
            return error
