"""The outbox: events of sessions that have ended, which the database has not accepted yet.

A session that ends while the database is unreachable leaves events behind: the end of an answer, of
its turn, of the session itself. Whoever recorded them may be gone, as the generator of a web server
is. The outbox of the process keeps them in memory, and a thread writes them once the database
answers. The next opening of the conversation in this process writes them first, and so does
`EventStore.close`, which raises if some remain. Until then the session's lease is renewed, so that
no other process opens the conversation, which would fence the events.

Nothing is dropped in silence: the store's ``on_unwritten`` is called when a session leaves events
behind, and again when they were written, or can never be.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol
from uuid import UUID

from eventstore.errors import EventStoreError, FactsNotWritten, StatementRefused
from eventstore.events.records import NewEvent
from eventstore.leases import ENDS_S, KEEPER, give_back
from eventstore.sql.driver_errors import is_away
from eventstore.sql.transactions import Transactions
from eventstore.sql.urls import is_in_memory
from eventstore.telemetry.log import get_logger

__all__ = ["MOST_LEFT", "OUTBOX", "Left", "OnUnwritten", "Outbox", "Unwritten"]

MOST_LEFT = 1_000
"""The most sessions whose events are kept; beyond this the oldest are dropped, and reported."""

_AGAIN_S = 0.05
_SELDOM_S = 0.5
_AT_EXIT_S = 2.0
_REFUSED_S = 60.0
"""How long a refused statement is retried: a trigger, a privilege or a pooler may be mended."""

_log = get_logger("eventstore")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unwritten:
    """Events that a session left behind when it ended.

    Attributes:
        conversation_id: The conversation.
        session_id: The session that recorded them.
        events: The events, in order.
        status: ``pending`` while they are kept and retried, ``written``, or ``dropped``: a newer
            writer has the conversation, or the database has refused them for a minute.
        reason: Why they are not written.
    """

    conversation_id: UUID
    session_id: str
    events: tuple[NewEvent, ...]
    status: Literal["pending", "written", "dropped"]
    reason: str = ""


OnUnwritten = Callable[[Unwritten], None]
"""Called in any thread, several times per session; its exceptions are logged."""


class Left(Protocol):
    """What a session has left: its recorder, which knows how to write."""

    @property
    def unwritten(self) -> tuple[NewEvent, ...]:
        """The events that are not written."""

    def write_unwritten(self) -> None:
        """Write all of them without waiting for a lock; raise the first error."""

    def discard_unwritten(self) -> None:
        """Forget them."""


@dataclass(slots=True, eq=False)
class _Entry:
    store: Transactions
    on_unwritten: OnUnwritten | None
    conversation_id: UUID
    session_id: str
    left: Left
    reason: str
    events: tuple[NewEvent, ...]
    retried: bool = True
    """Whether the thread retries; not after the store was closed."""
    refused_at: float | None = None
    """When the database first refused the events (`time.monotonic`)."""

    def report(
        self, status: Literal["pending", "written", "dropped"], events: tuple[NewEvent, ...]
    ) -> Unwritten:
        return Unwritten(
            conversation_id=self.conversation_id,
            session_id=self.session_id,
            events=events,
            status=status,
            reason="" if status == "written" else self.reason,
        )


class Outbox:
    """The unwritten events of this process's ended sessions, of all its stores."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything, as in a forked child: the events are its parent's to write."""
        self._entries: list[_Entry] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(
        self,
        store: Transactions,
        conversation_id: UUID,
        session_id: str,
        left: Left,
        reason: str = "",
        on_unwritten: OnUnwritten | None = None,
    ) -> None:
        """Keep the events that a session has left, and write them as soon as possible."""
        entry = _Entry(
            store, on_unwritten, conversation_id, session_id, left, reason, left.unwritten
        )
        with self._changed:
            if any(each.left is left for each in self._entries):
                return
            KEEPER.extend(session_id, left, ENDS_S)
            self._entries.append(entry)
            beyond = self._entries[:-MOST_LEFT]
            del self._entries[:-MOST_LEFT]
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="eventstore-outbox", daemon=True
                )
                self._thread.start()
            self._changed.notify()
        _tell(entry, entry.report("pending", entry.events))
        for each in beyond:
            each.reason = f"more than {MOST_LEFT} sessions have unwritten events"
            with self._changed:
                self._entries.append(each)
            self._drop(each, each.left.unwritten)

    def of(
        self,
        store: Transactions,
        conversation_id: UUID | None = None,
        owner: object = None,
    ) -> list[Unwritten]:
        """Return what is pending in the store's database, oldest first.

        With ``owner`` only what was recorded through a store that is bound to it.
        """
        return [
            each.report("pending", each.left.unwritten)
            for each in self._of(store)
            if conversation_id in (None, each.conversation_id)
            and owner in (None, getattr(each.store, "owner", None))
        ]

    def write(self, store: Transactions, conversation_id: UUID | None = None) -> Exception | None:
        """Try once to write what is pending in the store's database; return why some still is."""
        failed: Exception | None = None
        for each in self._of(store):
            if conversation_id in (None, each.conversation_id):
                failed = self._write(each) or failed
        return failed

    def close(self, store: Transactions) -> None:
        """Write what is pending of a store that is closed; the thread no longer retries the rest.

        The next opening of the conversation in this process still does.

        Raises:
            FactsNotWritten: Some events could not be written.
        """
        mine = [each for each in self._of(store) if _pool(each.store) is _pool(store)]
        left = [each for each in mine if self._write(each) is not None]
        for each in left:
            each.retried = False
        if left:
            raise FactsNotWritten(
                left[0].conversation_id,
                tuple(event for each in left for event in each.left.unwritten),
                left[0].reason,
                conversations=len({each.conversation_id for each in left}),
            )

    def _of(self, store: Transactions) -> list[_Entry]:
        with self._changed:
            return [each for each in self._entries if _is_same(each.store, store)]

    def _write(self, entry: _Entry) -> Exception | None:
        """Write an entry; return None if nothing is left of it to be written."""
        before = entry.left.unwritten
        try:
            entry.left.write_unwritten()
        except Exception as error:
            entry.reason = str(error)
            if is_away(error) or self._may_be_mended(entry, error):
                return error
            if not isinstance(error, EventStoreError):
                _log.warning("outbox failed", exc_info=True)
            self._drop(entry, entry.left.unwritten or before)
            return None
        if not self._remove(entry):  # another thread has written it
            return None
        _log.info("left events written", conversation_id=str(entry.conversation_id))
        self._let_go(entry)
        _tell(entry, entry.report("written", entry.events))
        return None

    def _may_be_mended(self, entry: _Entry, error: Exception) -> bool:
        """Whether the database refuses the events for a reason that may yet go away."""
        if not isinstance(error, StatementRefused):
            return False
        now = time.monotonic()
        if entry.refused_at is None:
            entry.refused_at = now
        return now - entry.refused_at < _REFUSED_S

    def _drop(self, entry: _Entry, events: tuple[NewEvent, ...]) -> None:
        removed = self._remove(entry)
        entry.left.discard_unwritten()
        KEEPER.release(entry.session_id, unwritten=True)
        if removed and events:
            _log.error(
                "left events dropped",
                conversation_id=str(entry.conversation_id),
                events=len(events),
                why=entry.reason,
            )
            _tell(entry, entry.report("dropped", events))

    def _remove(self, entry: _Entry) -> bool:
        with self._changed:
            if entry not in self._entries:
                return False
            self._entries.remove(entry)
            return True

    def _let_go(self, entry: _Entry) -> None:
        """Delete the lease of a session of which nothing is left."""
        KEEPER.release(entry.session_id)
        try:
            give_back(entry.store, entry.conversation_id, entry.session_id)
        except EventStoreError as error:  # it has expired, or will
            conversation_id = str(entry.conversation_id)
            _log.warning("lease not released", conversation_id=conversation_id, why=str(error))

    def _run(self) -> None:
        process, pause = os.getpid(), _AGAIN_S
        while process == os.getpid():
            with self._changed:
                self._changed.wait(pause)
                waiting = [each for each in self._entries if each.retried]
                if not waiting:
                    self._thread = None
                    return
            away: set[int] = set()
            written = 0
            for each in waiting:
                if id(_pool(each.store)) in away or not each.retried:
                    continue
                error = self._write(each)
                if error is None:
                    written += 1
                elif is_away(error):
                    away.add(id(_pool(each.store)))
            pause = _AGAIN_S if written else min(2 * pause, _SELDOM_S)

    def at_exit(self) -> None:
        """Try a last time, and log what is lost with the process."""
        with self._changed:
            waiting = [each for each in self._entries if each.retried]
        until = time.monotonic() + _AT_EXIT_S
        for each in waiting:
            if time.monotonic() >= until or self._write(each) is not None:
                each.reason = f"the process ended: {each.reason}"
                self._drop(each, each.left.unwritten)


def _pool(store: Transactions) -> object:
    return store.engine.pool


def _is_same(one: Transactions, other: Transactions) -> bool:
    """Whether two stores are of the same database."""
    if _pool(one) is _pool(other):
        return True
    return one.engine.url == other.engine.url and not is_in_memory(one.engine.url)


def _tell(entry: _Entry, unwritten: Unwritten) -> None:
    if entry.on_unwritten is None:
        return
    try:
        entry.on_unwritten(unwritten)
    except Exception:
        conversation_id = str(entry.conversation_id)
        _log.warning("on_unwritten failed", conversation_id=conversation_id, exc_info=True)


OUTBOX = Outbox()
"""This process's outbox."""

atexit.register(OUTBOX.at_exit)
if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=OUTBOX.reset)
