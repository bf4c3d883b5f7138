"""The lines of session JSONL: each becomes a payload that keeps the line it came from.

A payload's ``raw["session_line"]`` is its line (a text ``content`` is null there, because the
payload holds it), or None if the event has no line of its own. A line that no payload can express
becomes an `UnknownEvent` that keeps the line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import ValidationError

from agent_eventstore.formats.extras import count_of
from agent_eventstore.formats.json_fields import object_in, text_at
from agent_eventstore.formats.openai_wire import slim
from agent_eventstore.formats.transcript import moment_of
from eventstore.events import (
    AssistantMessage,
    ConversationStart,
    Invocation,
    Meta,
    SessionEnd,
    SessionStart,
    TokenUsage,
    ToolResult,
    TurnEnd,
    TurnStart,
    UnknownEvent,
)
from eventstore.events.codec import decode, dumps
from eventstore.events.own import class_of, is_own
from eventstore.events.records import EventData
from eventstore.events.values import ToolStatus

__all__ = [
    "ORIGINAL",
    "UNINTERPRETED",
    "conversation_start",
    "interpret",
    "is_system_message",
    "kept",
    "message_in",
    "meta_in",
    "observed",
    "place_of",
    "said",
    "text_in",
    "uninterpreted",
    "with_line",
]

Line = Mapping[str, Any]

ORIGINAL = "session_line"
"""The key in ``raw`` under which the line is kept."""

UNINTERPRETED = "session_event"
"""The event type of a line that no payload can express."""

_EVENT_FIELDS = frozenset(Meta.model_fields) - {"turn", "step", "occurred_at"}
_FRAMES = ("session_start", "session_end", "turn_start", "turn_end")
_TOKENS = {
    "prompt": "prompt_tokens",
    "completion": "completion_tokens",
    "total": "total_tokens",
    "cached": "cached_prompt_tokens",
    "reasoning": "reasoning_tokens",
}


def about(line: Line) -> dict[str, Any]:
    """Return a line's ``meta``, or an empty one."""
    return object_in(line, "meta")


def text_in(line: Line) -> str | None:
    """Return a line's ``content`` if it is text."""
    return text_at(line, "content")


def is_system_message(line: Line) -> bool:
    """Whether a line is a system message, whatever its type."""
    return line.get("role") in ("system", "developer") and text_in(line) is not None


def place_of(line: Line) -> tuple[int | None, int | None]:
    """Return a line's turn (from 1) and step (from 0); values out of range count as unknown."""
    turn, step = (count_of(line.get("turn")), count_of(line.get("step")))
    return turn or None, step


def meta_in(line: Line, **fields: Any) -> Meta:
    """Return the metadata of a line's event."""
    turn, step = place_of(line)
    session = line.get("session_id")
    known: dict[str, Any] = {
        "turn": turn,
        "step": step,
        "session_id": None if session is None else str(session),
        "occurred_at": moment_of(line),
        **fields,
    }
    told = about(line).get("event")
    if isinstance(told, dict):
        extra = {key: value for key, value in told.items() if key in _EVENT_FIELDS}
        try:
            return Meta(**{**known, **extra})
        except ValidationError:
            return Meta(**known)
    return Meta(**known)


def message_in(line: Line, role: str) -> dict[str, Any]:
    """Return the chat message that a line represents."""
    told = about(line).get("message")
    if not isinstance(told, dict):
        return {"role": role, "content": line.get("content")}
    text = text_in(line)
    if text and "content" in told and told["content"] is None:
        return {**told, "content": text}
    return dict(told)


def with_line(data: Any, line: Line | None) -> Any:
    """Return the payload with its line kept in ``raw``."""
    raw = data.raw if isinstance(data.raw, dict) else {}
    return data.model_copy(
        update={"raw": {**raw, ORIGINAL: None if line is None else slim(line, data)}}
    )


def kept(data: Any) -> tuple[bool, dict[str, Any] | None]:
    """Return whether a payload comes from session JSONL, and its line if it has one."""
    raw = getattr(data, "raw", None)
    if isinstance(raw, dict) and ORIGINAL in raw:
        return True, raw[ORIGINAL]
    return False, None


def uninterpreted(line: Line) -> UnknownEvent:
    """Return the event of a line that no payload can express."""
    return UnknownEvent(UNINTERPRETED, 1, {ORIGINAL: dict(line)})


def conversation_start(line: Line) -> ConversationStart:
    """Return the start of the conversation whose first line this is."""
    told = about(line).get("conversation")
    start = ConversationStart()
    if isinstance(told, dict):
        try:
            start = ConversationStart.model_validate(told)
        except ValidationError:
            start = ConversationStart(raw={"conversation": told})
    return with_line(start, None)  # type: ignore[no-any-return]


def interpret(line: Line) -> EventData:
    """Return the payload of a line that frames the conversation, or of an event by its own type."""
    kind, meta = line.get("type"), about(line)
    try:
        if kind in _FRAMES:
            return with_line(_frame(line, meta), line)  # type: ignore[no-any-return]
        known = class_of(kind) if isinstance(kind, str) else None
        if isinstance(kind, str) and (known or is_own(kind)) and isinstance(meta.get("data"), dict):
            version = meta.get("schema_version", known.schema_version if known else 1)
            data = decode(kind, version, dumps(meta["data"]))
            if is_own(kind):
                return data
            if not isinstance(data, UnknownEvent):
                return with_line(data, line) if hasattr(data, "raw") else data
    except (ValueError, TypeError):
        pass
    return uninterpreted(line)


def said(line: Line, data: AssistantMessage, *, final: bool, counted: bool) -> AssistantMessage:
    """Return an assistant message with what its line says about the model call."""
    meta = about(line)
    model = meta.get("model")
    return data.model_copy(
        update={
            "final": final,
            "usage": _usage(meta) if counted else None,
            "invocation": Invocation(model=model) if isinstance(model, str) else None,
            "finish_reason": text_at(meta, "finish_reason"),
            "duration_ms": count_of(meta.get("durationMs")),
        }
    )


def observed(line: Line, data: ToolResult) -> ToolResult:
    """Return a tool result with what its line says about the execution."""
    meta = about(line)
    status = next((s for s in get_args(ToolStatus) if s == meta.get("status")), "success")
    return data.model_copy(
        update={
            "status": status,
            "error": text_at(meta, "error"),
            "duration_ms": count_of(meta.get("durationMs")),
        }
    )


def _frame(line: Line, meta: dict[str, Any]) -> Any:
    if line["type"] == "session_start":
        config = meta.get("config")
        others = {k: v for k, v in meta.items() if k not in ("mode", "conversation", "event")}
        return SessionStart(
            mode=meta.get("mode", "interactive"),
            config=config if isinstance(config, dict) else others,
        )
    if line["type"] == "session_end":
        return SessionEnd(reason=text_at(meta, "reason"), tokens=_usage(meta))
    if line["type"] == "turn_start":
        text = text_in(line)
        return TurnStart(
            input=text_at(meta, "input") if text is None else text, tokens=_usage(meta)
        )
    return TurnEnd(
        status=meta.get("status"),  # type: ignore[arg-type]
        reason=meta.get("reason"),
        error=text_at(meta, "errorMessage"),
        step_count=count_of(meta.get("stepCount")),
        duration_ms=count_of(meta.get("durationMs")),
        tokens=_usage(meta),
    )


def _usage(meta: Line) -> TokenUsage | None:
    """Return a line's tokens: counted by the writer unless the line says ``reported``."""
    tokens = meta.get("tokens")
    if not isinstance(tokens, dict):
        return None
    counts = {name: count_of(tokens.get(key)) for key, name in _TOKENS.items()}
    known: dict[str, Any] = {name: count for name, count in counts.items() if count is not None}
    return TokenUsage(**known, reported=tokens.get("reported") is True) if known else None
