"""The state of the messages[] fold: open calls, the conversation's mode and tool policy.

A request uses the mode and tool policy of its conversation unless its options say otherwise. They
are in the table ``context_active``, one row for each conversation that has either of them, next to
the table of messages, so that one snapshot reads both.

The fold's own state consists of small JSON values. ``messages`` counts messages; ``touched``
records how far back later events have changed rows (see `projections.context.row_cache`).
``calls`` holds the tool calls that may still get a result, and those of the latest assistant
message, so that a call whose result is withdrawn can be answered again. ``failed`` and ``retries``
hold failed model calls that a retry may still supersede, and ``answered`` the last answered call.
``system`` and ``notebook`` hold the versions of the latest texts, newest last, in lists of texts
that belong together; ``aside`` holds those of inactive branches; ``withdrawn`` holds the retracted
ranges. For summaries see `projections.context.fold`.

The functions get a copy of the state and replace entries in it; they never modify an entry. Each
collection has a maximum size, beyond which the oldest entry is forgotten; a forgotten call keeps
its placeholder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy import Table

from eventstore.database import AnyConnection, Statement, json_out, text_out
from eventstore.errors import RowDamaged
from eventstore.events import ConversationStart, RecordedEvent, ToolPolicy
from eventstore.events.values import Mode, ToolCallRequest, is_mode
from eventstore.ids import call_id
from projections.engine.folding import mode_marks
from projections.engine.generations import Generation
from projections.engine.projection import Change, Column, Put, ReadTable, State
from projections.version_ranges import Range, within

__all__ = [
    "CONTEXT_ACTIVE",
    "Active",
    "RequestMode",
    "changed",
    "forget",
    "initial",
    "movable",
    "none_active",
    "number",
    "open_calls",
    "push",
    "read_active",
    "remember",
    "switch_texts",
    "update_call",
    "withdraw_results",
    "withdraw_texts",
]


RequestMode = Mode | None
"""The mode that a request asks for: ``active`` for the conversation's own, None for no mode."""

MOST_CALLS = 256
MOST_ENTRIES = 64
MOST_TEXTS = 8
MOST_ASIDE = 32
LONGEST_NAME = 64

CONTEXT_ACTIVE = ReadTable(
    name="context_active",
    key=(),
    columns=(Column("mode", "text"), Column("tool_policy", "json")),
)


@dataclass(frozen=True, slots=True)
class Active:
    """A conversation's mode and tool policy; each is None if it was never set."""

    mode: Mode | None = None
    tool_policy: ToolPolicy | None = None


def none_active() -> State:
    """Return the state's entries about the mode before the first event."""
    return {"mode": None, "switched": False}


def changed(state: State, event: RecordedEvent) -> tuple[State, Sequence[Change]]:
    """Return the state after an event, and the change of ``context_active``, usually none."""
    values: dict[str, Any] = {}
    if marks := mode_marks(state, event):
        state = {**state, **marks}
        values["mode"] = marks["mode"]
    data = event.data
    if isinstance(data, ConversationStart) and data.tool_policy is not None:
        values["tool_policy"] = data.tool_policy.model_dump(mode="json", exclude_defaults=True)
    return state, [Put(CONTEXT_ACTIVE.name, (), values)] if values else []


def read_active(connection: AnyConnection, table: Table, conversation_id: UUID) -> Active:
    """Return a conversation's mode and tool policy from a generation's ``context_active``.

    Raises:
        RowDamaged: The row holds values that no fold has written.
    """
    rows = _query(table).rows(connection, conversation_id=conversation_id)
    if not rows:
        return Active()
    [row] = rows
    policy = None if row[1] is None else _policy(row[1])
    mode = None if row[0] is None else text_out(row[0])
    if mode is not None and not is_mode(mode):
        raise RowDamaged("invalid mode")
    return Active(mode, policy)


def tool_policy(
    connection: AnyConnection, generation: Generation, conversation_id: UUID
) -> ToolPolicy | None:
    """Return a conversation's tool policy, or None if its start has none.

    Raises:
        RowDamaged: The row holds values that no fold has written.
    """
    table = generation.tables[CONTEXT_ACTIVE.name]
    return read_active(connection, table, conversation_id).tool_policy


def _policy(text: str) -> ToolPolicy:
    try:
        return ToolPolicy.model_validate(json_out(text))
    except ValidationError as error:
        raise RowDamaged("invalid tool policy") from error


@lru_cache(maxsize=64)
def _query(table: Table) -> Statement:
    # As text, so that PostgreSQL's driver does not parse JSON that `json_out` parses.
    return Statement(
        f"SELECT mode, tool_policy::text FROM {table.name} WHERE conversation_id = :conversation_id"  # noqa: S608 - names of the table
    )


def initial() -> State:
    """Return the state before the first event."""
    return {
        "messages": 0,
        "touched": [],
        "calls": {},
        "failed": {},
        "retries": {},
        "answered": None,
        "system": [],
        "notebook": [],
        "aside": {},
        "withdrawn": [],
    }


def number(state: State) -> int:
    """Count a message and return its ordinal."""
    count: int = state["messages"] + 1
    state["messages"] = count
    return count


def open_calls(state: State, version: int, requests: Sequence[ToolCallRequest]) -> None:
    """Add the calls of a new assistant message; forget settled ones, but for the newest message's.

    An undo may give those another result.
    """
    newest = max((_place(key)[0] for key in state["calls"]), default=0)
    pending = {
        key: call
        for key, call in state["calls"].items()
        if not call["settled"] or _place(key)[0] == newest
    }
    for index, request in enumerate(requests):
        entry = {
            "name": request.name[:LONGEST_NAME],
            "started": None,
            "result": None,
            "settled": False,
        }
        pending[call_id(version, index)] = entry | ({"long": True} if request.long_running else {})
    surplus = len(pending) - max(MOST_CALLS, len(requests))
    if surplus > 0:
        for key in sorted(pending, key=_place)[:surplus]:
            del pending[key]
    state["calls"] = pending


def update_call(state: State, key: str, **changes: Any) -> None:
    """Change the entry of a call."""
    calls = state["calls"]
    state["calls"] = {**calls, key: {**calls[key], **changes}}


def remember(state: State, name: str, key: str, entry: dict[str, Any]) -> None:
    """Set an entry of ``failed`` or ``retries``; if there are too many, drop the lowest version."""
    entries = {**state[name], key: entry}
    if len(entries) > MOST_ENTRIES:
        del entries[min(entries, key=lambda other: int(entries[other]["version"]))]
    state[name] = entries


def forget(state: State, name: str, key: str | None) -> dict[str, Any] | None:
    """Remove an entry of ``failed`` or ``retries`` and return it, or None if it does not exist."""
    found: dict[str, Any] | None = state[name].get(key)
    if found is not None:
        state[name] = {other: entry for other, entry in state[name].items() if other != key}
    return found


def movable(state: State) -> set[int]:
    """Return the versions of messages that a later result, or the retry of a call, may change."""
    calls = {_place(key)[0] for key, call in state.get("calls", {}).items() if not call["settled"]}
    entries = (each for name in ("failed", "retries") for each in state.get(name, {}).values())
    return calls.union(*([each["version"], *each["earlier"]] for each in entries))


def push(state: State, name: str, version: int, *, continues: bool = False) -> list[int]:
    """Make the text at ``version`` the latest of ``system`` or ``notebook``.

    Returns the versions that it replaces; a text that continues the previous ones replaces none.
    """
    texts = state[name]
    latest = texts[-1] if texts else []
    if continues and latest:
        state[name] = [*texts[:-1], [*latest, version][-MOST_ENTRIES:]]
        return []
    state[name] = [*texts, [version]][-MOST_TEXTS:]
    return list(latest)


def withdraw_texts(state: State, name: str, ranges: Sequence[Range]) -> None:
    """Forget the texts of ``system`` or ``notebook`` at versions within the ranges."""
    state[name], _ = _divided(state[name], ranges)
    if name in state["aside"]:
        aside, _ = _divided(state["aside"][name], ranges)
        state["aside"] = {**state["aside"], name: aside}


def switch_texts(
    state: State, name: str, gone: Sequence[Range], back: Sequence[Range]
) -> tuple[list[int], list[int]]:
    """Move texts of ``system`` or ``notebook`` in ``gone`` aside, and restore those in ``back``.

    Returns the versions of the latest texts before and after.
    """
    texts, aside = state[name], state["aside"].get(name, [])
    before = list(texts[-1]) if texts else []
    left, put_aside = _divided(texts, gone)
    set_aside, taken = _divided(aside, back)
    state[name] = sorted([*left, *taken])[-MOST_TEXTS:]
    if aside or put_aside:
        state["aside"] = {**state["aside"], name: [*set_aside, *put_aside][-MOST_ASIDE:]}
    return before, list(state[name][-1]) if state[name] else []


def _divided(
    texts: Sequence[Sequence[int]], ranges: Sequence[Range]
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the texts outside the ranges, and those within."""
    outside = ([text for text in each if not _covers(ranges, text)] for each in texts)
    inside = ([text for text in each if _covers(ranges, text)] for each in texts)
    return [each for each in outside if each], [each for each in inside if each]


def withdraw_results(state: State, ranges: Sequence[Range]) -> None:
    """Allow new results for the calls whose results are within the ranges."""
    state["calls"] = {
        key: {**call, "result": None, "settled": False} if _covers(ranges, call["result"]) else call
        for key, call in state["calls"].items()
    }


def _covers(ranges: Sequence[Range], version: int | None) -> bool:
    return version is not None and within(ranges, version)


def _place(key: str) -> tuple[int, int]:
    version, _, index = key.partition(".")
    return int(version), int(index)
