"""Events of items of the OpenAI Agents SDK: pure.

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
from agent_eventstore.integrations.openai_items import items_in
from agent_eventstore.providers.parser import text
from eventstore.events import (
    NewEvent,
    Payload,
    SystemInstruction,
    TokenUsage,
    UserMessage,
    VersionRange,
)
from eventstore.sql.read import EventText
from projections.engine.folding import text_of

__all__ = ["ItemWriter"]

_SYSTEM = ("system", "developer")


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


def _kind(item: Any) -> tuple[str, Any]:
    """Return what an item has in common with what was recorded of it."""
    if not isinstance(item, dict):
        return "", None
    return text(item.get("type")) or text(item.get("role")), item.get("call_id")
