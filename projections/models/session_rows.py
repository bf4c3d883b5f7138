"""Sessions, turns and steps, one row each: duration, tokens, how each ended, and the answer.

A turn is identified by its number within the conversation, a step by its number within the turn.
Events without these numbers, such as those imported from other formats, have no rows here. In a
fork, its parent's sessions have ended. The fold's only state is how many turns each open session
has begun.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from types import NoneType
from typing import Any

from eventstore.events import (
    AssistantMessage,
    ConversationFork,
    LlmError,
    LlmRequest,
    RecordedEvent,
    Retraction,
    SessionEnd,
    SessionStart,
    TokenUsage,
    TurnEnd,
    TurnStart,
)
from projections.engine import folding
from projections.engine.folding import Row, RowDraft
from projections.engine.projection import Change, ReadTable, State
from projections.engine.quoting import PLACE, QuotedText, place_of
from projections.payload_text import spoken

__all__ = ["SESSIONS", "SessionRow", "SessionsProjection", "StepRow", "TurnRow"]

_BRIEF_CHARS = 100
"""A text of up to this length is kept in the row; for a longer one, the row names its event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow(Row):
    """A session: a process that had the conversation open.

    Attributes:
        status: ``open``, ``closed``, or ``interrupted`` if its process died.
        model: The model that it was configured with, if known.
        turns: Number of turns begun.
        reason: Why it ended, if known.
        version: Version of its start.
        day: Day of its start in UTC, ``YYYY-MM-DD``.
    """

    session_id: str
    mode: str | None = None
    status: str | None = None
    model: str | None = None
    turns: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    tokens_reported: bool | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    duration_ms: int | None = None
    reason: str | None = None
    version: int | None = None
    end_version: int | None = None
    day: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRow(Row):
    """A turn, from one input to the final answer.

    Attributes:
        turn: Its number within the conversation, from 1.
        status: ``running``, or the status of its end: ``ok``, ``error``, ``max_steps``, ...
        final_text: The answer to the user; NULL if there is none.
        steps: Number of the model's replies.
        tokens_reported: Whether the provider reported all tokens; if not, some are estimates.
        version: Version of its start.
    """

    turn: int
    session_id: str | None = None
    status: str | None = None
    reason: str | None = None
    error: str | None = None
    final_text: str | None = None
    steps: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    tokens_reported: bool | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    duration_ms: int | None = None
    version: int | None = None
    end_version: int | None = None
    day: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow(Row):
    """A step: one reply of the model.

    Attributes:
        turn: The turn's number.
        step: Its number within the turn, from 0.
        status: ``running``, ``ok`` or ``error``: the outcome of the last attempt.
        text: The reply verbatim; for a failed one, the part that had arrived.
        tools: How many tool calls it requested.
        attempts: How often the model was called.
        version: Version of the first request, or of the reply if no request is known.
    """

    turn: int
    step: int
    session_id: str | None = None
    status: str | None = None
    model: str | None = None
    text: str | None = None
    tools: int | None = None
    attempts: int | None = None
    error: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    tokens_reported: bool | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    duration_ms: int | None = None
    version: int | None = None
    day: str | None = None


@dataclass(frozen=True, slots=True)
class SessionsProjection:
    """Folds a conversation's events into ``sessions``, ``turns`` and ``steps``."""

    name: str = "sessions"
    version: int = 2
    tables: Sequence[ReadTable] = (
        ReadTable(
            "sessions",
            ("session_id",),
            folding.columns_of(SessionRow),
            lookups=(("status", "day"),),
        ),
        ReadTable(
            "turns",
            ("turn",),
            folding.columns_of(TurnRow) + PLACE,
            lookups=(("status", "day"),),
            storage=QuotedText("final_text"),
        ),
        ReadTable(
            "steps", ("turn", "step"), folding.columns_of(StepRow) + PLACE, storage=QuotedText()
        ),
    )

    def initial(self) -> State:
        """Return the state of an empty conversation."""
        return {"turns": {}}

    def fold(self, state: State, event: RecordedEvent) -> tuple[State, Sequence[Change]]:
        """Return the state after the event, and what it changes in the tables."""
        return folding.run(_HANDLERS, state, event)


def _session_start(draft: RowDraft, start: SessionStart) -> None:
    event, model = draft.event, start.config.get("model")
    if (session := event.meta.session_id) is None:
        return
    draft.keep("turns", session, 0)
    values: dict[str, Any] = {"mode": start.mode, "status": "open", "turns": 0}
    values["version"] = event.version
    values["model"] = model if isinstance(model, str) else None
    draft.put("sessions", (session,), values | _began(event))


def _session_end(draft: RowDraft, end: SessionEnd) -> None:
    event = draft.event
    if (session := event.meta.session_id) is None:
        return
    draft.drop("turns", session)
    values: dict[str, Any] = {
        "status": "closed",
        "reason": end.reason,
        "end_version": event.version,
    }
    if end.reason == "interrupted":
        values["status"] = "interrupted"
    if end.turn_count is not None:
        values["turns"] = end.turn_count
    ended = {"ended_at": event.occurred_at, "duration_ms": end.duration_ms}
    draft.put("sessions", (session,), values | ended | _tokens(end.tokens))


def _fork(draft: RowDraft, _: ConversationFork | None) -> None:
    if draft.event.type != ConversationFork.type:
        return  # another event, which was erased
    ended = {"status": "closed", "ended_at": draft.event.occurred_at}
    for session in draft.state["turns"]:
        draft.put("sessions", (session,), {**ended, "end_version": draft.event.version})
    draft.set(turns={})


def _turn_start(draft: RowDraft, _: TurnStart) -> None:
    event = draft.event
    session, turn = event.meta.session_id, event.meta.turn
    if turn is None:
        return
    values = {"session_id": session, "status": "running", "version": event.version}
    draft.put("turns", (turn,), values | _began(event))
    turn_count = draft.get("turns", session)
    if session is not None and turn_count is not None:
        draft.keep("turns", session, turn_count + 1)
        draft.put("sessions", (session,), {"turns": turn_count + 1})


def _turn_end(draft: RowDraft, end: TurnEnd) -> None:
    event = draft.event
    if event.meta.turn is None:
        return
    values = {
        "status": end.status,
        "reason": end.reason,
        "error": end.error,
        "steps": end.step_count,
        "ended_at": event.occurred_at,
        "duration_ms": end.duration_ms,
        "end_version": event.version,
    }
    draft.put("turns", (event.meta.turn,), values | _tokens(end.tokens))


def _llm_request(draft: RowDraft, request: LlmRequest) -> None:
    event, key = draft.event, _step(draft.event)
    if key is None:
        return
    values = {"session_id": event.meta.session_id, "status": "running", "attempts": request.attempt}
    values["model"] = request.invocation.model
    if request.attempt == 1:
        values |= _began(event) | {"version": event.version}
    draft.put("steps", key, values)


def _answered(draft: RowDraft, message: AssistantMessage) -> None:
    event, key = draft.event, _step(draft.event)
    text = spoken(message.parts, joint="")
    final = None if message.tool_calls else _final(message, text)
    if final is not None and event.meta.turn is not None:
        draft.put("turns", (event.meta.turn,), {"final_text": final} | _place(event, final))
    if key is None:
        return
    if folding.replaces(draft.state, event):
        draft.put(
            "steps", key, {"text": text, "tools": len(message.tool_calls)} | _place(event, text)
        )
        return
    values = {
        "status": "ok",
        "text": text,
        "tools": len(message.tool_calls),
        "error": None,
        "ended_at": event.occurred_at,
        "duration_ms": message.duration_ms,
    }
    if message.llm_call_id is None:  # the request was not recorded
        values |= _began(event) | {"session_id": event.meta.session_id, "version": event.version}
    draft.put("steps", key, values | _place(event, text) | _tokens(message.usage))


def _failed(draft: RowDraft, error: LlmError) -> None:
    if (key := _step(draft.event)) is None:
        return
    values = {
        "status": "error",
        "text": error.partial_text,
        "error": error.message,
        "ended_at": draft.event.occurred_at,
        "duration_ms": error.duration_ms,
    }
    draft.put("steps", key, values | _place(draft.event, None) | _tokens(error.usage))


def _final(message: AssistantMessage, text: str) -> str | None:
    """Return the answer in a reply; in the ReAct protocol, the widget says where it is."""
    widget = (message.ui.widget if message.ui else None) or {}
    if widget.get("protocol") != "react":
        return text
    match widget.get("final"):
        case [int(start), int(end)]:
            return text[start:end]
    return None


def _step(event: RecordedEvent) -> tuple[int, int] | None:
    turn, step = event.meta.turn, event.meta.step
    return None if turn is None or step is None else (turn, step)


def _place(event: RecordedEvent, text: str | None) -> dict[str, int | None]:
    return place_of(event, text, longer_than=_BRIEF_CHARS)


def _began(event: RecordedEvent) -> dict[str, Any]:
    return {"started_at": event.occurred_at, "day": folding.day_of(event.occurred_at)}


def _tokens(usage: TokenUsage | None) -> dict[str, Any]:
    if usage is None:
        return {}
    total = usage.total_tokens
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens if total is None else total,
        "tokens_reported": usage.reported,
    }


_HANDLERS: dict[type, folding.Handler] = {
    SessionStart: _session_start,
    SessionEnd: _session_end,
    ConversationFork: _fork,
    NoneType: _fork,
    TurnStart: _turn_start,
    TurnEnd: _turn_end,
    LlmRequest: _llm_request,
    AssistantMessage: _answered,
    Retraction: folding.note_replaced,
    LlmError: _failed,
}

SESSIONS = SessionsProjection()
"""The projection of sessions, turns and steps."""
