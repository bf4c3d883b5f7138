"""Rows as the input items of OpenAI's Responses API.

Rules: OpenAI's API reference "Create a model response" and the guides "Conversation state",
"Reasoning models" and "Function calling" (all 2025); ``phase`` since gpt-5.3-codex (2026).

- The system part goes as ``instructions``; later system messages are items with their own role.
- A call and its output are items of their own, tied by ``call_id``. An empty assistant message
  makes no item. Names have no field: a user's stands before the text.
- What OpenAI made goes back as it came when its reasoning is encrypted in it, for then it needs
  nothing of the server. Otherwise reasoning is left out, and so are all ids of that response:
  an id makes the server look for the reasoning that it belonged to.
- Reasoning is followed by the item that it led to, or it is refused: a last one is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from projections.context.formats import base
from projections.context.formats.base import (
    OPENAI_RESPONSES,
    Json,
    Wire,
    call_ids,
    native_for,
    parts_of,
    split_front,
    system_text,
    text_in,
)
from projections.context.rows import ContextRow

__all__ = ["SPECIFICATION", "wire"]

SPECIFICATION = "openai_responses"

# Other items of hosted tools wait for an answer that no log holds.
_WHOLE_IN_THEMSELVES = frozenset(
    {
        *("message", "reasoning", "function_call", "custom_tool_call", "web_search_call"),
        *("file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call"),
    }
)


def wire(rows: Iterable[ContextRow], *, provider: str | None = None) -> Wire:
    """Return the rows in this format; there is always an item."""
    front, rest = split_front(rows)
    items: list[Json] = []
    added: list[str] = []
    outputs: dict[str, str] = {}
    used: set[str] = set()
    for row, ids in zip(rest, call_ids(rest, OPENAI_RESPONSES), strict=True):
        if row.kind == "tool":
            items.append(_output(row, ids[0], outputs[ids[0]]))
            continue
        if row.role != "assistant":
            items.append(_said(row))
            continue
        answer = _native(row, ids, provider, used) or _assistant(row.message, ids)
        outputs |= {
            item["call_id"]: f"{item['type']}_output" for item in answer if "call_id" in item
        }
        items += answer
    if not items:
        items.append(_message("user", base.NOTHING_YET))
        added.append(base.NOTHING_YET)
    return Wire(SPECIFICATION, tuple(items), system_text(front), tuple(added))


def _message(role: str, content: str | list[Json], **fields: Any) -> Json:
    return {"type": "message", "role": role, "content": content, **fields}


def _said(row: ContextRow) -> Json:
    """Return a message of anybody but the model and its tools."""
    parts, name = parts_of(row.message), row.message.get("name")
    if all(part.get("type") == "text" for part in parts):
        text = "\n".join(part["text"] for part in parts)
        return _message(row.role, base.by(name, text) if name and row.role == "user" else text)
    content = [_part(part) for part in parts]
    if name:
        content.insert(0, {"type": "input_text", "text": base.by(name, "")})
    return _message(row.role, content)


def _part(part: Json) -> Json:
    match part.get("type"):
        case "text":
            return {"type": "input_text", "text": part["text"]}
        case "image_url":
            image = part["image_url"]
            detail = image.get("detail", "auto")
            return {"type": "input_image", "image_url": image["url"], "detail": detail}
        case "file":
            fields = ("file_id", "filename", "file_data")
            known = {key: part["file"][key] for key in fields if part["file"].get(key)}
            if "file_id" in known:
                return {"type": "input_file", "file_id": known["file_id"]}
            if "file_data" in known:
                return {"type": "input_file", "filename": "file", **known}
        case "input_audio":
            return {"type": "input_text", "text": base.AUDIO}
    return {"type": "input_text", "text": json.dumps(part, ensure_ascii=False)}


def _assistant(message: Json, ids: tuple[str, ...]) -> list[Json]:
    text = text_in(message)
    calls = message.get("tool_calls") or ()
    said = [_message("assistant", text)] if text else []
    return [*said, *(_call(call, wire_id) for call, wire_id in zip(calls, ids, strict=True))]


def _call(call: Json, wire_id: str) -> Json:
    return {"type": "function_call", "call_id": wire_id, **call["function"]}


def _output(row: ContextRow, wire_id: str, kind: str) -> Json:
    rich = (row.native or {}).get("content")
    output = [_part(part) for part in rich] if rich else text_in(row.message)
    return {"type": kind, "call_id": wire_id, "output": output}


def _native(
    row: ContextRow, ids: tuple[str, ...], provider: str | None, used: set[str]
) -> list[Json] | None:
    """Return the items of a response that this provider made, or None if they cannot go back."""
    native = native_for(row, SPECIFICATION, provider)
    if native is None:
        return None
    held: list[Json] = native["content"]
    if not {item.get("type") for item in held} <= _WHOLE_IN_THEMSELVES:
        return None
    calls = row.message.get("tool_calls") or ()
    items = [_placed(item, calls, ids) for item in held]
    own = [item["id"] for item in items if isinstance(item.get("id"), str)]
    thoughts = [item for item in items if item["type"] == "reasoning"]
    if (
        all(item.get("encrypted_content") and item.get("id") for item in thoughts)
        and len({*own}) == len(own)
        and used.isdisjoint(own)
    ):
        kept = [item for place, item in enumerate(items) if _leads_on(items, place)]
        used.update(item["id"] for item in kept if isinstance(item.get("id"), str))
        return kept
    return _stripped(items)


def _placed(item: Json, calls: Sequence[Json], ids: tuple[str, ...]) -> Json:
    if "call" not in item:
        return dict(item)
    function = calls[item["call"]]["function"]
    field = "input" if item["type"] == "custom_tool_call" else "arguments"
    rest = {key: value for key, value in item.items() if key not in ("call", "type")}
    return {
        "type": item["type"],
        **rest,
        "call_id": ids[item["call"]],
        "name": function["name"],
        field: function["arguments"],
    }


def _leads_on(items: Sequence[Json], place: int) -> bool:
    """Whether an item is no reasoning, or has another item after it that is none."""
    return any(item["type"] != "reasoning" for item in items[place:])


def _stripped(items: Sequence[Json]) -> list[Json] | None:
    """Return the items without reasoning and ids, or None if hosted tools need theirs."""
    found: list[Json] = []
    for item in items:
        match item["type"]:
            case "reasoning":
                continue
            case "message":
                parts = item.get("content") or ()
                texts = [part.get("text") or part.get("refusal") or "" for part in parts]
                phase = {"phase": item["phase"]} if "phase" in item else {}
                if text := "".join(texts):
                    found.append(_message("assistant", text, **phase))
            case "function_call" | "custom_tool_call":
                found.append({key: value for key, value in item.items() if key != "id"})
            case _:
                return None
    return found
