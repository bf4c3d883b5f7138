"""An item of the timeline, and the changes that begin, grow and end one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from eventstore.events import Ui
from projections import folding
from projections.folding import Draft, Row
from projections.timeline_texts import text_columns

__all__ = [
    "TABLE",
    "TimelineItem",
    "begin",
    "change",
    "close_span",
    "open_span",
    "point",
    "shown_as",
]

TABLE = "timeline_items"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineItem(Row):
    """An item of the timeline; ``version`` and ``part`` give the reading order.

    Attributes:
        version: Version of the event that began the item.
        part: Place among the items that the event began, from 0.
        kind: conversation, session, turn, user, assistant, reasoning, tool, error, system,
            summary, note, mode, run, step, task, retraction, erasure, erased or unknown.
        status: complete, streaming, failed, cancelled, interrupted, withdrawn; of a tool call
            pending, running or the result's; running, then its own status, of what has an end.
        preview: The start of ``text``, on one line.
        collapsed: Whether it is shown folded by default: tool output and internals, unless the
            product said otherwise.
        part_type: What the product calls this kind of message, for its user interface.
        widget: What the product's user interface shows with it.
        name: Of a tool call, the tool; of a user message, the participant.
        arguments: Of a tool call, parsed, or the model's text where it is no JSON object.
        alias: The path under which the whole of a shortened result may be asked for.
        message_version: The version that a retraction has to name to withdraw the item.
        end_version: Version of the latest event that changed the item, to ask for news.
    """

    version: int
    part: int
    kind: str | None = None
    role: str | None = None
    status: str | None = None
    title: str | None = None
    text: str | None = None
    preview: str | None = None
    collapsed: bool | None = None
    part_type: str | None = None
    widget: Any = None
    name: str | None = None
    call_id: str | None = None
    llm_call_id: str | None = None
    arguments: Any = None
    alias: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    duration_ms: int | None = None
    turn: int | None = None
    step: int | None = None
    mode: str | None = None
    session_id: str | None = None
    run_id: str | None = None
    agent_id: str | None = None
    actor: str | None = None
    message_version: int | None = None
    end_version: int | None = None


def begin(draft: Draft, at: list[int], kind: str, status: str, values: Mapping[str, Any]) -> None:
    """Begin an item at a version and part; it shows as of the event's own time."""
    event = draft.event
    row = folding.where(event)
    row["kind"] = kind
    row["status"] = status
    row["collapsed"] = False
    row["started_at"] = event.occurred_at
    row["actor"] = event.meta.actor
    row["message_version"] = event.version
    row.update(values)
    _put(draft, at, row)


def change(draft: Draft, at: list[int], values: Mapping[str, Any]) -> None:
    """Change an item; a text brings its preview, and the place where the event has it."""
    _put(draft, at, dict(values))


def _put(draft: Draft, at: list[int], values: dict[str, Any]) -> None:
    if "text" in values:
        values.update(text_columns(draft.event, values["text"]))
    values["end_version"] = draft.event.version
    draft.put(TABLE, (at[0], at[1]), values)


def shown_as(ui: Ui | None) -> dict[str, Any]:
    """Return the columns that a product's own wishes set; what it left open is not among them."""
    told = {} if ui is None else vars(ui)
    return {name: value for name, value in told.items() if value is not None}


def point(draft: Draft, kind: str, status: str = "complete", **values: Any) -> None:
    """Add an item for an event that stands alone."""
    ended = {"ended_at": draft.event.occurred_at}
    begin(draft, [draft.event.version, 0], kind, status, ended | values)


def open_span(draft: Draft, kind: str, own_id: object, **values: Any) -> None:
    """Begin an item that a later event ends, known by its kind and its own id."""
    at = [draft.event.version, 0]
    draft.keep("spans", f"{kind}:{own_id}", {"at": at, "started": draft.now})
    begin(draft, at, kind, values.pop("status", "running"), values)


def close_span(
    draft: Draft, kind: str, own_id: object, status: str, duration: int | None = None, **told: Any
) -> None:
    """End such an item; an end without a beginning makes an item of its own."""
    event = draft.event
    span = draft.drop("spans", f"{kind}:{own_id}")
    if duration is None:
        duration = folding.elapsed_ms(span and span["started"], event.occurred_at)
    values = {name: value for name, value in told.items() if value is not None}
    values |= {"ended_at": event.occurred_at, "duration_ms": duration}
    if span is None:
        begin(draft, [event.version, 0], kind, status, values)
    else:
        change(draft, span["at"], {"status": status, **values})
