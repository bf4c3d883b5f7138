"""Record a thread's messages as events, so that views show them in the channel's order.

The log is append-only, and views show messages in the order of their events. So if a channel's
messages are edited, inserted or moved, those that must follow are recorded again, and the earlier
events are retracted as replaced: they count once in usage, in lists and in the audit table. A tool
result is shown beside its call, so a result that was replaced is recorded again with its call.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from agent_eventstore.formats.langchain_messages import calls_of, message_payload
from agent_eventstore.integrations.conversation_places import Places
from agent_eventstore.integrations.langgraph_codec import Codec
from agent_eventstore.integrations.langgraph_events import SLOTS, Typed, place_of, raw_of
from agent_eventstore.integrations.langgraph_thread import Thread
from eventstore import NewEvent, RecordedEvent
from eventstore.events import (
    AssistantMessage,
    ConversationStart,
    Meta,
    Payload,
    Retraction,
    SystemInstruction,
    UserMessage,
    VersionRange,
)
from eventstore.ids import call_id
from projections.engine.folding import joined

__all__ = ["Reader", "Speech"]

Reader = Callable[[int, int], Iterable[RecordedEvent]]
"""Returns a thread's events after one version and before another."""

_ANSWERS = ("ai", "AIMessageChunk")
_ORDERED = ("human", "HumanMessageChunk", *_ANSWERS)
_RESULTS = ("tool", "ToolMessageChunk")
_SYSTEM = ("system", "SystemMessageChunk")
_ORDERED_EVENTS = (UserMessage.type, AssistantMessage.type)


class Speech:
    """Events to append to a thread, under construction, each with its turn and step."""

    def __init__(
        self, thread: Thread, codec: Codec, understood: frozenset[str], read: Reader
    ) -> None:
        thread.marks.follow(thread.values, thread.spoken, codec)
        self._thread, self._codec, self._understood, self._read = thread, codec, understood, read
        self._places = Places()
        self._places.version = thread.version
        self._places.turn, self._places.step = thread.turn, thread.step
        self._calls = dict[str, str]()
        self.events: list[NewEvent] = []
        if not thread.version:
            self.add(ConversationStart())

    @property
    def _next(self) -> int:
        return self._places.version + 1

    def add(self, data: Payload) -> None:
        """Add an event in the thread's current turn and step."""
        self.events.append(self._places.put(data))

    def speak(
        self,
        channel: tuple[str, str],
        earlier: Sequence[int],
        same: int,
        rest: Sequence[tuple[Any, Typed]],
    ) -> list[int | tuple[Any, Typed]]:
        """Add the events of a channel's messages, and retract those that it has lost.

        Args:
            channel: The namespace and the name of the channel.
            earlier: The places of the messages that the channel had before.
            same: How many of them are unchanged at its beginning.
            rest: The messages that follow, each with its serialised form.

        Returns:
            The place of each message in ``rest``, or the message if it is no event.
        """
        marks = [self._codec.mark(message, typed) for message, typed in rest]
        places = self._standing(earlier, same, marks)
        messages = [message for message, _ in rest]
        new = _new_of(messages, places, self._first_moved(earlier[:same], messages, places))
        kept = {*earlier[:same], *(p for i, p in enumerate(places) if i not in new)}
        lost = self._lost(channel, kept)
        before = self._replaced(
            lost | {p for p in earlier if p not in kept}, new, rest, marks, places
        )
        gone = {*before.values()}
        others = self._elsewhere(channel, lost - gone)
        plain = self._retraction(lost - gone - others, f"no longer in channel {channel[1]}")
        first = self._next + bool(plain) + bool(before)
        found, drafts = self._drafts(earlier[:same], rest, places, new, first)
        if plain:
            self.add(plain)
        if before:
            ranges = joined((d[0], d[0]) for d in drafts if d[1] in before)
            again = self._retraction(gone, f"edited or moved in channel {channel[1]}")
            versions = again.versions if again else ()
            reason = again.reason if again else None
            self.add(
                Retraction(versions=versions, reason=reason, replaced_by=VersionRange.of(ranges))
            )
        self._record(drafts, before)
        return found

    def answers_again(self, messages: Sequence[Any]) -> bool:
        """Whether one of these messages is the result of a call that already has one."""
        calls, settled = self._thread.calls, self._thread.settled
        return any(
            each.type in _RESULTS and calls.get(str(each.tool_call_id)) in settled
            for each in messages
        )

    def _standing(
        self, earlier: Sequence[int], same: int, marks: Sequence[Typed | None]
    ) -> list[int | None]:
        """Return the place at which each message is recorded already; None if it is at none."""
        thread, taken = self._thread, set(earlier[:same])
        found: list[int | None] = []
        for index, mark in enumerate(marks, start=same):
            place = earlier[index] if index < len(earlier) else None
            if place is None or mark is None or thread.marks.of.get(place) != mark:
                place = None if mark is None else thread.marks.said.get(mark)
            elif place in thread.retracted:
                place = thread.marks.said.get(mark)
            if place in taken or place in thread.retracted or place not in thread.spoken:
                place = None
            if place is not None:
                taken.add(place)
            found.append(place)
        return found

    def _first_moved(
        self, prefix: Sequence[int], messages: Sequence[Any], places: Sequence[int | None]
    ) -> int:
        """Return the index from which on messages must be recorded again, to be in order."""
        spoken, settled = self._thread.spoken, self._thread.settled
        begin, last = len(messages), 0
        ordered = [index for index, each in enumerate(messages) if each.type in _ORDERED]
        standing = [index for index in ordered if places[index] is not None]
        if standing:
            last = max((p for p in prefix if spoken.get(p) in _ORDERED_EVENTS), default=0)
        for index in ordered if standing else ():
            place = places[index]
            if index > standing[-1]:
                break
            if place is None or place < last:
                begin = index
                break
            last = place
        calls: dict[str, tuple[int, str]] = {}
        for index, message in enumerate(messages):
            place = places[index]
            if message.type in _ANSWERS:
                for provider_id, part in _calls_in(message):
                    own_id = "" if place is None else call_id(place // SLOTS, part)
                    calls[provider_id] = (index, own_id)
            elif message.type in _RESULTS:
                at, own_id = calls.get(str(message.tool_call_id), (len(messages), ""))
                if place is not None:  # a second result of the call changes nothing
                    calls.pop(str(message.tool_call_id), None)
                elif own_id in settled:
                    begin = min(begin, at)
        return begin

    def _lost(self, channel: tuple[str, str], kept: set[Any]) -> set[int]:
        """Return the places of recorded messages that the channel no longer has."""
        thread = self._thread
        now = thread.latest.get(channel)
        lost = set[int]() if now is None else set(thread.values.elements(now)) - kept
        return {place for place in lost if place in thread.spoken} - thread.retracted

    def _replaced(
        self,
        lost: set[int],
        new: set[int],
        rest: Sequence[tuple[Any, Typed]],
        marks: Sequence[Typed | None],
        places: Sequence[int | None],
    ) -> dict[int, int]:
        """Return the place that each message to record had before, by the message's index."""
        thread, found, taken = self._thread, dict[int, int](), set[int]()
        ids: dict[Any, int] = {}
        if new and lost:
            held = {place: thread.values.get(place) for place in lost if place in thread.spoken}
            loads = self._codec.loads
            ids = {loads(typed).id: p for p, typed in held.items() if isinstance(typed, tuple)}
        for index in sorted(new):
            mark, place = marks[index], places[index]
            if place is None and mark is not None:
                place = thread.marks.said.get(mark)
                place = place if place in thread.retracted else None
            if place is None and (own_id := rest[index][0].id) is not None:
                place = ids.get(own_id)
            if place is not None and place not in taken:
                taken.add(place)
                found[index] = place
        return found

    def _elsewhere(self, channel: tuple[str, str], lost: set[int]) -> set[int]:
        """Return which of these messages another graph's channel has."""
        found, thread = set[int](), self._thread
        for (namespace, name), place in thread.latest.items() if lost else ():
            if namespace != channel[0] and name in self._understood:
                found.update(lost.intersection(thread.values.elements(place)))
        return found

    def _retraction(self, places: Iterable[int], reason: str) -> Retraction | None:
        ranges = joined((place // SLOTS, place // SLOTS) for place in places)
        return Retraction(versions=VersionRange.of(ranges), reason=reason) if ranges else None

    def _drafts(
        self,
        prefix: Sequence[int],
        rest: Sequence[tuple[Any, Typed]],
        places: Sequence[int | None],
        new: set[int],
        version: int,
    ) -> tuple[list[int | tuple[Any, Typed]], list[tuple[int, int, Payload]]]:
        """Return each message's place, and the versions, indexes and payloads of the new ones."""
        found: list[int | tuple[Any, Typed]] = []
        drafts: list[tuple[int, int, Payload]] = []
        calls = ChainMap(self._calls, self._thread.calls) if _any_result(rest, new) else {}
        continues = None
        for index, (message, typed) in enumerate(rest):
            place = places[index]
            if place is not None and index not in new:
                found.append(place)
                if message.type in _ANSWERS:
                    version_of = place // SLOTS
                    self._calls |= {k: call_id(version_of, part) for k, part in _calls_in(message)}
                elif message.type in _SYSTEM:
                    continues = True
                continue
            data = message_payload(message, raw_of(typed), version, calls)
            if data is None:
                found.append((message, typed))
                continue
            if isinstance(data, AssistantMessage):
                self._calls |= calls_of(version, data)
            elif isinstance(data, SystemInstruction):
                if continues is None:
                    spoken = self._thread.spoken
                    continues = any(spoken.get(p) == SystemInstruction.type for p in prefix)
                data = data.model_copy(update={"continues": continues})
                continues = True
            drafts.append((version, index, data))
            found.append(place_of(version))
            version += 1
        return found, drafts

    def _record(self, drafts: Sequence[tuple[int, int, Payload]], before: dict[int, int]) -> None:
        """Add the events of messages; those that were recorded before keep their turn and time."""
        versions = {place // SLOTS for place in before.values()}
        known = dict(self._originals(versions)) if versions else {}
        metas = {index: known.get(place // SLOTS) for index, place in before.items()}
        last = max(before, default=-1)
        following: Meta | None = None
        chosen: dict[int, Meta | None] = {}
        for _, index, _ in reversed(drafts):
            if (own := metas.get(index)) is not None:
                following = chosen[index] = own
            elif index < last and following is not None:  # inserted before recorded messages
                chosen[index] = Meta(turn=following.turn)
        for _, index, data in drafts:
            if (meta := chosen.get(index)) is None:
                self.add(data)
            else:
                self._places.version += 1
                self.events.append(NewEvent(data, meta=meta))

    def _originals(self, versions: set[int]) -> Iterator[tuple[int, Meta]]:
        for event in self._read(min(versions) - 1, max(versions) + 1):
            if event.version in versions:
                update = {"occurred_at": event.occurred_at}
                yield event.version, event.meta.model_copy(update=update)

    def retract(self, channel: tuple[str, str]) -> None:
        """Retract the messages of a channel that has become empty, like any that it loses."""
        self.speak(channel, (), 0, ())


def _new_of(messages: Sequence[Any], places: Sequence[int | None], begin: int) -> set[int]:
    """Return the indexes of the messages to record: new ones, and those that follow ``begin``."""
    new, calls, system = set[int](), dict[str, int](), False
    systems = [i for i, each in enumerate(messages) if each.type in _SYSTEM]
    standing = [i for i in systems if places[i] is not None]
    for index in systems:
        system = system or (places[index] is None and any(i > index for i in standing))
        if system or places[index] is None:
            new.add(index)
    for index, message in enumerate(messages):
        moved = message.type in _ORDERED and index >= begin
        if message.type in _RESULTS:
            moved = calls.get(str(message.tool_call_id), -1) in new
        if moved or places[index] is None:
            new.add(index)
        if message.type in _ANSWERS:
            calls |= {provider_id: index for provider_id, _ in _calls_in(message)}
    return new


def _calls_in(message: Any) -> list[tuple[str, int]]:
    """Return the provider's ids of an answer's calls, each with the index of its event's call."""
    if message.type not in _ANSWERS:
        return []
    calls = [*message.tool_calls, *message.invalid_tool_calls]
    return [(each["id"], i) for i, each in enumerate(calls) if each.get("id") is not None]


def _any_result(rest: Sequence[tuple[Any, Typed]], new: set[int]) -> bool:
    return any(message.type in _RESULTS and index in new for index, (message, _) in enumerate(rest))
