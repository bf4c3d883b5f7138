"""Read the ADK events of sessions, and cache those of sessions that are read again."""

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
    """The cached newest events of a session.

    Attributes:
        complete: Whether these are all of its events.
    """

    head: Head
    events: Objects
    complete: bool

    def has(self, limit: int | None) -> bool:
        """Whether the cache holds as many of the newest events as ``limit`` requests."""
        return self.complete or (limit is not None and limit <= self.events.count)


class SessionEvents:
    """The ADK events of a store's sessions."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._memory: Memory[_ReadSession] = Memory()

    def newest(self, stream: UUID, limit: int | None) -> tuple[Head, list[Event]]:
        """Return a conversation's head and its newest ADK events; all of them without a limit."""
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
        """Remove a conversation from the cache."""
        self._memory.take(stream)

    def _read(
        self, stream: UUID, head: Head, limit: int | None
    ) -> tuple[list[Event], _ReadSession | None]:
        """Return the newest ADK events up to a head, and the entry to cache, if any."""
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
    """Return the ADK events that log events hold in ``raw``."""
    return [Event.model_validate(told) for event in page if (told := event_in(event)) is not None]
