"""Where a recorder's events go: one conversation, written by one writer at a time.

A journal appends under its writer epoch, so that a process that was thought dead is refused
(`WriterFenced`) once another has opened the conversation. Every event brings its id, so that an
append whose connection broke can be repeated without doing it twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from eventstore import Appended, AsyncEventStore, EventStore, NewEvent
from eventstore.errors import CannotConnect
from eventstore.log import get_logger

__all__ = ["AsyncJournal", "Journal"]

_log = get_logger("conversations")
_TRIES = 3


@dataclass(slots=True)
class Journal:
    """The writing end of a conversation; not to be shared between threads.

    ``version`` is that of the last event which this journal has written.
    """

    store: EventStore
    conversation_id: UUID
    epoch: int | None = None
    version: int = 0

    def write(self, events: Sequence[NewEvent]) -> Appended | None:
        """Append events durably; None if there are none to append.

        A broken connection is mended by trying again, up to twice, with the same event ids.

        Raises:
            WriterFenced: A newer writer has opened the conversation; nothing was written.
            CannotConnect: The server cannot be reached; the events may or may not be there.
        """
        if not events:
            return None
        for attempt in range(1, _TRIES + 1):
            try:
                done = self.store.append(self.conversation_id, events, writer_epoch=self.epoch)
                break
            except CannotConnect:
                if attempt == _TRIES:
                    raise
                _warn(self.conversation_id, attempt)
        self.version = done.version
        return done


@dataclass(slots=True)
class AsyncJournal:
    """`Journal` for an event loop."""

    store: AsyncEventStore
    conversation_id: UUID
    epoch: int | None = None
    version: int = 0

    async def write(self, events: Sequence[NewEvent]) -> Appended | None:
        """Append events durably; see `Journal.write`."""
        if not events:
            return None
        for attempt in range(1, _TRIES + 1):
            try:
                done = await self.store.append(
                    self.conversation_id, events, writer_epoch=self.epoch
                )
                break
            except CannotConnect:
                if attempt == _TRIES:
                    raise
                _warn(self.conversation_id, attempt)
        self.version = done.version
        return done


def _warn(conversation_id: UUID, attempt: int) -> None:
    _log.warning("append repeated", conversation_id=str(conversation_id), attempt=attempt)
