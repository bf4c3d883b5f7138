"""The directory: one row per conversation, with the data that a list of conversations shows.

Events are counted by type, so erased and unreadable events count too. Texts come only from readable
events. Titles and previews are those of the active branch, without withdrawn messages. Tenant and
user are extra columns (`projections.engine.tables`), so that one user's list is read from an index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from eventstore.events import (
    AssistantMessage,
    BranchSwitch,
    ConversationEnd,
    ConversationFork,
    ConversationStart,
    ConversationUpdate,
    Erasure,
    LlmError,
    RecordedEvent,
    RetainedUsage,
    Retraction,
    ToolResult,
    UserMessage,
)
from projections import payload_text, version_ranges
from projections.engine import folding
from projections.engine.folding import PREVIEW_CHARS, Row
from projections.engine.projection import Change, Put, ReadTable, State
from projections.engine.tables import OwnerColumns

__all__ = [
    "DIRECTORY",
    "TITLE_CHARS",
    "ConversationStatus",
    "DirectoryEntry",
    "DirectoryProjection",
]

ConversationStatus = Literal["open", "archived", "destroyed", "erased"]


TITLE_CHARS = 80
_TITLED = -1  # has an explicit title; else the version of the message that gave it, or 0
_ASIDE = 32  # messages of inactive branches that a state remembers
_RECENT = 8  # latest messages that a state remembers, because the last may be withdrawn

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
    {
        ConversationStart,
        ConversationFork,
        UserMessage,
        AssistantMessage,
        LlmError,
        ToolResult,
        BranchSwitch,
        Retraction,
        ConversationUpdate,
        ConversationEnd,
        Erasure,
    }
)
_NO_ACTIVITY = frozenset({Erasure.type, RetainedUsage.type})
_LISTED = ("status", "last_activity_at", "conversation_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryEntry(Row):
    """A conversation in the list.

    Attributes:
        title: The conversation's title, or else the start of the first user message on the active
            branch; once that message alone is withdrawn, of the oldest of the last 8.
        status: ``open``, ``archived``, ``destroyed`` or ``erased``; a message after an erasure
            opens it again.
        last_activity_at: Time of the latest event, except erasures.
        message_count: Number of user messages, assistant messages and tool results.
        tool_call_count: Number of calls that the model requested.
        error_count: Number of failed model calls and failed tool results.
        last_user_text: The start of the latest user message on the active branch, on one line.
        last_message_text: The start of the latest message by a user or the model, likewise. After
            the withdrawal of more than the last 8 messages, the latest known user message, or else
            the first, until the next message.
        last_message_role: ``user`` or ``assistant``.
        last_message_version: Its version; if a reader has only seen lower versions, it is unread.
        thread_slug: The thread of chats to which it belongs; see `ChatSession`.
        parent_conversation_id: The conversation that this one was opened or forked from.
        metadata: The product's data on the conversation, a JSON object.
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
    last_message_text: str | None = None
    last_message_role: str | None = None
    last_message_version: int | None = None
    thread_slug: str | None = None
    parent_conversation_id: str | None = None
    parent_version: int | None = None
    metadata: Any = None


@dataclass(frozen=True, slots=True)
class DirectoryProjection:
    """Folds a conversation's events into its row of ``directory``."""

    name: str = "directory"
    version: int = 7
    tables: Sequence[ReadTable] = (
        ReadTable(
            _TABLE,
            (),
            folding.columns_of(DirectoryEntry),
            sparse_lookups=("thread_slug",),
            attachments=OwnerColumns((_LISTED, ("user_id", *_LISTED), ("tenant_id", *_LISTED))),
        ),
    )

    def initial(self) -> State:
        """Return the counts and marks of an empty conversation."""
        marks: State = {"titled": 0, "mode": None, "switched": False, "active": None, "recent": []}
        marks |= {"first": None, "asked": [], "aside": [], "titles": [], "erased": False}
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
        # ISO texts in one time zone sort by time.
        active = folding.moment_text(moment)
        if state["active"] is None or (event.type not in _NO_ACTIVITY and active > state["active"]):
            after["active"], values["last_activity_at"] = active, moment
        if type(event.data) in _LOOKED_INTO:
            _look_into(after, event, values)
        return after, (Put(_TABLE, (), values),)


def _counts(state: State, event: RecordedEvent) -> dict[str, Any]:
    """Return the counts that an event's type and turn increase."""
    kind = event.type
    counts = {"event_count": state["event_count"] + 1}
    again = folding.replaces(state, event)
    for name in () if again else _COUNTED_AS.get(kind, ()):
        counts[name] = state[name] + 1
    turn = event.meta.turn or (state["turn_count"] + 1 if kind == "turn_start" else 0)
    if turn > state["turn_count"]:
        counts["turn_count"] = turn
    return counts


def _look_into(after: State, event: RecordedEvent, values: dict[str, Any]) -> None:
    """Update the state and the row from the payload."""
    match event.data:
        case AssistantMessage() as answer:
            if answer.tool_calls and not folding.replaces(after, event):
                after["tool_call_count"] += len(answer.tool_calls)
                values["tool_call_count"] = after["tool_call_count"]
            _say(after, event, values, "assistant", payload_text.answer_text(answer.parts))
        case LlmError() as error:
            _say(after, event, values, "assistant", error.partial_text)
        case ToolResult() as result:
            if result.status == "failed" and not folding.replaces(after, event):
                after["error_count"] += 1
                values["error_count"] = after["error_count"]
        case UserMessage() as message:
            text = payload_text.text_of(message.parts) or payload_text.sections_text(
                message.sections
            )
            _say(after, event, values, "user", text)
            if not after["titled"] and text.strip():
                values["title"] = folding.one_line(text, TITLE_CHARS)
                after["titled"] = event.version
                after["titles"] = [*after["titles"], [event.version, values["title"]]][-_RECENT:]
        case Retraction() as retraction:
            if retraction.replaced_by:
                after["replacing"] = [[each.first, each.last] for each in retraction.replaced_by]
            _withdraw(after, values, version_ranges.retracted(retraction, event))
        case BranchSwitch() as switched:
            _switch(after, values, event, switched)
        case ConversationStart() as start:
            values |= {
                "status": "open",
                "thread_slug": _thread_of(start),
                "parent_conversation_id": start.parent_conversation_id,
                "parent_version": start.parent_version,
                "metadata": start.metadata,
            }
            if start.title:
                values["title"], after["titled"] = start.title, _TITLED
        case ConversationFork() as fork:
            values |= {
                "status": "open",
                "created_at": event.occurred_at,
                "parent_conversation_id": fork.parent_conversation_id,
                "parent_version": fork.parent_version,
            }
            if fork.title:
                values["title"], after["titled"] = fork.title, _TITLED
        case ConversationUpdate() as update:
            if update.title is not None:
                values["title"], after["titled"] = update.title, _TITLED
            if update.metadata is not None:
                values["metadata"] = update.metadata
            if update.archived is not None:
                values["status"] = "archived" if update.archived else "open"
        case ConversationEnd() as end:
            values["status"] = end.reason
        case Erasure() as erasure if erasure.whole:
            values["status"], after["erased"] = "erased", True


def _thread_of(start: ConversationStart) -> str | None:
    slug = start.config.get("thread_slug")
    return slug if isinstance(slug, str) else None


def _say(after: State, event: RecordedEvent, values: dict[str, Any], role: str, text: str) -> None:
    """Make a message the last one, unless it is empty."""
    if preview := folding.one_line(text, PREVIEW_CHARS):
        entry = [event.version, role, preview]
        for memory in ("recent", "asked") if role == "user" else ("recent",):
            after[memory] = [*after[memory][1 - _RECENT :], entry]
        after["first"] = after["first"] or (entry if role == "user" else None)
        _show_last(after, values)
        if after["erased"]:
            values["status"], after["erased"] = "open", False


def _withdraw(after: State, values: dict[str, Any], gone: Sequence[tuple[int, int]]) -> None:
    for memory in ("recent", "asked"):
        after[memory] = [
            entry for entry in after[memory] if not version_ranges.within(gone, entry[0])
        ]
    if after["first"] and version_ranges.within(gone, after["first"][0]):
        after["first"] = next(iter(after["asked"]), None)
    _show_last(after, values)
    if version_ranges.within(gone, after["titled"]):
        # Without a message that is left, the next one gives the title.
        version, _, text = after["asked"][0] if after["asked"] else (0, None, None)
        after["titled"] = version
        values["title"] = text and folding.one_line(text, TITLE_CHARS)


def _switch(
    after: State, values: dict[str, Any], event: RecordedEvent, switched: BranchSwitch
) -> None:
    """Show the active branch's last messages and its title."""
    gone = version_ranges.before(switched.withdrawn, event)
    back = version_ranges.before(switched.restored, event)
    known = {entry[0]: entry for entry in (*after["asked"], *after["recent"], *_first(after))}
    left = [known[version] for version in sorted(known) if version_ranges.within(gone, version)]
    returned = [entry for entry in after["aside"] if version_ranges.within(back, entry[0])]
    aside = [entry for entry in after["aside"] if entry not in returned]
    after["aside"] = [*aside, *left][-_ASIDE:]
    _withdraw(after, values, gone)
    after["recent"] = sorted([*after["recent"], *returned])[-_RECENT:]
    user_entries = [entry for entry in returned if entry[1] == "user"]
    after["first"] = min([*_first(after), *after["asked"], *user_entries], default=None)
    after["asked"] = sorted([*after["asked"], *user_entries])[-_RECENT:]
    _show_last(after, values)
    titles = [each for each in after["titles"] if version_ranges.within(back, each[0])]
    if titles and after["titled"] == 0:
        after["titled"], values["title"] = titles[0]


def _first(after: State) -> list[list[Any]]:
    return [after["first"]] if after["first"] else []


def _show_last(after: State, values: dict[str, Any]) -> None:
    user_entries = after["asked"] or _first(after)
    version, role, text = (after["recent"] or user_entries or [(None, None, None)])[-1]
    values["last_message_version"] = version
    values["last_message_role"] = role
    values["last_message_text"] = text
    values["last_user_text"] = user_entries[-1][2] if user_entries else None


DIRECTORY = DirectoryProjection()
