"""What has happened in a conversation and could not be written yet: kept, in order, until it is.

A fact is dropped only where the log will never take it: it cannot be stored (`InvalidEvent`), or a
newer writer has the conversation (`WriterFenced`). After any other error, also one that nobody
knows, it stays, and is tried again ahead of what is written next.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from agent_eventstore.acknowledged import Acknowledged
from eventstore import Appended, NewEvent
from eventstore.errors import (
    FactsNotWritten,
    ForkedWriter,
    InvalidEvent,
    LogWentBack,
    WriterFenced,
)

__all__ = ["KeptFacts", "Told"]

Told = Callable[[Appended], None]
"""Told what the store answered, once the events are durable."""

Entry = tuple[tuple[NewEvent, ...], Told | None]


@dataclass(slots=True)
class KeptFacts:
    """What both journals know; ``unsaved`` has happened, and could not be written yet."""

    conversation_id: UUID
    epoch: int | None
    version: int
    written: Acknowledged
    unsaved: deque[Entry] = field(default_factory=deque)
    patient: bool = True
    process: int = field(default_factory=os.getpid)

    def require_own(self) -> None:
        """Raise in a forked child: both would write in one writer's name, and keep facts twice.

        Raises:
            ForkedWriter: The journal is the parent's.
        """
        if self.process != os.getpid():
            raise ForkedWriter(self.conversation_id)

    def keep(self, events: Sequence[NewEvent], told: Told | None) -> None:
        """Keep a fact behind those that are kept already."""
        if events:
            self.unsaved.append((tuple(events), told))

    def pending(self) -> Iterator[Entry]:
        """Yield what is kept, oldest first, for as long as there is any; see `saved`, `dropped`."""
        while self.unsaved:
            yield self.unsaved[0]

    def saved(self, told: Told | None, done: Appended) -> None:
        """Forget the oldest fact, which is durable."""
        self.unsaved.popleft()
        if told is not None:
            told(done)

    def done(self, done: Appended, events: Sequence[NewEvent]) -> Appended:
        """Take note of an append that is durable."""
        self.written.add(done, events)
        self.version, self.patient = max(self.version, done.version), True
        return done

    def dropped(self, error: InvalidEvent | WriterFenced) -> InvalidEvent:
        """Drop the oldest fact, and return the error to raise once the others are written.

        Raises:
            WriterFenced: A newer writer has come; all of them are dropped.
        """
        if isinstance(error, WriterFenced):
            self.unsaved.clear()
            raise error
        self.unsaved.popleft()
        return error

    def left(self, error: Exception) -> Exception:
        """Return the error with which a conversation is closed, if facts are still kept."""
        if not self.unsaved or isinstance(error, LogWentBack):
            return error
        events = [event for entry, _ in self.unsaved for event in entry]
        kinds = Counter(event.data.type for event in events)
        return FactsNotWritten(self.conversation_id, tuple(events), dict(kinds), str(error))
