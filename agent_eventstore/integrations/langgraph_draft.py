"""The events that a checkpoint adds to a thread: what is new in it, each value once.

Messages that the thread's channel of messages has gained are events of their own, and those that
it has lost are retracted, so that views show what the graph's next model call would be sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage

from agent_eventstore.integrations.langchain_messages import calls_of, message_payload
from agent_eventstore.integrations.langgraph_codec import Codec, told_of
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
from agent_eventstore.integrations.langgraph_lists import DEEPEST, KeptList
from agent_eventstore.integrations.langgraph_thread import Saved, Thread
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

__all__ = ["Draft"]


@dataclass(frozen=True, slots=True)
class _Grown:
    """A list of messages: how many it shares with an earlier one, and the places of the rest.

    What has no place yet stands as value and bytes.
    """

    before: int | None
    earlier: Sequence[int]
    same: int
    added: Sequence[int | tuple[Any, Typed]]
    told: bytes | None


class Draft:
    """Events that go behind a thread, in the making."""

    def __init__(self, thread: Thread, codec: Codec, understood: frozenset[str]) -> None:
        thread.mark(codec)
        self._thread, self._codec, self._understood = thread, codec, understood
        self._turn, self._step = thread.turn, thread.step
        self._calls = dict[str, str]()
        self.events: list[NewEvent] = []
        self.told = dict[int, bytes]()
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
            self._calls |= calls_of(self._next, data)
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
        lists = {
            name: self._grown(namespace, name, parent, value)
            for name, value in values.items()
            if name not in known and _is_messages(value)
        }
        for name in self._understood.intersection(values):
            if values[name] == []:
                self._retract(namespace, name, ())
        channels = []
        for name, value in values.items():
            if name in known:
                place = known[name]
            elif name in lists:
                place = self._list(lists[name])
                if (told := lists[name].told) is not None:
                    self.told[place] = told
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
        """Return the place of the list that a channel had before, if it had one."""
        place = None if parent is None else parent.channels.get(name)
        if place is None:
            place = self._thread.latest.get((namespace, name))
        return place if isinstance(self._thread.values.get(place or 0), KeptList) else None

    def _grown(
        self, namespace: str, name: str, parent: Saved | None, messages: list[Any]
    ) -> _Grown:
        """Return what a list of messages has gained; what are events among them is added."""
        before = self._before(namespace, name, parent)
        earlier = [] if before is None else self._thread.values.elements(before)
        told = told_of(messages)
        same, dumps = self._same(before, told), self._codec.dumps
        rest: list[tuple[Any, Typed]] = [(each, dumps(each)) for each in messages[same:]]
        if name not in self._understood:
            return _Grown(before, earlier, same, rest, told)
        added = self._speak(earlier, same, rest)
        if same < len(earlier) or before != self._thread.latest.get((namespace, name)):
            self._retract(namespace, name, [*earlier[:same], *added])
        return _Grown(before, earlier, same, added, told)

    def _same(self, before: int | None, told: bytes | None) -> int:
        """Return how many messages at the beginning are those of the earlier list."""
        known = self._thread.told.get(before or 0)
        if told is None or known is None or not told.startswith(known):
            return 0
        earlier = self._thread.values.elements(before or 0)
        return len(earlier) if self._thread.retracted.isdisjoint(earlier) else 0

    def _speak(
        self, earlier: Sequence[int], same: int, rest: Sequence[tuple[Any, Typed]]
    ) -> list[int | tuple[Any, Typed]]:
        """Add the messages that are new as events; return places, or what is no event."""
        thread = self._thread
        found: list[int | tuple[Any, Typed]] = []
        taken = set(earlier[:same])
        for index, (message, typed) in enumerate(rest, start=same):
            mark = self._codec.mark(message, typed)
            place = earlier[index] if index < len(earlier) else None
            if place is None or mark is None or thread.marks.get(place) != mark:
                place = None if mark is None else self._said.get(mark, thread.said.get(mark))
            if place is None or place in taken or place in thread.retracted:
                place = self._say(message, typed, mark)
            if place is not None:
                taken.add(place)
            found.append((message, typed) if place is None else place)
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

    def _retract(self, namespace: str, name: str, kept: Iterable[Any]) -> None:
        """Retract the messages that the channel has lost, unless another graph's still has them."""
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
            ranges = tuple(VersionRange(first=each, last=each) for each in versions)
            self.add(Retraction(versions=ranges, reason=f"no longer in channel {name}"))

    def _list(self, grown: _Grown) -> int:
        """Return the place of a list of messages, which may stand on an earlier one."""
        before, kept = grown.before, grown.same
        added = [each if isinstance(each, int) else self._place(*each) for each in grown.added]
        earlier = grown.earlier
        while kept < len(earlier) and added and earlier[kept] == added[0]:
            kept += 1
            del added[0]
        if before is not None and not added and kept == len(earlier):
            return before
        if not kept or before is None or self._thread.values.depth(before) >= DEEPEST:
            return self._keep(GrownList(added=(*earlier[:kept], *added)))
        return self._keep(GrownList(base=before, kept=kept, added=tuple(added)))

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
    if type(value) is not list or not value:
        return False
    return all(issubclass(each, BaseMessage) for each in {*map(type, value)})
