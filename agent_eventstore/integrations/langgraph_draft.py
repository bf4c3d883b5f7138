"""The events that a checkpoint adds to a thread: its new values, each stored once.

Messages that the channel has gained are events of their own, and those that it has lost are
retracted, so that views show what the graph's next model call would contain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import WRITES_IDX_MAP

from agent_eventstore.integrations.langgraph_codec import Codec, packed_of
from agent_eventstore.integrations.langgraph_events import (
    GrownList,
    LanggraphCheckpoint,
    LanggraphValues,
    LanggraphWrites,
    PackedValue,
    Typed,
    place_of,
)
from agent_eventstore.integrations.langgraph_speech import Reader, Speech
from agent_eventstore.integrations.langgraph_thread import Saved, Thread
from agent_eventstore.integrations.langgraph_values import DEEPEST, KeptList

__all__ = ["Draft"]


@dataclass(frozen=True, slots=True)
class _Grown:
    """A list of messages: how many it shares with an earlier one, and the rest.

    A message that has no place yet is given as its value and its serialised form.
    """

    before: int | None
    earlier: Sequence[int]
    same: int
    added: Sequence[int | tuple[Any, Typed]]
    packed: bytes | None


class Draft(Speech):
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
        return place if isinstance(self._thread.values.get(place or 0), KeptList) else None

    def _grown(
        self, namespace: str, name: str, parent: Saved | None, messages: list[Any]
    ) -> _Grown:
        """Return a list of messages relative to the channel's earlier one; add its new messages."""
        before = self._before(namespace, name, parent)
        earlier = [] if before is None else self._thread.values.elements(before)
        packed = packed_of(messages)
        same, dumps = self._same(before, packed), self._codec.dumps
        if name in self._understood and self.answers_again(messages[same:]):
            same = 0
        rest: list[tuple[Any, Typed]] = [(each, dumps(each)) for each in messages[same:]]
        if name not in self._understood:
            return _Grown(before, earlier, same, rest, packed)
        added = self.speak((namespace, name), earlier, same, rest)
        return _Grown(before, earlier, same, added, packed)

    def _same(self, before: int | None, packed: bytes | None) -> int:
        """Return how many messages at the start equal those of the earlier list."""
        known = self._thread.packed.get(before or 0)
        if packed is None or known is None or not packed.startswith(known):
            return 0
        earlier = self._thread.values.elements(before or 0)
        return len(earlier) if self._thread.retracted.isdisjoint(earlier) else 0

    def _list(self, grown: _Grown) -> int:
        """Return the place of a list of messages, which may extend an earlier list."""
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
