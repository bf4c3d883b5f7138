"""Independent judges of what goes to a provider; they share no code with what they judge.

Sources: OpenAI's API reference, "Create chat completion" (2025), and the errors that its endpoint
is known to answer with.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_NAME = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")
_FIELDS = {
    "system": {"role", "content", "name"},
    "developer": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "assistant": {"role", "content", "name", "refusal", "tool_calls"},
    "tool": {"role", "content", "tool_call_id"},
}
_PARTS = {
    "system": {"text"},
    "developer": {"text"},
    "user": {"text", "image_url", "input_audio", "file"},
    "assistant": {"text", "refusal"},
    "tool": {"text"},
}


def check_openai_messages(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what OpenAI's chat endpoint would refuse, one sentence each; empty if nothing."""
    problems: list[str] = []
    seen: set[str] = set()
    waiting: list[str] = []
    for place, message in enumerate(messages):
        where = f"message {place}"
        role = message.get("role")
        if role not in _FIELDS:
            problems.append(f"{where} has the role {role!r}")
            continue
        problems += [f"{where}: {problem}" for problem in _shape(role, message)]
        if role == "tool":
            wanted = waiting.pop(0) if waiting else None
            if message.get("tool_call_id") != wanted or wanted is None:
                problems.append(f"{where} answers no call that waits")
            continue
        if waiting:
            problems.append(f"{where} comes before the results of {waiting}")
        waiting = [str(call.get("id")) for call in message.get("tool_calls", [])]
        for wire_id in waiting:
            if wire_id in seen:
                problems.append(f"{where} uses the id {wire_id!r} again")
            seen.add(wire_id)
    if waiting:
        problems.append(f"the last calls {waiting} have no results")
    return problems


def _shape(role: str, message: Mapping[str, Any]) -> list[str]:
    problems = [f"unknown field {field}" for field in sorted(message.keys() - _FIELDS[role])]
    try:
        json.dumps(message, ensure_ascii=False, allow_nan=False).encode()
    except (UnicodeEncodeError, ValueError, TypeError) as error:
        problems.append(f"cannot be sent: {error}")
    if "name" in message and not _NAME.match(str(message["name"])):
        problems.append(f"bad name {message['name']!r}")
    problems += _content(role, message)
    if "tool_calls" in message:
        problems += _calls(message["tool_calls"])
    return problems


def _content(role: str, message: Mapping[str, Any]) -> list[str]:
    content = message.get("content")
    if isinstance(content, str):
        return []
    if content is None:
        allowed = role == "assistant" and bool(message.get("tool_calls"))
        return [] if allowed else ["content is missing"]
    if not isinstance(content, list) or not content:
        return ["content is neither text nor a list of parts"]
    return [
        f"part {part!r} may not stand in a {role} message"
        for part in content
        if not isinstance(part, dict)
        or part.get("type") not in _PARTS[role]
        or part["type"] not in part
    ]


def _calls(calls: object) -> list[str]:
    if not isinstance(calls, list) or not calls:
        return ["tool_calls is no list, or empty"]
    problems = []
    for call in calls:
        if set(call) != {"id", "type", "function"} or call["type"] != "function":
            problems.append(f"a call has the fields {sorted(call)}")
            continue
        wire_id, function = call["id"], call["function"]
        if not isinstance(wire_id, str) or not 1 <= len(wire_id) <= 40:
            problems.append(f"bad call id {wire_id!r}")
        if not isinstance(function.get("name"), str) or not _NAME.match(function["name"]):
            problems.append(f"bad function name {function.get('name')!r}")
        if not isinstance(function.get("arguments"), str) or not function["arguments"]:
            problems.append("arguments are no text")
    return problems
