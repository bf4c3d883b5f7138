"""The event types of LangGraph checkpoints and items; readable without LangGraph.

A value is stored once, in a `LanggraphValues` or in the event of its message. Other events refer to
it by its place: the version of that event times 2^20, plus the value's index in it.
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
    "LanggraphRenewal",
    "LanggraphValues",
    "LanggraphWrites",
    "PackedValue",
    "TaskWrite",
    "Typed",
    "place_of",
    "raw_of",
    "typed_at_end",
    "typed_in",
    "typed_of",
]

Typed = tuple[str, bytes]
"""A value as a LangGraph serialiser returns it: the name of the format, and the bytes."""

_RAW = "langgraph"
"""The key in the ``raw`` of a message's event that holds the serialised message."""

SLOTS = 1 << 20
"""The most values that one event can hold."""


def place_of(version: int, index: int = 0) -> int:
    """Return the place of a value in an event."""
    return version * SLOTS + index


def raw_of(typed: Typed) -> dict[str, Any]:
    """Return the ``raw`` of a message's event."""
    return {_RAW: {"form": typed[0], "data": b64encode(typed[1]).decode()}}


def typed_of(fields: dict[str, Any]) -> Typed:
    """Return the serialised value that a packed value's JSON holds."""
    return fields["form"], a2b_base64(fields["data"])


def typed_in(raw: Any) -> Typed | None:
    """Return the serialised message in the ``raw`` of an event; None if there is none."""
    typed = raw.get(_RAW) if isinstance(raw, dict) else None
    return None if typed is None else typed_of(typed)


_BEFORE, _BETWEEN, _BEHIND = f'"raw":{{"{_RAW}":{{"form":"', '","data":"', '"}}}'


def typed_at_end(text: str) -> Typed | None:
    """Return the serialised message at the end of an event's JSON; None if it is not there.

    Does not parse the rest of the JSON, which is as long: the parsed form of the message.
    """
    if not text.endswith(_BEHIND) or (begin := text.rfind(_BEFORE)) < 0:
        return None
    form, _, data = text[begin + len(_BEFORE) : -len(_BEHIND)].partition(_BETWEEN)
    return None if '"' in form or '"' in data or "\\" in form else (form, a2b_base64(data))


class PackedValue(Value):
    """A value as the framework's serialiser wrote it.

    Attributes:
        form: The serialiser's name of the format.
        data: The bytes, in base64.
    """

    kind: Literal["packed"] = "packed"
    form: str
    data: str

    @classmethod
    def of(cls, typed: Typed) -> PackedValue:
        """Return a serialised value as a packed value."""
        return cls(form=typed[0], data=b64encode(typed[1]).decode())


class GrownList(Value):
    """A list of values: the beginning of an earlier list, followed by added elements.

    Attributes:
        base: The place of the earlier list; None if there is none.
        kept: The number of elements taken from its beginning.
        added: The places of the elements that follow.
    """

    kind: Literal["list"] = "list"
    base: int | None = None
    same_count: int = 0
    added: tuple[int, ...] = ()


class LanggraphValues(Payload):
    """Channel values, each stored once for all checkpoints that contain it.

    Attributes:
        values: The values, in order of their index.
    """

    type: ClassVar[str] = "langgraph.values"

    values: tuple[Annotated[PackedValue | GrownList, Field(discriminator="kind")], ...]


class LanggraphCheckpoint(Payload):
    """A saved state of a graph.

    Attributes:
        namespace: The graph's namespace; the root graph's is empty.
        checkpoint_id: The framework's id of the checkpoint.
        parent_id: The id of the checkpoint before it.
        state: The checkpoint without its channel values.
        metadata: The checkpoint's metadata.
        channels: The name of each channel that has a value, and the place of the value.
    """

    type: ClassVar[str] = "langgraph.checkpoint"

    namespace: str
    checkpoint_id: str
    parent_id: str | None = None
    state: PackedValue
    metadata: PackedValue
    channels: tuple[tuple[str, int], ...] = ()


class TaskWrite(Value):
    """A value that a task wrote to a channel.

    Attributes:
        index: Its position among the task's writes; below 0 for kinds that replace each other.
        channel: The channel.
        value: The value.
    """

    index: int
    channel: str
    value: PackedValue


class LanggraphWrites(Payload):
    """The writes of a task that ended or was interrupted; the next checkpoint will contain them.

    Attributes:
        namespace: The graph's namespace.
        checkpoint_id: The checkpoint that the step began from.
        task_id: The task.
        task_path: The task's position in the step.
        replaces: Whether these writes replace earlier ones of the same index.
        writes: The writes.
    """

    type: ClassVar[str] = "langgraph.writes"

    namespace: str
    checkpoint_id: str
    task_id: str
    task_path: str = ""
    replaces: bool = False
    writes: tuple[TaskWrite, ...]


class LanggraphItem(Payload):
    """An item of a graph's long-term memory was put or deleted.

    Attributes:
        key: The item's key in its namespace, which is the conversation.
        value: Its new value; None if it was deleted.
        vectors: The embeddings of its texts, for a search by meaning: each in base64, as numbers in
            single precision, the lower byte first.
        ttl_minutes: Its time to live since it was put or read; None if it has no end.
    """

    type: ClassVar[str] = "langgraph.item"

    key: str
    value: dict[str, Any] | None = None
    vectors: tuple[str, ...] | None = None
    ttl_minutes: float | None = None


class LanggraphRenewal(Payload):
    """Items were read, so that their time to live begins anew.

    Attributes:
        keys: The items' keys in their namespace, which is the conversation.
    """

    type: ClassVar[str] = "langgraph.renewal"

    keys: tuple[str, ...]


for _kind in (
    LanggraphValues,
    LanggraphCheckpoint,
    LanggraphWrites,
    LanggraphItem,
    LanggraphRenewal,
):
    register_event(_kind)
READ_BACK.update((LanggraphValues, LanggraphCheckpoint, LanggraphWrites))
