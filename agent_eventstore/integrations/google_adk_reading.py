"""The ADK events of sessions: read as they are asked for, and kept in memory once asked again."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from google.adk.events.event import Event

from agent_eventstore.integrations.conversation_events import (
    Head,
    events_after,
    events_before,
    news_of,
)
from agent_eventstore.integrations.conversation_memory import Memory, Objects
from agent_eventstore.integrations.google_adk_events import event_in
from eventstore import EventStore
from eventstore.sql.read import EventText

__all__ = ["SessionEvents"]


class _ReadSession(NamedTuple):
    """The newest events of a session, as they were read last.

    Attributes:
        complete: Whether there are none before them.
    """

    head: Head
    events: Objects
    complete: bool

    def has(self, limit: int | None) -> bool:
        """Whether so many of the newest are known."""
        return self.complete or (limit is not None and limit <= self.events.count)


class SessionEvents:
    """The events of a store's sessions."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._memory: Memory[_ReadSession] = Memory()

    def newest(self, stream: UUID, limit: int | None) -> tuple[Head, list[Event]]:
        """Return a conversation's head, and its newest events up to there, or all of them."""
        read = self._memory.get(stream)
        with self._store._on_driver() as connection:
            head, page = news_of(connection, stream, read and read.head)
        if read is None or page is None or not read.has(limit):
            events, read = self._read(stream, head, limit)
        else:
            if page:
                read = _ReadSession(head, read.events.followed_by(_built(page)), read.complete)
            events = read.events.newest(limit)
        if read is not None:
            self._memory.keep(stream, read, read.events.size)
        return head, events

    def forget(self, stream: UUID) -> None:
        """Forget what was read of a conversation."""
        self._memory.take(stream)

    def _read(
        self, stream: UUID, head: Head, limit: int | None
    ) -> tuple[list[Event], _ReadSession | None]:
        """Read the newest events up to a head, or all of them, and what to keep in memory."""
        if limit is None:
            events = _built(events_after(self._store, stream, 0, before=head.version + 1))
        else:
            before = events_before(self._store, stream, head.version + 1, first=2 * limit + 2)
            found = [*islice((each for each in before if event_in(each)), limit)]
            events = _built(found[::-1])
        if head.is_fork or not self._memory.asked_again(stream):
            return events, None
        complete = limit is None or len(events) < limit
        return events, _ReadSession(head, Objects().followed_by(events), complete)


def _built(page: Iterable[EventText]) -> list[Event]:
    """Return the ADK events that events of the log end."""
    return [Event.model_validate(told) for event in page if (told := event_in(event)) is not None]
