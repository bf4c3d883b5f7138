"""Shared parts of the folds: a draft of the next state, memories of bounded size, rows, and texts.

A fold works on a `Draft`, which copies what it changes, so the state that it was given stays
unchanged. A state's memories are limited in size: the oldest entry is dropped first, and a dropped
entry is treated as never seen. Entries are ordered by age, so a state must be stored with the order
of its keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import lru_cache
from types import UnionType
from typing import Any, Self, get_args, get_type_hints
from uuid import UUID

from eventstore.events import (
    BranchSwitch,
    ContentPart,
    ConversationStart,
    FilePart,
    ImagePart,
    ModeSwitch,
    OtherPart,
    ReasoningPart,
    RecordedEvent,
    RefusalPart,
    Retraction,
    Sections,
    TextPart,
    ToolResult,
    VersionRange,
)
from projections.engine.projection import Change, Column, ColumnType, Patch, Put, State
from projections.engine.provider_actions import mention

__all__ = [
    "CLOSED_LIMIT",
    "OPEN_LIMIT",
    "PREVIEW_CHARS",
    "SEALS",
    "Handler",
    "Range",
    "Row",
    "RowDraft",
    "answer_text",
    "before",
    "call_of_erased_result",
    "columns_of",
    "day_of",
    "elapsed_ms",
    "joined",
    "mode_marks",
    "moment_text",
    "not_yet_within",
    "note_replaced",
    "one_line",
    "replaces",
    "result_text",
    "retracted",
    "run",
    "sections_text",
    "spoken",
    "switch",
    "text_of",
    "up_to",
    "where",
    "withdraw",
    "within",
    "without",
]

Range = tuple[int, int]
"""A range of versions, both ends inclusive."""

OPEN_LIMIT = 256  # entries; open calls, turns, runs ... of one kind that a state remembers
CLOSED_LIMIT = 64  # entries; ended calls that a state remembers, to recognize duplicates
WITHDRAWN_LIMIT = 64  # ranges of withdrawn versions that a state remembers
PREVIEW_CHARS = 200

SEALS = frozenset({"not_started", "outcome_unknown"})
"""Statuses of stand-ins for a result; a later real result replaces them."""

_TELL_THE_MODE = frozenset({ConversationStart, ModeSwitch})

_COLUMN_TYPES: dict[Any, ColumnType] = {
    str: "text",
    int: "integer",
    float: "float",
    bool: "boolean",
    datetime: "timestamp",
    UUID: "uuid",
}


class RowDraft:
    """The state and the changes of one event while its fold produces them."""

    __slots__ = ("_own", "changes", "event", "state")

    def __init__(self, state: State, event: RecordedEvent) -> None:
        self.state = state
        self._own = False
        self.event = event
        self.changes: list[Change] = []

    @property
    def now(self) -> str:
        """The event's time, in the form that a state can hold."""
        return moment_text(self.event.occurred_at)

    def put(self, table: str, key: tuple[Any, ...], values: dict[str, Any]) -> None:
        """Add a `Put` to the changes."""
        self.changes.append(Put(table, key, values))

    def set(self, **values: Any) -> None:
        """Set top-level entries of the state; the first change copies the state."""
        if not self._own:
            self.state, self._own = dict(self.state), True
        self.state.update(values)

    def get(self, memory: str, key: str | None) -> Any:
        """Return a memory's value for a key, or None."""
        return None if key is None else self.state[memory].get(key)

    def keep(self, memory: str, key: str, value: Any, limit: int = OPEN_LIMIT) -> None:
        """Store a value under a key; drop the oldest entry beyond the limit."""
        entries = self.state[memory].copy()  # not {**entries}, which is slow after deletions
        entries[key] = value
        if len(entries) > limit:
            del entries[next(iter(entries))]
        self._hold(memory, entries)

    def drop(self, memory: str, key: str | None) -> Any:
        """Drop a key, and return its value, or None."""
        entries = self.state[memory]
        if key is None or key not in entries:
            return None
        left = dict(entries)
        dropped = left.pop(key)
        self._hold(memory, left)
        return dropped

    def _hold(self, name: str, value: Any) -> None:
        if not self._own:
            self.state, self._own = dict(self.state), True
        self.state[name] = value


Handler = Callable[[RowDraft, Any], None]


def run(
    handlers: Mapping[type, Handler], state: State, event: RecordedEvent
) -> tuple[State, list[Change]]:
    """Fold an event with the handler for its payload's class, if there is one.

    The handler for ``NoneType`` gets the events whose payload was erased.
    """
    handler = handlers.get(type(event.data))
    if handler is None:
        return state, []
    draft = RowDraft(state, event)
    handler(draft, event.data)
    return draft.state, draft.changes


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of a read model, as the views return it; the fields are the table's columns."""

    conversation_id: UUID

    @classmethod
    def from_row(cls, row: Mapping[Any, Any]) -> Self:
        """Create one from a mapping of column names to Python values; other names are ignored."""
        return cls(**{field.name: row[field.name] for field in fields(cls) if field.name in row})


def columns_of(row: type[Row]) -> tuple[Column, ...]:
    """Return the columns of the table whose rows are of this class."""
    hints = get_type_hints(row)
    names = [field.name for field in fields(row) if field.name != "conversation_id"]
    return tuple(Column(name, _column_type(hints[name])) for name in names)


def _column_type(hint: Any) -> ColumnType:
    members = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    return next((_COLUMN_TYPES[member] for member in members if member in _COLUMN_TYPES), "json")


def call_of_erased_result(calls: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return the id of the open tool call that an erased result closes, or None.

    An erased event has no call id. Its call is most likely the oldest open one of the newest
    message that has any: calls of older messages wait for a task, or their results were lost.
    """
    unsealed = [own_id for own_id, call in calls.items() if not call.get("sealed")]
    messages = [own_id.partition(".")[0] for own_id in unsealed]
    return unsealed[messages.index(messages[-1])] if unsealed else None


def where(event: RecordedEvent) -> dict[str, Any]:
    """Return the columns that say which part of the conversation an event belongs to."""
    told = vars(event.meta)  # a model's own attributes take three times as long to read
    return {
        "turn": told["turn"],
        "step": told["step"],
        "mode": told["mode"],
        "session_id": told["session_id"],
        "run_id": told["run_id"],
        "agent_id": told["agent_id"],
    }


def mode_marks(state: State, event: RecordedEvent) -> dict[str, Any]:
    """Return the changes to the state's ``mode`` and ``switched``.

    The mode set by a start or a switch takes precedence; before the first of these, the mode of the
    events' metadata counts.
    """
    data: Any = event.data
    if type(data) in _TELL_THE_MODE and data.mode is not None:
        return {"mode": data.mode, "switched": True}
    if state["switched"] or event.meta.mode in (None, state["mode"]):
        return {}
    return {"mode": event.meta.mode}


def day_of(moment: datetime) -> str:
    """Return the day in UTC, as ``YYYY-MM-DD``."""
    return moment_text(moment if moment.tzinfo is UTC else moment.astimezone(UTC))[:10]


def moment_text(moment: datetime) -> str:
    """Return a time in UTC in the form that a state can hold."""
    return _utc_text(moment) if moment.tzinfo is UTC else moment.isoformat()


# Every projection asks for the time of the same events, and events of one append share a time.
_utc_text = lru_cache(maxsize=1024)(datetime.isoformat)


def elapsed_ms(start: str | None, end: datetime) -> int | None:
    """Return the milliseconds from a time in a state to a later time; 0 if clocks disagree."""
    if start is None:
        return None
    return max(0, round((end - datetime.fromisoformat(start)).total_seconds() * 1000))


def one_line(text: str, limit: int = PREVIEW_CHARS) -> str:
    """Return the start of a text without line breaks, in at most ``limit`` characters."""
    start = text[:limit]
    if start.isprintable() and "  " not in start and start == start.strip():
        return start  # nearly always; this check is faster than splitting and joining words
    return " ".join(text.lstrip()[: 4 * limit].split())[:limit]


def text_of(parts: Iterable[ContentPart], *, joint: str = "\n") -> str:
    """Return parts as text, with short placeholders for images, files and other content."""
    return joint.join([part.text if type(part) is TextPart else _part_text(part) for part in parts])


def spoken(parts: Iterable[ContentPart], *, joint: str = "\n") -> str:
    """Return the text parts; all other parts, including reasoning, are skipped."""
    return joint.join(part.text for part in parts if isinstance(part, TextPart))


def answer_text(parts: Iterable[ContentPart]) -> str:
    """Return the text of an answer, without its reasoning.

    If the answer has no text, describe the actions of the provider's own tools instead.
    """
    said = [part for part in parts if type(part) is not ReasoningPart]
    spoken = text_of([part for part in said if type(part) is not OtherPart], joint="")
    acts = [] if spoken else [mention(part.raw) for part in said if type(part) is OtherPart]
    return spoken or "\n".join(filter(None, acts))


def _part_text(part: ContentPart) -> str:
    match part:
        case TextPart() | ReasoningPart() | RefusalPart():
            return part.text
        case ImagePart():
            return "[image]"
        case FilePart():
            return f"[file: {part.name or part.path or part.file_id or 'unnamed'}]"
        case OtherPart():
            return "[other content]"


def sections_text(sections: Sections | None) -> str:
    """Return the most detailed level of sections as text; empty if there are none."""
    return "\n\n".join(section.text for section in sections.live) if sections else ""


def result_text(result: ToolResult) -> str | None:
    """Return a result's content as text; for a result in a blob, the preview."""
    if isinstance(result.content, str):
        return result.content
    if result.content is not None:
        return text_of(result.content)
    return result.preview if result.preview is not None else sections_text(result.sections) or None


def retracted(retraction: Retraction, event: RecordedEvent) -> list[tuple[int, int]]:
    """Return the ranges of versions that a retraction withdraws, limited to versions before it."""
    return before(retraction.versions, event)


def before(versions: Iterable[VersionRange], event: RecordedEvent) -> list[tuple[int, int]]:
    """Return ranges of versions, limited to versions before an event."""
    return up_to(versions, event.version - 1)


def up_to(versions: Iterable[VersionRange], head: int) -> list[tuple[int, int]]:
    """Return ranges of versions, limited to versions up to ``head``."""
    return [
        (item.first, min(item.last, head))
        for item in versions
        if item.first <= min(item.last, head)
    ]


def within(ranges: Iterable[tuple[int, int]], version: int) -> bool:
    """Whether a version is in one of the ranges."""
    return any(first <= version <= last for first, last in ranges)


def switch(draft: RowDraft, switched: BranchSwitch, table: str, column: str, **values: Any) -> None:
    """Patch the rows of a table whose version has left the active branch or returned to it.

    The column ``inactive`` records this.
    """
    for ranges, inactive in ((switched.withdrawn, True), (switched.restored, None)):
        for first, last in before(ranges, draft.event):
            told = {"inactive": inactive, **values}
            draft.changes.append(Patch(table, column, first, last, told))


def withdraw(
    draft: RowDraft, retraction: Retraction, table: str, column: str, values: dict[str, Any]
) -> list[tuple[int, int]]:
    """Patch the rows of a table whose version is withdrawn for the first time; return these."""
    new, known = not_yet_within(retracted(retraction, draft.event), draft.state["withdrawn"])
    draft.set(withdrawn=known)
    for first, last in new:
        draft.changes.append(Patch(table, column, first, last, values))
    return new


def note_replaced(draft: RowDraft, retraction: Retraction) -> None:
    """Remember which of the following events record withdrawn messages again; see `replaces`."""
    if retraction.replaced_by:
        draft.set(replacing=[[each.first, each.last] for each in retraction.replaced_by])


def replaces(state: State, event: RecordedEvent) -> bool:
    """Whether an event records a withdrawn message again, edited or at another place."""
    return within(state.get("replacing", ()), event.version)


def not_yet_within(
    ranges: Iterable[tuple[int, int]], known: Sequence[Sequence[int]]
) -> tuple[list[tuple[int, int]], list[list[int]]]:
    """Return the parts of ranges outside the known ones, and the union of both.

    Ranges are inclusive. Known ranges are disjoint, in order and limited in number: a range that
    was forgotten counts as new.
    """
    before = [(low, high) for low, high in known]
    new = without(joined(ranges), before)
    return new, [list(each) for each in joined([*before, *new])][-WITHDRAWN_LIMIT:]


def without(
    ranges: Iterable[tuple[int, int]], others: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return the parts of ranges that are in none of the others; both are ordered and disjoint."""
    found: list[tuple[int, int]] = []
    for first, last in ranges:
        place = first
        for low, high in others:
            if low > last:
                break
            if high < place:
                continue
            if low > place:
                found.append((place, low - 1))
            place = high + 1
        if place <= last:
            found.append((place, last))
    return found


def joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the union of ranges of versions as disjoint ranges, in order."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found
