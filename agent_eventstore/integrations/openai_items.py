"""Read the items of the OpenAI Agents SDK from the events that hold them: pure.

An item is returned verbatim from the payload's ``raw``. If an event was not written from an item,
its items are built from the payload.
"""

from __future__ import annotations

import re
from typing import Any

from agent_eventstore.formats.response_items import ITEM
from agent_eventstore.integrations.openai_events import OpenAIItem, OpenAIItems
from eventstore.events import (
    AssistantMessage,
    JsonObject,
    LlmError,
    SystemInstruction,
    ToolResult,
    UserMessage,
    VersionRange,
)
from eventstore.events.codec import decode, dumps_json, loads_json
from eventstore.sql.read import EventText
from projections.context.formats.item_pairs import output_of
from projections.engine.folding import result_text, text_of

__all__ = [
    "TELLING",
    "answered_by",
    "cut_of",
    "is_placeholder",
    "items_in",
    "json_of",
    "told_by",
]

_ANSWER = AssistantMessage.type


def items_in(event: EventText) -> list[Any]:
    """Return the items of an event: verbatim, or built if it was not written from items.

    An event that is not part of a session's history has none.
    """
    if event.text is None or event.type not in TELLING:
        return []
    value = loads_json(event.text)
    if event.type in _OWN:
        return value["items"] if "items" in value else [value["item"]]
    raw = value.get("raw")
    if isinstance(raw, dict):
        if ITEM in raw:
            return [raw[ITEM]]
        if isinstance(output := raw.get("output"), list) and event.type == AssistantMessage.type:
            return output
    data = decode(event.type, event.schema_version, event.text)
    return [] if data is None else _made(data)


def _around(before: str, behind: str) -> tuple[str, str, int, int]:
    return before, behind, len(before), -len(behind)


_ITEM_IN = _around(f'"raw":{{"{ITEM}":', "}}")
_OUTPUT_IN = _around('"raw":{"output":[', "]}}")


def cut_of(event: EventText) -> str:
    """Return the JSON of the items of a live event, without brackets.

    A verbatim item is at the end of its event's JSON and is cut out there, without decoding the
    parsed form, which is as long. If a nested ``"raw"`` exists too, the result closes more brackets
    than it opens: a list of such results is then not valid JSON, and the caller must use `json_of`.
    """
    text = event[3]
    before, behind, begins, ends = _OUTPUT_IN if event[1] == _ANSWER else _ITEM_IN
    if text is not None and text.endswith(behind) and (begin := text.rfind(before)) >= 0:
        return text[begin + begins : ends]
    return dumps_json(items_in(event))[1:-1]


def json_of(event: EventText) -> str:
    """Return the JSON of the items of any event, without brackets."""
    if event.type not in TELLING:
        return ""
    cut = cut_of(event)
    try:
        loads_json(f"[{cut}]")
    except ValueError:
        return dumps_json(items_in(event))[1:-1]
    return cut


def told_by(event: EventText) -> tuple[VersionRange, ...]:
    """Return the events that an `OpenAIItems` replaces; for any other event, nothing."""
    if event.type != OpenAIItems.type or event.text is None:
        return ()
    return tuple(map(VersionRange.model_validate, loads_json(event.text).get("told", ())))


_CALL_ID = re.compile(r'{"call_id":"([^"\\]*)"')


def answered_by(event: EventText) -> str:
    """Return the id of the call that a tool result answers."""
    text = event.text or ""
    found = _CALL_ID.match(text)  # decoding costs much more
    return found[1] if found else str(loads_json(text)["call_id"])


def is_placeholder(event: EventText) -> bool:
    """Whether a tool result is a placeholder of recovery's, which a later real one replaces."""
    if event.text is None or ITEM in event.text:
        return False
    return loads_json(event.text).get("status") in ("not_started", "outcome_unknown")


_OWN = (OpenAIItem.type, OpenAIItems.type)
_CATALOGUE = (UserMessage, AssistantMessage, ToolResult, SystemInstruction, LlmError)
TELLING = frozenset({*_OWN, *(each.type for each in _CATALOGUE)})
"""The types of events that hold items."""


def _made(data: Any) -> list[JsonObject]:
    """Return items built from an event that was not written from items, such as recovery's."""
    match data:
        case UserMessage():
            return [{"role": "user", "content": text_of(data.parts)}]
        case AssistantMessage():
            said = text_of(data.parts)
            calls = [
                {
                    "type": "function_call",
                    "call_id": call.provider_id or call.name,
                    "name": call.name,
                    "arguments": call.arguments_text,
                }
                for call in data.tool_calls
            ]
            return [*([{"role": "assistant", "content": said}] if said else []), *calls]
        case LlmError(partial_text=str(said)) if said:
            return [{"role": "assistant", "content": said}]
        case ToolResult(provider_id=str(given)):
            call = {"type": "function_call", "call_id": given}
            made = output_of(call, result_text(data) or data.status, data.status, None)
            return [made] if made else []
    return []
