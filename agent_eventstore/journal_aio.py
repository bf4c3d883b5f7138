"""The journal for event loops: a write that has begun completes even if its task is cancelled.

`AsyncJournal` keeps and writes the same facts in the same order as `Journal`. Each of its methods
is one `finish`: a cancellation is raised after its last step, not between two of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import UUID

from sqlalchemy import Connection
from tenacity import AsyncRetrying

from agent_eventstore.journal import (
    PASSING,
    Acknowledged,
    Journal,
    OnSaved,
    PendingFacts,
    StartedSession,
    Writing,
    facts,
    in_vain,
    not_abandoned,
    policy,
    without_secrets,
)
from agent_eventstore.oversized_events import fit
from eventstore import Appended, AsyncEventStore, NewEvent
from eventstore.errors import (
    ConversationNotFound,
    InvalidEvent,
    LogWentBack,
    StoreUnavailable,
    WriterFenced,
)
from eventstore.telemetry.log import get_logger
from eventstore.threads import finish, in_thread, to_thread

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

__all__ = ["AsyncJournal", "finish", "in_thread"]

_log = get_logger("agent_eventstore")


class AsyncJournal(Writing):
    """`Journal` for an event loop.

    A write that has begun completes even if its task is cancelled meanwhile; the cancellation is
    raised afterwards.
    """

    def __init__(
        self,
        store: AsyncEventStore,
        conversation_id: UUID,
        *,
        epoch: int | None = None,
        version: int = 0,
        written: Acknowledged | None = None,
        started: StartedSession | None = None,
    ) -> None:
        self.store = store
        self._facts = PendingFacts(conversation_id, epoch, version, written or Acknowledged())
        self._facts.started = started
        self._lock = asyncio.Lock()
        self._ended = False
        self.successor = Journal.sharing(store.store, self._facts)
        """The journal that writes what this one has left, once it was closed in vain."""

    async def write(self, events: Sequence[NewEvent]) -> Appended | None:
        """Append the events of an action before it runs; see `Journal.write`."""
        self._facts.require_own()
        return await finish(self._write(events))

    async def write_within(
        self, connection: Connection | AsyncConnection, events: Sequence[NewEvent]
    ) -> None:
        """Append in a product's transaction; see `Journal.write_within`."""
        self._facts.require_own()
        events, own = without_secrets(events), self._facts
        async with self._lock:
            await self._look()
            own.require_started(events)
            await self._write_pending(wait=False)
            done = await self.store.append(
                own.conversation_id,
                events,
                writer_epoch=own.epoch,
                anchor=own.written.anchor,
                connection=connection,
                allow_empty=True,
            )
            own.started = StartedSession(tuple(events), done)

    async def settle(self, events: Sequence[NewEvent]) -> None:
        """Check whether a product's transaction was committed; see `Journal.settle`."""
        if self._facts.started is not None:
            await finish(self._settle(events))
        self._facts.require_started(events)

    async def _settle(self, events: Sequence[NewEvent]) -> None:
        if self._facts.started is not None:
            async with self._lock:
                await self._look()
        self._facts.require_started(events)

    async def _look(self) -> None:
        """Look for the events of a product's transaction; call with the lock held."""
        own = self._facts
        if (started := own.started) is None:
            return
        there = None
        with suppress(ConversationNotFound):
            read = self.store.read(own.conversation_id, after=started.done.version - 1, limit=1)
            there = await anext(read, None)
        if own.settle(there) is not None and started.on_saved is not None:
            await to_thread(started.on_saved, started.done)

    async def record(self, events: Sequence[NewEvent], on_saved: OnSaved | None = None) -> None:
        """Append facts; see `Journal.record`."""
        self._facts.require_own()
        await finish(self._record(events, on_saved))

    async def offer(self, events: Sequence[NewEvent], on_saved: OnSaved | None = None) -> bool:
        """Record facts without waiting for a lock; see `Journal.offer`."""
        self._facts.require_own()
        return await finish(self._offer(events, on_saved))

    async def close(self, events: Sequence[NewEvent]) -> None:
        """Record the session's end, and all facts kept in memory; see `Journal.close`."""
        try:
            await self.record(events)
        except Exception as error:
            if (left := self._facts.left(error)) is error:
                raise
            raise left from error
        finally:
            await finish(self._end())

    async def _end(self) -> None:
        """Leave the facts that could not be written to `successor`."""
        if self._facts.unsaved:
            async with self._lock:
                self._ended = True

    async def write_again(self) -> Appended | None:
        """Append lost events again; see `Journal.write_again`."""
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
                not_abandoned(error)

    async def _write(self, events: Sequence[NewEvent]) -> Appended | None:
        if self._ended:
            return await to_thread(self.successor.write, events)
        await self._settle(events)
        await self._catch_up()
        return await self._append(without_secrets(events)) if events else None

    async def _record(self, events: Sequence[NewEvent], on_saved: OnSaved | None) -> None:
        if self._ended:
            await to_thread(self.successor.record, events, on_saved)
            return
        await self._settle(events)
        if not events:
            await self._catch_up()
            return
        events = facts(events, self.store.store.redact)
        if not self._facts.unsaved:
            # No facts are waiting, so many tasks may append at once and share a transaction.
            try:
                done = await self._append(events)
            except (InvalidEvent, WriterFenced):
                raise
            except BaseException:
                self._facts.keep(events, on_saved)
                raise
            if on_saved is not None:
                on_saved(done)
            return
        self._facts.keep(events, on_saved)
        await self._catch_up()

    async def _offer(self, events: Sequence[NewEvent], on_saved: OnSaved | None) -> bool:
        if self._ended:
            return await to_thread(self.successor.offer, events, on_saved)
        self._facts.keep(facts(events, self.store.store.redact), on_saved)
        if self._lock.locked():
            return False
        try:
            await self._catch_up(wait=False)
        except StoreUnavailable as error:
            _log.warning("facts kept", conversation_id=str(self.conversation_id), why=str(error))
        return not self._facts.unsaved

    async def _catch_up(self, *, wait: bool = True) -> None:
        if self._facts.unsaved:
            async with self._lock:
                await self._write_pending(wait=wait)

    async def _write_pending(self, *, wait: bool) -> None:
        """Write the facts kept in memory, in order; call with the lock held."""
        invalid: InvalidEvent | None = None
        for events, on_saved in self._facts.pending():
            try:
                done = await self._append(events, wait)
            except (InvalidEvent, WriterFenced) as error:
                invalid = self._facts.dropped(error)
            else:
                self._facts.saved(on_saved, done)
        if invalid is not None:
            raise invalid

    async def _write_again(self) -> Appended | None:
        if self._ended:
            return await to_thread(self.successor.write_again)
        own, store = self._facts, self.store
        async with self._lock:
            again = own.written.again()
            if again is None:
                return None
            lost, version = again
            events = fit(lost, store.store.max_event_bytes) or lost
            done = await store.append(
                own.conversation_id, events, expected_version=version, allow_empty=True
            )
            own.written.restored(done, events)
            own.epoch = await store.raise_writer_epoch(own.conversation_id)
            await self._write_pending(wait=True)
            return done

    async def _append(self, events: Sequence[NewEvent], wait: bool = True) -> Appended:
        started, wait = time.monotonic(), wait and self._facts.patient
        try:
            return await self._once(events, wait)
        except PASSING as error:
            if not wait or in_vain(error, started):
                raise
        try:
            return await AsyncRetrying(**policy())(self._once, events, wait)
        except PASSING:
            self._facts.patient = False
            raise

    async def _once(self, events: Sequence[NewEvent], wait: bool) -> Appended:
        try:
            return await self._onto(events, wait)
        except InvalidEvent:
            fitting = fit(events, self.store.store.max_event_bytes)
            if fitting is None:
                raise
        return await self._onto(fitting, wait)

    async def _onto(self, events: Sequence[NewEvent], wait: bool) -> Appended:
        own, written = self._facts, self._facts.written
        try:
            done = await self.store.append(
                own.conversation_id,
                events,
                writer_epoch=own.epoch,
                anchor=written.anchor,
                wait=wait,
                allow_empty=True,
            )
        except LogWentBack as error:
            read = self.store.read(own.conversation_id, after=written.since - 1)
            left = [event async for event in read]
            raise written.missing(error, left) from None
        return own.done(done, events)
