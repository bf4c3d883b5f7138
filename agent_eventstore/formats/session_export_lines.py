"""The contents of the lines of session JSONL: pure functions from payloads to ``meta``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agent_eventstore.formats.extras import NAMES, known
from agent_eventstore.formats.openai_parts import text_of
from agent_eventstore.formats.transcript import canonical
from eventstore.events import (
    AssistantMessage,
    Meta,
    SessionEnd,
    TokenUsage,
    ToolCall,
    ToolCallRequest,
    ToolResult,
    TurnEnd,
    TurnStart,
    Ui,
)
from eventstore.events.codec import dumps, encode
from eventstore.events.records import EventData

__all__ = [
    "Tally",
    "action",
    "content_and_message",
    "execution",
    "further",
    "model_call",
    "plain",
    "session_end",
    "tokens",
    "turn_end",
    "turn_start",
    "ui",
]

_TOLD_ELSEWHERE = {"turn", "step", "occurred_at"}


class Tally:
    """Steps and tokens of a turn whose end was not recorded."""

    def __init__(self) -> None:
        self._steps = 0
        self._tokens: dict[str, int] = {}

    def add(self, usage: TokenUsage | None) -> None:
        """Count a step."""
        self._steps += 1
        if usage is not None:
            self._add("prompt", usage.prompt_tokens)
            self._add("completion", usage.completion_tokens)

    def turn_end(self) -> dict[str, Any]:
        """Return the ``meta`` of the turn's end."""
        total = {"total": sum(self._tokens.values())}
        return known(
            {
                "status": "ok",
                "stepCount": self._steps,
                "tokens": {**self._tokens, **total} if self._tokens else None,
            }
        )

    def _add(self, kind: str, count: int) -> None:
        self._tokens[kind] = self._tokens.get(kind, 0) + count


def plain(data: EventData) -> Any:
    """Return a payload as a JSON value."""
    return json.loads(encode(data))


def further(meta: Meta, session_id: str) -> dict[str, Any]:
    """Return the event metadata that has no field of its own in a line."""
    told = meta.model_dump(mode="json", exclude_defaults=True, exclude=_TOLD_ELSEWHERE)
    if told.get("session_id") == session_id:
        del told["session_id"]
    return told


def ui(data: EventData) -> dict[str, Any]:
    """Return how a message is shown, with document 000's names; empty if it does not say."""
    told = getattr(data, "ui", None)
    if not isinstance(told, Ui):
        return {}
    return known({key: getattr(told, n) for n, key in NAMES.items()})


def content_and_message(
    message: dict[str, Any], told: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Return a line's text, and ``message`` for its ``meta`` unless text and ``told`` are enough.

    In ``message`` a text content is null, because the line holds it.
    """
    content = message.get("content")
    text = content if isinstance(content, str) else text_of(content)
    if canonical({**told, "content": text}) == canonical(message):
        return text, {}
    if isinstance(content, str) and content:
        message = {**message, "content": None}
    return text, {"message": message}


def tokens(usage: TokenUsage | None) -> dict[str, Any] | None:
    """Return the token counts of a line."""
    if usage is None:
        return None
    total = usage.total_tokens
    if total is None:
        total = usage.prompt_tokens + usage.completion_tokens
    counts = {
        "prompt": usage.prompt_tokens,
        "completion": usage.completion_tokens,
        "total": total,
        "cached": usage.cached_prompt_tokens,
        "reasoning": usage.reasoning_tokens,
        "reported": usage.reported or None,
    }
    return known(counts)


def turn_start(data: TurnStart) -> dict[str, Any]:
    """Return the ``meta`` of a turn's start."""
    return known({"input": data.input, "tokens": tokens(data.tokens)})


def turn_end(data: TurnEnd) -> dict[str, Any]:
    """Return the ``meta`` of a turn's end."""
    return known(
        {
            "status": data.status,
            "reason": data.reason,
            "stepCount": data.step_count,
            "durationMs": data.duration_ms,
            "errorMessage": data.error,
            "tokens": tokens(data.tokens),
        }
    )


def session_end(data: SessionEnd) -> dict[str, Any]:
    """Return the ``meta`` of a session's end."""
    fields = {"reason": data.reason, "turnCount": data.turn_count, "durationMs": data.duration_ms}
    return known({**fields, "tokens": tokens(data.tokens)})


def model_call(data: AssistantMessage) -> dict[str, Any]:
    """Return what an assistant line says about the model call."""
    model = None if data.invocation is None else data.invocation.model
    return known(
        {
            "tokens": tokens(data.usage),
            "model": model,
            "finish_reason": data.finish_reason,
            "durationMs": data.duration_ms,
        }
    )


def action(own_id: str, request: ToolCallRequest | None, call: ToolCall | None) -> dict[str, Any]:
    """Return the ``meta`` of an action: from the model's request if known, else from the call."""
    asked = request or call
    if asked is None:
        return {"call_id": own_id}
    given = request.arguments_text if request is not None else dumps(asked.arguments or {})
    return known(
        {
            "tool": asked.name,
            "input": given,
            "tool_call_id": asked.provider_id,
            "call_id": own_id,
        }
    )


def execution(data: ToolResult) -> dict[str, Any]:
    """Return what an observation says about the execution."""
    return known(
        {
            "tool": data.name,
            "tool_call_id": data.provider_id,
            "call_id": data.call_id,
            "status": data.status,
            "error": data.error,
            "durationMs": data.duration_ms,
        }
    )
