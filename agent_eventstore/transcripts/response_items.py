"""Items of OpenAI's Responses API, as in its requests, its responses and agent SDKs: pure.

A model's answer (reasoning, messages, calls) is several items, and one event that keeps them under
``raw["output"]``, as the recorder does. Any other item becomes an event that keeps it under `ITEM`.
Transcripts mix items and messages of the chat API in the same files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent_eventstore.inputs import content_of
from agent_eventstore.transcripts.openai_wire import payload_of
from agent_eventstore.transcripts.transcript import Calls
from eventstore.events import (
    AssistantMessage,
    ContentPart,
    JsonObject,
    OtherPart,
    SystemInstruction,
    TextPart,
    TokenUsage,
    ToolCallRequest,
    ToolResult,
    UserMessage,
)
from eventstore.events.records import EventData
from projections.payload_text import text_of
from projections.providers.answer import Answer, request_of
from projections.providers.openai_responses.items import OUTPUTS, SHAPES
from projections.providers.openai_responses.stream import OutputItems
from projections.providers.parser import text

__all__ = [
    "ITEM",
    "answer_of",
    "ends_with_call",
    "grouped",
    "is_answer",
    "is_item",
    "items_of",
    "parts_in",
    "result_of",
    "transcribed",
]

ITEM = "openai_item"
"""The key in ``raw`` under which an item is kept; those of an answer are under ``output``."""

_IMPORTED = "openai_items"
"""The key in ``raw`` of events from a transcript: an export restores their items."""

_APPROVAL = "mcp_approval_response"
_RESULTS = frozenset({*OUTPUTS.values(), _APPROVAL})
_ANSWERS = frozenset(SHAPES) - _RESULTS - {"compaction"}
_SYSTEM = ("system", "developer")
_Understood = tuple[tuple[ContentPart, ...], tuple[ToolCallRequest, ...]]
_TYPED = frozenset({"input_text", "input_image", "input_file", "output_text"})


def is_item(value: Any) -> bool:
    """Whether a value is an item that cannot be a message of the chat API."""
    if not isinstance(value, dict):
        return False
    kind, content = value.get("type"), value.get("content")
    if "role" not in value:
        return isinstance(kind, str) and (kind in _ANSWERS or kind in _RESULTS)
    parts = content if isinstance(content, list) else []
    typed = {text(part.get("type")) for part in parts if isinstance(part, dict)}
    return kind == "message" or not _TYPED.isdisjoint(typed)


def grouped(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield items of the same answer together, and all others alone.

    An answer is its text, then its calls: a message that follows a call begins another one, with
    the reasoning before it.
    """
    answer: list[Any] = []
    thought = 0  # how many items of reasoning are at the answer's end
    for item in items:
        in_answer = is_answer(item)
        if not in_answer:
            if answer:
                yield answer
            yield [item]
            answer, thought = [], 0
            continue
        if _is_message(item) and len(answer) > thought:
            size = len(answer) - thought
            yield answer[:size]
            answer = answer[size:]
        answer.append(item)
        thought = thought + 1 if item.get("type") == "reasoning" else 0
    if answer:
        yield answer


def is_answer(item: Any) -> bool:
    """Whether an item is the model's."""
    if not isinstance(item, dict):
        return False
    if "role" in item:
        return _is_message(item)
    kind = item.get("type")
    return isinstance(kind, str) and kind in _ANSWERS


def ends_with_call(group: Sequence[Any]) -> bool:
    """Whether a group is an answer after whose calls a message of the same answer may follow."""
    return is_answer(group[-1]) and not _is_message(group[-1])


def _is_message(item: Mapping[str, Any]) -> bool:
    return bool(item.get("role") == "assistant")


def answer_of(items: Sequence[Any], usage: TokenUsage | None = None) -> AssistantMessage:
    """Return the answer made from items, which it keeps."""
    parts, calls = _plain(items) or _streamed(items)
    return AssistantMessage(
        parts=parts,
        tool_calls=calls,
        final=not calls,
        usage=usage,
        tools_elsewhere=bool(calls),
        raw={"output": list(items)},
    )


def _plain(items: Sequence[Any]) -> _Understood | None:
    """Return the result of `_streamed`, much faster, for plain texts and calls; else None."""
    parts: list[ContentPart] = []
    calls: list[ToolCallRequest] = []
    for item in items:
        match item:
            case {
                "type": "function_call",
                "name": str(name),
                "call_id": str(given),
                "arguments": str(arguments),
            } if given and "role" not in item and arguments.strip():
                calls.append(request_of(name, arguments, given))
            case {"type": "message", "content": [{"type": "output_text", "text": str(said)}]}:
                if said:
                    parts.append(TextPart(text=said))
            case _:
                return None
    return tuple(parts), tuple(calls)


def _streamed(items: Sequence[Any]) -> _Understood:
    """Return what a stream parser understands of completed items."""
    answer = Answer()
    output = OutputItems(answer)
    for place, item in enumerate(items):  # by place, because other servers' ids are not unique
        output.end({"item": _as_output(item), "output_index": place})
    return answer.parts(), answer.requests(complete=True)


def _as_output(item: JsonObject) -> JsonObject:
    """Return a short-form message as a response would have it, and anything else unchanged."""
    if item.get("role") != "assistant" or not isinstance(content := item.get("content"), str):
        return item if "type" in item else {**item, "type": "message"}
    return {**item, "type": "message", "content": [{"type": "output_text", "text": content}]}


def parts_in(content: Any) -> tuple[Any, ...]:
    """Return the content as parts; an unknown one is kept verbatim."""
    if isinstance(content, str):
        return (TextPart(text=content),)
    if not isinstance(content, list):
        return () if content is None else (OtherPart(raw=content),)
    found: list[Any] = []
    for each in content:
        known = content_of([each])
        found += known if isinstance(known, tuple) else [OtherPart(raw=each)]
    return tuple(found)


def result_of(item: Mapping[str, Any], calls: Calls) -> ToolResult | None:
    """Return the result in an item, which it keeps, or None if the item has none."""
    if text(item.get("type")) not in _RESULTS:
        return None
    key = "approval_request_id" if item.get("type") == _APPROVAL else "call_id"
    given = item.get(key) or item.get("id")
    named = given if isinstance(given, str) else None
    output = item["approve"] if "approve" in item else item.get("output", item)
    own, raw = calls.answer(named), {ITEM: dict(item)}
    return ToolResult(call_id=own, content=content_of(output), provider_id=named, raw=raw)


def transcribed(group: Sequence[Any], version: int, calls: Calls) -> EventData:
    """Return the payload at ``version`` for a group of items of a transcript."""
    if is_answer(group[0]):
        return answer_of(group).model_copy(update={"raw": {_IMPORTED: True, "output": list(group)}})
    (item,) = group
    raw = {_IMPORTED: True, ITEM: item}
    if item.get("role") == "user":
        return UserMessage(parts=parts_in(item.get("content")), raw=raw)
    if item.get("role") in _SYSTEM:
        transcript = text_of(parts_in(item.get("content")))
        return SystemInstruction(text=transcript, role=item["role"], raw=raw)
    result = result_of(item, calls)
    if result is None:
        return payload_of(item, version, calls)
    return result.model_copy(update={"raw": raw})


def items_of(raw: Any) -> list[Any] | None:
    """Return the transcript items that a payload was made from, or None."""
    if not isinstance(raw, Mapping) or raw.get(_IMPORTED) is not True:
        return None
    return [raw[ITEM]] if ITEM in raw else list(raw["output"])
