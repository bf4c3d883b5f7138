"""Assign the version, turn and step of the next events that an adapter appends."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Self

from agent_eventstore.formats.transcript import Calls
from eventstore.events import (
    AssistantMessage,
    ConversationStart,
    LlmError,
    Meta,
    NewEvent,
    Payload,
    ToolCallRequest,
    ToolResult,
    UserMessage,
)
from eventstore.events.codec import decode, loads_json
from eventstore.sql.read import EventText
from projections.engine.folding import SEALS

__all__ = ["Places", "requested_in"]

_CALLS = re.compile(r'"tool_calls":\s*\[\s*\{')
_IN_STEP = (AssistantMessage, LlmError, ToolResult)
_MOST_CALLS = 200


class Places:
    """Assigns places to payloads in order: a user message begins a turn, an answer a step.

    Attributes:
        version: The version of the last event.
        within: The turn that all events belong to, if it has already begun.
        calls: The newest 200 tool calls, used to find the call that a result answers.
        asked: The version of the newest user message, or 0.
    """

    def __init__(self) -> None:
        self.version, self.turn, self.step = 0, 0, -1
        self.within: int | None = None
        self.calls = Calls(_MOST_CALLS)
        self.asked = 0
        self._place: tuple[int | None, int | None, bool] = None, None, True
        self._meta = Meta()

    @classmethod
    def after(cls, newest: Sequence[EventText]) -> Self:
        """Return the places that follow a conversation's newest events, given newest first."""
        places = cls()
        places.version = newest[0].version if newest else 0
        for event in newest:
            meta = loads_json(event.meta)
            if (turn := meta.get("turn")) is not None:
                places.turn, step = turn, meta.get("step")
                if step is not None or event.type == UserMessage.type:
                    places.step = -1 if step is None else step
                    break
        places.asked = next((e.version for e in newest if e.type == UserMessage.type), 0)
        for event in reversed(newest):
            if event.type == AssistantMessage.type and event.text is not None:
                calls, by = requested_in(event)
                places.calls.note(event.version, calls, by)
            elif event.type == ToolResult.type and event.text is not None:
                told = loads_json(event.text)
                final = told.get("status") not in SEALS and not told.get("interim")
                places.calls.settle(told["call_id"], answered=final)
        return places

    def begin(self) -> list[NewEvent]:
        """Return the first event of a conversation, or nothing if it has begun already."""
        return [] if self.version else [self.put(ConversationStart(mode="agent"))]

    def put(
        self, data: Payload, *, begins: bool = True, in_context: bool = True, **named: Any
    ) -> NewEvent:
        """Return a payload as the next event.

        Args:
            data: The payload.
            begins: Whether a user message begins a new turn.
            in_context: Whether messages[] includes the event.
            named: Other fields of the event, such as ``event_id``.
        """
        self.version += 1
        if isinstance(data, UserMessage):
            self.asked = self.version
            if begins or not self.turn:
                self.turn, self.step = self.within or self.turn + 1, -1
        elif isinstance(data, AssistantMessage | LlmError):
            self.step += 1
        if isinstance(data, AssistantMessage):
            self.calls.note(self.version, data.tool_calls, data.name)
        step = self.step if isinstance(data, _IN_STEP) and self.step >= 0 else None
        place = self.turn or None, step, in_context
        if place != self._place:  # events of a step share one object, encoded once
            self._place = place
            self._meta = Meta(turn=place[0], step=step, in_context=in_context)
        return NewEvent(data, meta=self._meta, **named)


def requested_in(event: EventText) -> tuple[tuple[ToolCallRequest, ...], str | None]:
    """Return an answer's tool calls, and the name of who gave it."""
    if event.text is None or not _CALLS.search(event.text):  # decoding costs ten times as much
        return (), None
    data = decode(event.type, event.schema_version, event.text)
    return (data.tool_calls, data.name) if isinstance(data, AssistantMessage) else ((), None)
