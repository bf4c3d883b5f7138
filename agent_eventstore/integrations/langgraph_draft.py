"""The events that a checkpoint adds to a thread: what is new in it, each value once.

Messages that the thread's channel of messages has gained are events of their own, and those that
it has lost are retracted, so that views show what the graph's next model call would be sent.
"""

from __future__ import annotations

from typing import Any

from langchain_core.messages import BaseMessage

from agent_eventstore.integrations.langchain_messages import message_payload
from agent_eventstore.integrations.langgraph_codec import Codec
from agent_eventstore.integrations.langgraph_events import (
    SLOTS,
    GrownList,
    LanggraphCheckpoint,
    LanggraphValues,
    PackedValue,
    Typed,
    place_of,
    raw_of,
)
from agent_eventstore.integrations.langgraph_thread import DEEPEST, Saved, Thread
from eventstore import NewEvent
from eventstore.events import (
    AssistantMessage,
    ConversationStart,
    Meta,
    Payload,
    Retraction,
    ToolResult,
    UserMessage,
    VersionRange,
)
from eventstore.ids import call_id

__all__ = ["Draft"]


class Draft:
    """Events that go behind a thread, in the making."""

    def __init__(self, thread: Thread, codec: Codec, understood: frozenset[str]) -> None:
        thread.mark(codec)
        self._thread, self._codec, self._understood = thread, codec, understood
        self._turn, self._step = thread.turn, thread.step
        self._calls = dict[str, str]()
        self.events: list[NewEvent] = []
        self._values: list[PackedValue | GrownList] = []
        self._new: dict[Typed, int] = {}
        self._said: dict[Typed, int] = {}
        if not thread.version:
            self.add(ConversationStart())

    @property
    def _next(self) -> int:
        return self._thread.version + len(self.events) + 1

    def add(self, data: Payload) -> None:
        """Add an event, in the thread's turn and step."""
        if isinstance(data, UserMessage):
            self._turn, self._step = self._turn + 1, -1
        elif isinstance(data, AssistantMessage):
            self._step += 1
            for index, request in enumerate(data.tool_calls):
                if request.provider_id is not None:
                    self._calls[request.provider_id] = call_id(self._next, index)
        in_step = isinstance(data, AssistantMessage | ToolResult) and self._step >= 0
        step = self._step if in_step else None
        self.events.append(NewEvent(data, meta=Meta(turn=self._turn or None, step=step)))

    def checkpoint(
        self,
        namespace: str,
        parent_id: str | None,
        checkpoint: dict[str, Any],
        metadata: dict[str, Any],
        new_versions: dict[str, Any],
    ) -> None:
        """Add a checkpoint, and before it what is new of its values."""
        parent = self._thread.checkpoints.get(namespace, {}).get(parent_id or "")
        values = checkpoint["channel_values"]
        known = self._unchanged(parent, checkpoint, new_versions)
        lists = {name: value for name, value in values.items() if _is_messages(value)}
        fresh = {name: value for name, value in lists.items() if name not in known}
        spoken = {
            name: self._speak(namespace, name, parent, value)
            for name, value in fresh.items()
            if name in self._understood
        }
        for name in self._understood:
            if values.get(name) == []:
                self._retract(namespace, name, set())
        channels = []
        for name, value in values.items():
            if name in known:
                place = known[name]
            elif name in fresh:
                place = self._list(namespace, name, parent, spoken.get(name) or fresh[name])
            else:
                place = self._place(value, self._codec.dumps(value))
            channels.append((name, place))
        if self._values:
            self.add(LanggraphValues(values=tuple(self._values)))
        dumps = self._codec.dumps
        self.add(
            LanggraphCheckpoint(
                namespace=namespace,
                checkpoint_id=checkpoint["id"],
                parent_id=parent_id,
                state=PackedValue.of(dumps({**checkpoint, "channel_values": {}})),
                metadata=PackedValue.of(dumps(metadata)),
                channels=tuple(channels),
            )
        )

    def _unchanged(
        self, parent: Saved | None, checkpoint: dict[str, Any], new_versions: dict[str, Any]
    ) -> dict[str, int]:
        """Return the places of the values that are the parent's, by their versions."""
        if parent is None:
            return {}
        before = self._codec.loads(parent.state)["channel_versions"]
        now = checkpoint["channel_versions"]
        return {
            name: place
            for name, place in parent.channels.items()
            if name in before and name not in new_versions and before[name] == now.get(name)
        }

    def _before(self, namespace: str, name: str, parent: Saved | None) -> int | None:
        """Return the place of the list that a channel had before, if it had one."""
        place = None if parent is None else parent.channels.get(name)
        if place is None:
            place = self._thread.latest.get((namespace, name))
        return place if isinstance(self._thread.values.get(place or 0), GrownList) else None

    def _speak(
        self, namespace: str, name: str, parent: Saved | None, messages: list[Any]
    ) -> list[int | tuple[Any, Typed]]:
        """Add the messages that are new as events; return places, or what is no event."""
        thread, marks = self._thread, self._thread.marks
        before = self._before(namespace, name, parent)
        earlier = [] if before is None else thread.elements(before)
        found: list[int | tuple[Any, Typed]] = []
        taken = set[int]()
        for index, message in enumerate(messages):
            typed = self._codec.dumps(message)
            mark = self._codec.mark(message, typed)
            place = earlier[index] if index < len(earlier) else None
            if place is None or mark is None or marks.get(place) != mark:
                place = None if mark is None else self._said.get(mark, thread.said.get(mark))
            if place is None or place in taken or place in thread.retracted:
                place = self._say(message, typed, mark)
            if place is not None:
                taken.add(place)
            found.append((message, typed) if place is None else place)
        self._retract(namespace, name, taken)
        return found

    def _say(self, message: Any, typed: Typed, mark: Typed | None) -> int | None:
        version = self._next
        calls = {**self._thread.calls, **self._calls} if message.type == "tool" else {}
        data = message_payload(message, raw_of(typed), version, calls)
        if data is None:
            return None
        self.add(data)
        if mark is not None:
            self._said[mark] = place_of(version)
        return place_of(version)

    def _retract(self, namespace: str, name: str, kept: set[int]) -> None:
        """Retract the messages that the channel has lost, unless another graph's still has them."""
        thread = self._thread
        now = thread.latest.get((namespace, name))
        lost = set() if now is None else set(thread.elements(now)) - kept
        lost = {place for place in lost if place in thread.spoken} - thread.retracted
        if not lost:
            return
        for (other, channel), place in thread.latest.items():
            if other != namespace and channel in self._understood:
                lost.difference_update(thread.elements(place))
        versions = sorted(place // SLOTS for place in lost)
        if versions:
            ranges = tuple(VersionRange(first=each, last=each) for each in versions)
            self.add(Retraction(versions=ranges, reason=f"no longer in channel {name}"))

    def _list(
        self,
        namespace: str,
        name: str,
        parent: Saved | None,
        elements: list[Any],
    ) -> int:
        """Return the place of a list of messages, which may stand on an earlier one."""
        places = [self._element(each) for each in elements]
        thread, before = self._thread, self._before(namespace, name, parent)
        earlier = [] if before is None else thread.elements(before)
        if before is not None and earlier == places:
            return before
        kept = 0
        if before is not None and thread.depth(before) < DEEPEST:
            while kept < min(len(earlier), len(places)) and earlier[kept] == places[kept]:
                kept += 1
        node = GrownList(base=before if kept else None, kept=kept, added=tuple(places[kept:]))
        return self._keep(node)

    def _element(self, element: Any) -> int:
        if isinstance(element, int):
            return element
        if isinstance(element, tuple):
            return self._place(*element)
        return self._place(element, self._codec.dumps(element))

    def _place(self, value: Any, typed: Typed) -> int:
        """Return the place of a value: that of the same one, or a new one."""
        mark = self._codec.mark(value, typed)
        place = None if mark is None else self._new.get(mark, self._thread.known.get(mark))
        if place is None:
            place = self._keep(PackedValue.of(typed))
            if mark is not None:
                self._new[mark] = place
        return place

    def _keep(self, value: PackedValue | GrownList) -> int:
        self._values.append(value)
        return place_of(self._next, len(self._values) - 1)


def _is_messages(value: Any) -> bool:
    return (
        type(value) is list and bool(value) and all(isinstance(each, BaseMessage) for each in value)
    )
