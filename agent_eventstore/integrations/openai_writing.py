"""Convert items of the OpenAI Agents SDK to events.

An item is stored verbatim under the payload's ``raw``, next to its parsed form: a user message, the
model's answer (its reasoning, messages and calls are one event), or the result of a call. An item
without a form in the catalogue is an `OpenAIItem`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from agent_eventstore.formats.response_items import (
    ITEM,
    answer_of,
    ends_with_call,
    grouped,
    is_answer,
    parts_in,
    result_of,
)
from agent_eventstore.integrations.conversation_places import Places
from agent_eventstore.integrations.openai_events import OpenAIItem
from eventstore.events import (
    AssistantMessage,
    Meta,
    NewEvent,
    Payload,
    SystemInstruction,
    TokenUsage,
    UserMessage,
)
from eventstore.sql.read import EventText
from projections.engine.folding import text_of

__all__ = ["ItemWriter"]

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
                said = text_of(parts_in(item.get("content")))
                return SystemInstruction(text=said, role=item["role"], continues=continues, raw=raw)
            if (result := result_of(item, self.calls)) is not None:
                return result
        return OpenAIItem(item=item)
