"""The timeline's items of what a model answers and of what tools do."""

from __future__ import annotations

from typing import Any

from eventstore.events import (
    AssistantChunk,
    AssistantMessage,
    LlmError,
    LlmRequest,
    ReasoningPart,
    ToolCall,
    ToolResult,
)
from eventstore.ids import call_id
from projections import folding
from projections.folding import CLOSED_LIMIT, SEALS, Draft
from projections.timeline_items import begin, change, shown_as

__all__ = ["HANDLERS"]

_FIRST_TOOL = 2  # part; 0 is the reasoning of an answer, 1 its text


def _request(draft: Draft, request: LlmRequest) -> None:
    draft.drop("ended", request.llm_call_id)
    draft.keep("llm", request.llm_call_id, {"started": draft.now, "texts": {}, "at": {}})


def _chunk(draft: Draft, chunk: AssistantChunk) -> None:
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
    draft: Draft, own_id: str | None, call: dict[str, Any], kind: str, values: dict[str, Any]
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


def _end_answer(draft: Draft, own_id: str | None) -> dict[str, Any]:
    call = draft.drop("llm", own_id) or {"started": None, "texts": {}, "at": {}}
    if own_id is not None:
        draft.keep("ended", own_id, True, CLOSED_LIMIT)
    return dict(call)


def _message(draft: Draft, message: AssistantMessage) -> None:
    event, own_id = draft.event, message.llm_call_id
    call = _end_answer(draft, own_id)
    duration = message.duration_ms
    if duration is None:
        duration = folding.elapsed_ms(call["started"], event.occurred_at)
    ended = {"ended_at": event.occurred_at, "message_version": event.version}
    shown, ui = {"status": "complete", **ended}, shown_as(message.ui)
    thoughts = [part for part in message.parts if type(part) is ReasoningPart]
    said = [part for part in message.parts if type(part) is not ReasoningPart]
    thought = folding.text_of(thoughts, joint="") or call["texts"].get("reasoning", "")
    if thought:
        _show_answer(draft, own_id, call, "reasoning", {"text": thought, **shown})
    if said or "assistant" in call["at"] or not (thought or message.tool_calls):
        values = {"duration_ms": duration, "name": message.name, **shown}
        values["text"] = folding.text_of(said, joint="")
        values |= ui
        ui = {}
        _show_answer(draft, own_id, call, "assistant", values)
    streamed = dict(call["at"])
    for index, request in enumerate(message.tool_calls):
        at = streamed.pop(f"tool{index}", None)
        arguments = request.arguments_text if request.arguments is None else request.arguments
        values = _tool(request.name, own_id) | {"arguments": arguments, **ui}
        _tool_request(draft, index, at, values)
    for slot, at in streamed.items():
        if slot.startswith("tool"):
            change(draft, at, {"status": "interrupted", **ended})


def _error(draft: Draft, error: LlmError) -> None:
    event, own_id = draft.event, error.llm_call_id
    call = _end_answer(draft, own_id)
    status: str = error.kind if error.kind in ("cancelled", "interrupted") else "failed"
    ended = {"status": status, "ended_at": event.occurred_at, "message_version": event.version}
    partial = {"reasoning": error.partial_reasoning, "assistant": error.partial_text}
    for kind, told in partial.items():
        text = told or call["texts"].get(kind, "")
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


def _tool_request(draft: Draft, index: int, at: list[int] | None, values: dict[str, Any]) -> None:
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
    draft.keep("calls", own_id, {"at": at, "message": version})


def _execution(draft: Draft, call: ToolCall) -> None:
    event, own_id = draft.event, call.call_id
    if draft.get("answered", own_id) is not None:
        return
    known = draft.get("calls", own_id)
    if known is None:
        known = {"at": [event.version, 0], "message": event.version}
        values = _tool(call.name, None) | {"call_id": own_id, "arguments": call.arguments}
        begin(draft, known["at"], "tool", "running", values)
    else:
        change(draft, known["at"], {"status": "running", "started_at": event.occurred_at})
    draft.keep("calls", own_id, {**known, "started": draft.now})


def _result(draft: Draft, result: ToolResult) -> None:
    event, own_id = draft.event, result.call_id
    if draft.get("answered", own_id) is not None:
        return
    known = draft.get("calls", own_id)
    duration, text = result.duration_ms, folding.result_text(result)
    if duration is None and known is not None:
        duration = folding.elapsed_ms(known.get("started"), event.occurred_at)
    values = {
        "status": result.status,
        "text": result.error if text is None else text,
        "alias": result.alias,
        "ended_at": event.occurred_at,
        "duration_ms": duration,
    }
    ui = shown_as(result.ui)
    if known is None:
        known = {"at": [event.version, 0], "message": event.version}
        values |= _tool(result.name, None) | {"call_id": own_id, **ui}
        begin(draft, known["at"], "tool", result.status, values)
    else:
        change(draft, known["at"], values | ui)
    if result.status in SEALS:
        draft.keep("calls", own_id, known)
    else:
        draft.drop("calls", own_id)
        draft.keep("answered", own_id, {"at": known["at"]}, CLOSED_LIMIT)


HANDLERS: dict[type, folding.Handler] = {
    LlmRequest: _request,
    AssistantChunk: _chunk,
    AssistantMessage: _message,
    LlmError: _error,
    ToolCall: _execution,
    ToolResult: _result,
}
