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
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import Connection
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_delay,
    wait_exponential,
)

from agent_eventstore.batching import run_in_background
from agent_eventstore.errors import FactsNotWritten, ForkedWriter, NotCommitted
from agent_eventstore.oversized_events import fit
from eventstore import Anchor, Appended, EventStore, NewEvent, RecordedEvent, redact_secrets
from eventstore.errors import (
    CannotConnect,
    ConversationNotFound,
    DatabaseBusy,
    InvalidEvent,
    LogWentBack,
    RedactionFailed,
    StoreUnavailable,
    WriterFenced,
)
from eventstore.events import (
    ConversationStart,
    LlmError,
    LlmRequest,
    RunEnd,
    RunStart,
    RunStepEnd,
    SessionStart,
    TurnEnd,
)
from eventstore.security.redaction import Redactor, hidden, redacted, redacted_meta
from eventstore.telemetry.log import get_logger

__all__ = [
    "INTERRUPTIONS",
    "MOST_EVENTS",
    "MOST_SIZE",
    "PASSING",
    "PATIENCE_S",
    "Acknowledged",
    "Journal",
    "OnSaved",
    "PendingFacts",
    "StartedSession",
    "Writing",
    "facts",
    "in_vain",
    "not_abandoned",
    "patiently",
    "policy",
    "without_secrets",
]


T = TypeVar("T")


PATIENCE_S = 5.0


"""How long an append is retried, in seconds: a server restart takes a second or two."""


PASSING = (CannotConnect, DatabaseBusy)


"""Transient errors, after which an append is retried."""


MOST_EVENTS = 256


"""The most events that a journal remembers."""


MOST_SIZE = 4_000_000


"""Their maximum total size: characters of JSON, plus bytes of blobs."""


OnSaved = Callable[[Appended], None]


"""Called with the append's result once the events are durable."""


Entry = tuple[tuple[NewEvent, ...], OnSaved | None]


_log = get_logger("agent_eventstore")


# The fields to redact, by payload class.
_FIELDS: dict[type, tuple[str, ...]] = {
    ConversationStart: ("config",),
    SessionStart: ("config",),
    LlmRequest: ("parameters", "tools"),
    LlmError: ("message", "raw"),
    TurnEnd: ("error", "raw"),
    RunStart: ("config",),
    RunStepEnd: ("error",),
    RunEnd: ("error",),
}


def policy() -> dict[str, Any]:
    """Return tenacity's options for retrying an append."""
    return {
        "retry": retry_if_exception_type(PASSING),
        "stop": stop_after_delay(PATIENCE_S),
        "wait": wait_exponential(multiplier=0.05, max=1.0),
        "before_sleep": _warn,
        "reraise": True,
    }


def patiently(act: Callable[[], T]) -> T:
    """Do something that may be repeated; while the server is unreachable, for five seconds."""
    try:
        return act()
    except CannotConnect:
        retried = {**policy(), "retry": retry_if_exception_type(CannotConnect)}
        return Retrying(**retried)(act)


def in_vain(error: Exception, started: float) -> bool:
    """Whether waiting for a lock has already taken the whole retry time since ``started``."""
    return isinstance(error, DatabaseBusy) and time.monotonic() - started >= PATIENCE_S


def _warn(state: RetryCallState) -> None:
    _log.warning("repeated", attempt=state.attempt_number)


class Acknowledged:
    """The last events of one writer, and the anchor that its next append requires."""

    def __init__(self, anchor: Anchor | None = None) -> None:
        self.anchor = anchor
        self.loss: LogWentBack | None = None
        """The detected loss, until the events are written again."""
        self._appends: deque[tuple[int, tuple[NewEvent, ...], int]] = deque()
        self._events = self._size = 0
        self._whole = False

    @property
    def since(self) -> int:
        """The version of the oldest event that is remembered; 1 if none is."""
        return min((version for version, _, _ in self._appends), default=1)

    def at(self, version: int) -> NewEvent | None:
        """Return the event at a version, if it is remembered."""
        for first, events, _ in self._appends:
            if 0 <= version - first < len(events):
                return events[version - first]
        return None

    def add(self, done: Appended, events: Sequence[NewEvent]) -> None:
        """Remember an append; forget the oldest ones beyond the bounds."""
        if self.anchor is None or self.anchor.version < done.version:
            self.anchor = done.anchor
        self._appends.append((done.version - len(events) + 1, tuple(events), done.size))
        self._events, self._size = self._events + len(events), self._size + done.size
        while self._events > MOST_EVENTS or self._size > MOST_SIZE:
            _, oldest, size = self._appends.popleft()
            self._events, self._size = self._events - len(oldest), self._size - size

    def missing(self, error: LogWentBack, left: Iterable[RecordedEvent]) -> LogWentBack:
        """Return the error with the lost events; ``left`` is the log from `since` on."""
        there = {event.event_id for event in left}
        lost = {
            version + place: event
            for version, events, _ in self._appends
            for place, event in enumerate(events)
            if event.event_id not in there
        }
        known, first = [lost[version] for version in sorted(lost)], min(lost, default=None)
        self._whole = first is not None and first + len(lost) - 1 == max(lost)
        self.loss = LogWentBack(error.conversation_id, error.version, error.actual, known, first)
        return self.loss

    def again(self) -> tuple[tuple[NewEvent, ...], int] | None:
        """Return the lost events and the version at which to append them; None if none is lost.

        Raises:
            LogWentBack: Events of other writers were in between, or no lost event is remembered.
        """
        if self.loss is None:
            return None
        if not self._whole or self.loss.first is None:
            raise self.loss
        return self.loss.lost, self.loss.first - 1

    def restored(self, done: Appended, events: Sequence[NewEvent]) -> None:
        """Record that the lost events have been written again."""
        self.loss, self.anchor = None, None
        self._appends.clear()
        self._events = self._size = 0
        self.add(done, events)


def without_secrets(events: Sequence[NewEvent]) -> Sequence[NewEvent]:
    """Return the events with secrets in the fields of `_FIELDS` redacted."""
    if not any(type(event.data) in _FIELDS for event in events):
        return events
    return [_without_secrets(event) for event in events]


def _without_secrets(event: NewEvent) -> NewEvent:
    fields = _FIELDS.get(type(event.data))
    if fields is None:
        return event
    data = redacted(event.data, redact_secrets, only=fields)
    return event if data is event.data else replace(event, data=data)


def facts(events: Sequence[NewEvent], redact: Redactor | None) -> Sequence[NewEvent]:
    """Return facts that a store with this redactor cannot refuse.

    A text on which the redactor fails is replaced by a placeholder; if it then fails on its own
    results too, every text is.
    """
    events = without_secrets(events)
    return events if redact is None else [_fact(event, redact) for event in events]


def _fact(event: NewEvent, redact: Redactor) -> NewEvent:
    for again in (redact, None):
        try:
            redacted(event.data, redact)
        except RedactionFailed as error:
            # Not the error's message, which may quote the secret.
            cause = type(error.__cause__).__name__
            _log.warning("placeholder: the redactor failed", type=event.data.type, error=cause)
            event = replace(event, data=hidden(event.data, again))
    try:
        redacted_meta(event.meta, redact)
    except RedactionFailed as error:
        cause = type(error.__cause__).__name__
        _log.warning("extra left out: the redactor failed", type=event.data.type, error=cause)
        event = replace(event, meta=event.meta.model_copy(update={"extra": None}))
    return event


@dataclass(frozen=True, slots=True)
class StartedSession:
    """Events appended in a product's transaction whose outcome is not known yet."""

    events: tuple[NewEvent, ...]
    done: Appended
    on_saved: OnSaved | None = None


@dataclass(slots=True)
class PendingFacts:
    """The state of a journal; ``unsaved`` holds facts that could not be written yet."""

    conversation_id: UUID
    epoch: int | None
    version: int
    written: Acknowledged
    unsaved: deque[Entry] = field(default_factory=deque)
    patient: bool = True
    process: int = field(default_factory=os.getpid)
    started: StartedSession | None = None
    lost: tuple[int | None] | None = None
    """In a tuple, the turn whose start was not committed; (None,) for the conversation's start."""

    def settle(self, there: RecordedEvent | None) -> StartedSession | None:
        """Return `started` if it was committed; ``there`` is the log's event at that version."""
        started, self.started = self.started, None
        if started is None:
            return None
        last = started.events[-1]
        if there is None or there.event_id != last.event_id:
            self.lost = (last.meta.turn,)
            return None
        self.done(started.done, started.events)
        return started

    def require_started(self, events: Sequence[NewEvent]) -> None:
        """Refuse events of a turn or conversation whose start was not committed.

        Raises:
            NotCommitted: It was not committed.
        """
        if self.lost is None:
            return
        (turn,) = self.lost
        if turn is None or any(event.meta.turn == turn for event in events):
            raise NotCommitted(self.conversation_id, turn)

    def require_own(self) -> None:
        """Raise in a forked child: both processes would write as one writer, and repeat its facts.

        Raises:
            ForkedWriter: The journal belongs to the parent process.
        """
        if self.process != os.getpid():
            raise ForkedWriter(self.conversation_id)

    def keep(self, events: Sequence[NewEvent], on_saved: OnSaved | None) -> None:
        """Append a fact to those that are kept."""
        if events:
            self.unsaved.append((tuple(events), on_saved))

    def pending(self) -> Iterator[Entry]:
        """Yield the oldest kept fact until none is left; `saved` and `dropped` remove it."""
        while self.unsaved:
            yield self.unsaved[0]

    def saved(self, on_saved: OnSaved | None, done: Appended) -> None:
        """Remove the oldest fact, which is now durable."""
        self.unsaved.popleft()
        if on_saved is not None:
            on_saved(done)

    def done(self, done: Appended, events: Sequence[NewEvent]) -> Appended:
        """Record an append that is durable."""
        self.written.add(done, events)
        self.version, self.patient = max(self.version, done.version), True
        return done

    def dropped(self, error: InvalidEvent | WriterFenced) -> InvalidEvent:
        """Drop the oldest fact, and return the error to raise once the others are written.

        Raises:
            WriterFenced: A newer writer has opened the conversation; all facts are dropped.
        """
        if isinstance(error, WriterFenced):
            self.unsaved.clear()
            raise error
        self.unsaved.popleft()
        return error

    def left(self, error: Exception) -> Exception:
        """Return `FactsNotWritten` if facts are still kept, otherwise the given error."""
        if not self.unsaved or isinstance(error, LogWentBack):
            return error
        events = [event for entry, _ in self.unsaved for event in entry]
        return FactsNotWritten(self.conversation_id, tuple(events), str(error))


INTERRUPTIONS = (KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError)


"""Exceptions that are not errors of a block but interrupt it, at any point."""


def not_abandoned(error: Exception) -> None:
    """Log that the events of an interrupted block could not be written."""
    _log.warning("interrupted block not recorded", why=str(error))


class Writing:
    """The common properties of `Journal` and `AsyncJournal`."""

    _facts: PendingFacts

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
        self._facts = PendingFacts(conversation_id, epoch, version, written or Acknowledged())
        self._lock = threading.RLock()
        self._appender: int | None = None

    @classmethod
    def sharing(cls, store: EventStore, facts: PendingFacts) -> Journal:
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
            self.started_within(events, done)

    def started_within(
        self, events: Sequence[NewEvent], done: Appended, on_saved: OnSaved | None = None
    ) -> None:
        """Remember events that were appended in a product's transaction."""
        self._facts.started = StartedSession(tuple(events), done, on_saved)

    @property
    def started(self) -> StartedSession | None:
        """The events of a product's transaction whose outcome is not known yet."""
        return self._facts.started

    def settle(self, events: Sequence[NewEvent]) -> None:
        """Check whether the events of a product's transaction were committed.

        Raises:
            NotCommitted: They were not, and ``events`` belong to the same turn or conversation.
        """
        own = self._facts
        with self._lock:
            if (started := own.started) is not None:
                there = None
                with suppress(ConversationNotFound):
                    read = self.store.read(
                        own.conversation_id, after=started.done.version - 1, limit=1
                    )
                    there = next(iter(read), None)
                if own.settle(there) is not None and started.on_saved is not None:
                    started.on_saved(started.done)
        own.require_started(events)

    def record(self, events: Sequence[NewEvent], on_saved: OnSaved | None = None) -> None:
        """Append facts: events of something that has happened; see `write`.

        Facts that cannot be written are kept in memory, and written once and in order before the
        next append. Only a fact that can never be stored, or that a newer writer has fenced, is
        dropped, and its error raised. If the store's redactor fails on a fact, a placeholder is
        stored.
        """
        self._facts.require_own()
        self._facts.require_started(events)
        if self._facts.started is not None:
            self.settle(events)
        events = facts(events, self.store.redact)
        if self._appender == threading.get_ident() or self.store.is_writing_here:
            # Garbage collection may close a dropped generator, and so end its turn, while this
            # same thread is in the middle of an append: waiting for the lock would deadlock.
            self._facts.keep(events, on_saved)
            run_in_background(self._save)
            return
        with self._lock:
            self._facts.keep(events, on_saved)
            self._catch_up()

    def offer(self, events: Sequence[NewEvent], on_saved: OnSaved | None = None) -> bool:
        """Record facts without waiting for a lock; return False if some remain unwritten.

        For a thread that serves many conversations; see `record`.
        """
        self._facts.require_own()
        self._facts.keep(facts(events, self.store.redact), on_saved)
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
                outcome = "facts kept" if self._facts.unsaved else "not recorded"
                _log.warning(outcome, conversation_id=str(self.conversation_id), why=str(error))

    def _catch_up(self, *, wait: bool = True) -> None:
        invalid: InvalidEvent | None = None
        for events, on_saved in self._facts.pending():
            try:
                done = self._append(events, wait)
            except (InvalidEvent, WriterFenced) as error:
                invalid = self._facts.dropped(error)
            else:
                self._facts.saved(on_saved, done)
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
            fitting = fit(events, self.store.max_event_bytes)
            if fitting is None:
                raise
        return self._onto(fitting, wait)

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
