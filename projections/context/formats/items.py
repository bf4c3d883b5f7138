"""The items of OpenAI's Responses in the form that a request accepts.

Rules: OpenAI's API reference "Create a model response", the fields of each input item (2026). A
response has fields that a request must not have, and ``null`` for absent fields, most of which a
request rejects. An item of an unknown type, or without a required input field, cannot be returned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["FIELDS", "NULLABLE", "PLAIN", "as_input", "is_needed"]

Json = dict[str, Any]


def _fields(required: str, optional: str = "") -> tuple[frozenset[str], frozenset[str]]:
    return frozenset({"type", *required.split()}), frozenset(optional.split())


FIELDS: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {
    "message": _fields("role content", "id status phase"),
    "reasoning": _fields("id summary", "content encrypted_content status"),
    "function_call": _fields("call_id name arguments", "async caller id namespace status"),
    "custom_tool_call": _fields("call_id name input", "async caller id namespace"),
    "web_search_call": _fields("id action status"),
    "file_search_call": _fields("id queries status", "results"),
    "code_interpreter_call": _fields("id code container_id outputs status"),
    "image_generation_call": _fields(
        "id result status",
        "action background error output_format quality revised_prompt size svg_usage",
    ),
    "computer_call": _fields("id call_id pending_safety_checks status", "action actions"),
    "local_shell_call": _fields("id action call_id status"),
    "shell_call": _fields("action call_id", "id caller environment status"),
    "shell_call_output": _fields("call_id output", "id caller max_output_length status"),
    "apply_patch_call": _fields("call_id operation status", "id caller"),
    "tool_search_call": _fields("arguments", "id call_id execution status"),
    "tool_search_output": _fields("tools", "id call_id execution status"),
    "mcp_list_tools": _fields("id server_label tools", "error"),
    "mcp_approval_request": _fields("id arguments name server_label"),
    "mcp_call": _fields(
        "id arguments name server_label", "approval_request_id error output status"
    ),
    "program": _fields("id call_id code fingerprint"),
    "program_output": _fields("id call_id result status"),
    "compaction": _fields("encrypted_content", "id"),
}
"""The types of items that a model produces: the required and the optional fields as input."""

NULLABLE = {"code_interpreter_call": frozenset({"code", "outputs"})}
"""Required input fields that may be null."""

PLAIN = frozenset({"message", "function_call", "reasoning"})
"""Items that texts and calls express completely, unless something in them is encrypted."""

_TEXTS = frozenset({"id", "namespace", "phase", "status"})

_PARTS = {
    "output_text": frozenset({"type", "text", "annotations"}),
    "refusal": frozenset({"type", "refusal"}),
}


def is_needed(item: Json) -> bool:
    """Whether an item has anything that text and calls cannot express."""
    telling = ("encrypted_content", "phase", "caller", "namespace")
    kind = item.get("type")
    known = isinstance(kind, str) and kind in PLAIN
    return not known or any(item.get(key) for key in telling)


def as_input(item: Json) -> Json | None:
    """Return an output item as an input item, or None if it cannot be sent back."""
    kind = item.get("type")
    if not isinstance(kind, str) or kind not in FIELDS:
        return None
    required, optional = FIELDS[kind]
    may_be_null = NULLABLE.get(kind, frozenset())
    kept = {
        key: value
        for key, value in item.items()
        if key in required | optional and (value is not None or key in may_be_null)
        # A server can send anything, and the next request would be refused for it.
        if key not in _TEXTS or isinstance(value, str)
    }
    for key in may_be_null:
        kept.setdefault(key, None)
    if not required <= kept.keys():
        return None
    if kind == "message":
        return _message(kept)
    if kind == "reasoning" and not isinstance(kept["summary"], list):
        return None
    if kind == "shell_call_output" and isinstance(kept["output"], list):
        kept["output"] = [_without(each, "created_by") for each in kept["output"]]
    return kept


def _message(item: Json) -> Json:
    """Return the whole message; if it has no id from the server, a message of its text."""
    parts = _said(item["content"]) if isinstance(item["content"], list) else item["content"]
    if isinstance(parts, list) and {"id", "status"} <= item.keys():
        return {**item, "content": parts}
    if isinstance(parts, list):
        parts = "".join(part.get("text") or part.get("refusal") or "" for part in parts)
    rest = {key: value for key, value in item.items() if key not in ("id", "status")}
    return {**rest, "role": "assistant", "content": parts if isinstance(parts, str) else ""}


def _said(content: list[Any]) -> list[Json]:
    """Return the parts of a message, reduced to the types and fields that input has."""
    found = []
    for part in content:
        known = _PARTS.get(str(part.get("type"))) if isinstance(part, dict) else None
        if known is not None:
            lean = {key: value for key, value in part.items() if key in known}
            annotated = {"annotations": lean.get("annotations") or []}
            found.append(lean | annotated if part["type"] == "output_text" else lean)
    return found


def _without(value: Any, key: str) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: inner for name, inner in value.items() if name != key}
