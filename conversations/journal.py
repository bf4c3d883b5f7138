"""Where a recorder's events go: one conversation, written by one writer at a time.

A journal appends under its writer epoch, so that a process that was thought dead is refused
(`WriterFenced`) once another has opened the conversation; and after the event that it wrote last,
so that it does not go on where the log is at an older state (`LogWentBack`). Every event brings its
id, so that an append whose connection broke is repeated without doing it twice; and what has
happened while the server was away is kept, and written ahead of whatever is written next.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_delay,
    wait_exponential,
)

from conversations.acknowledged import Acknowledged
from conversations.finishing import finish
from conversations.fitting import fit
from conversations.secrets_out import facts, without_secrets
from conversations.stalls import later
from eventstore import Appended, AsyncEventStore, EventStore, NewEvent
from eventstore.errors import (
    CannotConnect,
    ForkedWriter,
    InvalidEvent,
    LogWentBack,
    StoreUnavailable,
)
from eventstore.log import get_logger

__all__ = ["INTERRUPTIONS", "PATIENCE_S", "AsyncJournal", "Journal", "Told"]

Told = Callable[[Appended], None]
"""Told what the store answered, once the events are durable."""

PATIENCE_S = 5.0
"""How long a server that does not answer is waited for: a restart takes a second or two."""

INTERRUPTIONS = (KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError)
"""What is no error of a block but stops it, at any place."""

_PASSING = (StoreUnavailable, LogWentBack)
"""Errors after which the same may be written all the same, once somebody has seen to it."""

_log = get_logger("conversations")


def _warn(state: RetryCallState) -> None:
    _log.warning("append repeated", attempt=state.attempt_number)


def _not_abandoned(error: Exception) -> None:
    _log.warning("interrupted block not recorded", why=str(error))


def _policy() -> dict[str, Any]:
    return {
        "retry": retry_if_exception_type(CannotConnect),
        "stop": stop_after_delay(PATIENCE_S),
        "wait": wait_exponential(multiplier=0.05, max=1.0),
        "before_sleep": _warn,
        "reraise": True,
    }


@dataclass(slots=True)
class _Facts:
    """What both journals know; ``unsaved`` has happened, and could not be written yet."""

    conversation_id: UUID
    epoch: int | None
    version: int
    written: Acknowledged
    unsaved: deque[tuple[tuple[NewEvent, ...], Told | None]] = field(default_factory=deque)
    patient: bool = True
    process: int = field(default_factory=os.getpid)

    def require_own(self) -> None:
        """Raise in a forked child: both would write in one writer's name, and keep facts twice.

        Raises:
            ForkedWriter: The journal is the parent's.
        """
        if self.process != os.getpid():
            raise ForkedWriter(self.conversation_id)

    def done(self, done: Appended, events: Sequence[NewEvent]) -> Appended:
        """Take note of an append that is durable."""
        self.written.add(done, events)
        self.version, self.patient = max(self.version, done.version), True
        return done

    def failed(self, error: BaseException) -> None:
        """Drop what will never be accepted; what only could not be written stays."""
        if isinstance(error, Exception) and not isinstance(error, _PASSING):
            self.unsaved.popleft()


class Journal:
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
        self._facts = _Facts(conversation_id, epoch, version, written or Acknowledged())
        self._lock = threading.RLock()
        self._appender: int | None = None

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

    @property
    def written(self) -> Acknowledged:
        """What this journal has written, and remembers."""
        return self._facts.written

    def write(self, events: Sequence[NewEvent]) -> Appended | None:
        """Append durably what is about to happen; None if there are no events.

        A broken connection is mended by trying again, for five seconds, with the same event ids.
        What `record` could not write is written first, each in its own transaction. What is larger
        than an event may be is made to fit, where it can be.

        Raises:
            InvalidEvent: An event cannot be stored, or the store's redactor fails at it.
            WriterFenced: A newer writer has opened the conversation; nothing was written.
            ForkedWriter: This process was forked from the one that opened the conversation.
            LogWentBack: What this journal has written is no longer in the log; nothing was written.
            CannotConnect: The server cannot be reached; the events may or may not be there.
                Writing the same events again is safe.
        """
        self._facts.require_own()
        with self._lock:
            self._catch_up()
            return self._append(without_secrets(events)) if events else None

    def record(self, events: Sequence[NewEvent], told: Told | None = None) -> None:
        """Append durably what has happened; see `write`.

        The facts are not lost if the server cannot be reached: they are kept in memory, and
        written, once, ahead of what is written next. Where the store's redactor fails at one, a
        placeholder is stored.
        """
        self._facts.require_own()
        events = facts(events, self.store.redact)
        if self._appender == threading.get_ident() or self.store.is_writing_here:
            # Python's collector closes a generator that was dropped, and with it a turn, in the
            # midst of whatever its thread does: to wait for that would be to wait for itself.
            if events:
                self._facts.unsaved.append((tuple(events), told))
                later(self._save)
            return
        with self._lock:
            if events:
                self._facts.unsaved.append((tuple(events), told))
            self._catch_up()

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
                _not_abandoned(error)

    def _save(self) -> None:
        with self._lock:
            try:
                self._catch_up()
            except _PASSING:
                return  # It is kept, and written ahead of what is written next.
            except Exception as error:
                _log.warning("not recorded", conversation_id=str(self.conversation_id), why=error)

    def _catch_up(self) -> None:
        while self._facts.unsaved:
            events, told = self._facts.unsaved[0]
            try:
                done = self._append(events)
            except BaseException as error:
                self._facts.failed(error)
                raise
            self._facts.unsaved.popleft()
            if told is not None:
                told(done)

    def _append(self, events: Sequence[NewEvent]) -> Appended:
        self._appender = threading.get_ident()
        try:
            return self._patiently(events)
        finally:
            self._appender = None

    def _patiently(self, events: Sequence[NewEvent]) -> Appended:
        try:
            return self._once(events)
        except CannotConnect:
            if not self._facts.patient:
                raise
        try:
            return Retrying(**_policy())(self._once, events)
        except CannotConnect:
            # Whoever has waited in vain does not wait again until the server has answered once.
            self._facts.patient = False
            raise

    def _once(self, events: Sequence[NewEvent]) -> Appended:
        try:
            return self._onto(events)
        except InvalidEvent:
            kept = fit(events, self.store.max_event_bytes)
            if kept is None:
                raise
        return self._onto(kept)

    def _onto(self, events: Sequence[NewEvent]) -> Appended:
        facts = self._facts
        try:
            done = self.store.append(
                facts.conversation_id, events, writer_epoch=facts.epoch, anchor=facts.written.anchor
            )
        except LogWentBack as error:
            left = self.store.read(facts.conversation_id, after=facts.written.since - 1)
            raise facts.written.missing(error, left) from None
        return facts.done(done, events)


class AsyncJournal:
    """`Journal` for an event loop.

    What was begun to be written is written to its end, also when the task is cancelled meanwhile;
    the cancellation then goes on.
    """

    def __init__(
        self,
        store: AsyncEventStore,
        conversation_id: UUID,
        *,
        epoch: int | None = None,
        version: int = 0,
        written: Acknowledged | None = None,
    ) -> None:
        self.store = store
        self._facts = _Facts(conversation_id, epoch, version, written or Acknowledged())
        self._lock = asyncio.Lock()

    @property
    def conversation_id(self) -> UUID:
        """The conversation's id."""
        return self._facts.conversation_id

    @property
    def version(self) -> int:
        """The version of the last event which this journal has written."""
        return self._facts.version

    @property
    def epoch(self) -> int | None:
        """The writer's epoch."""
        return self._facts.epoch

    async def write(self, events: Sequence[NewEvent]) -> Appended | None:
        """Append durably what is about to happen; see `Journal.write`."""
        self._facts.require_own()
        return await finish(self._write(events))

    async def record(self, events: Sequence[NewEvent], told: Told | None = None) -> None:
        """Append durably what has happened; see `Journal.record`."""
        self._facts.require_own()
        await finish(self._record(events, told))

    async def write_again(self) -> Appended | None:
        """Write what the log has lost; see `Journal.write_again`."""
        self._facts.require_own()
        return await finish(self._write_again())

    async def abandon(self, *parts: Sequence[NewEvent]) -> None:
        """Record a block that was interrupted at its entry; see `Journal.abandon`."""
        await finish(self._abandon(parts))

    async def _abandon(self, parts: Sequence[Sequence[NewEvent]]) -> None:
        for events in parts:
            try:
                self._facts.require_own()
                await self._record(events, None)
            except Exception as error:
                _not_abandoned(error)

    async def _write(self, events: Sequence[NewEvent]) -> Appended | None:
        await self._catch_up()
        return await self._append(without_secrets(events)) if events else None

    async def _record(self, events: Sequence[NewEvent], told: Told | None) -> None:
        if not events:
            await self._catch_up()
            return
        events = facts(events, self.store.store.redact)
        entry = (tuple(events), told)
        if not self._facts.unsaved:
            # Nothing waits: so many tasks may write at once, and share a transaction.
            try:
                done = await self._append(events)
            except (*_PASSING, asyncio.CancelledError):
                self._facts.unsaved.append(entry)
                raise
            if told is not None:
                told(done)
            return
        self._facts.unsaved.append(entry)
        await self._catch_up()

    async def _catch_up(self) -> None:
        if not self._facts.unsaved:
            return
        async with self._lock:
            while self._facts.unsaved:
                events, told = self._facts.unsaved[0]
                try:
                    done = await self._append(events)
                except BaseException as error:
                    self._facts.failed(error)
                    raise
                self._facts.unsaved.popleft()
                if told is not None:
                    told(done)

    async def _write_again(self) -> Appended | None:
        facts, store = self._facts, self.store
        again = facts.written.again()
        if again is None:
            return None
        lost, version = again
        events = fit(lost, store.store.max_event_bytes) or lost
        done = await store.append(facts.conversation_id, events, expected_version=version)
        facts.written.restored(done, events)
        facts.epoch = await store.raise_writer_epoch(facts.conversation_id)
        await self._catch_up()
        return done

    async def _append(self, events: Sequence[NewEvent]) -> Appended:
        try:
            return await self._once(events)
        except CannotConnect:
            if not self._facts.patient:
                raise
        try:
            return await AsyncRetrying(**_policy())(self._once, events)
        except CannotConnect:
            self._facts.patient = False
            raise

    async def _once(self, events: Sequence[NewEvent]) -> Appended:
        try:
            return await self._onto(events)
        except InvalidEvent:
            kept = fit(events, self.store.store.max_event_bytes)
            if kept is None:
                raise
        return await self._onto(kept)

    async def _onto(self, events: Sequence[NewEvent]) -> Appended:
        facts, written = self._facts, self._facts.written
        try:
            done = await self.store.append(
                facts.conversation_id, events, writer_epoch=facts.epoch, anchor=written.anchor
            )
        except LogWentBack as error:
            read = self.store.read(facts.conversation_id, after=written.since - 1)
            left = [event async for event in read]
            raise written.missing(error, left) from None
        return facts.done(done, events)
