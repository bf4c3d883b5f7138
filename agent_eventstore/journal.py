"""The journal: appends a recorder's events to one conversation, as its only writer.

A journal appends with its writer epoch, so a process that is presumed dead gets `WriterFenced` once
another has opened the conversation. It also names the last event that it wrote as an anchor, so it
gets `LogWentBack` if the log was restored to an older state. Every event has its id, so an append
can be repeated safely after a lost connection. Facts that cannot be written while the server is
unreachable are kept in memory, and written before the next append.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID

from sqlalchemy import Connection
from tenacity import Retrying

from agent_eventstore.batching import later
from agent_eventstore.cutting import fit
from agent_eventstore.unwritten import (
    PASSING,
    Acknowledged,
    Begun,
    KeptFacts,
    Told,
    facts,
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
"""Exceptions that are not errors of a block but interrupt it, at any point."""

_log = get_logger("agent_eventstore")


def not_abandoned(error: Exception) -> None:
    """Log that the events of an interrupted block could not be written."""
    _log.warning("interrupted block not recorded", why=str(error))


class Writing:
    """The common properties of `Journal` and `AsyncJournal`."""

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
        """The version of the last event that this journal has written."""
        return self._facts.version


class Journal(Writing):
    """Appends the events of one conversation; thread-safe, one append at a time.

    Args:
        store: The store of the conversation.
        conversation_id: The conversation.
        epoch: The writer's epoch.
        version: The conversation's version, if known.
        written: The events written so far.
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

    @classmethod
    def sharing(cls, store: EventStore, facts: KeptFacts) -> Journal:
        """Return a journal that continues with the facts of another one, which writes no more."""
        made = cls(store, facts.conversation_id)
        made._facts = facts
        return made

    @property
    def successor(self) -> Journal:
        """The journal that writes what this one has left: itself."""
        return self

    @property
    def written(self) -> Acknowledged:
        """The last events that this journal has written."""
        return self._facts.written

    def write(self, events: Sequence[NewEvent]) -> Appended | None:
        """Append the events of an action before it runs; return None if there are no events.

        After a lost connection, or while another writer holds a lock, the append is retried for
        five seconds with the same event ids. Facts that `record` could not write are written first,
        each in its own transaction. An event that exceeds a size limit is cut to fit, if possible.

        Raises:
            InvalidEvent: An event cannot be stored, or the store's redactor fails on it.
            WriterFenced: A newer writer has opened the conversation; nothing was written.
            ForkedWriter: This process was forked from the one that opened the conversation.
            LogWentBack: Events of this journal are no longer in the log; nothing was written.
            CannotConnect: The server is unreachable; the events may or may not be stored.
                Writing the same events again is safe.
            DatabaseBusy: Another writer holds the lock of the conversation, or of SQLite's file.
        """
        self._facts.require_own()
        with self._lock:
            self.settle(events)
            self._catch_up()
            return self._append(without_secrets(events)) if events else None

    def write_within(self, connection: Connection, events: Sequence[NewEvent]) -> None:
        """Append in a product's transaction; the next write checks whether it was committed.

        Raises:
            EventStoreError: See `EventStore.append` with ``connection``.
        """
        self._facts.require_own()
        events = without_secrets(events)
        with self._lock:
            self.settle(events)
            self._catch_up(wait=False)
            own = self._facts
            done = self.store.append(
                own.conversation_id,
                events,
                writer_epoch=own.epoch,
                anchor=own.written.anchor,
                connection=connection,
                allow_empty=True,
            )
            self.begun_within(events, done)

    def begun_within(
        self, events: Sequence[NewEvent], done: Appended, told: Told | None = None
    ) -> None:
        """Remember events that were appended in a product's transaction."""
        self._facts.begun = Begun(tuple(events), done, told)

    @property
    def begun(self) -> Begun | None:
        """The events of a product's transaction whose outcome is not known yet."""
        return self._facts.begun

    def settle(self, events: Sequence[NewEvent]) -> None:
        """Check whether the events of a product's transaction were committed.

        Raises:
            NotCommitted: They were not, and ``events`` belong to the same turn or conversation.
        """
        own = self._facts
        with self._lock:
            if (begun := own.begun) is not None:
                there = None
                with suppress(ConversationNotFound):
                    read = self.store.read(
                        own.conversation_id, after=begun.done.version - 1, limit=1
                    )
                    there = next(iter(read), None)
                if own.settle(there) is not None and begun.told is not None:
                    begun.told(begun.done)
        own.require_begun(events)

    def record(self, events: Sequence[NewEvent], told: Told | None = None) -> None:
        """Append facts: events of something that has happened; see `write`.

        Facts that cannot be written are kept in memory, and written once and in order before the
        next append. Only a fact that can never be stored, or that a newer writer has fenced, is
        dropped, and its error raised. If the store's redactor fails on a fact, a placeholder is
        stored.
        """
        self._facts.require_own()
        self._facts.require_begun(events)
        if self._facts.begun is not None:
            self.settle(events)
        events = facts(events, self.store.redact)
        if self._appender == threading.get_ident() or self.store.is_writing_here:
            # Garbage collection may close a dropped generator, and so end its turn, while this
            # same thread is in the middle of an append: waiting for the lock would deadlock.
            self._facts.keep(events, told)
            later(self._save)
            return
        with self._lock:
            self._facts.keep(events, told)
            self._catch_up()

    def offer(self, events: Sequence[NewEvent], told: Told | None = None) -> bool:
        """Record facts without waiting for a lock; return False if some remain unwritten.

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
        """Record the session's end, and all facts kept in memory.

        Raises:
            FactsNotWritten: Some of them could not be written; the ``__cause__`` says why.
        """
        try:
            self.record(events)
        except Exception as error:
            if (left := self._facts.left(error)) is error:
                raise
            raise left from error

    def write_again(self) -> Appended | None:
        """Append lost events again, at the same versions; return None if nothing is missing.

        This works only if no other writer has appended since; opening a conversation appends. The
        journal then continues with a new epoch, and also writes the facts kept meanwhile.

        Raises:
            WrongExpectedVersion: Another writer has appended, or lost events are not remembered.
            LogWentBack: Events of other writers were lost in between.
        """
        self._facts.require_own()
        with self._lock:
            own, conversation_id = self._facts, self.conversation_id
            again = own.written.again()
            if again is None:
                return None
            lost, version = again
            events = fit(lost, self.store.max_event_bytes) or lost
            done = self.store.append(
                conversation_id, events, expected_version=version, allow_empty=True
            )
            own.written.restored(done, events)
            own.epoch = self.store.raise_writer_epoch(conversation_id)
            self._catch_up()
            return done

    def abandon(self, *parts: Sequence[NewEvent]) -> None:
        """Record a block that was interrupted at its entry: its start, and that it never ran.

        The start may or may not be stored, so it is written again with the same ids. Errors are
        logged, not raised, so that the interruption propagates.
        """
        for events in parts:
            try:
                self.record(events)
            except Exception as error:
                not_abandoned(error)

    @property
    def unwritten(self) -> tuple[NewEvent, ...]:
        """The facts that are not written; none in a forked child, whose parent writes them."""
        if self._facts.process != os.getpid():
            return ()
        return tuple(event for events, _ in [*self._facts.unsaved] for event in events)

    def write_unwritten(self) -> None:
        """Write the facts that are not written, without waiting for a lock; see `record`."""
        self._facts.require_own()
        with self._lock:
            self._catch_up(wait=False)

    def discard_unwritten(self) -> None:
        """Forget the facts that are not written, unless `write_again` may still write them."""
        if self._facts.written.loss is None:
            self._facts.unsaved.clear()

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
            # After a retry that failed, do not wait again until the server has answered once.
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
        own = self._facts
        try:
            done = self.store.append(
                own.conversation_id,
                events,
                writer_epoch=own.epoch,
                anchor=own.written.anchor,
                wait=wait,
                allow_empty=True,
            )
        except LogWentBack as error:
            left = self.store.read(own.conversation_id, after=own.written.since - 1)
            raise own.written.missing(error, left) from None
        return own.done(done, events)
