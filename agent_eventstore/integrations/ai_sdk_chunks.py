"""Convert a turn's timeline updates to chunks of the UI message stream of Vercel's AI SDK.

Covers versions 5 and 6 of the SDK: text, reasoning, tools and steps. The protocol cannot retract
what a failed and retried attempt has streamed; it stays until the client loads the messages again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from agent_eventstore.formats.ui_messages import message_id
from agent_eventstore.formats.ui_parts import ended, output_value
from eventstore.events import ToolResult
from projections.models.timeline_changes import (
    ItemAdded,
    ItemChanged,
    ItemsWithdrawn,
    TextAppended,
    TimelineChange,
    TimelineReset,
    TimelineUpdate,
)
from projections.models.timeline_items import TimelineItem

__all__ = ["UIMessageStream"]

_SPOKEN = {"assistant": "text", "reasoning": "reasoning"}
_GOES_ON = ("streaming", "pending", "running")
_STOPPED = ("cancelled", "aborted", "interrupted", "withdrawn")
Chunk = dict[str, Any]


class UIMessageStream:
    """The chunks of one turn's answer; `over` is True once the turn has ended.

    Args:
        conversation_id: The conversation.
        turn: The turn's number.
        result: Returns the full result of a tool's item. Without it, a large result is sent as its
            preview.
    """

    def __init__(
        self,
        conversation_id: UUID,
        turn: int,
        result: Callable[[TimelineItem], ToolResult | None] | None = None,
    ) -> None:
        self.over = False
        self._result = result
        self._conversation_id, self._turn = conversation_id, turn
        self._items: dict[tuple[int, int], TimelineItem] = {}
        self._sent: dict[str, str] = {}
        self._open: dict[str, str] = {}
        self._tools: dict[str, str] = {}
        self._step: int | None = None
        self._begun = False
        self._error: str | None = None

    def chunks(self, update: TimelineUpdate) -> Iterator[Chunk]:
        """Yield the chunks for a timeline update."""
        if not self._begun:
            self._begun = True
            named = message_id(self._conversation_id, self._turn, update.version)
            yield {"type": "start", "messageId": named}
        for change in update.changes:
            if not self.over:
                yield from self._change(change)

    def _change(self, change: TimelineChange) -> Iterator[Chunk]:
        match change:
            case ItemAdded(item=item):
                yield from self._put(item)
            case ItemChanged(version=version, part=part, values=values):
                if (held := self._items.get((version, part))) is not None:
                    yield from self._put(replace(held, **values))
            case TextAppended(version=version, part=part, text=text):
                if (held := self._items.get((version, part))) is not None:
                    yield from self._put(replace(held, text=(held.text or "") + text))
            case TimelineReset(items=items):
                for item in items:
                    yield from self._put(item)
            case ItemsWithdrawn(first=first, last=last):
                for held in list(self._items.values()):
                    if first <= (held.message_version or 0) <= last:
                        yield from self._put(replace(held, status="withdrawn"))

    def _put(self, item: TimelineItem) -> Iterator[Chunk]:
        """Store an item's current state and yield the chunks for what has changed."""
        if item.turn != self._turn or item.agent_id is not None:
            return
        self._items[(item.version, item.part)] = item
        if item.kind == "turn":
            if item.status not in _GOES_ON:
                yield from self._end(item)
        elif item.kind in _SPOKEN:
            yield from self._begin_step(item)
            yield from self._speak(item, _SPOKEN[item.kind])
        elif item.kind == "tool" and item.call_id is not None and item.name is not None:
            yield from self._begin_step(item)
            yield from self._use(item, item.call_id, item.name)
        elif item.kind == "error":
            self._error = item.text or "the model call failed"

    def _begin_step(self, item: TimelineItem) -> Iterator[Chunk]:
        if item.step is not None and (self._step is None or item.step > self._step):
            yield from self._end_step()
            self._step = item.step
            yield {"type": "start-step"}

    def _end_step(self) -> Iterator[Chunk]:
        for named, kind in self._open.items():
            yield {"type": f"{kind}-end", "id": named}
        self._open.clear()
        if self._step is not None:
            yield {"type": "finish-step"}

    def _speak(self, item: TimelineItem, kind: str) -> Iterator[Chunk]:
        named, text = f"{item.version}.{item.part}", item.text or ""
        if named not in self._sent:
            if not text:
                return
            self._sent[named], self._open[named] = "", kind
            yield {"type": f"{kind}-start", "id": named}
        sent = self._sent[named]
        if named in self._open and len(text) > len(sent) and text.startswith(sent):
            self._sent[named] = text
            yield {"type": f"{kind}-delta", "id": named, "delta": text[len(sent) :]}
        if item.status not in _GOES_ON and self._open.pop(named, None) is not None:
            yield {"type": f"{kind}-end", "id": named}

    def _use(self, item: TimelineItem, call: str, name: str) -> Iterator[Chunk]:
        about: Mapping[str, Any] = {"toolCallId": call, "toolName": name}
        if call not in self._tools:
            self._tools[call] = "input"
            yield {"type": "tool-input-start", **about}
            yield {"type": "tool-input-available", **about, "input": item.arguments}
        if self._tools[call] == "input" and item.status not in _GOES_ON:
            self._tools[call] = "output"
            told = self._ended(item)
            kind = f"tool-{told.pop('state')}"
            yield {"type": kind, "toolCallId": call, **told}

    def _ended(self, item: TimelineItem) -> dict[str, Any]:
        """Return how a tool ended: as the export has it, or from the item if there is no result."""
        result = None if self._result is None else self._result(item)
        if result is not None:
            return ended(result)
        if item.status == "success":
            return {"state": "output-available", "output": output_value(item.text)}
        said = item.text or (item.status or "failed").replace("_", " ")
        return {"state": "output-error", "errorText": said}

    def _end(self, turn: TimelineItem) -> Iterator[Chunk]:
        yield from self._end_step()
        self.over = True
        if turn.status in _STOPPED:
            yield {"type": "abort"}
        elif turn.status == "error":
            yield {"type": "error", "errorText": turn.text or self._error or "the turn failed"}
        else:
            yield {"type": "finish"}
