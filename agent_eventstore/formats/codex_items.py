"""Single items of Codex: parts, calls, results with their outcome, tokens, errors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from agent_eventstore.formats.json_fields import naming_of, text_at, whole_at
from agent_eventstore.formats.openai_parts import parts_by
from agent_eventstore.formats.openai_wire import request_of
from eventstore.events import (
    ContentPart,
    FilePart,
    ImagePart,
    LlmError,
    OtherPart,
    ReasoningPart,
    RefusalPart,
    TextPart,
    TokenUsage,
    ToolCallRequest,
    ToolResult,
)
from eventstore.events.values import ToolStatus
from projections.context.content import FREE_TEXT

__all__ = [
    "OUTPUTS",
    "error_of",
    "is_of_program",
    "is_reply",
    "parts_of",
    "result_of",
    "said_by",
    "tokens_of",
]

OUTPUTS = frozenset(
    f"{kind}_output"
    for kind in ("function_call", "custom_tool_call", "local_shell_call", "tool_search")
)
"""The types of items that contain a call's result."""

_OF_PROGRAM = (
    "<environment_context>",
    "<user_instructions>",
    "<permissions instructions>",
    "<turn_aborted>",
    "<subagent_notification>",
    "<skill>",
    "<recommended_plugins>",
    "<codex_internal_context",
    "<hook_prompt",
    "<INSTRUCTIONS>",
    "# AGENTS.md instructions",
)
_REPLY = "<send_user_message_question_reply>"
_EXIT = re.compile(r"^(?:Process exited with code|Exit code:?) (-?\d+)\s*$", re.MULTILINE)
_WALL = re.compile(r"^Wall time: (\d+(?:\.\d+)?) seconds\s*$", re.MULTILINE)
_REFUSED = ("exec command rejected by user", "patch rejected by user", "rejected by user")
_HEAD = 1_000


def parts_of(content: Any) -> tuple[ContentPart, ...]:
    """Return the content as parts; an unknown one is kept verbatim."""
    return parts_by(_part, content)


def _part(item: Any) -> ContentPart:
    match item:
        case {"type": "refusal", "refusal": str(text)}:
            return RefusalPart(text=text)
        case {"text": str(text)}:
            return TextPart(text=text)
        case {"type": "input_image", "image_url": str(url)}:
            return ImagePart(url=url, detail=text_at(item, "detail"))
        case {"type": "input_file"}:
            data = text_at(item, "file_data") or text_at(item, "file_url")
            name, file_id = text_at(item, "filename"), text_at(item, "file_id")
            return FilePart(name=name, file_id=file_id, url=data)
    return OtherPart(raw=item)


def said_by(item: Mapping[str, Any]) -> tuple[tuple[ContentPart, ...], ToolCallRequest | None]:
    """Return the parts, or the call, of a model's item, as the recorder has them."""
    shell = item.get("type") == "local_shell_call"
    named = naming_of({"name": "local_shell", **item} if shell else item, "name", "call_id")
    name, call = named or ("", None)
    match item:
        case {"type": "message"}:
            return parts_of(item.get("content")), None
        case {"type": "reasoning"}:
            return _thoughts(item), None
        case {"type": "function_call", "arguments": str(arguments)} if named:
            return (), request_of(name, arguments, call)
        case {"type": "custom_tool_call", "input": str()} if named:
            raw = {"type": "custom_tool_call"}
            return (), ToolCallRequest(
                name=name,
                arguments_text=item["input"],
                parse_error=FREE_TEXT,
                provider_id=call,
                raw=raw,
            )
        case {"type": "local_shell_call", "action": dict(action)} if named:
            found = request_of(name, json.dumps(action, ensure_ascii=False), call)
            return (), found.model_copy(update={"raw": {"type": "local_shell_call"}})
    return (OtherPart(raw=dict(item)),), None


def _thoughts(item: Mapping[str, Any]) -> tuple[ContentPart, ...]:
    """Return the thoughts; the last part has the data that the provider wants back."""
    lists = (item.get(key) for key in ("summary", "content"))
    blocks = [block for each in lists if isinstance(each, list) for block in each]
    texts = [text for block in blocks if (text := text_at(block, "text"))] or [""]
    signature, named = text_at(item, "encrypted_content"), text_at(item, "id")
    raw = {"type": "reasoning", **({"id": named} if named else {})}
    if signature and isinstance(item.get("summary"), list):
        raw["summary"] = item["summary"]
    last = ReasoningPart(text=texts[-1], signature=signature, raw=raw)
    return (*(ReasoningPart(text=text) for text in texts[:-1]), last)


def is_of_program(text: str) -> bool:
    """Whether a user message was added by the program, not written by a person."""
    return text.lstrip().startswith(_OF_PROGRAM)


def is_reply(text: str) -> bool:
    """Whether a user message answers a question that the model asked within its turn."""
    return text.lstrip().startswith(_REPLY)


def result_of(item: Mapping[str, Any]) -> ToolResult:
    """Return the result in an item; its call is settled when the result is added."""
    output = item.get("output", item.get("tools"))
    told = output if isinstance(output, dict) else {}
    content = told.get("content", output) if told else output
    said = content if isinstance(content, str) else parts_of(content) or None
    text = said if isinstance(said, str) else ""
    status, duration = _outcome(text)
    if told.get("success") is False and status == "success":
        status = "failed"
    return ToolResult(
        call_id="",
        status=status,
        content=said,
        duration_ms=duration,
        provider_id=text_at(item, "call_id"),
    )


def _outcome(text: str) -> tuple[ToolStatus, int | None]:
    """Return the outcome and the time in milliseconds that a result's text gives."""
    if text.startswith(_REFUSED):
        return "denied", None
    if text.startswith("{"):
        try:
            about = json.loads(text)["metadata"]
            code, seconds = about.get("exit_code"), about.get("duration_seconds")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return "success", None
    else:
        exit_code, wall = _EXIT.search(text[:_HEAD]), _WALL.search(text[:_HEAD])
        code = int(exit_code[1][:9]) if exit_code else 0
        seconds = float(wall[1][:15]) if wall else None
    known = isinstance(seconds, int | float) and 0 <= seconds < 10**8
    failed = isinstance(code, int) and code != 0
    return "failed" if failed else "success", round(seconds * 1000) if known else None


def tokens_of(raw: Any) -> TokenUsage | None:
    """Return the tokens of one model call."""
    if not isinstance(raw, dict):
        return None
    prompt, completion = whole_at(raw, "input_tokens"), whole_at(raw, "output_tokens")
    if prompt is None and completion is None:
        return None
    return TokenUsage(
        prompt_tokens=prompt or 0,
        completion_tokens=completion or 0,
        total_tokens=whole_at(raw, "total_tokens"),
        cached_prompt_tokens=whole_at(raw, "cached_input_tokens"),
        cache_write_tokens=whole_at(raw, "cache_write_input_tokens"),
        reasoning_tokens=whole_at(raw, "reasoning_output_tokens"),
        raw=raw,
    )


def error_of(event: Mapping[str, Any], *, retryable: bool) -> LlmError:
    """Return the failed call that the program reports."""
    message = event.get("message")
    text = message if isinstance(message, str) else "the program told no reason"
    limited = "rate limit" in text.lower() or "usage limit" in text.lower()
    kind = "rate_limit" if limited else "network" if retryable else "provider"
    return LlmError.model_validate({"kind": kind, "message": text, "retryable": retryable})
