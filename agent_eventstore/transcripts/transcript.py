"""From transcript to events: drafts, their ids and times, and which call a result answers.

An `Origin` identifies the conversation: by the id in the source or, without one, by its content and
its place in the file. The same content is therefore the same conversation, whatever the file is
called and however often it is read. Ids are created when it is loaded, and never from its content.

Ids of calls are not unique in transcripts. Calls get our own id, ``<version of the assistant
message>.<index>``. A foreign result is paired with the earliest open call of the latest assistant
message that matches, then with the latest open one of earlier messages. A result without an id
matches by the tool's name, or by its place alone.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol
from uuid import UUID

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts.left_out import LeftOut
from agent_eventstore.transcripts.record_source import Record
from eventstore.events import (
    AssistantMessage,
    ConversationStart,
    LlmError,
    Meta,
    NewEvent,
    SystemInstruction,
    TokenUsage,
    ToolCall,
    ToolCallRequest,
    ToolResult,
    UnknownEvent,
    UserMessage,
)
from eventstore.events.billing import COPY_KEY
from eventstore.events.records import EventData, RecordedEvent
from eventstore.events.values import Mode, is_mode
from eventstore.ids import DerivedId, call_id

__all__ = [
    "UNINTERPRETED",
    "Calls",
    "Identities",
    "Origin",
    "Stream",
    "Transcript",
    "TranscriptDraft",
    "anchored",
    "canonical",
    "copied",
    "explicit_id",
    "identify",
    "mode_of",
    "moment_of",
    "title_of",
]

UNINTERPRETED = "imported_message"
"""The event type of a message whose role is unknown."""

_Key = tuple[str, str]

_SPOKEN = (UserMessage, AssistantMessage, LlmError, ToolCall, ToolResult)
_CONVERSATION_KEYS = ("conversationId", "conversation_id", "sessionId", "session_id")
_MOMENT_KEYS = ("createdAt", "created_at", "timestamp", "ts", "time")
_MILLISECONDS_FROM = 100_000_000_000


@dataclass(slots=True)
class _TranscriptCall:
    call_id: str
    version: int
    by: str | None
    keys: frozenset[_Key]
    answered: bool = False
    long_running: bool = False
    stands_in: bool = False  # whether something stands in for its result


class Calls:
    """The tool calls of one transcript so far.

    Args:
        most: The number of calls to hold, in addition to those of the newest assistant message;
            older ones are forgotten. None holds all.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._latest: dict[_Key, deque[_TranscriptCall]] = {}
        self._open: dict[_Key, deque[_TranscriptCall]] = {}
        self._last: dict[_Key, _TranscriptCall] = {}
        self._by_id: dict[str, _TranscriptCall] = {}
        self._orphans = 0

    def note(
        self, version: int, requests: Iterable[ToolCallRequest], by: str | None = None
    ) -> None:
        """Add the calls of the assistant message at ``version``, which ``by`` wrote."""
        while self._most is not None and len(self._by_id) > self._most:
            self._forget(next(iter(self._by_id)))
        self._latest = {}
        for index, request in enumerate(requests):
            own_id, keys = call_id(version, index), _keys_of(request)
            call = _TranscriptCall(own_id, version, by, keys, long_running=request.long_running)
            self._by_id[call.call_id] = call
            for key in call.keys:
                self._latest.setdefault(key, deque()).append(call)
                self._open.setdefault(key, deque()).append(call)
                self._last[key] = call

    def _forget(self, own_id: str) -> None:
        """Forget the oldest call, which is the first of each queue that it is in."""
        call = self._by_id.pop(own_id)
        for key in call.keys:
            if (queue := self._open.get(key)) and queue[0] is call:
                queue.popleft()
            if self._last.get(key) is call:
                del self._last[key]
            if not queue and key not in self._last:
                self._open.pop(key, None)

    def answer(self, provider_id: str | None, name: str | None = None) -> str:
        """Return our own id of the call that a result answers, and mark the call as answered.

        A second result of an answered call gets that call's id; a result of an unknown call gets
        its own id, ``0.<n>``.
        """
        key = _key(provider_id, name)
        latest = self._latest.get(key, deque())
        while latest:
            call = latest.popleft()
            if not call.answered:
                call.answered = True
                return call.call_id
        earlier = self._open.get(key, deque())
        while earlier and earlier[-1].answered:
            earlier.pop()
        found = earlier[-1] if earlier else self._last.get(key)
        if found is None:
            self._orphans += 1
            return call_id(0, self._orphans - 1)
        found.answered = True
        return found.call_id

    def unanswered(self, by: str | None, after: int) -> list[str]:
        """Return our own ids of the calls without a result that ``by`` made after a version."""
        return [
            call.call_id
            for call in self._by_id.values()
            if call.version > after and call.by == by and not call.answered
        ]

    def has(self, provider_id: str | None) -> bool:
        """Whether there was a call with this provider's id."""
        return provider_id is not None and _key(provider_id, None) in self._last

    def is_long_running(self, provider_id: str | None) -> bool:
        """Whether the newest call with this provider's id may have several results."""
        found = None if provider_id is None else self._last.get(_key(provider_id, None))
        return found is not None and found.long_running

    def abandoned(self) -> list[str]:
        """Return our own ids of the calls without a result, or anything that stands in for it.

        Without those of tools that go on by themselves.
        """
        return [
            call.call_id
            for call in self._by_id.values()
            if not (call.answered or call.stands_in or call.long_running)
        ]

    def settle(self, own_id: str, *, answered: bool = True, stands_in: bool = True) -> None:
        """Mark the call with this own id as answered, or as still open.

        Args:
            own_id: The call.
            answered: Whether it has its result.
            stands_in: Whether something stands in for the result of a call that is still open.
        """
        if (call := self._by_id.get(own_id)) is not None:
            call.answered, call.stands_in = answered, stands_in and not answered

    def is_answered(self, provider_id: str | None, name: str | None = None) -> bool:
        """Whether there is a call that a result could answer, and all such calls are answered."""
        key = _key(provider_id, name)
        found = self._open.get(key) or [call for call in (self._last.get(key),) if call]
        return bool(found) and all(call.answered for call in found)


def _key(provider_id: str | None, name: str | None) -> _Key:
    if provider_id is not None:
        return ("id", provider_id)
    return ("any", "") if name is None else ("name", name)


def _keys_of(request: ToolCallRequest) -> frozenset[_Key]:
    keys = {("any", ""), ("name", request.name)}
    if request.provider_id is not None:
        keys.add(("id", request.provider_id))
    return frozenset(keys)


@dataclass(frozen=True, slots=True)
class Origin:
    """What distinguishes a conversation from all others of its owner: a place, or its content.

    Attributes:
        format: The name of the format.
        place: The id in the source, and its context.
        content: The content, if there is no place.
    """

    format: str
    place: tuple[Any, ...] = ()
    content: tuple[Any, ...] = ()

    def conversation_id(self, tenant_id: str | None, user_id: str | None) -> UUID | None:
        """Return the id of the conversation at this place for this owner; None without a place.

        It differs for each owner, so that nobody learns what others have imported.
        """
        if not self.place:
            return None
        return DerivedId.of("conversation", self._text(self.place, tenant_id, user_id))

    def digest(self, tenant_id: str | None, user_id: str | None) -> str:
        """Return this owner's digest of the content, used only while the content is stored."""
        text = self._text(self.content, tenant_id, user_id)
        return hashlib.sha256(text.encode()).hexdigest()

    def _text(self, parts: tuple[Any, ...], tenant_id: str | None, user_id: str | None) -> str:
        return canonical([tenant_id, user_id, self.format, *parts])


@dataclass(frozen=True, slots=True)
class Transcript:
    """A conversation to import: its events from version 1, and where it was found.

    With a ``conversation_id`` it is loaded there; otherwise its origin determines the id. A
    transcript with a ``stream`` has no ``events``: its file is read each time they are requested.
    ``grown`` returns the events again, given those that an earlier import of the file has stored,
    if they may end within a message. ``parent`` is the conversation that opened this one, which
    need not have been imported.
    ``left_out`` counts what did not become an event.
    """

    origin: Origin
    events: tuple[NewEvent, ...] = ()
    title: str | None = None
    tenant_id: str | None = None
    user_id: str | None = None
    file: str = ""
    line: int | None = None
    conversation_id: UUID | None = None
    parent: Origin | None = None
    stream: Stream | None = None
    grown: Callable[[Sequence[RecordedEvent]], tuple[NewEvent, ...]] | None = None
    left_out: LeftOut = field(default_factory=LeftOut)


class Stream(Protocol):
    """The events of a file that is not held in memory, and what was left out of it."""

    left_out: LeftOut

    def read(self, cuts: Mapping[int, int]) -> Iterator[NewEvent | ImportFailed]:
        """Yield the events from version 1, and reports of bad lines, from the file's beginning.

        Args:
            cuts: The answers in the store, by version, with the number of lines of each.
        """


class TranscriptDraft:
    """A transcript under construction: counts turns and steps, and pairs calls.

    System messages at the beginning of the conversation are its instructions, and belong together.
    A later one keeps its place, outside the context: it is history, which products render again for
    each request (document 000, 4.3).

    The first event is the `ConversationStart`.
    """

    def __init__(self, origin: Origin, file: str, line: int | None) -> None:
        self._origin = origin
        self.calls = Calls()
        self._file, self._line = file, line
        self._events: list[NewEvent] = []
        self._title: str | None = None
        self._turn = 0
        self._step = -1
        self._leading = True
        self._instructed = False
        self._identities = Identities(origin.format)

    @property
    def next_version(self) -> int:
        """The version that the next event will have."""
        return len(self._events) + 1

    def start(self, start: ConversationStart, meta: Meta) -> None:
        """Add the first event."""
        self._title = start.title
        self.add(start, meta)

    def add(
        self, data: EventData, meta: Meta, *, as_recorded: bool = False, named: str | None = None
    ) -> None:
        """Add an event.

        Args:
            data: The payload.
            meta: The metadata.
            as_recorded: Whether the record itself says which system messages are instructions.
            named: The id that the record has in its file.
        """
        if isinstance(data, SystemInstruction) and not as_recorded:
            data, meta = self._placed(data, meta)
        if isinstance(data, AssistantMessage | LlmError):
            copy = copied(self._identities.of(named, meta.occurred_at, data.usage))
            meta = meta.model_copy(update={"extra": {**(meta.extra or {}), **copy} or None})
        unknown = isinstance(data, UnknownEvent) and data.type == UNINTERPRETED
        if unknown or isinstance(data, _SPOKEN):
            self._leading = False
        self._events.append(NewEvent(data, meta=meta))
        if isinstance(data, AssistantMessage):
            self.calls.note(len(self._events), data.tool_calls)

    def _placed(self, data: SystemInstruction, meta: Meta) -> tuple[SystemInstruction, Meta]:
        if not self._leading:
            return data, meta.model_copy(update={"in_context": False})
        if not meta.in_context:
            return data, meta
        continues, self._instructed = self._instructed, True
        return data.model_copy(update={"continues": continues}), meta

    def place(self, data: EventData, **fields: Any) -> Meta:
        """Return the metadata of the next event: its counted turn and step, and ``fields``.

        A user message begins a turn, an assistant message a step; a tool result belongs to the step
        that requested it.
        """
        if isinstance(data, UserMessage):
            self._turn, self._step = self._turn + 1, -1
        elif isinstance(data, AssistantMessage | LlmError):
            self._step += 1
        in_step = isinstance(data, AssistantMessage | LlmError | ToolResult) and self._step >= 0
        step = self._step if in_step else None
        return Meta(turn=self._turn or None, step=step, **fields)

    def finish(self) -> Transcript:
        """Return the transcript."""
        return Transcript(
            self._origin,
            tuple(self._events),
            title=self._title,
            file=self._file,
            line=self._line,
        )


def canonical(value: Any) -> str:
    """Return JSON text that two values share exactly if they are the same JSON."""
    return json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":"))


def copied(identity: Sequence[Any] | None) -> dict[str, str]:
    """Return what ``meta.extra`` of a model call holds, so that its copies are counted once.

    Args:
        identity: What all copies of the call have in common and no other call has, beginning with
            the name of the product or provider; without it, the call is counted wherever it is.
    """
    if not identity:
        return {}
    text = json.dumps(identity, default=str).encode()
    return {COPY_KEY: hashlib.blake2b(text, digest_size=16).hexdigest()}


class Identities:
    """What the copies of one file's model calls have in common with them, for `copied`.

    A copy has the same id and time, and the same counts of tokens; without an id it needs both of
    the others. Where all of them recur in a file, their order tells the calls apart. Nothing is
    derived from content, which an erasure must not leave traces of.
    """

    def __init__(self, format_name: str) -> None:
        """Begin a file of a format."""
        self._format = format_name
        self._seen: Counter[tuple[Any, ...]] = Counter()

    def of(
        self, named: str | None, moment: datetime | None, usage: TokenUsage | None
    ) -> tuple[Any, ...] | None:
        """Return the identity of the file's next call, or None if its record is too vague."""
        if named is None and (moment is None or usage is None):
            return None
        counts = usage and (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens)
        key = (self._format, named, moment, counts)
        self._seen[key] += 1
        return (*key, self._seen[key])


def explicit_id(record: Any, *more_keys: str) -> str | None:
    """Return the conversation id that a record states, or None."""
    if not isinstance(record, Mapping):
        return None
    for key in (*_CONVERSATION_KEYS, *more_keys):
        value = record.get(key)
        if (isinstance(value, str) and value) or type(value) is int:
            return str(value)
    return None


def identify(format_name: str, stated: str | None, content: Iterable[Any] = ()) -> Origin:
    """Return the origin of a conversation: its stated id, or else its content."""
    if stated is not None:
        return Origin(format_name, place=("id", stated))
    return Origin(format_name, content=tuple(content))


def anchored(format_name: str, stated: str | None, messages: Sequence[Record]) -> Origin:
    """Return the origin of a conversation whose file grows at its end.

    Without a stated id the first message identifies it, if it has an id or a time.
    """
    first = messages[0].value
    lasting = "id" in first or moment_of(first) is not None
    content = messages[:1] if lasting else messages
    return identify(format_name, stated, (record.value for record in content))


def mode_of(value: Any) -> Mode | None:
    """Return the mode that a value names, or None."""
    return value if is_mode(value) else None


def title_of(record: Mapping[str, Any], *keys: str) -> str | None:
    """Return the title under the first of the keys that a record has, if it is text."""
    title = next((record[key] for key in keys or ("title",) if key in record), None)
    return title if isinstance(title, str) else None


def moment_of(record: Mapping[str, Any]) -> datetime | None:
    """Return when a record happened, in UTC; None if it does not say.

    ISO 8601 without an offset is read as UTC; a number as seconds, or as milliseconds if large.
    """
    for key in _MOMENT_KEYS:
        value = record.get(key)
        try:
            if isinstance(value, str):
                moment = datetime.fromisoformat(value)
                return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
            if isinstance(value, int | float) and not isinstance(value, bool):
                scale = 1_000 if abs(value) >= _MILLISECONDS_FROM else 1
                return datetime.fromtimestamp(value / scale, UTC)
        except (ValueError, OverflowError, OSError):
            continue
    return None
