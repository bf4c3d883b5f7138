"""Reading messages of OpenAI's chat format that nobody has checked: what is odd in them is skipped.

Tool calls may be of functions, of custom tools, or in the older single form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["calls_of", "json_of", "texts_of"]

_DEEPEST = 100
_BRACKET = re.compile(r"[\[\]{}]")


def texts_of(message: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts of a message's content, without those of its tool calls."""
    content = message.get("content")
    if isinstance(content, str):
        yield content
    elif isinstance(content, list | tuple):
        for part in content:
            text = part.get("text") if isinstance(part, Mapping) else part
            if isinstance(text, str):
                yield text


def calls_of(message: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return name and arguments of each tool call, in their order."""
    calls = message.get("tool_calls")
    older = message.get("function_call")
    if calls is None and older is None:
        return []
    listed = list(calls) if isinstance(calls, list | tuple) else []
    if isinstance(older, Mapping):
        listed.append({"function": older})
    inner = [call.get("function") or call.get("custom") for call in listed if hasattr(call, "get")]
    return [_name_and_arguments(call) for call in inner if isinstance(call, Mapping)]


def json_of(text: str) -> Any:
    """Return the JSON object or list that a text is; None if it is something else.

    None also where it is nested so deep that how much of the stack is left would decide.
    """
    if text[:1] not in ("{", "["):
        return None
    depth = 0
    for found in _BRACKET.finditer(text):
        depth += 1 if found.group() in "[{" else -1
        if depth > _DEEPEST:
            return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def _name_and_arguments(call: Mapping[str, Any]) -> tuple[str, str]:
    arguments = call.get("arguments", call.get("input"))
    if arguments is None:
        arguments = ""
    elif not isinstance(arguments, str):
        arguments = json.dumps(arguments, default=str, ensure_ascii=False)
    return str(call.get("name") or ""), arguments
