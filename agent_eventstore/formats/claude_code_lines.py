"""Single lines of Claude Code: content blocks to parts, calls, results, tokens, errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_eventstore.formats.content_blocks import content_part
from agent_eventstore.formats.gemini_contents import message_in
from agent_eventstore.formats.json_fields import object_in, text_at, whole_at
from agent_eventstore.formats.openai_wire import request_of
from eventstore.events import (
    ContentPart,
    LlmError,
    OtherPart,
    ReasoningPart,
    TextPart,
    ToolCallRequest,
    ToolResult,
    Ui,
)
from eventstore.events.codec import dumps
from eventstore.events.values import LlmErrorKind, ToolStatus
from projections.engine.folding import spoken

__all__ = [
    "api_error",
    "as_session_line",
    "attached",
    "begins_turn",
    "block_of",
    "call_of",
    "failure_kind",
    "is_printed",
    "parts_of",
    "result_of",
    "retried_error",
    "shown",
    "text_in",
]

BESIDE = "toolUseResult"
"""The key in a result's ``raw`` for the program's own record of the tool, if that is small."""

_MOST_BESIDE = 8_192
_INTERRUPTED = "[Request interrupted by user"
_BY_PROGRAM = (
    "<local-command-",
    "<bash-stdout>",
    "<bash-stderr>",
    "<command-contents>",
    "<task-notification>",
    "<system-reminder>",
    "<user-prompt-submit-hook>",
)
_REFUSED = (
    "The user doesn't want to proceed with this tool use",
    "The user doesn't want to take this action right now",
    "Permission to use ",
)


def as_session_line(line: Any) -> Any:
    """Return a line of the printed output, or of Qwen Code, in the form of session files."""
    if not isinstance(line, dict):
        return line
    message = line.get("message")
    content = message_in(message) if isinstance(message, dict) else None
    if content is not None:  # Gemini content, as Qwen Code stores it
        kind = "user" if line.get("type") == "tool_result" else line.get("type")
        told = {"model": line.get("model"), "usage": line.get("usageMetadata")}
        return {**line, "type": kind, "message": {**told, **content}}
    if "sessionId" in line or "session_id" not in line:
        return line
    told = {**line, "sessionId": line["session_id"]}
    if isinstance(agent := line.get("parent_tool_use_id"), str):
        told |= {"isSidechain": True, "agentId": agent}
    if "tool_use_result" in line:
        told[BESIDE] = line["tool_use_result"]
    return told


def is_printed(line: dict[str, Any]) -> bool:
    """Whether a line comes from ``--output-format stream-json``."""
    if "session_id" not in line:
        return False
    kind = line.get("type")
    if kind in ("user", "assistant"):
        return "parent_tool_use_id" in line and isinstance(line.get("message"), dict)
    return kind in ("system", "result") and "subtype" in line


def block_of(value: Any) -> str | None:
    """Return the type of a content block, or None."""
    kind = value.get("type") if isinstance(value, dict) else None
    return kind if isinstance(kind, str) else None


def parts_of(content: Any) -> tuple[ContentPart, ...] | None:
    """Return the parts of a message's content; None if it is neither a text nor a list."""
    if isinstance(content, str):
        return (TextPart(text=content),)
    if not isinstance(content, list):
        return None
    return tuple(_part(block) for block in content)


def text_in(content: Any) -> str:
    """Return the text of a message's content."""
    found = parts_of(content) or ()
    return spoken(found)


def _part(block: Any) -> ContentPart:
    match block:
        case str():
            return TextPart(text=block)
        case {"type": "text", "text": str(text)}:
            return TextPart(text=text)
        case {"type": "thinking", "thinking": str(text), "thoughtSignature": str(signed)}:
            raw = {"thoughtSignature": signed}  # of Gemini
            return ReasoningPart(text=text, signature=signed, raw=raw)
        case {"type": "thinking", "thinking": str(text)}:
            return ReasoningPart(text=text, signature=text_at(block, "signature"))
        case {"type": "thinking", "thinking": list(blocks)}:  # as Mistral has it
            return ReasoningPart(text=text_in(blocks))
        case {"type": "redacted_thinking", "data": str()}:
            return ReasoningPart(text="", raw=dict(block))
    return content_part(block) or OtherPart(raw=block)


def call_of(block: Any) -> ToolCallRequest | None:
    """Return the tool call in a block; None if it is not one, or if the provider runs it."""
    match block:
        case {"type": "tool_use", "name": str(name), "input": given}:
            text = given if isinstance(given, str) else dumps(given)
            found = request_of(name, text, text_at(block, "id"))
            signed = text_at(block, "thoughtSignature")  # of Gemini, which wants it back
            raw = {"thoughtSignature": signed} if signed else None
            return found.model_copy(update={"raw": raw})
    return None


def result_of(block: Mapping[str, Any], beside: Any) -> ToolResult:
    """Return the result in a block; its call is settled when the result is added."""
    content = block.get("content")
    said = content if isinstance(content, str) else parts_of(content)
    if isinstance(said, tuple) and len(said) == 1 and isinstance(said[0], TextPart):
        said = said[0].text
    text = said if isinstance(said, str) else text_in(content)
    status: ToolStatus = "failed" if block.get("is_error") is True else "success"
    if status == "failed" and text.startswith(_REFUSED):
        status = "denied"
    kept = beside is not None and beside != text and len(dumps(beside)) <= _MOST_BESIDE
    told = beside if isinstance(beside, dict) else {}
    return ToolResult(
        call_id="",
        status=status,
        content=said or None,
        provider_id=text_at(block, "tool_use_id"),
        duration_ms=whole_at(told, "durationMs" if "durationMs" in told else "totalDurationMs"),
        raw={BESIDE: beside} if kept else None,
    )


def attached(attachment: Mapping[str, Any]) -> str | None:
    """Return what the program sent to the model with a prompt: a file, or a hook's addition."""
    match attachment:
        case {"type": "file", "content": {"type": "text", "file": {"content": str(text)}}}:
            return f"{text_at(attachment, 'filename') or 'file'}:\n{text}"
        case {"type": "hook_additional_context", "content": list(texts)}:
            return "\n".join(each for each in texts if isinstance(each, str)) or None
    return None


def begins_turn(content: Any, line: Mapping[str, Any]) -> bool:
    """Whether a user line was written by a person, not by the program."""
    text = text_in(content)
    return line.get("isMeta") is not True and not text.startswith((*_BY_PROGRAM, _INTERRUPTED))


def shown(content: Any, line: Mapping[str, Any]) -> Ui | None:
    """Return how a user line is shown: text added by the program is collapsed."""
    text = text_in(content)
    if line.get("isMeta") is True and line.get("type") != "attachment":
        return Ui(part_type="meta", collapsed=True)
    return Ui(part_type="command", collapsed=True) if text.startswith(_BY_PROGRAM) else None


def api_error(line: Mapping[str, Any]) -> LlmError:
    """Return the failed call that an assistant line describes."""
    status = whole_at(line, "apiErrorStatus")
    text = text_in(line["message"].get("content"))
    return LlmError(kind=failure_kind(status, text), message=text, status_code=status)


def retried_error(line: Mapping[str, Any]) -> LlmError:
    """Return the failed call that a line of the program describes, which retries it."""
    error = object_in(line, "error")
    status = whole_at(error, "status")
    told = line.get("content")
    text = told if isinstance(told, str) else dumps(error)[:2_000]
    attempt = whole_at(line, "retryAttempt") or 1
    return LlmError(
        kind=failure_kind(status, text),
        message=text,
        retryable=True,
        attempt=max(attempt, 1),
        status_code=status,
    )


def failure_kind(status: int | None, text: str) -> LlmErrorKind:
    """Return the kind of a failure, from its HTTP status and message."""
    if status in (429, 529) or "rate limit" in text.lower():
        return "rate_limit"
    if status is not None and 400 <= status < 500:
        return "invalid"
    if "timed out" in text.lower():
        return "timeout"
    return "network" if "connection error" in text.lower() else "provider"
