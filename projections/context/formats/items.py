"""The items of OpenAI's Responses in the form that a request accepts.

Rules: OpenAI's API reference "Create a model response", the fields of each input item (2026). A
response has fields that a request must not have, and ``null`` for absent fields, most of which a
request rejects. An item of an unknown type, or without a required input field, cannot be returned.
"""

from __future__ import annotations

from typing import Any

from projections.context.formats.item_shapes import PARTS, SHAPES
from projections.context.formats.shapes import Misfit, fitted

__all__ = ["PLAIN", "as_input", "is_needed", "text_of"]

Json = dict[str, Any]

PLAIN = frozenset({"message", "function_call", "reasoning"})
"""Items that texts and calls express completely, unless something in them is encrypted."""


def is_needed(item: Json) -> bool:
    """Whether an item has anything that text and calls cannot express."""
    telling = ("encrypted_content", "phase", "caller", "namespace")
    kind = item.get("type")
    known = isinstance(kind, str) and kind in PLAIN
    return not known or any(item.get(key) for key in telling)


def as_input(item: Json) -> Json | None:
    """Return an output item as an input item, or None if it cannot be sent back."""
    kind = item.get("type")
    shape = SHAPES.get(kind) if isinstance(kind, str) else None
    if kind == "code_interpreter_call":
        item = {"code": None, "outputs": None, **item}
    try:
        kept: Json = fitted(item, shape)
    except Misfit:
        return None
    return _message(kept) if kind == "message" else kept


def _message(item: Json) -> Json:
    """Return the whole message; if it has no id from the server, a message of its text."""
    parts = _said(item["content"]) if isinstance(item["content"], list) else item["content"]
    if isinstance(parts, list) and {"id", "status"} <= item.keys():
        return {**item, "role": "assistant", "content": parts}
    if isinstance(parts, list):
        parts = text_of({"type": "message", "content": parts})
    rest = {key: value for key, value in item.items() if key not in ("id", "status")}
    return {**rest, "role": "assistant", "content": parts if isinstance(parts, str) else ""}


def text_of(item: Json) -> str:
    """Return the text of a message's item; empty for any other item."""
    content = item["content"] if item["type"] == "message" else ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or part.get("refusal") or "" for part in content)


def _said(content: list[Any]) -> list[Json]:
    """Return the parts of a message that input has, with their annotations."""
    found = []
    for part in content:
        kind = str(part.get("type")) if isinstance(part, dict) else ""
        if kind not in PARTS:
            continue
        try:
            lean = fitted(part, PARTS[kind])
        except Misfit:
            continue
        if kind == "output_text":
            lean.setdefault("annotations", [])
        found.append(lean)
    return found
