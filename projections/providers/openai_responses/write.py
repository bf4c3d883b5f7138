"""Rows as the input items of OpenAI's Responses API.

Rules: OpenAI's API reference "Create a model response" and the guides "Conversation state",
"Reasoning models" and "Function calling" (all 2025); ``phase`` since gpt-5.3-codex (2026).

- The system part is sent as ``instructions``; later system messages are items with their own role.
- A call and its output are separate items, tied by ``call_id``. An empty assistant message has no
  item. There is no field for names: a user's name is put before the text.
- A response of OpenAI is returned to it as items if it has more than text and calls; see
  `projections.providers.openai_responses.items` for the items that may be sent together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from projections.context import prompts
from projections.context.payload_messages import INPUT, INVALID, text_in_arguments
from projections.context.rows import ContextRow
from projections.providers import request_base
from projections.providers.openai_responses.items import (
    SHAPES,
    WORDS,
    AnswerItems,
    message,
    output_of,
    settled,
)
from projections.providers.provider_limits import unfit_file, without_excess_images
from projections.providers.request_base import (
    Json,
    Wire,
    call_ids,
    native_for,
    outcome,
    parts_of,
    split_front,
    system_text,
    text_in,
)

__all__ = ["SPECIFICATION", "wire"]

SPECIFICATION = "openai_responses"

_ARGUMENTS = {"function_call": "arguments", "custom_tool_call": "input"}


def wire(rows: Iterable[ContextRow], *, provider: str | None = None) -> Wire:
    """Return the rows in this format: at least one item."""
    front, rest = split_front(rows)
    answers: list[AnswerItems] = []
    calls_by_id: dict[str, tuple[Json, AnswerItems]] = {}
    for row, ids in zip(rest, call_ids(rest, SPECIFICATION), strict=True):
        if row.kind == "tool":
            call, answer = calls_by_id[ids[0]]
            output = _output(row, call)
            if output is None:
                answer.results[ids[0]] = text_in(row.message)
            else:
                answers.append(AnswerItems([output]))
        elif row.role != "assistant":
            if row.role == "user" or not request_base.is_blank(row.message.get("content")):
                answers.append(AnswerItems([_message_item(row)]))
        else:
            calls, items = _native(row, ids, provider) or _assistant(row.message, ids)
            answers.append(AnswerItems(items, row.version))
            calls_by_id |= {wire_id: (call, answers[-1]) for wire_id, call in calls.items()}
    items = settled(answers)
    without_excess_images(items, SPECIFICATION, lambda text: {"type": "input_text", "text": text})
    added = []
    if not items:
        items.append(message("user", request_base.NOTHING_YET))
        added.append(request_base.NOTHING_YET)
    return Wire(SPECIFICATION, tuple(items), system_text(front), tuple(added))


def _message_item(row: ContextRow) -> Json:
    """Return the item of a message that is neither from the model nor from a tool."""
    parts, name = parts_of(row.message), row.message.get("name")
    if all(part.get("type") == "text" for part in parts):
        text = "\n".join(part["text"] for part in parts)
        if row.role == "user":
            text = text if text.strip() else request_base.EMPTY_USER
        return message(
            row.role, request_base.by(name, text) if name and row.role == "user" else text
        )
    content = [_part(part) for part in parts if not request_base.is_blank([part])]
    if name:
        content.insert(0, {"type": "input_text", "text": request_base.by(name, "")})
    return message(row.role, content)


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
            why = unfit_file(known["file_data"], SPECIFICATION) if "file_data" in known else ""
            if why:
                mention = prompts.file_mention(known.get("filename"), why=why)
                return {"type": "input_text", "text": mention}
            if "file_data" in known:
                return {"type": "input_file", "filename": "file", **known}
        case "input_audio":
            return {"type": "input_text", "text": request_base.AUDIO}
    return {"type": "input_text", "text": json.dumps(part, ensure_ascii=False)}


def _assistant(item: Json, ids: tuple[str, ...]) -> tuple[dict[str, Json], list[Json]]:
    text, name = text_in(item), item.get("name")
    text = text if text.strip() else ""
    text = request_base.by(name, text) if text and name else text
    calls = {
        wire_id: {"type": "function_call", "call_id": wire_id, **call["function"]}
        for call, wire_id in zip(item.get("tool_calls") or (), ids, strict=True)
    }
    return calls, [*([message("assistant", text)] if text else ()), *calls.values()]


def _free_text(arguments: str) -> str:
    """Return the input of a custom tool, which is text and was wrapped in an object."""
    found = (text_in_arguments(arguments, key) for key in (INPUT, INVALID))
    return next((text for text in found if text is not None), arguments)


def _output(row: ContextRow, call: Json) -> Json | None:
    rich = (row.native or {}).get("content")
    parts = [_part(part) for part in rich] if rich else None
    return output_of(call, text_in(row.message), outcome(row), parts)


def _native(
    row: ContextRow, ids: tuple[str, ...], provider: str | None
) -> tuple[dict[str, Json], list[Json]] | None:
    """Return the calls by id, and all items, of a response by this provider; None for others."""
    native = native_for(row, SPECIFICATION, provider)
    if native is None:
        return None
    functions = [call["function"] for call in row.message.get("tool_calls") or ()]
    calls: dict[str, Json] = {}
    items: list[Json] = []
    for block in native["content"]:
        item = {key: value for key, value in block.items() if key != "call"}
        if "call" in block:
            place = block["call"]
            calls[ids[place]] = item
            if "call_id" in SHAPES[item["type"]]:
                item["call_id"] = ids[place]
            if (field := _ARGUMENTS.get(item["type"])) is not None:
                item["name"] = functions[place]["name"]
                item[field] = functions[place]["arguments"]
                if field == "input":
                    item[field] = _free_text(item[field])
        if item["type"] not in SHAPES and item["type"] != WORDS:
            return None
        items.append(item)
    return calls, items
