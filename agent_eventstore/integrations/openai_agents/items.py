"""Read the items of the OpenAI Agents SDK from the events that hold them: pure.

An item is returned verbatim from the payload's ``raw``. If an event was not written from an item,
its items are built from the payload.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Self

from agent_eventstore.integrations.conversation_events import Places
from agent_eventstore.integrations.openai_agents.events import OpenAIItem, OpenAIItems
from agent_eventstore.transcripts.response_items import (
    ITEM,
    answer_of,
    ends_with_call,
    grouped,
    is_answer,
    parts_in,
    result_of,
)
from eventstore.database import EventText
from eventstore.events import (
    AssistantMessage,
    JsonObject,
    LlmError,
    Meta,
    NewEvent,
    Payload,
    SystemInstruction,
    TokenUsage,
    ToolResult,
    UserMessage,
    VersionRange,
)
from eventstore.events.codec import decode, dumps_json, loads_json
from projections.payload_text import result_text, text_of
from projections.providers.openai_responses.items import output_of

__all__ = [
    "TELLING",
    "ItemWriter",
    "answered_by",
    "cut_of",
    "is_placeholder",
    "items_in",
    "json_of",
    "replaced_versions",
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


def replaced_versions(event: EventText) -> tuple[VersionRange, ...]:
    """Return the events that an `OpenAIItems` replaces; for any other event, nothing."""
    if event.type != OpenAIItems.type or event.text is None:
        return ()
    return tuple(map(VersionRange.model_validate, loads_json(event.text).get("replaces", ())))


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
            message_text = text_of(data.parts)
            calls = [
                {
                    "type": "function_call",
                    "call_id": call.provider_id or call.name,
                    "name": call.name,
                    "arguments": call.arguments_text,
                }
                for call in data.tool_calls
            ]
            return [
                *([{"role": "assistant", "content": message_text}] if message_text else []),
                *calls,
            ]
        case LlmError(partial_text=str(message_text)) if message_text:
            return [{"role": "assistant", "content": message_text}]
        case ToolResult(provider_id=str(given)):
            call = {"type": "function_call", "call_id": given}
            made = output_of(call, result_text(data) or data.status, data.status, None)
            return [made] if made else []
    return []


_SYSTEM = ("system", "developer")


class ItemWriter(Places):
    """Builds the events of items, each with its version, turn and step."""

    def __init__(self) -> None:
        super().__init__()
        self._instructed = False

    @classmethod
    def after(cls, newest: Sequence[EventText]) -> Self:
        """Return a writer that continues after the newest events, given newest first."""
        writer = super().after(newest)
        writer._instructed = writer.version > 1
        return writer

    def events(self, items: Sequence[Any], usage: TokenUsage | None = None) -> list[NewEvent]:
        """Return the events of items, to be appended next.

        Args:
            items: The items.
            usage: The tokens of the model call that gave the last answer among them.
        """
        groups = list(grouped(items))
        begins: list[int] = []  # the first part of each group's answer
        for place, group in enumerate(groups):
            goes_on = place > 0 and is_answer(group[0]) and ends_with_call(groups[place - 1])
            begins.append(begins[-1] if goes_on else place)
        answers = (begins[place] for place, group in enumerate(groups) if is_answer(group[0]))
        last = -1 if usage is None else max(answers, default=-1)
        first, events = self.version + 1, []
        for place, (group, begin) in enumerate(zip(groups, begins, strict=True)):
            data = self._payload(group, usage if place == last else None)
            if begin < place and isinstance(data, AssistantMessage):  # no other call of the model
                data = data.model_copy(update={"llm_call_id": f"v{first + begin}"})
            events.append(self.place(data))
        return events

    def events_again(
        self, items: Sequence[Any], meta: Meta, calls: Sequence[str] = ()
    ) -> list[NewEvent]:
        """Return the events of items that belong to an earlier turn.

        Args:
            items: The items.
            meta: The metadata of the earlier event.
            calls: The model calls of the answers among them.
        """
        turn, step, own = self.turn, self.step, iter(calls)
        events = []
        for event in self.events(items):
            data = event.data
            if isinstance(data, AssistantMessage):
                data = data.model_copy(update={"llm_call_id": next(own, data.llm_call_id)})
            events.append(NewEvent(data, meta=meta))
        self.turn, self.step = turn, step
        return events

    def place(self, data: Payload) -> NewEvent:
        """Return a payload as the next event, with its turn and step."""
        # A later instruction is history: the SDK sends the agent's instructions itself.
        is_late = isinstance(data, SystemInstruction) and self.turn > 0
        return self.put(data, in_context=not is_late)

    def _payload(self, group: Sequence[Any], usage: TokenUsage | None) -> Payload:
        if is_answer(group[0]):
            return answer_of(group, usage)
        (item,) = group
        if isinstance(item, dict):
            raw = {ITEM: item}
            if item.get("role") == "user":
                return UserMessage(parts=parts_in(item.get("content")), raw=raw)
            if item.get("role") in _SYSTEM:
                continues, self._instructed = self._instructed, True
                message_text = text_of(parts_in(item.get("content")))
                return SystemInstruction(
                    text=message_text, role=item["role"], continues=continues, raw=raw
                )
            if (result := result_of(item, self.calls)) is not None:
                return result
        return OpenAIItem(item=item)
