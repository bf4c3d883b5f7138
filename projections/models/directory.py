"""The directory: one row a conversation, with what a list of conversations shows.

Events count by their type, so an erased or unreadable one counts too; texts come only from what
can be read. Tenant and user are columns of the store's own table, and are joined by the reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from eventstore.events import (
    AssistantMessage,
    ConversationEnd,
    ConversationStart,
    RecordedEvent,
    ToolResult,
    UserMessage,
)
from projections.engine import folding
from projections.engine.folding import Row
from projections.engine.projection import Change, Put, ReadTable, State

__all__ = ["DIRECTORY", "TITLE_CHARS", "DirectoryEntry", "DirectoryProjection"]

TITLE_CHARS = 80

_TABLE = "directory"
_COUNTS = (
    "event_count",
    "message_count",
    "user_message_count",
    "turn_count",
    "tool_call_count",
    "error_count",
)
_COUNTED_AS = {
    "user_message": ("message_count", "user_message_count"),
    "assistant_message": ("message_count",),
    "tool_result": ("message_count",),
    "llm_error": ("error_count",),
}
_LOOKED_INTO = frozenset(
    {ConversationStart, UserMessage, AssistantMessage, ToolResult, ConversationEnd}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryEntry(Row):
    """A conversation in the list.

    Attributes:
        title: As the conversation was titled, else the start of the first user message.
        status: ``open``, ``archived`` or ``destroyed``.
        last_activity_at: Time of the latest event, erasures excepted.
        message_count: User messages, assistant messages and tool results.
        tool_call_count: Calls that the model asked for.
        error_count: Failed model calls and failed tool results.
        last_user_text: The start of the latest user message, on one line.
        parent_conversation_id: The conversation that this one was opened or forked from.
    """

    title: str | None = None
    mode: str | None = None
    status: str | None = None
    created_at: datetime | None = None
    last_activity_at: datetime | None = None
    event_count: int | None = None
    message_count: int | None = None
    user_message_count: int | None = None
    turn_count: int | None = None
    tool_call_count: int | None = None
    error_count: int | None = None
    last_user_text: str | None = None
    parent_conversation_id: str | None = None
    parent_version: int | None = None


@dataclass(frozen=True, slots=True)
class DirectoryProjection:
    """Folds a conversation's events into its row of ``directory``."""

    name: str = "directory"
    version: int = 1
    tables: Sequence[ReadTable] = (
        ReadTable(
            _TABLE,
            (),
            folding.columns_of(DirectoryEntry),
            lookups=(("last_activity_at",), ("status", "last_activity_at")),
        ),
    )

    def initial(self) -> State:
        """Return the counts and marks of an empty conversation."""
        marks = {"titled": False, "mode": None, "switched": False, "active": None}
        return {**dict.fromkeys(_COUNTS, 0), **marks}

    def fold(self, state: State, event: RecordedEvent) -> tuple[State, Sequence[Change]]:
        """Return the state after the event, and what it changes in the row."""
        moment = event.occurred_at
        values: dict[str, Any] = _counts(state, event)
        after = {**state, **values}
        if state["event_count"] == 0:
            blank = {name: state[name] for name in _COUNTS}
            values = {**blank, "status": "open", "created_at": moment, **values}
        if marks := folding.mode_marks(state, event):
            after |= marks
            values["mode"] = marks["mode"]
        if event.type != "erasure":
            # ISO texts of one zone are in the order of their times.
            active = folding.moment_text(moment)
            if state["active"] is None or active > state["active"]:
                after["active"], values["last_activity_at"] = active, moment
        if type(event.data) in _LOOKED_INTO:
            _look_into(after, event, values)
        return after, (Put(_TABLE, (), values),)


def _counts(state: State, event: RecordedEvent) -> dict[str, Any]:
    """Return the counts that an event raises by its type and its turn."""
    kind = event.type
    counts = {"event_count": state["event_count"] + 1}
    for name in _COUNTED_AS.get(kind, ()):
        counts[name] = state[name] + 1
    turn = event.meta.turn or (state["turn_count"] + 1 if kind == "turn_start" else 0)
    if turn > state["turn_count"]:
        counts["turn_count"] = turn
    return counts


def _look_into(after: State, event: RecordedEvent, values: dict[str, Any]) -> None:
    """Set in the state and the row what the payload tells."""
    match event.data:
        case AssistantMessage() as answer:
            if answer.tool_calls:
                after["tool_call_count"] += len(answer.tool_calls)
                values["tool_call_count"] = after["tool_call_count"]
        case ToolResult() as result:
            if result.status == "failed":
                after["error_count"] += 1
                values["error_count"] = after["error_count"]
        case UserMessage() as message:
            text = folding.text_of(message.parts) or folding.sections_text(message.sections)
            values["last_user_text"] = folding.one_line(text)
            if not after["titled"] and text.strip():
                values["title"], after["titled"] = folding.one_line(text, TITLE_CHARS), True
        case ConversationStart() as start:
            values |= {
                "status": "open",
                "parent_conversation_id": start.parent_conversation_id,
                "parent_version": start.parent_version,
            }
            if start.title:
                values["title"], after["titled"] = start.title, True
        case ConversationEnd() as end:
            values["status"] = end.reason


DIRECTORY = DirectoryProjection()
