"""What LangGraph's checkpoints are in the log: four types of events, readable without LangGraph.

A value stands once, in a `LanggraphValues` or beside the message that it is, and everything else
names its place: the version of that event times 2^20, plus its index there.
"""

from __future__ import annotations

from base64 import b64encode
from binascii import a2b_base64
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from eventstore.events import Payload, register_event
from eventstore.events.base import Value
from eventstore.events.own import READ_BACK

__all__ = [
    "SLOTS",
    "GrownList",
    "LanggraphCheckpoint",
    "LanggraphItem",
    "LanggraphValues",
    "LanggraphWrites",
    "PackedValue",
    "TaskWrite",
    "Typed",
    "kept_at_end",
    "kept_in",
    "place_of",
    "raw_of",
    "typed_of",
]

Typed = tuple[str, bytes]
"""What a serialiser of LangGraph's makes of a value: how it is written, and the bytes."""

_RAW = "langgraph"
"""The key in the ``raw`` of a message's event under which the message stands as serialised."""

SLOTS = 1 << 20
"""How many values an event can hold."""


def place_of(version: int, index: int = 0) -> int:
    """Return the place of a value of an event."""
    return version * SLOTS + index


def raw_of(typed: Typed) -> dict[str, Any]:
    """Return the ``raw`` of a message's event."""
    return {_RAW: {"form": typed[0], "data": b64encode(typed[1]).decode()}}


def typed_of(told: dict[str, Any]) -> Typed:
    """Return what the serialiser had returned, of a packed value's JSON."""
    return told["form"], a2b_base64(told["data"])


def kept_in(raw: Any) -> Typed | None:
    """Return the serialised message that the ``raw`` of an event holds; None if it holds none."""
    kept = raw.get(_RAW) if isinstance(raw, dict) else None
    return None if kept is None else typed_of(kept)


_BEFORE, _BETWEEN, _BEHIND = f'"raw":{{"{_RAW}":{{"form":"', '","data":"', '"}}}'


def kept_at_end(text: str) -> Typed | None:
    """Return what `kept_in` does of an event's JSON, cut out at its end; None if it is not there.

    What was understood of the message, which is as long, is not read.
    """
    if not text.endswith(_BEHIND) or (begin := text.rfind(_BEFORE)) < 0:
        return None
    form, _, data = text[begin + len(_BEFORE) : -len(_BEHIND)].partition(_BETWEEN)
    return None if '"' in form or '"' in data or "\\" in form else (form, a2b_base64(data))


class PackedValue(Value):
    """A value as the framework's serialiser wrote it.

    Attributes:
        form: The serialiser's name for how it is written.
        data: The bytes, in base64.
    """

    kind: Literal["packed"] = "packed"
    form: str
    data: str

    @classmethod
    def of(cls, typed: Typed) -> PackedValue:
        """Pack what a serialiser returned."""
        return cls(form=typed[0], data=b64encode(typed[1]).decode())


class GrownList(Value):
    """A list of values: the beginning of an earlier one, and what was added.

    Attributes:
        base: The place of the earlier list; None if this one stands for itself.
        kept: How many elements of it are kept.
        added: The places of the elements that follow.
    """

    kind: Literal["list"] = "list"
    base: int | None = None
    kept: int = 0
    added: tuple[int, ...] = ()


class LanggraphValues(Payload):
    """Values of channels, each stored once for all checkpoints that have it.

    Attributes:
        values: The values, in order of their index.
    """

    type: ClassVar[str] = "langgraph.values"

    values: tuple[Annotated[PackedValue | GrownList, Field(discriminator="kind")], ...]


class LanggraphCheckpoint(Payload):
    """A graph's state was saved.

    Attributes:
        namespace: The graph's namespace; the root graph's is empty.
        checkpoint_id: The framework's id of the checkpoint.
        parent_id: The id of the one before it.
        state: The checkpoint without the values of its channels.
        metadata: The checkpoint's metadata.
        channels: The names of the channels that have a value, and the places of the values.
    """

    type: ClassVar[str] = "langgraph.checkpoint"

    namespace: str
    checkpoint_id: str
    parent_id: str | None = None
    state: PackedValue
    metadata: PackedValue
    channels: tuple[tuple[str, int], ...] = ()


class TaskWrite(Value):
    """What a task wrote to a channel.

    Attributes:
        index: Its place among the task's writes; below 0 for those that replace each other.
        channel: The channel.
        value: What was written.
    """

    index: int
    channel: str
    value: PackedValue


class LanggraphWrites(Payload):
    """A task of a graph's step has ended, or was interrupted; the next checkpoint will show it.

    Attributes:
        namespace: The graph's namespace.
        checkpoint_id: The checkpoint that the step began from.
        task_id: The task.
        task_path: Where the task stands in the step.
        replaces: Whether these writes take the place of earlier ones of the same index.
        writes: What was written.
    """

    type: ClassVar[str] = "langgraph.writes"

    namespace: str
    checkpoint_id: str
    task_id: str
    task_path: str = ""
    replaces: bool = False
    writes: tuple[TaskWrite, ...]


class LanggraphItem(Payload):
    """An item of a namespace of a graph's memory was put, or deleted.

    Attributes:
        key: The item's key in the namespace, which is the conversation.
        value: What it holds now; None where it was deleted.
    """

    type: ClassVar[str] = "langgraph.item"

    key: str
    value: dict[str, Any] | None = None


for _kind in (LanggraphValues, LanggraphCheckpoint, LanggraphWrites, LanggraphItem):
    register_event(_kind)
READ_BACK.update((LanggraphValues, LanggraphCheckpoint, LanggraphWrites))
