"""Where a recorder's events go: one conversation, written by one writer at a time.

A journal appends under its writer epoch, so that a process that was thought dead is refused
(`WriterFenced`) once another has opened the conversation; and after the event that it wrote last,
so that it does not go on where the log is at an older state (`LogWentBack`). Every event brings its
id, so that an append whose connection broke is repeated without doing it twice; and what has
happened while the server was away is kept, and written ahead of whatever is written next.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID

from sqlalchemy import Connection
from tenacity import Retrying

from agent_eventstore.batching import later
from agent_eventstore.unwritten import (
    PASSING,
    Acknowledged,
    Begun,
    KeptFacts,
    Told,
    facts,
    fit,
    in_vain,
    policy,
    without_secrets,
)
from eventstore import Appended, EventStore, NewEvent
from eventstore.errors import (
    ConversationNotFound,
    InvalidEvent,
    LogWentBack,
    StoreUnavailable,
    WriterFenced,
)
from eventstore.log import get_logger

__all__ = ["INTERRUPTIONS", "Journal", "Writing", "not_abandoned"]

INTERRUPTIONS = (KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError)
"""What is not an error of a block but stops it, at any place."""

_log = get_logger("agent_eventstore")


def not_abandoned(error: Exception) -> None:
    """Say that the record of an interrupted block could not be written."""
    _log.warning("interrupted block not recorded", why=str(error))


class Writing:
    """What both journals tell of themselves."""

    _facts: KeptFacts

    @property
    def conversation_id(self) -> UUID:
        """The conversation's id."""
        return self._facts.conversation_id

    @property
    def epoch(self) -> int | None:
        """The writer's epoch."""
        return self._facts.epoch

    @property
    def version(self) -> int:
        """The version of the last event which this journal has written."""
        return self._facts.version


class Journal(Writing):
    """The writing end of a conversation; safe to share between threads, which take turns.

    Args:
        store: Where the conversation is.
        conversation_id: The conversation.
        epoch: The writer's epoch.
        version: The conversation's version, if it is known.
        written: What it has written so far.
    """

    def __init__(
        self,
        store: EventStore,
        conversation_id: UUID,
        *,
        epoch: int | None = None,
        version: int = 0,
        written: Acknowledged | None = None,
    ) -> None:
        self.store = store
        self._facts = KeptFacts(conversation_id, epoch, version, written or Acknowledged())
        self._lock = threading.RLock()
        self._appender: int | None = None

    @property
    def written(self) -> Acknowledged:
        """What this journal has written, and remembers."""
        return self._facts.written

    def write(self, events: Sequence[NewEvent]) -> Appended | None:
        """Append durably what is about to happen; None if there are no events.

        A broken connection, or a lock that somebody else holds, is met by trying again, for five
        seconds, with the same event ids.
        What `record` could not write is written first, each in its own transaction. What is larger
        than an event may be is made to fit, where it can be.

        Raises:
            InvalidEvent: An event cannot be stored, or the store's redactor fails at it.
            WriterFenced: A newer writer has opened the conversation; nothing was written.
            ForkedWriter: This process was forked from the one that opened the conversation.
            LogWentBack: What this journal has written is no longer in the log; nothing was written.
            CannotConnect: The server cannot be reached; the events may or may not be there.
                Writing the same events again is safe.
            DatabaseBusy: Somebody else holds the lock of the conversation, or of SQLite's file.
        """
        self._facts.require_own()
        with self._lock:
            self.settle(events)
            self._catch_up()
            return self._append(without_secrets(events)) if events else None

    def write_within(self, connection: Connection, events: Sequence[NewEvent]) -> None:
        """Append in a product's transaction; what comes next looks whether it was committed.

        Raises:
            EventStoreError: As `EventStore.append` raises with ``connection``.
        """
        self._facts.require_own()
        events = without_secrets(events)
        with self._lock:
            self.settle(events)
            self._catch_up(wait=False)
            facts = self._facts
            done = self.store.append(
                facts.conversation_id,
                events,
                writer_epoch=facts.epoch,
                anchor=facts.written.anchor,
                connection=connection,
            )
            self.begun_within(events, done)

    def begun_within(
        self, events: Sequence[NewEvent], done: Appended, told: Told | None = None
    ) -> None:
        """Take note of what was appended in a product's transaction."""
        self._facts.begun = Begun(tuple(events), done, told)

    @property
    def begun(self) -> Begun | None:
        """What stands in a product's transaction, of which nobody knows what came of it."""
        return self._facts.begun

    def settle(self, events: Sequence[NewEvent]) -> None:
        """Find out whether what was begun in a product's transaction was committed.

        Raises:
            NotCommitted: It was not, and these events belong to it.
        """
        facts = self._facts
        with self._lock:
            if (begun := facts.begun) is not None:
                there = None
                with suppress(ConversationNotFound):
                    read = self.store.read(
                        facts.conversation_id, after=begun.done.version - 1, limit=1
                    )
                    there = next(iter(read), None)
                if facts.settle(there) is not None and begun.told is not None:
                    begun.told(begun.done)
        facts.require_begun(events)

    def record(self, events: Sequence[NewEvent], told: Told | None = None) -> None:
        """Append durably what has happened; see `write`.

        The facts are not lost if they cannot be written: they are kept in memory, and written,
        once and in order, ahead of what is written next. Only one that can never be stored, or that
        a newer writer leaves no place for, is dropped with its error. Where the store's redactor
        fails at one, a placeholder is stored.
        """
        self._facts.require_own()
        self._facts.require_begun(events)
        if self._facts.begun is not None:
            self.settle(events)
        events = facts(events, self.store.redact)
        if self._appender == threading.get_ident() or self.store.is_writing_here:
            # Python's collector closes a generator that was dropped, and with it a turn, in the
            # midst of whatever its thread does: to wait for that would be to wait for itself.
            self._facts.keep(events, told)
            later(self._save)
            return
        with self._lock:
            self._facts.keep(events, told)
            self._catch_up()

    def offer(self, events: Sequence[NewEvent], told: Told | None = None) -> bool:
        """Record facts without waiting for anybody; return false if some are kept unwritten.

        For a thread that serves many conversations; see `record`.
        """
        self._facts.require_own()
        self._facts.keep(facts(events, self.store.redact), told)
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self._catch_up(wait=False)
        except StoreUnavailable as error:
            _log.warning("facts kept", conversation_id=str(self.conversation_id), why=str(error))
        finally:
            self._lock.release()
        return not self._facts.unsaved

    def close(self, events: Sequence[NewEvent]) -> None:
        """Record the end, and all that is kept.

        Raises:
            FactsNotWritten: Some of it could not be written; the cause says why.
        """
        try:
            self.record(events)
        except Exception as error:
            if (left := self._facts.left(error)) is error:
                raise
            raise left from error

    def write_again(self) -> Appended | None:
        """Write what the log has lost, at the versions that it had; None if nothing is missing.

        Only where nobody has appended since: whoever opens a conversation does. Then this journal
        goes on under a new epoch; what it kept meanwhile is written too.

        Raises:
            WrongExpectedVersion: Somebody has, or events are lost that nobody here remembers.
            LogWentBack: Events of others stood in between.
        """
        self._facts.require_own()
        with self._lock:
            facts, conversation_id = self._facts, self.conversation_id
            again = facts.written.again()
            if again is None:
                return None
            lost, version = again
            events = fit(lost, self.store.max_event_bytes) or lost
            done = self.store.append(conversation_id, events, expected_version=version)
            facts.written.restored(done, events)
            facts.epoch = self.store.raise_writer_epoch(conversation_id)
            self._catch_up()
            return done

    def abandon(self, *parts: Sequence[NewEvent]) -> None:
        """Record a block that was interrupted at its entry: its beginning, and that it never ran.

        Whether the beginning is there nobody knows, so it is written again under the same ids.
        Nothing is raised, since the interruption is to go on.
        """
        for events in parts:
            try:
                self.record(events)
            except Exception as error:
                not_abandoned(error)

    def _save(self) -> None:
        with self._lock:
            try:
                self._catch_up()
            except Exception as error:
                kept = "facts kept" if self._facts.unsaved else "not recorded"
                _log.warning(kept, conversation_id=str(self.conversation_id), why=str(error))

    def _catch_up(self, *, wait: bool = True) -> None:
        invalid: InvalidEvent | None = None
        for events, told in self._facts.pending():
            try:
                done = self._append(events, wait)
            except (InvalidEvent, WriterFenced) as error:
                invalid = self._facts.dropped(error)
            else:
                self._facts.saved(told, done)
        if invalid is not None:
            raise invalid

    def _append(self, events: Sequence[NewEvent], wait: bool = True) -> Appended:
        self._appender = threading.get_ident()
        try:
            return self._patiently(events, wait and self._facts.patient)
        finally:
            self._appender = None

    def _patiently(self, events: Sequence[NewEvent], wait: bool) -> Appended:
        started = time.monotonic()
        try:
            return self._once(events, wait)
        except PASSING as error:
            if not wait or in_vain(error, started):
                raise
        try:
            return Retrying(**policy())(self._once, events, wait)
        except PASSING:
            # Whoever has waited in vain does not wait again until the server has answered once.
            self._facts.patient = False
            raise

    def _once(self, events: Sequence[NewEvent], wait: bool) -> Appended:
        try:
            return self._onto(events, wait)
        except InvalidEvent:
            kept = fit(events, self.store.max_event_bytes)
            if kept is None:
                raise
        return self._onto(kept, wait)

    def _onto(self, events: Sequence[NewEvent], wait: bool) -> Appended:
        facts = self._facts
        try:
            done = self.store.append(
                facts.conversation_id,
                events,
                writer_epoch=facts.epoch,
                anchor=facts.written.anchor,
                wait=wait,
            )
        except LogWentBack as error:
            left = self.store.read(facts.conversation_id, after=facts.written.since - 1)
            raise facts.written.missing(error, left) from None
        return facts.done(done, events)
