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
    ConversationStart,
    ModeSwitch,
    RecordedEvent,
    Retraction,
)
from projections.engine.projection import Change, Column, ColumnType, Patch, Put, State
from projections.version_ranges import before, joined, retracted, within, without

__all__ = [
    "CLOSED_LIMIT",
    "OPEN_LIMIT",
    "PREVIEW_CHARS",
    "Handler",
    "Row",
    "RowDraft",
    "call_of_erased_result",
    "columns_of",
    "day_of",
    "elapsed_ms",
    "mode_marks",
    "moment_text",
    "not_yet_within",
    "note_replaced",
    "one_line",
    "replaces",
    "run",
    "switch",
    "where",
    "withdraw",
]


OPEN_LIMIT = 256  # entries; open calls, turns, runs ... of one kind that a state remembers


CLOSED_LIMIT = 64  # entries; ended calls that a state remembers, to recognize duplicates


WITHDRAWN_LIMIT = 64  # ranges of withdrawn versions that a state remembers


PREVIEW_CHARS = 200


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
    meta = vars(event.meta)  # a model's own attributes take three times as long to read
    return {
        "turn": meta["turn"],
        "step": meta["step"],
        "mode": meta["mode"],
        "session_id": meta["session_id"],
        "run_id": meta["run_id"],
        "agent_id": meta["agent_id"],
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


def switch(draft: RowDraft, switched: BranchSwitch, table: str, column: str, **values: Any) -> None:
    """Patch the rows of a table whose version has left the active branch or returned to it.

    The column ``inactive`` records this.
    """
    for ranges, inactive in ((switched.withdrawn, True), (switched.restored, None)):
        for first, last in before(ranges, draft.event):
            values_to_set = {"inactive": inactive, **values}
            draft.changes.append(Patch(table, column, first, last, values_to_set))


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
