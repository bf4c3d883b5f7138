"""The timeline's items: their table, their texts, and the items of models and tools.

Most items show the text of one event verbatim. If the text is longer than its preview, the table
keeps no copy: the row quotes the event (see `projections.engine.quoting`). A text that is
streaming, was assembled from several parts, or is in a blob is stored in the row.

This module has the changes that begin, extend and end any item, and the items of model answers and
tool calls; `projections.models.timeline` creates all other items.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from eventstore.database import escape
from eventstore.events import (
    AssistantChunk,
    AssistantMessage,
    LlmError,
    LlmRequest,
    ReasoningPart,
    RecordedEvent,
    ToolCall,
    ToolResult,
    Ui,
)
from eventstore.ids import call_id
from projections import payload_text
from projections.engine import folding
from projections.engine.folding import CLOSED_LIMIT, PREVIEW_CHARS, Row, RowDraft, one_line
from projections.engine.quoting import EVENT, QuotedText, place_of
from projections.payload_text import SEALS

__all__ = [
    "HANDLERS",
    "OUTCOME",
    "TABLE",
    "QuotedTexts",
    "TimelineItem",
    "begin",
    "change",
    "close_erased_call",
    "close_span",
    "open_span",
    "point",
    "shown_as",
    "text_columns",
]

TABLE = "timeline_items"

OUTCOME = ("text", "preview", EVENT, "text_part", "alias", "ended_at", "duration_ms")
"""The columns that the result of a tool call sets, besides its status and version."""

_PREVIEW = "coalesce({table}.preview, substr({text}, 1, {limit}))"

_FIRST_TOOL = 2  # part; 0 is the reasoning of an answer, 1 its text


@dataclass(frozen=True, slots=True)
class QuotedTexts(QuotedText):
    """Storage of rows without texts that events have, and without previews that equal a start."""

    def stored(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values to write."""
        text = values.get("text")
        if text is None:
            return values
        stored, preview = dict(values), values["preview"]
        if preview == text[:PREVIEW_CHARS] and escape(preview) == preview:
            stored["preview"] = None
        return QuotedText.stored(self, stored)

    def shown(self, table: str, dialect: str) -> Mapping[str, str]:
        """Return the SQL expressions of text and preview."""
        text = QuotedText.shown(self, table, dialect)
        preview = _PREVIEW.format(table=table, limit=PREVIEW_CHARS, **text)
        return {**text, "preview": preview}


def text_columns(event: RecordedEvent, text: str | None) -> dict[str, Any]:
    """Return the columns of a text: the text, its preview, and its place in the event."""
    preview = None if text is None else one_line(text)
    place = place_of(event, text, longer_than=PREVIEW_CHARS)
    return {"text": text, "preview": preview, **place}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineItem(Row):
    """An item of the timeline; ``version`` and ``part`` give the reading order.

    Attributes:
        version: Version of the event that began the item.
        part: 0-based index among the items that the event began.
        kind: conversation, session, turn, user, assistant, reasoning, tool, error, system,
            summary, note, mode, run, step, task, retraction, branch, erasure, erased or unknown.
        status: complete, streaming, failed, cancelled, interrupted or withdrawn. For a tool call:
            pending, running or the result's status. For an item with an end: running, then the
            status of its end.
        preview: The start of ``text``, on one line.
        collapsed: Whether it is shown collapsed by default: tool output and internals, unless the
            product sets it otherwise.
        part_type: The product's name for this kind of message, for its user interface.
        widget: The product's data for its user interface.
        name: The tool of a tool call; the participant of a user message.
        arguments: The parsed arguments of a tool call, or the model's text if it is not a JSON
            object.
        alias: The path that returns the whole of a shortened result.
        extra: The product's data on the event that began the item.
        message_version: The version that a retraction must name to withdraw the item.
        end_version: Version of the latest event that changed the item; use it to get later changes.
        inactive: Whether the item is on an inactive branch.
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
    extra: Any = None
    message_version: int | None = None
    end_version: int | None = None
    inactive: bool | None = None


def begin(
    draft: RowDraft, at: list[int], kind: str, status: str, values: Mapping[str, Any]
) -> None:
    """Begin an item at a version and part, started at the event's time."""
    event = draft.event
    row = folding.where(event)
    row["kind"] = kind
    row["status"] = status
    row["collapsed"] = False
    row["started_at"] = event.occurred_at
    row["actor"] = event.meta.actor
    row["extra"] = event.meta.extra
    row["message_version"] = event.version
    row.update(values)
    _put(draft, at, row)


def change(draft: RowDraft, at: list[int], values: Mapping[str, Any]) -> None:
    """Change an item; a new text also sets its preview and its place in the event."""
    _put(draft, at, dict(values))


def _put(draft: RowDraft, at: list[int], values: dict[str, Any]) -> None:
    if "text" in values:
        values.update(text_columns(draft.event, values["text"]))
    values["end_version"] = draft.event.version
    draft.put(TABLE, (at[0], at[1]), values)


def shown_as(ui: Ui | None) -> dict[str, Any]:
    """Return the columns that the product's UI settings set; unset ones are left out."""
    fields = {} if ui is None else vars(ui)
    return {name: value for name, value in fields.items() if value is not None}


def point(draft: RowDraft, kind: str, status: str = "complete", **values: Any) -> None:
    """Add an item for a single event, complete by itself."""
    ended = {"ended_at": draft.event.occurred_at}
    begin(draft, [draft.event.version, 0], kind, status, ended | values)


def open_span(draft: RowDraft, kind: str, own_id: object, **values: Any) -> None:
    """Begin an item that a later event ends; its kind and its own id identify it."""
    at = [draft.event.version, 0]
    draft.keep("spans", f"{kind}:{own_id}", {"at": at, "started": draft.now})
    begin(draft, at, kind, values.pop("status", "running"), values)


def close_span(
    draft: RowDraft,
    kind: str,
    own_id: object,
    status: str,
    duration: int | None = None,
    **shown: Any,
) -> None:
    """End such an item; an end without a start creates its own item."""
    event = draft.event
    span = draft.drop("spans", f"{kind}:{own_id}")
    if duration is None:
        duration = folding.elapsed_ms(span and span["started"], event.occurred_at)
    values = {name: value for name, value in shown.items() if value is not None}
    values |= {"ended_at": event.occurred_at, "duration_ms": duration}
    if span is None:
        begin(draft, [event.version, 0], kind, status, values)
    else:
        change(draft, span["at"], {"status": status, **values})


def _request(draft: RowDraft, request: LlmRequest) -> None:
    draft.drop("ended", request.llm_call_id)
    draft.keep("llm", request.llm_call_id, {"started": draft.now, "texts": {}, "at": {}})


def _chunk(draft: RowDraft, chunk: AssistantChunk) -> None:
    own_id = chunk.llm_call_id
    if draft.get("ended", own_id) is not None:
        return
    call = draft.get("llm", own_id) or {"started": draft.now, "texts": {}, "at": {}}
    for kind, piece in (("reasoning", chunk.reasoning), ("assistant", chunk.text + chunk.refusal)):
        if piece:
            text = call["texts"].get(kind, "") + piece
            call = {**call, "texts": {**call["texts"], kind: text}}
            call = _show_answer(draft, own_id, call, kind, {"text": text, "status": "streaming"})
    places = dict(call["at"]) if chunk.tool_calls else call["at"]
    for delta in chunk.tool_calls:
        slot = f"tool{delta.index}"
        if slot not in places:
            places[slot] = at = [draft.event.version, _FIRST_TOOL + len(places)]
            begin(draft, at, "tool", "streaming", _tool(delta.name, own_id))
    draft.keep("llm", own_id, {**call, "at": places})


def _show_answer(
    draft: RowDraft, own_id: str | None, call: dict[str, Any], kind: str, values: dict[str, Any]
) -> dict[str, Any]:
    """Begin or change the item of an answer's text or reasoning; return the call with its place."""
    at = call["at"].get(kind)
    if at is not None:
        change(draft, at, values)
        return call
    at = [draft.event.version, 0 if kind == "reasoning" else 1]
    known = {"role": "assistant", "llm_call_id": own_id, "collapsed": kind == "reasoning"}
    begin(draft, at, kind, values["status"], known | values)
    return {**call, "at": {**call["at"], kind: at}}


def _end_answer(draft: RowDraft, own_id: str | None) -> dict[str, Any]:
    call = draft.drop("llm", own_id) or {"started": None, "texts": {}, "at": {}}
    if own_id is not None:
        draft.keep("ended", own_id, True, CLOSED_LIMIT)
    return dict(call)


def _message(draft: RowDraft, message: AssistantMessage) -> None:
    event, own_id = draft.event, message.llm_call_id
    call = _end_answer(draft, own_id)
    duration = message.duration_ms
    if duration is None:
        duration = folding.elapsed_ms(call["started"], event.occurred_at)
    ended = {"ended_at": event.occurred_at, "message_version": event.version}
    shown, ui = {"status": "complete", **ended}, shown_as(message.ui)
    thoughts = [part for part in message.parts if type(part) is ReasoningPart]
    visible = [part for part in message.parts if type(part) is not ReasoningPart]
    thought = payload_text.text_of(thoughts, joint="") or call["texts"].get("reasoning", "")
    if thought:
        _show_answer(draft, own_id, call, "reasoning", {"text": thought, **shown})
    if visible or "assistant" in call["at"] or not (thought or message.tool_calls):
        values = {"duration_ms": duration, "name": message.name, **shown}
        values["text"] = payload_text.answer_text(visible)
        values |= ui
        ui = {}
        _show_answer(draft, own_id, call, "assistant", values)
    streamed = dict(call["at"])
    for index, request in enumerate(message.tool_calls):
        at = streamed.pop(f"tool{index}", None)
        arguments = request.arguments_text if request.arguments is None else request.arguments
        values = _tool(request.name, own_id) | {"arguments": arguments, **ui}
        _tool_request(draft, index, at, values, long_running=request.long_running)
    for slot, at in streamed.items():
        if slot.startswith("tool"):
            change(draft, at, {"status": "interrupted", **ended})


def _error(draft: RowDraft, error: LlmError) -> None:
    event, own_id = draft.event, error.llm_call_id
    call = _end_answer(draft, own_id)
    status: str = error.kind if error.kind in ("cancelled", "interrupted") else "failed"
    ended = {"status": status, "ended_at": event.occurred_at, "message_version": event.version}
    partial = {"reasoning": error.partial_reasoning, "assistant": error.partial_text}
    for kind, partial_text in partial.items():
        text = partial_text or call["texts"].get(kind, "")
        if text:
            _show_answer(draft, own_id, call, kind, {"text": text, **ended})
    streamed = {slot: at for slot, at in call["at"].items() if slot.startswith("tool")}
    part = _FIRST_TOOL
    for request in error.partial_tool_calls:
        values = ended | {"arguments": request.arguments_text}
        if (at := streamed.pop(f"tool{request.index}", None)) is not None:
            change(draft, at, values)
        else:
            values |= _tool(request.name, own_id)
            begin(draft, [event.version, part], "tool", status, values)
            part += 1
    for at in streamed.values():
        change(draft, at, ended)
    values = {"role": "assistant", "title": error.kind, "text": error.message}
    values |= {"llm_call_id": own_id, "ended_at": event.occurred_at, **shown_as(error.ui)}
    begin(draft, [event.version, part], "error", status, values)


def _tool(name: str | None, llm_call_id: str | None) -> dict[str, Any]:
    return {"role": "tool", "collapsed": True, "name": name, "llm_call_id": llm_call_id}


def _tool_request(
    draft: RowDraft, index: int, at: list[int] | None, values: dict[str, Any], *, long_running: bool
) -> None:
    version = draft.event.version
    own_id = call_id(version, index)
    values |= {"call_id": own_id, "message_version": version}
    known = draft.get("calls", own_id)
    if known is not None:
        draft.keep("calls", own_id, {**known, "message": version})
    else:
        known = draft.get("answered", own_id)
    if known is not None:
        change(draft, known["at"], values)
        if at is not None:
            change(draft, at, {"status": "interrupted"})
        return
    if at is None:
        at = [version, _FIRST_TOOL + index]
        begin(draft, at, "tool", "pending", values)
    else:
        change(draft, at, {"status": "pending", **values})
    entry = {"at": at, "message": version} | ({"long": True} if long_running else {})
    draft.keep("calls", own_id, entry)


def _execution(draft: RowDraft, call: ToolCall) -> None:
    event, own_id = draft.event, call.call_id
    if draft.get("answered", own_id) is not None:
        return
    known = draft.get("calls", own_id)
    if known is None:
        known = {"at": [event.version, 0], "message": event.version}
        values = _tool(call.name, None) | {"call_id": own_id, "arguments": call.arguments}
        begin(draft, known["at"], "tool", "running", values)
    else:
        outcome = (*OUTCOME, "result_version") if known.get("sealed") else ()
        if outcome:
            draft.drop("calls", own_id)  # it is the newest of the open calls
        shown = {"status": "running", "started_at": event.occurred_at}
        change(draft, known["at"], dict.fromkeys(outcome) | shown)
    draft.keep("calls", own_id, {**known, "started": draft.now, "sealed": False})


def _result(draft: RowDraft, result: ToolResult) -> None:
    event, own_id = draft.event, result.call_id
    if draft.get("answered", own_id) is not None:
        return
    known = draft.get("calls", own_id)
    duration, text = result.duration_ms, payload_text.result_text(result)
    if duration is None and known is not None:
        duration = folding.elapsed_ms(known.get("started"), event.occurred_at)
    values = {
        "status": result.status,
        "text": result.error if text is None else text,
        "alias": result.alias,
        "ended_at": event.occurred_at,
        "duration_ms": duration,
        "result_version": event.version,
    }
    if result.interim:
        values |= {"status": "running", "ended_at": None, "duration_ms": None}
    ui = shown_as(result.ui)
    if known is None:
        known = {"at": [event.version, 0], "message": event.version}
        values |= _tool(result.name, None) | {"call_id": own_id, **ui}
        begin(draft, known["at"], "tool", result.status, values)
    else:
        change(draft, known["at"], values | ui)
    known = {**known, "result": event.version}
    if result.status in SEALS or "long" in known:
        draft.keep("calls", own_id, {**known, "sealed": True})
    else:
        draft.drop("calls", own_id)
        draft.keep("answered", own_id, known, CLOSED_LIMIT)


def close_erased_call(draft: RowDraft) -> None:
    """Give the call of an erased result, as far as it can be known, an unknown outcome."""
    own_id = folding.call_of_erased_result(draft.state["calls"])
    if own_id is not None:
        _result(draft, ToolResult(call_id=own_id, status="outcome_unknown"))


HANDLERS: dict[type, folding.Handler] = {
    LlmRequest: _request,
    AssistantChunk: _chunk,
    AssistantMessage: _message,
    LlmError: _error,
    ToolCall: _execution,
    ToolResult: _result,
}
