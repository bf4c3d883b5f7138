"""A conversation from a foreign file, as events that are ready to be appended.

Everything about it is derived from the file's content: the conversation's id from the id that the
source gave it or, failing that, from what it says and its place in the file; each event's id from
the conversation, its place and its source record. So the same content gives the same ids, whatever
the file is called and however often it is read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, get_args
from uuid import UUID

from eventstore.events import (
    AssistantMessage,
    ConversationStart,
    Meta,
    NewEvent,
    SystemInstruction,
    ToolResult,
    UserMessage,
)
from eventstore.events.records import EventData
from eventstore.events.values import Mode
from eventstore.ids import derived_id

from .calls import Calls
from .source import Record

__all__ = [
    "Draft",
    "Transcript",
    "anchored",
    "canonical",
    "explicit_id",
    "identify",
    "mode_of",
    "moment_of",
]

_CONVERSATION_KEYS = ("conversationId", "conversation_id", "sessionId", "session_id")
_MOMENT_KEYS = ("createdAt", "created_at", "timestamp", "ts", "time")
_MILLISECONDS_FROM = 100_000_000_000


@dataclass(frozen=True, slots=True)
class Transcript:
    """One conversation to be imported: its events from version 1, and where it was found."""

    conversation_id: UUID
    events: tuple[NewEvent, ...]
    title: str | None = None
    tenant_id: str | None = None
    user_id: str | None = None
    file: str = ""
    line: int | None = None


class Draft:
    """A transcript in the making: counts turns and steps, pairs calls, derives ids.

    The first event is the `ConversationStart`. Its id does not cover its payload, because products
    rewrite a conversation's metadata while it grows.
    """

    def __init__(self, conversation_id: UUID, file: str, line: int | None) -> None:
        self.conversation_id = conversation_id
        self.calls = Calls()
        self._file, self._line = file, line
        self._events: list[NewEvent] = []
        self._title: str | None = None
        self._turn = 0
        self._step = -1

    @property
    def next_version(self) -> int:
        """The version that the next event will have."""
        return len(self._events) + 1

    def start(self, start: ConversationStart, meta: Meta) -> None:
        """Add the first event."""
        self._title = start.title
        self.add(start, "", meta)

    def add(self, data: EventData, source: str, meta: Meta) -> None:
        """Add an event; ``source`` is the canonical JSON of the record that it comes from."""
        digest = hashlib.sha256(source.encode()).hexdigest()
        event_id = derived_id(self.conversation_id, len(self._events), digest)
        self._events.append(NewEvent(data, event_id, meta))
        if isinstance(data, AssistantMessage):
            self.calls.note(len(self._events), data.tool_calls)

    def place(self, data: EventData, **fields: Any) -> Meta:
        """Return the metadata of the next event: its turn and step by counting, and ``fields``.

        A user message begins a turn, an assistant message a step; a tool result belongs to the
        step that asked for it.
        """
        if isinstance(data, UserMessage):
            self._turn, self._step = self._turn + 1, -1
        elif isinstance(data, AssistantMessage):
            self._step += 1
        in_step = isinstance(data, AssistantMessage | ToolResult) and self._step >= 0
        in_turn = self._turn > 0 and not isinstance(data, SystemInstruction)
        return Meta(
            turn=self._turn if in_turn else None, step=self._step if in_step else None, **fields
        )

    def finish(self) -> Transcript:
        """Return the transcript."""
        return Transcript(
            self.conversation_id,
            tuple(self._events),
            title=self._title,
            file=self._file,
            line=self._line,
        )


def canonical(value: Any) -> str:
    """Return JSON text that two values share exactly if they are the same JSON."""
    return json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":"))


def explicit_id(record: Any, *more_keys: str) -> str | None:
    """Return the id of its conversation that a record states, if it does."""
    if not isinstance(record, Mapping):
        return None
    for key in (*_CONVERSATION_KEYS, *more_keys):
        value = record.get(key)
        if (isinstance(value, str) and value) or type(value) is int:
            return str(value)
    return None


def identify(format_name: str, stated: str | None, content: Iterable[Any] = ()) -> UUID:
    """Return a conversation's id: from the id it states, else from content and place."""
    if stated is not None:
        return derived_id("conversation", format_name, "id", stated)
    digest = hashlib.sha256("\n".join(map(canonical, content)).encode()).hexdigest()
    return derived_id("conversation", format_name, "content", digest)


def anchored(format_name: str, stated: str | None, messages: Sequence[Record]) -> UUID:
    """Return the id of a conversation that is a file which grows at its end.

    Without a stated id the first message tells, if it has an id or a time that sets it apart.
    """
    first = messages[0].value
    lasting = "id" in first or moment_of(first) is not None
    content = messages[:1] if lasting else messages
    return identify(format_name, stated, (record.value for record in content))


def mode_of(value: Any) -> Mode | None:
    """Return a mode, if the value names one."""
    return next((mode for mode in get_args(Mode) if mode == value), None)


def moment_of(record: Mapping[str, Any]) -> datetime | None:
    """Return when a record says that it happened, in UTC; None if it does not say.

    ISO 8601 without an offset is taken as UTC; a number as seconds, or milliseconds if large.
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
