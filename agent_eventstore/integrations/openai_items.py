"""Items of the OpenAI Agents SDK to events, and back: pure.

An item is kept as it came, under the payload's ``raw``, beside what is understood of it: what a
user said, the model's answer (its reasoning, messages and calls are one), the result of a call. An
item that has no place in the catalogue is an `OpenAIItem`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from agent_eventstore.formats.response_items import (
    ITEM,
    answer_of,
    grouped,
    is_answer,
    parts_in,
    result_of,
)
from agent_eventstore.integrations.conversation_places import Places
from agent_eventstore.integrations.openai_events import OpenAIItem, OpenAIItems
from agent_eventstore.providers.parser import text
from eventstore.events import (
    AssistantMessage,
    JsonObject,
    LlmError,
    NewEvent,
    Payload,
    SystemInstruction,
    TokenUsage,
    ToolResult,
    UserMessage,
    VersionRange,
)
from eventstore.events.codec import decode, dumps_json, loads_json
from eventstore.sql.read import EventText
from projections.context.formats.item_pairs import output_of
from projections.engine.folding import result_text, text_of

__all__ = [
    "ITEM",
    "TELLING",
    "ItemWriter",
    "cut_of",
    "items_in",
    "json_of",
    "told_by",
]

_SYSTEM = ("system", "developer")
_ANSWER = AssistantMessage.type


class ItemWriter(Places):
    """Makes the events of items; knows where in the conversation the next one will stand."""

    def __init__(self) -> None:
        super().__init__()
        self._instructed = False

    @classmethod
    def after(cls, newest: Sequence[EventText]) -> Self:
        """Return a writer that goes on behind the newest events, which are given newest first."""
        writer = super().after(newest)
        writer._instructed = writer.version > 1
        return writer

    def events(self, items: Sequence[Any], usage: TokenUsage | None = None) -> list[NewEvent]:
        """Return the events of items, which are to be appended next.

        Args:
            items: The items.
            usage: Tokens of the model call that the last answer among them came of.
        """
        groups = list(grouped(items))
        last = max((place for place, each in enumerate(groups) if is_answer(each[0])), default=-1)
        return [
            self.place(self._payload(group, usage if place == last else None))
            for place, group in enumerate(groups)
        ]

    def settling(self, items: Sequence[Any], live: Sequence[EventText]) -> list[NewEvent]:
        """Return the events of a run's items, of which some were recorded while it happened.

        Args:
            items: The items, in the runner's order.
            live: What was recorded, and is not told by items yet.
        """
        known = [(event.version, _kind(item)) for event in live for item in items_in(event)]
        events: list[NewEvent] = []
        new: list[Any] = []
        told: list[tuple[Any, int]] = []
        for item in items:
            found = next((each for each in known if each[1] == _kind(item)), None)
            if found is None:
                events += self._told(told)
                new.append(item)
            else:
                events += self.events(new)
                known.remove(found)
                told.append((item, found[0]))
            (told if found is None else new).clear()
        return [*events, *self._told(told), *self.events(new)]

    def _told(self, told: Sequence[tuple[Any, int]]) -> list[NewEvent]:
        if not told:
            return []
        versions = tuple(VersionRange(first=v, last=v) for v in sorted({v for _, v in told}))
        return [self.place(OpenAIItems(items=tuple(item for item, _ in told), told=versions))]

    def place(self, data: Payload) -> NewEvent:
        """Return a payload as the next event, with its turn and step."""
        # What comes later is history: the SDK sends an agent's instructions by itself.
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
                said = text_of(parts_in(item.get("content")))
                return SystemInstruction(text=said, role=item["role"], continues=continues, raw=raw)
            if (result := result_of(item, self.calls)) is not None:
                return result
        return OpenAIItem(item=item)


def items_in(event: EventText) -> list[Any]:
    """Return the items that an event stands for, as they came; those recorded otherwise are made.

    What is not part of a history of items has none.
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
    """Return the JSON of the items of an event that is live, without brackets.

    An item that came in stands at the end of its event, and is cut out there: what was understood
    of it, which is as long, is not read. Where ``"raw"`` stands deeper down too, what is cut has
    more brackets closed than opened: no list of cuts is JSON then, and `json_of` is to be asked.
    """
    _, kind, _, text, _ = event
    before, behind, begins, ends = _OUTPUT_IN if kind == _ANSWER else _ITEM_IN
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
    """Return the events that an `OpenAIItems` stands for; none for any other event."""
    if event.type != OpenAIItems.type or event.text is None:
        return ()
    return tuple(map(VersionRange.model_validate, loads_json(event.text).get("told", ())))


_OWN = (OpenAIItem.type, OpenAIItems.type)
_CATALOGUE = (UserMessage, AssistantMessage, ToolResult, SystemInstruction, LlmError)
TELLING = frozenset({*_OWN, *(each.type for each in _CATALOGUE)})
"""The types of events that stand for items."""


def _made(data: Any) -> list[JsonObject]:
    """Return the items of an event that was not made of any, such as those of recovery."""
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


def _kind(item: Any) -> tuple[str, Any]:
    """Return what an item has in common with what was recorded of it."""
    if not isinstance(item, dict):
        return "", None
    return text(item.get("type")) or text(item.get("role")), item.get("call_id")
