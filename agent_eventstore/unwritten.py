"""A journal's memory: facts not written yet, and recent events, in case the log loses them.

A fact is kept, in order, until it is written. It is dropped only if the log will never accept it:
it cannot be stored (`InvalidEvent`), or a newer writer has the conversation (`WriterFenced`). After
any other error it stays, and is retried before the next append. While a server is unreachable or
another writer holds a lock, an append is retried as `policy` says.

The recorder redacts secrets in data that products pass on unread: parameters and tool declarations
of requests, configurations, and providers' errors, which echo keys. Texts of people, models and
tools are not changed: use ``EventStore.open(redact=...)`` for these.

When a database is replaced or restored to an older state, a running process loses acknowledged
events. The journal detects this at its next append; the events that it remembers can then be
written again. The memory is bounded in events and in size.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from uuid import UUID

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_delay,
    wait_exponential,
)

from agent_eventstore.errors import FactsNotWritten, ForkedWriter, NotCommitted
from eventstore import Anchor, Appended, NewEvent, RecordedEvent, redact_secrets
from eventstore.errors import (
    CannotConnect,
    DatabaseBusy,
    InvalidEvent,
    LogWentBack,
    RedactionFailed,
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
from eventstore.log import get_logger
from eventstore.redaction import Redactor, hidden, redacted, redacted_meta

__all__ = [
    "MOST_EVENTS",
    "MOST_SIZE",
    "PASSING",
    "PATIENCE_S",
    "Acknowledged",
    "Begun",
    "KeptFacts",
    "Told",
    "facts",
    "in_vain",
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

Told = Callable[[Appended], None]
"""Called with the append's result once the events are durable."""

Entry = tuple[tuple[NewEvent, ...], Told | None]

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
class Begun:
    """Events appended in a product's transaction whose outcome is not known yet."""

    events: tuple[NewEvent, ...]
    done: Appended
    told: Told | None = None


@dataclass(slots=True)
class KeptFacts:
    """The state of a journal; ``unsaved`` holds facts that could not be written yet."""

    conversation_id: UUID
    epoch: int | None
    version: int
    written: Acknowledged
    unsaved: deque[Entry] = field(default_factory=deque)
    patient: bool = True
    process: int = field(default_factory=os.getpid)
    begun: Begun | None = None
    lost: tuple[int | None] | None = None
    """In a tuple, the turn whose start was not committed; (None,) for the conversation's start."""

    def settle(self, there: RecordedEvent | None) -> Begun | None:
        """Return `begun` if it was committed; ``there`` is the log's event at its last version."""
        begun, self.begun = self.begun, None
        if begun is None:
            return None
        last = begun.events[-1]
        if there is None or there.event_id != last.event_id:
            self.lost = (last.meta.turn,)
            return None
        self.done(begun.done, begun.events)
        return begun

    def require_begun(self, events: Sequence[NewEvent]) -> None:
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

    def keep(self, events: Sequence[NewEvent], told: Told | None) -> None:
        """Append a fact to those that are kept."""
        if events:
            self.unsaved.append((tuple(events), told))

    def pending(self) -> Iterator[Entry]:
        """Yield the oldest kept fact until none is left; `saved` and `dropped` remove it."""
        while self.unsaved:
            yield self.unsaved[0]

    def saved(self, told: Told | None, done: Appended) -> None:
        """Remove the oldest fact, which is now durable."""
        self.unsaved.popleft()
        if told is not None:
            told(done)

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
