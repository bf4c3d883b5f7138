"""The events that a checkpoint adds to a thread: its new values, each stored once.

Messages that the channel has gained are events of their own, and those that it has lost are
retracted, so that views show what the graph's next model call would contain.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import WRITES_IDX_MAP

from agent_eventstore.integrations.conversation_events import Places
from agent_eventstore.integrations.langgraph.checkpoint_codec import Codec, packed_of
from agent_eventstore.integrations.langgraph.events import (
    SLOTS,
    GrownList,
    LanggraphCheckpoint,
    LanggraphValues,
    LanggraphWrites,
    PackedValue,
    Typed,
    place_of,
    raw_of,
)
from agent_eventstore.integrations.langgraph.thread import DEEPEST, ChangedList, Saved, Thread
from agent_eventstore.transcripts.langchain_messages import calls_of, message_payload
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
from projections.version_ranges import joined

__all__ = ["MessageDraft", "Reader", "Speech"]


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
        places = self._present(earlier, same, marks)
        messages = [message for message, _ in rest]
        new = _new_of(messages, places, self._first_moved(earlier[:same], messages, places))
        remaining = {*earlier[:same], *(p for i, p in enumerate(places) if i not in new)}
        lost = self._lost(channel, remaining)
        before = self._replaced(
            lost | {p for p in earlier if p not in remaining}, new, rest, marks, places
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

    def _present(
        self, earlier: Sequence[int], same: int, marks: Sequence[Typed | None]
    ) -> list[int | None]:
        """Return the place at which each message is recorded already; None if it is at none."""
        thread, taken = self._thread, set(earlier[:same])
        found: list[int | None] = []
        for index, mark in enumerate(marks, start=same):
            place = earlier[index] if index < len(earlier) else None
            if place is None or mark is None or thread.marks.of.get(place) != mark:
                place = None if mark is None else thread.marks.spoken_by.get(mark)
            elif place in thread.retracted:
                place = thread.marks.spoken_by.get(mark)
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
        present = [index for index in ordered if places[index] is not None]
        if present:
            last = max((p for p in prefix if spoken.get(p) in _ORDERED_EVENTS), default=0)
        for index in ordered if present else ():
            place = places[index]
            if index > present[-1]:
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

    def _lost(self, channel: tuple[str, str], remaining: set[Any]) -> set[int]:
        """Return the places of recorded messages that the channel no longer has."""
        thread = self._thread
        now = thread.latest.get(channel)
        lost = set[int]() if now is None else set(thread.values.elements(now)) - remaining
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
            values = {place: thread.values.get(place) for place in lost if place in thread.spoken}
            loads = self._codec.loads
            ids = {loads(typed).id: p for p, typed in values.items() if isinstance(typed, tuple)}
        for index in sorted(new):
            mark, place = marks[index], places[index]
            if place is None and mark is not None:
                place = thread.marks.spoken_by.get(mark)
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
    present = [i for i in systems if places[i] is not None]
    for index in systems:
        system = system or (places[index] is None and any(i > index for i in present))
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


@dataclass(frozen=True, slots=True)
class _GrownMessage:
    """A list of messages: how many it shares with an earlier one, and the rest.

    A message that has no place yet is given as its value and its serialised form.
    """

    before: int | None
    earlier: Sequence[int]
    same: int
    added: Sequence[int | tuple[Any, Typed]]
    packed: bytes | None


class MessageDraft(Speech):
    """Events to append to a thread, under construction."""

    def __init__(
        self, thread: Thread, codec: Codec, understood: frozenset[str], read: Reader
    ) -> None:
        super().__init__(thread, codec, understood, read)
        self.packed = dict[int, bytes]()
        self._values: list[PackedValue | GrownList] = []
        self._new: dict[Typed, int] = {}

    def checkpoint(
        self,
        namespace: str,
        parent_id: str | None,
        checkpoint: dict[str, Any],
        metadata: dict[str, Any],
        new_versions: dict[str, Any],
    ) -> None:
        """Add a checkpoint, preceded by its new values."""
        parent = self._thread.checkpoints.get(namespace, {}).get(parent_id or "")
        values = checkpoint["channel_values"]
        known = self._unchanged(parent, checkpoint, new_versions)
        lists = {
            name: self._grown(namespace, name, parent, value)
            for name, value in values.items()
            if name not in known and _is_messages(value)
        }
        for name in self._understood.intersection(values):
            if values[name] == []:
                self.retract((namespace, name))
        channels = []
        for name, value in values.items():
            if name in known:
                place = known[name]
            elif name in lists:
                place = self._list(lists[name])
                if (packed := lists[name].packed) is not None:
                    self.packed[place] = packed
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

    def writes(
        self,
        namespace: str,
        checkpoint_id: str,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str,
    ) -> None:
        """Add a task's writes; errors, interrupts and the like replace earlier ones."""
        self.add(
            LanggraphWrites(
                namespace=namespace,
                checkpoint_id=checkpoint_id,
                task_id=task_id,
                task_path=task_path,
                replaces=all(channel in WRITES_IDX_MAP for channel, _ in writes),
                writes=self._codec.written(writes),
            )
        )

    def _unchanged(
        self, parent: Saved | None, checkpoint: dict[str, Any], new_versions: dict[str, Any]
    ) -> dict[str, int]:
        """Return the places of the values that the parent has in the same version."""
        if parent is None or new_versions.keys() >= parent.channels.keys():
            return {}
        before = self._codec.loads(parent.state)["channel_versions"]
        now = checkpoint["channel_versions"]
        return {
            name: place
            for name, place in parent.channels.items()
            if name in before and name not in new_versions and before[name] == now.get(name)
        }

    def _before(self, namespace: str, name: str, parent: Saved | None) -> int | None:
        """Return the place of the list that the channel had before; None if it had none."""
        place = None if parent is None else parent.channels.get(name)
        if place is None:
            place = self._thread.latest.get((namespace, name))
        return place if isinstance(self._thread.values.get(place or 0), ChangedList) else None

    def _grown(
        self, namespace: str, name: str, parent: Saved | None, messages: list[Any]
    ) -> _GrownMessage:
        """Return a list of messages relative to the channel's earlier one; add its new messages."""
        before = self._before(namespace, name, parent)
        earlier = [] if before is None else self._thread.values.elements(before)
        packed = packed_of(messages)
        same, dumps = self._same(before, packed), self._codec.dumps
        if name in self._understood and self.answers_again(messages[same:]):
            same = 0
        rest: list[tuple[Any, Typed]] = [(each, dumps(each)) for each in messages[same:]]
        if name not in self._understood:
            return _GrownMessage(before, earlier, same, rest, packed)
        added = self.speak((namespace, name), earlier, same, rest)
        return _GrownMessage(before, earlier, same, added, packed)

    def _same(self, before: int | None, packed: bytes | None) -> int:
        """Return how many messages at the start equal those of the earlier list."""
        known = self._thread.packed.get(before or 0)
        if packed is None or known is None or not packed.startswith(known):
            return 0
        earlier = self._thread.values.elements(before or 0)
        return len(earlier) if self._thread.retracted.isdisjoint(earlier) else 0

    def _list(self, grown: _GrownMessage) -> int:
        """Return the place of a list of messages, which may extend an earlier list."""
        before, same_count = grown.before, grown.same
        added = [each if isinstance(each, int) else self._place(*each) for each in grown.added]
        earlier = grown.earlier
        while same_count < len(earlier) and added and earlier[same_count] == added[0]:
            same_count += 1
            del added[0]
        if before is not None and not added and same_count == len(earlier):
            return before
        if not same_count or before is None or self._thread.values.depth(before) >= DEEPEST:
            return self._keep(GrownList(added=(*earlier[:same_count], *added)))
        return self._keep(GrownList(base=before, same_count=same_count, added=tuple(added)))

    def _place(self, value: Any, typed: Typed) -> int:
        """Return the place of a value: that of an equal value, or a new one."""
        mark = self._codec.mark(value, typed)
        place = None if mark is None else self._new.get(mark, self._thread.marks.known.get(mark))
        if place is None:
            place = self._keep(PackedValue.of(typed))
            if mark is not None:
                self._new[mark] = place
        return place

    def _keep(self, value: PackedValue | GrownList) -> int:
        self._values.append(value)
        return place_of(self._next, len(self._values) - 1)


def _is_messages(value: Any) -> bool:
    if type(value) is not list or not value:
        return False
    return all(issubclass(each, BaseMessage) for each in {*map(type, value)})
