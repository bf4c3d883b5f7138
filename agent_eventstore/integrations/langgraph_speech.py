"""Record a thread's messages as events: append new ones, retract those that are gone."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Sequence
from typing import Any

from agent_eventstore.formats.langchain_messages import calls_of, message_payload
from agent_eventstore.integrations.conversation_places import Places
from agent_eventstore.integrations.langgraph_codec import Codec
from agent_eventstore.integrations.langgraph_events import SLOTS, Typed, place_of, raw_of
from agent_eventstore.integrations.langgraph_thread import Thread
from eventstore import NewEvent
from eventstore.events import (
    AssistantMessage,
    ConversationStart,
    Payload,
    Retraction,
    VersionRange,
)

__all__ = ["Speech"]


class Speech:
    """Events to append to a thread, under construction, each with its turn and step."""

    def __init__(self, thread: Thread, codec: Codec, understood: frozenset[str]) -> None:
        thread.marks.follow(thread.values, thread.spoken, codec)
        self._thread, self._codec, self._understood = thread, codec, understood
        self._places = Places()
        self._places.version = thread.version
        self._places.turn, self._places.step = thread.turn, thread.step
        self._calls = dict[str, str]()
        self.events: list[NewEvent] = []
        self._said: dict[Typed, int] = {}
        if not thread.version:
            self.add(ConversationStart())

    @property
    def _next(self) -> int:
        return self._places.version + 1

    def add(self, data: Payload) -> None:
        """Add an event in the thread's current turn and step."""
        if isinstance(data, AssistantMessage):
            self._calls |= calls_of(self._next, data)
        self.events.append(self._places.put(data))

    def speak(
        self, earlier: Sequence[int], same: int, rest: Sequence[tuple[Any, Typed]]
    ) -> list[int | tuple[Any, Typed]]:
        """Add new messages as events; return each one's place, or the message if it is no event."""
        thread = self._thread
        found: list[int | tuple[Any, Typed]] = []
        taken = set(earlier[:same])
        for index, (message, typed) in enumerate(rest, start=same):
            mark = self._codec.mark(message, typed)
            place = earlier[index] if index < len(earlier) else None
            if place is None or mark is None or thread.marks.of.get(place) != mark:
                place = None if mark is None else self._said.get(mark, thread.marks.said.get(mark))
            if place is None or place in taken or place in thread.retracted:
                place = self._say(message, typed, mark)
            if place is not None:
                taken.add(place)
            found.append((message, typed) if place is None else place)
        return found

    def _say(self, message: Any, typed: Typed, mark: Typed | None) -> int | None:
        version = self._next
        is_result = message.type == "tool"
        calls = ChainMap(self._calls, self._thread.calls) if is_result else {}
        data = message_payload(message, raw_of(typed), version, calls)
        if data is None:
            return None
        self.add(data)
        if mark is not None:
            self._said[mark] = place_of(version)
        return place_of(version)

    def retract(self, namespace: str, name: str, kept: Iterable[Any]) -> None:
        """Retract messages that the channel has lost, unless another graph's channel has them."""
        thread = self._thread
        now = thread.latest.get((namespace, name))
        lost = (
            set()
            if now is None
            else set(thread.values.elements(now)).difference(
                each for each in kept if isinstance(each, int)
            )
        )
        lost = {place for place in lost if place in thread.spoken} - thread.retracted
        if not lost:
            return
        for (other, channel), place in thread.latest.items():
            if other != namespace and channel in self._understood:
                lost.difference_update(thread.values.elements(place))
        versions = sorted(place // SLOTS for place in lost)
        if versions:
            ranges = VersionRange.of((each, each) for each in versions)
            self.add(Retraction(versions=ranges, reason=f"no longer in channel {name}"))
