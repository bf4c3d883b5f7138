"""Loose ends of models and tools: which events begin them, add to them, and end them.

The rules stand in `projections.loose_ends`, which puts these handlers beside its own.
"""

from __future__ import annotations

from typing import Any

from eventstore.events import (
    AssistantChunk,
    AssistantMessage,
    LlmError,
    LlmRequest,
    RecordedEvent,
    Retraction,
    TokenUsage,
    ToolCall,
    ToolCallDelta,
    ToolCallRequest,
    ToolResult,
)
from eventstore.ids import call_id
from projections import folding
from projections.folding import CLOSED_LIMIT, SEALS, Draft

__all__ = ["HANDLERS", "begun", "belongs", "end_model_call"]

_WITHDRAWN = "withdrawn"
_UNANSWERED = (None, *SEALS)
_PLACE = ("session_id", "turn", "step", "mode", "run_id", "workflow_id", "agent_id")
_TOKENS = (
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "cached_prompt_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)


def belongs(entry: dict[str, Any] | None, event: RecordedEvent, name: str) -> bool:
    """Whether this turn or session is open, and the event names no other."""
    if entry is None:
        return False
    named = getattr(event.meta, name)
    return named is None or entry[name] in (None, named)


def begun(draft: Draft, **values: Any) -> dict[str, Any]:
    """Return what every open thing holds: which event began it, when, and where it belongs."""
    event = draft.event
    told = vars(event.meta)
    meta = {name: value for name in _PLACE if (value := told[name]) is not None}
    if not told["in_context"]:
        meta["in_context"] = False
    return {"version": event.version, "began_at": draft.now, "meta": meta, **values}


def _request(draft: Draft, request: LlmRequest) -> None:
    own_id = request.llm_call_id
    if draft.get("ended", own_id) in ("ok", _WITHDRAWN):
        return
    draft.drop("ended", own_id)
    told = vars(request.invocation).items()
    invocation = {name: value for name, value in told if value is not None}
    _begin_model_call(draft, own_id, request.attempt, invocation)
    if draft.event.meta.step is None and request.retry_of is None:
        _count_step(draft)


def _begin_model_call(
    draft: Draft, own_id: str, attempt: int, invocation: dict[str, Any]
) -> dict[str, Any]:
    call = begun(
        draft,
        llm_call_id=own_id,
        attempt=attempt,
        invocation=invocation,
        text="",
        reasoning="",
        refusal="",
        tool_calls={},
    )
    draft.keep("models", own_id, call)
    return call


def _count_step(draft: Draft) -> None:
    turn = draft.state["turn"]
    if belongs(turn, draft.event, "turn"):
        draft.set(turn={**turn, "steps": turn["steps"] + 1})


def _chunk(draft: Draft, chunk: AssistantChunk) -> None:
    own_id = chunk.llm_call_id
    if draft.get("ended", own_id) is not None:
        return
    call = draft.get("models", own_id) or _begin_model_call(draft, own_id, 1, {})
    call = call.copy()
    call["text"] += chunk.text
    call["reasoning"] += chunk.reasoning
    call["refusal"] += chunk.refusal
    if chunk.tool_calls:
        pieces = dict(call["tool_calls"])
        for delta in chunk.tool_calls:
            pieces[str(delta.index)] = _piece(pieces.get(str(delta.index)), delta)
        call["tool_calls"] = pieces
    draft.keep("models", own_id, call)


def _piece(before: dict[str, Any] | None, delta: ToolCallDelta) -> dict[str, Any]:
    known = before or {"provider_id": None, "name": None, "arguments_text": ""}
    return {
        "index": delta.index,
        "provider_id": known["provider_id"] or delta.provider_id,
        "name": known["name"] or delta.name,
        "arguments_text": known["arguments_text"] + delta.arguments,
    }


def _message(draft: Draft, message: AssistantMessage) -> None:
    event, version, elsewhere = draft.event, draft.event.version, message.tools_elsewhere
    for index, request in enumerate(message.tool_calls):
        own_id = call_id(version, index)
        if draft.get("answered", own_id) is None:
            told = _asked(draft, request)
            _open_call(draft, own_id, told | ({"elsewhere": True} if elsewhere else {}))
    known = draft.get("models", message.llm_call_id) is not None
    if event.meta.step is None and not known:
        _count_step(draft)
    end_model_call(draft, message.llm_call_id, "ok", message.usage)


def _asked(draft: Draft, request: ToolCallRequest | ToolCall) -> dict[str, Any]:
    return begun(
        draft,
        name=request.name,
        arguments=request.arguments,
        provider_id=request.provider_id,
    )


def _open_call(draft: Draft, own_id: str, values: dict[str, Any]) -> None:
    blank = {"started_at": None, "idempotency_key": None, "idempotent": False}
    known = draft.get("calls", own_id) or blank
    draft.keep("calls", own_id, {"call_id": own_id, **known, **values})


def _error(draft: Draft, error: LlmError) -> None:
    end_model_call(draft, error.llm_call_id, "error", error.usage)


def end_model_call(
    draft: Draft, own_id: str | None, outcome: str, usage: TokenUsage | None
) -> None:
    """Close a model call, if it is open, and add its tokens to those of turn and session."""
    before = draft.get("ended", own_id)
    draft.drop("models", own_id)
    if own_id is not None and before != "ok":
        draft.keep("ended", own_id, outcome, CLOSED_LIMIT)
    if usage is None or before == "ok":
        return
    turn, session = draft.state["turn"], draft.state["session"]
    if belongs(turn, draft.event, "turn"):
        draft.set(turn={**turn, "tokens": _sum(turn["tokens"], usage)})
    if session is not None:
        draft.set(session={**session, "tokens": _sum(session["tokens"], usage)})


def _sum(total: dict[str, Any] | None, usage: TokenUsage) -> dict[str, Any]:
    sums, told = dict(total or {}), vars(usage)
    for name in _TOKENS:
        if told[name] is not None:
            sums[name] = sums.get(name, 0) + told[name]
    sums["reported"] = told["reported"] and sums.get("reported", True)
    return sums


def _execution(draft: Draft, call: ToolCall) -> None:
    own_id = call.call_id
    if draft.get("answered", own_id) not in _UNANSWERED:
        return
    draft.drop("answered", own_id)
    told: dict[str, Any] = {
        "started_at": draft.now,
        "idempotency_key": call.idempotency_key,
        "idempotent": call.idempotent,
    }
    if draft.get("calls", own_id) is None:
        told = {**_asked(draft, call), **told}
    _open_call(draft, own_id, told)


def _result(draft: Draft, result: ToolResult) -> None:
    own_id = result.call_id
    draft.drop("calls", own_id)
    if draft.get("answered", own_id) in _UNANSWERED:
        draft.keep("answered", own_id, result.status, CLOSED_LIMIT)


def _retraction(draft: Draft, retraction: Retraction) -> None:
    for memory, closed in (("calls", "answered"), ("models", "ended")):
        for own_id, entry in draft.state[memory].items():
            ranges = folding.retracted(retraction, draft.event)
            if any(first <= entry["version"] <= last for first, last in ranges):
                draft.drop(memory, own_id)
                draft.keep(closed, own_id, _WITHDRAWN, CLOSED_LIMIT)


HANDLERS: dict[type, folding.Handler] = {
    LlmRequest: _request,
    AssistantChunk: _chunk,
    AssistantMessage: _message,
    LlmError: _error,
    ToolCall: _execution,
    ToolResult: _result,
    Retraction: _retraction,
}
