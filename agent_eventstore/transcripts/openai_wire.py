"""One message in OpenAI's wire format, read and written without loss: parts, calls, headings.

`payload_of` interprets a message and renders it again. If the result differs in anything except key
order, the payload keeps the message under ``raw["openai_message"]``, which `message_of` prefers.
There a text ``content`` is null: the payload holds the text, so it is not stored twice. An unknown
content part is kept verbatim. A message with an unknown role is a fact that is not interpreted:
`UnknownEvent`.

A system message that begins with ``SUMMARY`` or ``CONVERSATION_SUMMARY`` replaces everything before
it (document 000, 4.3). messages[] gives every summary its own heading, so the payload has the text
below the heading; ``raw["heading"]`` keeps the heading for export.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from agent_eventstore.transcripts.json_fields import text_at
from agent_eventstore.transcripts.openai_parts import (
    parts_of,
    text_of,
    thought_in,
    wire_content,
    wire_parts,
)
from agent_eventstore.transcripts.transcript import UNINTERPRETED, Calls, canonical
from eventstore.events import (
    AssistantMessage,
    ContentPart,
    OtherPart,
    ReasoningPart,
    RefusalPart,
    Summary,
    SystemInstruction,
    TextPart,
    ToolCallRequest,
    ToolResult,
    TurnStart,
    UnknownEvent,
    UserMessage,
)
from eventstore.events.records import EventData
from eventstore.ids import call_id
from projections.context.payload_messages import FREE_TEXT
from projections.context.prompts import summary as headed
from projections.providers.answer import request_of

__all__ = [
    "ORIGINAL",
    "UNINTERPRETED",
    "heading_in",
    "marked",
    "message_of",
    "payload_of",
    "request_of",
    "restored",
    "slim",
    "summary_in",
    "text_with_heading",
]


ORIGINAL = "openai_message"


"""The key in ``raw`` under which the original message is kept."""


_HEADING = re.compile(r"\s*(?:CONVERSATION_)?SUMMARY(?![A-Za-z0-9_])[ \t]*[:\uff1a]?\s*")


_USUAL = headed("")


_KEY = "heading"


_SAYING = frozenset(
    "content tool_calls function_call refusal reasoning_content reasoning audio".split()
)


"""A message that carries content in OpenAI's form has at least one of these fields."""


_ARGUMENTS = ("arguments", "input", "args")


_SIGNED = ("extra_content", "provider_specific_fields")


"""Fields of a call in which Google and LiteLLM keep a signature."""


def summary_in(text: str) -> Summary | None:
    """Return the summary in a system message, or None if it is not one."""
    found = _HEADING.match(text)
    if found is None:
        return None
    text = text[found.end() :]
    return Summary(text=text, versions=(), strategy="imported", raw={_KEY: found[0]})


def text_with_heading(data: Summary, otherwise: str = _USUAL) -> str:
    """Return a summary's text below its original heading, or below another one."""
    return str(heading_in(data.raw).get(_KEY, otherwise)) + data.text


def heading_in(raw: Any) -> dict[str, Any]:
    """Return the part of a payload's ``raw`` that holds the heading."""
    return {_KEY: raw[_KEY]} if isinstance(raw, dict) and isinstance(raw.get(_KEY), str) else {}


def payload_of(message: dict[str, Any], version: int, calls: Calls) -> EventData:
    """Return the payload of the message at ``version``; accepts every message."""
    data: EventData | None = _interpret(message, calls)
    if data is None:
        return UnknownEvent(UNINTERPRETED, 1, {ORIGINAL: message})
    if canonical(_render(data, version)) == canonical(message):
        return data
    return marked(data, {"raw": {ORIGINAL: slim(message, data)}})


def message_of(data: EventData, version: int) -> dict[str, Any] | None:
    """Return the message for a payload at ``version``, or None if it has none.

    A summary of other versions has none, because those are messages themselves.
    """
    raw = getattr(data, "raw", None)
    original = raw.get(ORIGINAL) if isinstance(raw, dict) else None
    if isinstance(original, dict):
        return restored(original, data)
    return _render(data, version)


def marked(data: EventData, fields: dict[str, Any]) -> EventData:
    """Return the payload with these fields replaced; an uninterpreted one stays unchanged.

    The heading of a summary stays in ``raw``.
    """
    if isinstance(data, UnknownEvent):
        return data
    if isinstance(data, Summary) and isinstance(fields.get("raw"), dict):
        fields = {**fields, "raw": {**fields["raw"], **heading_in(data.raw)}}
    return data.model_copy(update=fields)


def slim(record: Mapping[str, Any], data: EventData) -> dict[str, Any]:
    """Return a source record without the text that its payload holds; `restored` undoes this."""
    text = record.get("content")
    twice = isinstance(text, str) and text != "" and text == _text_in(data)
    return {**record, "content": None} if twice else dict(record)


def restored(record: Mapping[str, Any], data: EventData) -> dict[str, Any]:
    """Return the complete source record, with the text that its payload holds."""
    text = _text_in(data)
    if text and "content" in record and record["content"] is None:
        return {**record, "content": text}
    return dict(record)


def _interpret(message: dict[str, Any], calls: Calls) -> Any:
    name = text_at(message, "name")
    content = message.get("content")
    match message.get("role"):
        case "system" | "developer" as role:
            text = text_of(content)
            return summary_in(text) or SystemInstruction(text=text, role=role, name=name)
        case "user" | "assistant" if not _SAYING.intersection(message):
            return None
        case "user":
            return UserMessage(parts=parts_of(content), name=name)
        case "assistant":
            return AssistantMessage(
                parts=_assistant_parts(message), tool_calls=_requests(message), name=name
            )
        case "tool" | "function":
            provider_id = text_at(message, "tool_call_id")
            if provider_id is None and calls.has(named := text_at(message, "id")):
                provider_id = named
            return ToolResult(
                call_id=calls.answer(provider_id, name),
                name=name,
                provider_id=provider_id,
                **_outcome(message),
            )
    return None


def _outcome(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool's output, or its error if the message has one next to its content."""
    content, error = message.get("content"), message.get("error")
    text_content = content if isinstance(content, str) else parts_of(content) or None
    error_message = error.get("message") if isinstance(error, dict) else error
    if not isinstance(error_message, str) or not error_message:
        return {"content": text_content}
    return {"status": "failed", "error": error_message, "content": text_content or None}


def _assistant_parts(message: Mapping[str, Any]) -> tuple[ContentPart, ...]:
    parts: list[ContentPart] = [
        (thought_in(part.raw) if isinstance(part, OtherPart) else None) or part
        for part in parts_of(message.get("content"))
    ]
    thought = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(thought, str):
        parts.insert(0, ReasoningPart(text=thought))
    if isinstance(refusal := message.get("refusal"), str):
        parts.append(RefusalPart(text=refusal))
    return tuple(parts)


def _requests(message: Mapping[str, Any]) -> tuple[ToolCallRequest, ...]:
    calls = message.get("tool_calls")
    found = (
        [_request(item) for item in calls if isinstance(item, dict)]
        if isinstance(calls, list)
        else []
    )
    if isinstance(legacy := message.get("function_call"), dict):
        found.append(_request({"function": legacy}))
    return tuple(found)


def _request(call: Mapping[str, Any]) -> ToolCallRequest:
    function = call.get("function", call.get("custom"))
    body = function if isinstance(function, dict) else call
    arguments = next((body[key] for key in _ARGUMENTS if key in body), "")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    # Inspect and AgentDojo have the function's name where OpenAI has an object with it.
    name = text_at(body, "name") or (function if isinstance(function, str) else "")
    found = request_of(name, text, text_at(call, "id"))
    if isinstance(call.get("custom"), dict):
        custom = {"arguments": None, "parse_error": FREE_TEXT, "raw": {"type": "custom"}}
        return found.model_copy(update=custom)
    signed = {key: call[key] for key in _SIGNED if isinstance(call.get(key), dict)}
    return found.model_copy(update={"raw": signed}) if signed else found


def _render(data: Any, version: int) -> dict[str, Any] | None:
    match data:
        case SystemInstruction():
            message: dict[str, Any] = {"role": data.role, "content": data.text}
        case Summary(versions=()):
            return {"role": "system", "content": text_with_heading(data)}
        case UserMessage():
            message = {"role": "user", "content": wire_content(data.parts)}
        case AssistantMessage():
            message = _render_assistant(data, version)
        case ToolResult():
            content = data.content if data.content is not None else data.error
            message = {
                "role": "tool",
                "tool_call_id": data.provider_id or data.call_id,
                "content": wire_parts(content) if isinstance(content, tuple) else content,
            }
        case _:
            return None
    return message if data.name is None else {**message, "name": data.name}


def _render_assistant(data: AssistantMessage, version: int) -> dict[str, Any]:
    visible = [part for part in data.parts if not isinstance(part, ReasoningPart | RefusalPart)]
    message: dict[str, Any] = {"role": "assistant", "content": wire_content(visible)}
    for key, kind in (("reasoning_content", ReasoningPart), ("refusal", RefusalPart)):
        texts = [part.text for part in data.parts if isinstance(part, kind)]
        if texts:
            message[key] = "".join(texts)
    if data.tool_calls:
        message["tool_calls"] = [
            {
                "id": call.provider_id or call_id(version, index),
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments_text},
            }
            for index, call in enumerate(data.tool_calls)
        ]
    return message


def _text_in(data: EventData) -> str | None:
    match data:
        case SystemInstruction():
            return data.text
        case Summary():
            return text_with_heading(data, "")
        case UserMessage() | AssistantMessage():
            texts = [part.text for part in data.parts if isinstance(part, TextPart)]
            return texts[0] if len(texts) == 1 else None
        case ToolResult(content=str() as text):
            return text
        case TurnStart():
            return data.input
    return None
