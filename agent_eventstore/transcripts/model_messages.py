"""ModelMessages of the AI SDK: tool calls and results as content parts, in Anthropic's form.

Versions 5 and later have ``input`` and ``output``; version 4 (CoreMessages) has ``args`` and
``result``. Source: https://ai-sdk.dev/docs/reference/ai-sdk-core/model-message
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["blocks_of_message"]

_CALL, _RESULT = "tool-call", "tool-result"
_FAILED = frozenset({"error-text", "error-json", "execution-denied"})


def blocks_of_message(message: Mapping[str, Any]) -> tuple[str, list[Any]] | None:
    """Return a message's role and content blocks, or None if it has no such calls or results."""
    content = message.get("content")
    if not isinstance(content, list) or not any(
        _kind(part) in (_CALL, _RESULT) for part in content
    ):
        return None
    role = "assistant" if message.get("role") == "assistant" else "user"
    return role, [_block(part) for part in content]


def _kind(part: Any) -> str | None:
    named = isinstance(part, dict) and isinstance(part.get("toolName"), str)
    kind = part.get("type") if named else None
    return kind if isinstance(kind, str) else None


def _block(part: Any) -> Any:
    match _kind(part):
        case "tool-call":
            return {
                "type": "tool_use",
                "id": part.get("toolCallId"),
                "name": part["toolName"],
                "input": part.get("input", part.get("args")),
            }
        case "tool-result":
            content, failed = _output(part)
            return {
                "type": "tool_result",
                "tool_use_id": part.get("toolCallId"),
                "name": part["toolName"],
                "content": content,
                "is_error": failed,
            }
    if isinstance(part, dict) and part.get("type") == "reasoning":
        return {"type": "thinking", "thinking": part.get("text", "")}
    return part


def _output(part: Mapping[str, Any]) -> tuple[Any, bool]:
    """Return a result's content, and whether it says that the tool failed."""
    output = part.get("output", part.get("result"))
    kind = output.get("type") if isinstance(output, dict) and "output" in part else None
    if kind == "execution-denied":
        return output.get("reason") or "the user denied it", True
    value = output.get("value") if kind is not None else output
    if kind == "content" and isinstance(value, list):
        return value, False
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text, kind in _FAILED or part.get("isError") is True
