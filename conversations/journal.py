"""Where a recorder's events go: one conversation, written by one writer at a time.

A journal appends under its writer epoch, so that a process that was thought dead is refused
(`WriterFenced`) once another has opened the conversation. Every event brings its id, so that an
append whose connection broke is repeated without doing it twice; and what has happened while the
server was away is kept, and written ahead of whatever is written next.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_delay,
    wait_exponential,
)

from eventstore import Appended, AsyncEventStore, EventStore, NewEvent
from eventstore.errors import CannotConnect, StoreUnavailable
from eventstore.log import get_logger

__all__ = ["PATIENCE_S", "AsyncJournal", "Journal", "Told", "finish"]

T = TypeVar("T")
Told = Callable[[Appended], None]
"""Told what the store answered, once the events are durable."""

PATIENCE_S = 5.0
"""How long a server that does not answer is waited for: a restart takes a second or two."""

_log = get_logger("conversations")


def _warn(state: RetryCallState) -> None:
    _log.warning("append repeated", attempt=state.attempt_number)


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
    unsaved: deque[tuple[tuple[NewEvent, ...], Told | None]] = field(default_factory=deque)
    patient: bool = True

    def done(self, done: Appended) -> Appended:
        """Take note of an append that is durable."""
        self.version, self.patient = max(self.version, done.version), True
        return done

    def failed(self, error: BaseException) -> None:
        """Drop what will never be accepted; what only could not be written stays."""
        if isinstance(error, Exception) and not isinstance(error, StoreUnavailable):
            self.unsaved.popleft()


class Journal:
    """The writing end of a conversation; safe to share between threads, which take turns.

    Args:
        store: Where the conversation is.
        conversation_id: The conversation.
        epoch: The writer's epoch.
        version: The conversation's version, if it is known.
    """

    def __init__(
        self,
        store: EventStore,
        conversation_id: UUID,
        *,
        epoch: int | None = None,
        version: int = 0,
    ) -> None:
        self.store = store
        self._facts = _Facts(conversation_id, epoch, version)
        self._lock = threading.RLock()

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

    def write(self, events: Sequence[NewEvent]) -> Appended | None:
        """Append durably what is about to happen; None if there are no events.

        A broken connection is mended by trying again, for five seconds, with the same event ids.
        What `record` could not write is written first, each in its own transaction.

        Raises:
            WriterFenced: A newer writer has opened the conversation; nothing was written.
            CannotConnect: The server cannot be reached; the events may or may not be there.
                Writing the same events again is safe.
        """
        with self._lock:
            self._catch_up()
            return self._append(events) if events else None

    def record(self, events: Sequence[NewEvent], told: Told | None = None) -> None:
        """Append durably what has happened; see `write`.

        The facts are not lost if the server cannot be reached: they are kept in memory, and
        written, once, ahead of what is written next.
        """
        with self._lock:
            if events:
                self._facts.unsaved.append((tuple(events), told))
            self._catch_up()

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
        try:
            return self._facts.done(self._once(events))
        except CannotConnect:
            if not self._facts.patient:
                raise
        try:
            return self._facts.done(Retrying(**_policy())(self._once, events))
        except CannotConnect:
            # Whoever has waited in vain does not wait again until the server has answered once.
            self._facts.patient = False
            raise

    def _once(self, events: Sequence[NewEvent]) -> Appended:
        return self.store.append(self.conversation_id, events, writer_epoch=self.epoch)


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
    ) -> None:
        self.store = store
        self._facts = _Facts(conversation_id, epoch, version)
        self._lock = asyncio.Lock()

    @property
    def conversation_id(self) -> UUID:
        """The conversation's id."""
        return self._facts.conversation_id

    @property
    def version(self) -> int:
        """The version of the last event which this journal has written."""
        return self._facts.version

    async def write(self, events: Sequence[NewEvent]) -> Appended | None:
        """Append durably what is about to happen; see `Journal.write`."""
        return await finish(self._write(events))

    async def record(self, events: Sequence[NewEvent], told: Told | None = None) -> None:
        """Append durably what has happened; see `Journal.record`."""
        await finish(self._record(events, told))

    async def _write(self, events: Sequence[NewEvent]) -> Appended | None:
        await self._catch_up()
        return await self._append(events) if events else None

    async def _record(self, events: Sequence[NewEvent], told: Told | None) -> None:
        if not events:
            await self._catch_up()
            return
        entry = (tuple(events), told)
        if not self._facts.unsaved:
            # Nothing waits: so many tasks may write at once, and share a transaction.
            try:
                done = await self._append(events)
            except (StoreUnavailable, asyncio.CancelledError):
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

    async def _append(self, events: Sequence[NewEvent]) -> Appended:
        try:
            return self._facts.done(await self._once(events))
        except CannotConnect:
            if not self._facts.patient:
                raise
        try:
            return self._facts.done(await AsyncRetrying(**_policy())(self._once, events))
        except CannotConnect:
            self._facts.patient = False
            raise

    async def _once(self, events: Sequence[NewEvent]) -> Appended:
        facts = self._facts
        return await self.store.append(facts.conversation_id, events, writer_epoch=facts.epoch)


async def finish(work: Coroutine[Any, Any, T]) -> T:
    """Await work to its end, and pass on a cancellation of the caller only then."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled from None if task.cancelled() else task.exception()
    return task.result()
