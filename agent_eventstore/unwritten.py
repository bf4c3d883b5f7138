"""What a journal keeps in memory: facts not written yet, and what it wrote should the log lose it.

What has happened is kept, in order, until it is written. A fact is dropped only where the log will
never take it: it cannot be stored (`InvalidEvent`), or a newer writer has the conversation
(`WriterFenced`). After any other error, also one that nobody knows, it stays, and is tried again
ahead of what is written next. While a server is away or somebody else holds a lock, an append is
repeated for as long as `policy` says.

Facts are made to fit, so that they are never lost for their size: a model may answer with a name of
a megabyte or a count of 30 digits, a tool may return more than a store takes. An append refuses
such events (see `eventstore.events.bounds`), so the journal has them fitted and tries again. What
was cut says so, and is logged. The recorder also takes secrets out by itself where products hand
things over without looking at them: parameters and declarations of requests, configurations, and
the errors of providers, which echo keys. What people, models and tools say is left alone: for that
there is ``EventStore.open(redact=...)``.

A database that is replaced or restored to an older state takes acknowledged events away under a
living process. The journal notices at its next append; then what it still remembers can be written
again. The memory is bounded in events and in size.
"""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from tenacity import RetryCallState, retry_if_exception_type, stop_after_delay, wait_exponential

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
    Payload,
    RunEnd,
    RunStart,
    RunStepEnd,
    SessionStart,
    ToolResult,
    TurnEnd,
)
from eventstore.events.bounds import Excess, fitted
from eventstore.events.codec import encode
from eventstore.events.records import EventData
from eventstore.log import get_logger
from eventstore.redaction import Redactor, hidden, redacted, redacted_meta
from projections.engine.folding import result_text

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
    "fit",
    "in_vain",
    "policy",
    "without_secrets",
]


PATIENCE_S = 5.0
"""How long an append is repeated, in seconds: a restart takes a second or two."""

PASSING = (CannotConnect, DatabaseBusy)
"""Errors that pass by themselves, and are waited for."""

MOST_EVENTS = 256
"""Events that a journal remembers."""

MOST_SIZE = 4_000_000
"""How large they are together: characters of JSON, and bytes of blobs."""

Told = Callable[[Appended], None]
"""Told what the store answered, once the events are durable."""

Entry = tuple[tuple[NewEvent, ...], Told | None]

_log = get_logger("agent_eventstore")

_NOTE_BYTES = 200
_ERROR_CHARS = 500

# Where secrets are looked for.
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
    """Return how an append is tried again."""
    return {
        "retry": retry_if_exception_type(PASSING),
        "stop": stop_after_delay(PATIENCE_S),
        "wait": wait_exponential(multiplier=0.05, max=1.0),
        "before_sleep": _warn,
        "reraise": True,
    }


def in_vain(error: Exception, started: float) -> bool:
    """Whether a lock was waited for since then, for as long as anything is."""
    return isinstance(error, DatabaseBusy) and time.monotonic() - started >= PATIENCE_S


def _warn(state: RetryCallState) -> None:
    _log.warning("append repeated", attempt=state.attempt_number)


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


def fit(events: Sequence[NewEvent], most: int) -> list[NewEvent] | None:
    """Return the events within all bounds and of ``most`` bytes each; None if that changes nothing.

    Texts of what people and models say are never cut: of these, and of what a product declares,
    an append may still refuse what is too large.
    """
    told: list[Excess] = []
    kept = [
        replace(event, data=_within(event.data, most, told), meta=fitted(event.meta, told.append))
        for event in events
    ]
    for excess in told:
        _log.warning("cut to fit", field=excess.field, limit=excess.limit)
    return kept if told else None


def _within(data: EventData, most: int, told: list[Excess]) -> EventData:
    if not isinstance(data, Payload):
        return data
    data = fitted(data, told.append)
    for smaller in (_without_raw, _cut):
        size = len(encode(data).encode())
        if size > most:
            excess = Excess("the payload", f"has {size:,} bytes", f"{most:,} (max_event_bytes)")
            told.append(excess)
            data = smaller(data, size, most)
    return data


def _without_raw(data: Payload, size: int, most: int) -> Payload:
    """Return a payload without what a provider or a tool told beside its content."""
    return data.model_copy(update={"raw": None}) if getattr(data, "raw", None) else data


def _cut(data: Payload, size: int, most: int) -> Payload:
    """Return a result of which the start is kept, and a line that says how much is not."""
    if not isinstance(data, ToolResult):
        return data
    whole = result_text(data) or ""
    left = len(whole)
    while True:
        left = max(left * max(most - _NOTE_BYTES, 0) // size, 0) if size > most else left
        note = f"\n… {len(whole) - left:,} characters more, not kept: max_event_bytes is {most:,}"
        error = data.error and data.error[:_ERROR_CHARS]
        kept = data.model_copy(update={"content": whole[:left] + note, "error": error})
        size = len(encode(kept).encode())
        if size <= most or not left:
            return kept


def without_secrets(events: Sequence[NewEvent]) -> Sequence[NewEvent]:
    """Return the events with the secrets marked that the recorder looks for."""
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
    """Return what has happened as a store with this redactor takes it: facts are never refused.

    Where the redactor fails there is a placeholder; where it fails at its own results too, there is
    one for every text.
    """
    events = without_secrets(events)
    return events if redact is None else [_fact(event, redact) for event in events]


def _fact(event: NewEvent, redact: Redactor) -> NewEvent:
    for again in (redact, None):
        try:
            redacted(event.data, redact)
        except RedactionFailed as error:
            # Not the error's text, in which the redactor may quote what it was to take out.
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
    """Events that stand in a product's transaction, of which nobody knows what came of it."""

    events: tuple[NewEvent, ...]
    done: Appended
    told: Told | None = None


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
    begun: Begun | None = None
    lost: tuple[int | None] | None = None
    """The turn whose beginning was not committed; the conversation itself for None within."""

    def settle(self, there: RecordedEvent | None) -> Begun | None:
        """Take note of what is in the log where `begun` ends; return it if it was committed."""
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
        """Refuse what belongs to something that was not committed.

        Raises:
            NotCommitted: It does.
        """
        if self.lost is None:
            return
        (turn,) = self.lost
        if turn is None or any(event.meta.turn == turn for event in events):
            raise NotCommitted(self.conversation_id, turn)

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
