"""Where a recorder's events go: one conversation, written by one writer at a time.

A journal appends under its writer epoch, so that a process that was thought dead is refused
(`WriterFenced`) once another has opened the conversation. Every event brings its id, so that an
append whose connection broke can be repeated without doing it twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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

from eventstore import Appended, AsyncEventStore, EventStore, NewEvent
from eventstore.errors import CannotConnect
from eventstore.log import get_logger

__all__ = ["AsyncJournal", "Journal"]

_log = get_logger("conversations")


def _warn(state: RetryCallState) -> None:
    _log.warning("append repeated", attempt=state.attempt_number)


_PATIENCE: dict[str, Any] = {
    "retry": retry_if_exception_type(CannotConnect),
    "stop": stop_after_delay(5.0),
    "wait": wait_exponential(multiplier=0.05, max=1.0),
    "before_sleep": _warn,
    "reraise": True,
}
"""How long a server that does not answer is waited for: a restart takes a second or two."""


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

        A broken connection is mended by trying again, for five seconds, with the same event ids.

        Raises:
            WriterFenced: A newer writer has opened the conversation; nothing was written.
            CannotConnect: The server cannot be reached; the events may or may not be there.
        """
        if not events:
            return None
        for attempt in Retrying(**_PATIENCE):
            with attempt:
                done = self.store.append(self.conversation_id, events, writer_epoch=self.epoch)
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
        async for attempt in AsyncRetrying(**_PATIENCE):
            with attempt:
                done = await self.store.append(
                    self.conversation_id, events, writer_epoch=self.epoch
                )
        self.version = done.version
        return done
