"""A LangGraph thread, folded from the events of its conversation.

The saver caches it and folds new events into it.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Any

from agent_eventstore.integrations.langgraph.checkpoint_codec import Codec
from agent_eventstore.integrations.langgraph.events import (
    SLOTS,
    LanggraphCheckpoint,
    LanggraphValues,
    LanggraphWrites,
    Typed,
    place_of,
    typed_at_end,
    typed_in,
    typed_of,
)
from eventstore.database import EventText, decode_meta
from eventstore.events import AssistantMessage, Meta, Retraction, ToolResult
from eventstore.events.codec import loads_json
from eventstore.ids import call_id

__all__ = ["DEEPEST", "ChangedList", "Marks", "Saved", "Thread", "Values", "WrittenValues"]


DEEPEST = 100


"""The most lists in a chain in which each extends the one before."""


_UNROLLED = 8


@dataclass(slots=True)
class ChangedList:
    """A stored `GrownList`: an earlier list, the elements kept of it, and the elements added."""

    base: int | None
    same_count: int
    added: tuple[int, ...]


class Values(dict[int, Typed | ChangedList]):
    """Values and lists of values by place."""

    def __init__(self) -> None:
        super().__init__()
        self._depths: dict[int, int] = {}
        self._unrolled: dict[int, list[int]] = {}

    def keep(self, place: int, payload: dict[str, Any]) -> None:
        """Add a value of an event, given as JSON."""
        if payload["kind"] == "list":
            node = ChangedList(
                payload.get("base"), payload.get("same_count", 0), tuple(payload.get("added", ()))
            )
            self[place] = node
            self._depths[place] = 0 if node.base is None else self.depth(node.base) + 1
        else:
            self[place] = typed_of(payload)

    def depth(self, place: int) -> int:
        """Return how many earlier lists a list is built on."""
        return self._depths.get(place, 0)

    def elements(self, place: int) -> list[int]:
        """Return the places of a list's elements; the caller must not modify the result."""
        if (known := self._unrolled.get(place)) is not None:
            return known
        nodes, at, found = list[ChangedList](), place, list[int]()
        while isinstance(node := self.get(at), ChangedList):
            nodes.append(node)
            at = -1 if node.base is None else node.base
            if at in self._unrolled:
                found = list(self._unrolled[at])
                break
        for node in reversed(nodes):
            del found[node.same_count :]
            found.extend(node.added)
        if len(self._unrolled) >= _UNROLLED:
            self._unrolled.pop(next(iter(self._unrolled)))
        self._unrolled[place] = found
        return found

    def value(self, place: int, codec: Codec) -> Any:
        """Return the value at a place; erased elements of a list are omitted."""
        node = self[place]
        if isinstance(node, tuple):
            return codec.loads(node)
        found = (self.get(each) for each in self.elements(place))
        return codec.loads_all([each for each in found if isinstance(each, tuple)])


class Marks:
    """The marks of a thread's values, by which equal values are found.

    Attributes:
        of: The mark of each value by its place.
        known: The place of each value by its mark.
        said: The place of each message that is an event by its mark.
    """

    def __init__(self) -> None:
        self.of: dict[int, Typed] = {}
        self.known: dict[Typed, int] = {}
        self.spoken_by: dict[Typed, int] = {}
        self._new: list[int] = []

    def add(self, place: int) -> None:
        """Add the place of a value; its mark is computed later."""
        self._new.append(place)

    def follow(self, values: Values, spoken: Container[int], codec: Codec) -> None:
        """Compute the marks of new values; ``spoken`` holds the places of messages."""
        for place in self._new:
            typed = values.get(place)
            if not isinstance(typed, tuple) or (mark := codec.mark_of(typed)) is None:
                continue
            self.of[place] = mark
            self.known[mark] = place
            if place in spoken:
                self.spoken_by[mark] = place
        self._new.clear()


_MOST_PACKED = 4


_CALL_ID = re.compile(r'\{"call_id":"([0-9.]+)"')


_VALUES, _CHECKPOINT = LanggraphValues.type, LanggraphCheckpoint.type


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint, and the version of its event."""

    version: int
    parent_id: str | None
    packed: dict[str, Any]
    channels: dict[str, int]

    @property
    def state(self) -> Typed:
        """The checkpoint without its values; decoded on access, as few are read."""
        return typed_of(self.packed["state"])

    @property
    def metadata(self) -> Typed:
        """The checkpoint's metadata."""
        return typed_of(self.packed["metadata"])


@dataclass(frozen=True, slots=True)
class WrittenValues:
    """A value that a task wrote to a channel, and the version of its event."""

    version: int
    task_path: str
    channel: str
    typed: Typed


@dataclass(slots=True)
class Thread:
    """A thread's state up to ``version``."""

    version: int = 0
    chain: bytes = b""
    turn: int = 0
    step: int = -1
    values: Values = field(default_factory=Values)
    checkpoints: dict[str, dict[str, Saved]] = field(default_factory=dict)
    writes: dict[tuple[str, str], dict[tuple[str, int], WrittenValues]] = field(
        default_factory=dict
    )
    retracted: set[int] = field(default_factory=set)
    spoken: dict[int, str] = field(default_factory=dict)
    """The places of messages that are events, and the types of these events."""
    settled: set[str] = field(default_factory=set)
    """Our own ids of the tool calls that have had a result."""
    marks: Marks = field(default_factory=Marks)
    latest: dict[tuple[str, str], int] = field(default_factory=dict)
    """The place of the channel's last saved list, by namespace and channel."""
    read: int = 0
    """The size of the events' JSON, in characters: about that of what is kept of it."""
    packed: dict[int, bytes] = field(default_factory=dict)
    """The packed content (`packed_of`) of the last few lists that were put here, by place."""
    _calls: dict[str, str] = field(default_factory=dict)
    _answers: list[tuple[int, str]] = field(default_factory=list)

    def take(self, events: Iterable[EventText]) -> None:
        """Fold the next events."""
        placed = ""
        for version, kind, _, text, meta in events:
            self.version = version
            if '"turn":' in meta:
                placed = meta
            if text is None:
                continue
            self.read += len(text)
            if (typed := typed_at_end(text)) is None:
                self._fold(version, kind, loads_json(text))
                continue
            self._speak(version, kind, typed)
            if kind == ToolResult.type and (found := _CALL_ID.match(text)):
                self.settled.add(found[1])
            if kind == AssistantMessage.type and '"provider_id":' in text:
                self._answers.append((version, text))
        if placed:
            self._go_to(decode_meta(placed))

    def fold(self, version: int, kind: str, payload: Any, meta: Meta) -> None:
        """Fold one event, given its JSON."""
        self.version = version
        self._go_to(meta)
        self._fold(version, kind, payload)

    def _go_to(self, meta: Meta) -> None:
        if meta.turn is not None:
            self.turn, self.step = meta.turn, -1 if meta.step is None else meta.step

    def _fold(self, version: int, kind: str, payload: Any) -> None:
        if not isinstance(payload, dict):
            return
        if kind == _VALUES:
            for index, value in enumerate(payload["values"]):
                place = place_of(version, index)
                self.values.keep(place, value)
                if value["kind"] != "list":
                    self.marks.add(place)
        elif kind == _CHECKPOINT:
            self._save(version, payload)
        elif kind == LanggraphWrites.type:
            self._write(version, payload)
        elif kind == Retraction.type:
            for part in payload["versions"]:
                self.retracted.update(map(place_of, range(part["first"], part["last"] + 1)))
        elif (typed := typed_in(payload.get("raw"))) is not None:
            self._speak(version, kind, typed)
            if kind == ToolResult.type:
                self.settled.add(payload["call_id"])
        if kind == AssistantMessage.type:
            self._note_calls(version, payload)

    def _speak(self, version: int, kind: str, typed: Typed) -> None:
        place = place_of(version)
        self.values[place] = typed
        self.spoken[place] = kind
        self.marks.add(place)

    def _note_calls(self, version: int, payload: dict[str, Any]) -> None:
        for index, request in enumerate(payload.get("tool_calls") or ()):
            if request.get("provider_id") is not None:
                self._calls[request["provider_id"]] = call_id(version, index)

    @property
    def calls(self) -> dict[str, str]:
        """The ids of the tool calls so far, by the provider's ids; answers are parsed on access."""
        for version, text in self._answers:
            self._note_calls(version, loads_json(text))
        self._answers.clear()
        return self._calls

    def _save(self, version: int, payload: dict[str, Any]) -> None:
        namespace, channels = payload["namespace"], dict(payload.get("channels") or ())
        self.checkpoints.setdefault(namespace, {})[payload["checkpoint_id"]] = Saved(
            version, payload.get("parent_id"), payload, channels
        )
        for channel, place in channels.items():
            if isinstance(self.values.get(place), ChangedList):
                self.latest[namespace, channel] = place

    def _write(self, version: int, payload: dict[str, Any]) -> None:
        writes = self.writes.setdefault((payload["namespace"], payload["checkpoint_id"]), {})
        path = payload.get("task_path", "")
        for write in payload["writes"]:
            key = (payload["task_id"], write["index"])
            if payload.get("replaces") or key not in writes:
                typed = typed_of(write["value"])
                writes[key] = WrittenValues(version, path, write["channel"], typed)

    @property
    def size(self) -> int:
        """The approximate size of the thread in memory, in bytes."""
        return self.read + sum(map(len, self.packed.values()))

    @property
    def has_content(self) -> bool:
        """Whether any stored value, checkpoint or write is left."""
        return bool(self.values or self.checkpoints or self.writes)

    @property
    def messages(self) -> set[int]:
        """The versions of the messages that are events."""
        return {place // SLOTS for place in self.spoken}

    def remember(self, packed: dict[int, bytes]) -> None:
        """Remember the packed content of lists that were just put, and of a few earlier ones."""
        self.packed |= packed
        while len(self.packed) > _MOST_PACKED:
            self.packed.pop(next(iter(self.packed)))
