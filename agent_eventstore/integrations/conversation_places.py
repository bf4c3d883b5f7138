"""Where in a conversation the next event of an adapter will stand: its version, turn and step."""

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

__all__ = ["Places"]

_CALLS = re.compile(r'"tool_calls":\s*\[\s*\{')
_IN_STEP = (AssistantMessage, LlmError, ToolResult)


class Places:
    """Places payloads one behind another: a user's message begins a turn, an answer a step of it.

    Attributes:
        version: Of the event that was placed last.
        within: The turn to which all belongs, if one was begun already.
        calls: The tool calls so far, by which a result finds the one that it answers.
    """

    def __init__(self) -> None:
        self.version, self.turn, self.step = 0, 0, -1
        self.within: int | None = None
        self.calls = Calls()
        self._place: tuple[int | None, int | None, bool] = None, None, True
        self._meta = Meta()

    @classmethod
    def after(cls, newest: Sequence[EventText]) -> Self:
        """Return places that go on behind the newest events, which are given newest first."""
        places = cls()
        places.version = newest[0].version if newest else 0
        for event in newest:
            meta = loads_json(event.meta)
            if (turn := meta.get("turn")) is not None:
                places.turn, step = turn, meta.get("step")
                if step is not None or event.type == UserMessage.type:
                    places.step = -1 if step is None else step
                    break
        for event in reversed(newest):
            if event.type == AssistantMessage.type and event.text is not None:
                calls: tuple[ToolCallRequest, ...] = ()
                if _CALLS.search(event.text):  # decoding costs ten times as much
                    data = decode(event.type, event.schema_version, event.text)
                    calls = data.tool_calls if isinstance(data, AssistantMessage) else ()
                places.calls.note(event.version, calls)
            elif event.type == ToolResult.type and event.text is not None:
                told = loads_json(event.text)
                places.calls.settle(told["call_id"], answered=told.get("status") not in SEALS)
        return places

    def begin(self) -> list[NewEvent]:
        """Return what a conversation begins with, where it has not begun."""
        return [] if self.version else [self.put(ConversationStart(mode="agent"))]

    def put(
        self, data: Payload, *, begins: bool = True, in_context: bool = True, **named: Any
    ) -> NewEvent:
        """Return a payload as the next event.

        Args:
            data: The payload.
            begins: Whether it begins a turn, if it is a user's message.
            in_context: Whether messages[] has it.
            named: Further fields of the event, such as its ``event_id``.
        """
        self.version += 1
        if isinstance(data, UserMessage):
            if begins or not self.turn:
                self.turn, self.step = self.within or self.turn + 1, -1
        elif isinstance(data, AssistantMessage | LlmError):
            self.step += 1
        if isinstance(data, AssistantMessage):
            self.calls.note(self.version, data.tool_calls)
        step = self.step if isinstance(data, _IN_STEP) and self.step >= 0 else None
        place = self.turn or None, step, in_context
        if place != self._place:  # events of a step share theirs, which is encoded once
            self._place = place
            self._meta = Meta(turn=place[0], step=step, in_context=in_context)
        return NewEvent(data, meta=self._meta, **named)
