"""Open work: model calls, tool calls, turns and runs that have begun and not ended.

This is what a crash would leave behind. There is one row per conversation, so the cost of recovery
depends on what is open and not on the length of the conversation. Rules for ambiguous events:

- A model call is open from its request or first chunk until a message or an error with the same id.
  A request that repeats the id of an open or failed call starts the call over; one that comes after
  the answer opens nothing. A message or an error without an id ends no call.
- A tool call is open from its assistant message (or from its execution, if no message requested it)
  to its first result. ``not_started`` and ``outcome_unknown`` are results; executing the call again
  after one of them reopens it.
- A call that was started in a turn that was replaced is awaited: a task delivers its result, so no
  process needs to finish it.
- Retracting an assistant message or a model call's first event withdraws what it left open.
  Retracting anything else closes nothing.
- At most one turn and one session are open: a start replaces an older one, and an end that names
  another turn or session ends nothing.
- For erased events only the type is known: starts and ends of turns and sessions still count, an
  answer ends the model call begun last, and a result ends the oldest open tool call of the newest
  message, as ``outcome_unknown`` does; an awaited call only if no other is open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any

from eventstore.events import (
    AssistantChunk,
    AssistantMessage,
    ConversationEnd,
    ConversationFork,
    LlmError,
    LlmRequest,
    RecordedEvent,
    Retraction,
    RunEnd,
    RunStepEnd,
    RunStepStart,
    SessionEnd,
    SessionStart,
    TokenUsage,
    ToolCall,
    ToolCallDelta,
    ToolCallRequest,
    ToolResult,
    TurnEnd,
    TurnStart,
)
from eventstore.ids import call_id
from projections import version_ranges
from projections.engine import folding
from projections.engine.folding import CLOSED_LIMIT, RowDraft
from projections.engine.projection import Change, Column, Put, ReadTable, State
from projections.models.open_marks import TASK_HANDLERS, belongs, start_values
from projections.payload_text import SEALS

__all__ = ["OPEN_WORK", "OpenWorkProjection"]

_TABLE = "open_work"

_WITHDRAWN = "withdrawn"
_UNANSWERED = (None, *SEALS)
_MEMORIES = (("calls", "answered"), ("awaited", "answered"), ("models", "ended"))
"""Pairs of a memory of open calls and that of closed ones; awaited calls are not counted."""
_TOKENS = (
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "cached_prompt_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)


def _request(draft: RowDraft, request: LlmRequest) -> None:
    own_id = request.llm_call_id
    if draft.get("ended", own_id) in ("ok", _WITHDRAWN):
        return
    draft.drop("ended", own_id)
    sent = vars(request.invocation).items()
    invocation = {name: value for name, value in sent if value is not None}
    _begin_model_call(draft, own_id, request.attempt, invocation)
    if draft.event.meta.step is None and request.retry_of is None:
        _count_step(draft)


def _begin_model_call(
    draft: RowDraft, own_id: str, attempt: int, invocation: dict[str, Any]
) -> dict[str, Any]:
    call = start_values(
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


def _count_step(draft: RowDraft) -> None:
    turn = draft.state["turn"]
    if belongs(turn, draft.event, "turn"):
        draft.set(turn={**turn, "steps": turn["steps"] + 1})


def _chunk(draft: RowDraft, chunk: AssistantChunk) -> None:
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


def _message(draft: RowDraft, message: AssistantMessage) -> None:
    event, version, elsewhere = draft.event, draft.event.version, message.tools_elsewhere
    for index, request in enumerate(message.tool_calls):
        own_id = call_id(version, index)
        if draft.get("answered", own_id) is None:
            values = _call_values(draft, request)
            _open_call(draft, own_id, values | ({"elsewhere": True} if elsewhere else {}))
    known = draft.get("models", message.llm_call_id) is not None
    if event.meta.step is None and not known:
        _count_step(draft)
    _end_model_call(draft, message.llm_call_id, "ok", message.usage)


def _call_values(draft: RowDraft, request: ToolCallRequest | ToolCall) -> dict[str, Any]:
    return start_values(
        draft,
        name=request.name,
        arguments=request.arguments,
        provider_id=request.provider_id,
    )


def _open_call(draft: RowDraft, own_id: str, values: dict[str, Any]) -> None:
    blank = {"started_at": None, "idempotency_key": None, "idempotent": False}
    memory = "calls" if draft.get("awaited", own_id) is None else "awaited"
    known = draft.get(memory, own_id) or blank
    draft.keep(memory, own_id, {"call_id": own_id, **known, **values})


def _error(draft: RowDraft, error: LlmError) -> None:
    _end_model_call(draft, error.llm_call_id, "error", error.usage)


def _end_model_call(
    draft: RowDraft, own_id: str | None, outcome: str, usage: TokenUsage | None
) -> None:
    """Close a model call, if it is open, and add its tokens to the turn's and the session's."""
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
    sums, counts = dict(total or {}), vars(usage)
    for name in _TOKENS:
        if counts[name] is not None:
            sums[name] = sums.get(name, 0) + counts[name]
    sums["reported"] = counts["reported"] and sums.get("reported", True)
    return sums


def _execution(draft: RowDraft, call: ToolCall) -> None:
    own_id = call.call_id
    if draft.get("answered", own_id) not in _UNANSWERED:
        return
    draft.drop("answered", own_id)
    values: dict[str, Any] = {
        "started_at": draft.now,
        "idempotency_key": call.idempotency_key,
        "idempotent": call.idempotent,
        "name": call.name,  # The tool's own name, which may differ from the one on the wire.
    }
    if draft.get("calls", own_id) is None and draft.get("awaited", own_id) is None:
        values = {**_call_values(draft, call), **values}
    _open_call(draft, own_id, values)


def _result(draft: RowDraft, result: ToolResult) -> None:
    own_id = result.call_id
    draft.drop("calls", own_id)
    draft.drop("awaited", own_id)
    if draft.get("answered", own_id) in _UNANSWERED:
        draft.keep("answered", own_id, result.status, CLOSED_LIMIT)


def _retraction(draft: RowDraft, retraction: Retraction) -> None:
    for memory, closed in _MEMORIES:
        for own_id, entry in draft.state[memory].items():
            ranges = version_ranges.retracted(retraction, draft.event)
            if version_ranges.within(ranges, entry["version"]):
                draft.drop(memory, own_id)
                draft.keep(closed, own_id, _WITHDRAWN, CLOSED_LIMIT)


@dataclass(frozen=True, slots=True)
class OpenWorkProjection:
    """Folds a conversation's events into its row of ``open_work``."""

    name: str = "open_work"
    version: int = 4
    tables: Sequence[ReadTable] = (
        ReadTable(
            _TABLE,
            (),
            (
                Column("model_calls", "json"),
                Column("tool_calls", "json"),
                Column("turn", "json"),
                Column("session", "json"),
                Column("run_step", "json"),
                Column("tasks", "json"),
                Column("destroyed", "boolean"),
                Column("open_count", "integer"),
                Column("last_version", "integer"),
                Column("last_event_at", "timestamp"),
            ),
            lookups=(("open_count",),),
        ),
    )

    def initial(self) -> State:
        """Return the state of an empty conversation: nothing is open."""
        marks: State = {"turn": None, "session": None, "run_step": None}
        marks |= {"row": False, "destroyed": False}
        calls: State = {"calls": {}, "awaited": {}, "answered": {}}
        return {**marks, **calls, "models": {}, "ended": {}, "tasks": {}}

    def fold(self, state: State, event: RecordedEvent) -> tuple[State, Sequence[Change]]:
        """Return the state after the event, and what it changes in the row."""
        after, _ = folding.run(_HANDLERS, state, event)
        step, turn = event.meta.step, after["turn"]
        if (
            step is not None
            and turn is not None
            and step >= turn["steps"]
            and belongs(turn, event, "turn")
        ):
            after = {**after, "turn": {**turn, "steps": step + 1}}
        values: dict[str, Any] = {
            "last_version": event.version,
            "last_event_at": event.occurred_at,
        }
        if not state["row"]:
            after = {**after, "row": True}
            values |= {"model_calls": [], "tool_calls": [], "open_count": 0}
        if after is not state:
            values |= _changed(state, after)
        return after, (Put(_TABLE, (), values),)


def _changed(state: State, after: State) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in ("turn", "session", "run_step", "destroyed"):
        if after[name] is not state[name]:
            values[name] = after[name]
    if after["tasks"] is not state["tasks"]:
        values["tasks"] = list(after["tasks"].values())
    models, calls, awaited = after["models"], after["calls"], after["awaited"]
    if models is not state["models"]:
        values["model_calls"] = list(models.values())
    if calls is not state["calls"] or awaited is not state["awaited"]:
        values["tool_calls"] = [*calls.values(), *awaited.values()]
    if values:
        values["open_count"] = len(models) + len(calls) + (after["turn"] is not None)
    return values


def _turn_start(draft: RowDraft, _: TurnStart | None) -> None:
    turn = start_values(draft, turn=draft.event.meta.turn, steps=0, tokens=None)
    draft.set(turn=turn)
    session = draft.state["session"]
    if session is not None:
        draft.set(session={**session, "turns": session["turns"] + 1})


def _turn_end(draft: RowDraft, end: TurnEnd | None) -> None:
    if end is not None and end.reason == "replaced":
        turn = draft.event.meta.turn
        for own_id, call in draft.state["calls"].items():
            if call["started_at"] is not None and call["meta"].get("turn") == turn:
                draft.drop("calls", own_id)
                draft.keep("awaited", own_id, {**call, "awaited": True})
    if belongs(draft.state["turn"], draft.event, "turn"):
        draft.set(turn=None)


def _session_start(draft: RowDraft, _: SessionStart | None) -> None:
    session_id = draft.event.meta.session_id
    draft.set(session=start_values(draft, session_id=session_id, turns=0, tokens=None))


def _ended(draft: RowDraft, end: ConversationEnd) -> None:
    draft.set(destroyed=end.reason == "destroyed")


def _fork(draft: RowDraft, _: ConversationFork | None) -> None:
    # The parent's session and tasks belong to the parent.
    draft.set(session=None, destroyed=False, tasks={})


def _session_end(draft: RowDraft, _: SessionEnd | None) -> None:
    if belongs(draft.state["session"], draft.event, "session_id"):
        draft.set(session=None)


def _step_start(draft: RowDraft, start: RunStepStart) -> None:
    draft.set(run_step=start_values(draft, run_id=start.run_id, node_id=start.node_id))


def _step_end(draft: RowDraft, end: RunStepEnd | RunEnd) -> None:
    step = draft.state["run_step"]
    node = end.node_id if isinstance(end, RunStepEnd) else None
    if step is not None and step["run_id"] == end.run_id and node in (None, step["node_id"]):
        draft.set(run_step=None)


def _erased(draft: RowDraft, _: None) -> None:
    match draft.event.type:
        case "turn_start":
            _turn_start(draft, None)
        case "turn_end":
            _turn_end(draft, None)
        case "session_start":
            _session_start(draft, None)
        case "session_end":
            _session_end(draft, None)
        case "conversation_fork":
            _fork(draft, None)
        case "run_step_end" | "run_end" if draft.state["run_step"] is not None:
            draft.set(run_step=None)
        case "assistant_message" | "llm_error":
            _end_model_call(draft, next(reversed(draft.state["models"]), None), "ok", None)
        case "tool_result" if own_id := folding.call_of_erased_result(
            draft.state["calls"] or draft.state["awaited"]
        ):
            _result(draft, ToolResult(call_id=own_id, status="outcome_unknown"))


_HANDLERS: dict[type, folding.Handler] = {
    **TASK_HANDLERS,
    LlmRequest: _request,
    AssistantChunk: _chunk,
    AssistantMessage: _message,
    LlmError: _error,
    ToolCall: _execution,
    ToolResult: _result,
    Retraction: _retraction,
    TurnStart: _turn_start,
    TurnEnd: _turn_end,
    SessionStart: _session_start,
    SessionEnd: _session_end,
    ConversationEnd: _ended,
    ConversationFork: _fork,
    RunStepStart: _step_start,
    RunStepEnd: _step_end,
    RunEnd: _step_end,
    NoneType: _erased,
}

OPEN_WORK = OpenWorkProjection()
