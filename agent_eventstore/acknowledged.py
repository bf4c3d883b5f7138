"""What a journal remembers of the events that it has written, should the log lose them.

A database that is replaced or restored to an older state takes acknowledged events away under a
living process. The journal notices at its next append; then what it still remembers can be written
again. The memory is bounded in events and in size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from eventstore import Anchor, Appended, NewEvent, RecordedEvent
from eventstore.errors import LogWentBack

__all__ = ["MOST_EVENTS", "MOST_SIZE", "Acknowledged"]

MOST_EVENTS = 256
MOST_SIZE = 4_000_000
"""Characters of JSON, and bytes of blobs."""


class Acknowledged:
    """The last events of one writer, and the anchor that its next append insists on."""

    def __init__(self, anchor: Anchor | None = None) -> None:
        self.anchor = anchor
        self.loss: LogWentBack | None = None
        """What was found to be gone, until it is written again."""
        self._appends: deque[tuple[int, tuple[NewEvent, ...], int]] = deque()
        self._events = self._size = 0
        self._whole = False

    @property
    def since(self) -> int:
        """The version of the oldest event that is remembered, or one that is older."""
        return min((version for version, _, _ in self._appends), default=1)

    def add(self, done: Appended, events: Sequence[NewEvent]) -> None:
        """Remember an append; the oldest are forgotten beyond the bounds."""
        if self.anchor is None or self.anchor.version < done.version:
            self.anchor = done.anchor
        self._appends.append((done.version - len(events) + 1, tuple(events), done.size))
        self._events, self._size = self._events + len(events), self._size + done.size
        while self._events > MOST_EVENTS or self._size > MOST_SIZE:
            _, oldest, size = self._appends.popleft()
            self._events, self._size = self._events - len(oldest), self._size - size

    def missing(self, error: LogWentBack, left: Iterable[RecordedEvent]) -> LogWentBack:
        """Return the error with what is known of the loss; ``left`` is the log from `since` on."""
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
        """Return what is lost, and the version that the log must be at for it; None if nothing is.

        Raises:
            LogWentBack: Events of others stood in between, or nothing is remembered.
        """
        if self.loss is None:
            return None
        if not self._whole or self.loss.first is None:
            raise self.loss
        return self.loss.lost, self.loss.first - 1

    def restored(self, done: Appended, events: Sequence[NewEvent]) -> None:
        """Take note that the loss has been written again."""
        self.loss, self.anchor = None, None
        self._appends.clear()
        self._events = self._size = 0
        self.add(done, events)
