"""A LangGraph serialiser, and the marks by which two values are recognised as equal.

A value's mark is its serialised bytes. A serialiser that encrypts writes an equal value as
different bytes each time; the mark is then what LangGraph's own serialiser would write, and is kept
in memory only.
"""

from __future__ import annotations

import marshal
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import ormsgpack
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from agent_eventstore.integrations.langgraph.events import PackedValue, TaskWrite, Typed

__all__ = ["Codec", "packed_of"]

_MESSAGES = "langchain_core.messages."
_PLAIN: dict[tuple[str, str], tuple[Any, frozenset[str]]] = {
    (cls.__module__, cls.__name__): (cls, frozenset(cls.model_fields))
    for cls in (AIMessage, HumanMessage, SystemMessage, ToolMessage)
}
_UNKNOWN = None, frozenset[str]()
_set = object.__setattr__  # pydantic's own refuses these names
_MODEL = 5  # the serialiser's msgpack extension type for pydantic models
_HEADS = {0xC7: 3, 0xC8: 4, 0xC9: 6}  # bytes before an extension's data; the last is its type
_NIL = b"\xc0"
_EXACTLY = (  # only JSON's types: any other could be packed like a different value
    ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
_BY_VALUE = 2  # marshal's newest format without references, which depend on object identity
_HEAD = 5  # bytes of a list's header in marshal


class Codec:
    """Serialises and deserialises values."""

    def __init__(self, serde: Any) -> None:
        self.serde = serde
        self.dumps, self.loads = serde.dumps_typed, serde.loads_typed
        self._plain = JsonPlusSerializer()
        self._in_one = type(serde) is JsonPlusSerializer

    @cached_property
    def _same_bytes(self) -> bool:
        """Whether equal values have equal bytes; found out when it is first used."""
        return bool(self.dumps(["a"]) == self.dumps(["a"]))

    @property
    def encrypts(self) -> bool:
        """Whether the serialiser encrypts."""
        return isinstance(self.serde, EncryptedSerializer)

    def mark(self, value: Any, typed: Typed) -> Typed | None:
        """Return a value's mark, given its serialised form; None if it has none."""
        if self._same_bytes:
            return typed
        try:
            return self._plain.dumps_typed(value)  # type: ignore[no-any-return]
        except Exception:  # A class that only the other serialiser can write may raise anything.
            return None

    def written(self, writes: Sequence[tuple[str, Any]]) -> tuple[TaskWrite, ...]:
        """Return a task's writes; errors, interrupts and the like have indexes below 0."""
        return tuple(
            TaskWrite(
                index=WRITES_IDX_MAP.get(channel, index),
                channel=channel,
                value=PackedValue.of(self.dumps(value)),
            )
            for index, (channel, value) in enumerate(writes)
        )

    def loads_all(self, values: Sequence[Typed]) -> list[Any]:
        """Return the deserialised values.

        LangChain's own messages are unpacked in one batch and rebuilt as pickle would, without a
        second validation: this takes a third of the time.
        """
        if not self._in_one:
            return [self.loads(each) for each in values]
        packed = b"".join([_model_in(each) for each in values])
        loaded = self.loads(("msgpack", b"\xdd" + len(values).to_bytes(4, "big") + packed))
        made = [None if each is None else _message(*each) for each in loaded]
        return [
            self.loads(value) if message is None else message
            for value, message in zip(values, made, strict=True)
        ]

    def mark_of(self, typed: Typed) -> Typed | None:
        """Return the mark of a serialised value; None if it has none."""
        return typed if self._same_bytes else self.mark(self.loads(typed), typed)


def _model_in(typed: Typed) -> bytes:
    """Return the packed module, name and fields of a serialised model; otherwise a packed nil."""
    form, data = typed
    begin = _HEADS.get(data[0]) if form == "msgpack" and data else None
    return data[begin:] if begin is not None and data[begin - 1] == _MODEL else _NIL


def _message(module: str, name: str, fields: dict[str, Any], _: str) -> Any:
    """Return a message with these fields; None if it must be validated."""
    cls, known = _PLAIN.get((module, name), _UNKNOWN)
    if cls is None or fields.keys() != known:
        return None
    message = cls.__new__(cls)
    # As pydantic's own `__setstate__`, in half its time.
    _set(message, "__dict__", fields)
    _set(message, "__pydantic_extra__", {})
    _set(message, "__pydantic_fields_set__", {*fields})
    _set(message, "__pydantic_private__", None)
    return message


def packed_of(messages: Sequence[Any]) -> bytes | None:
    """Return the content of messages as bytes, which begin with the bytes of any shorter list.

    None if a message is not LangChain's or holds a value that cannot be packed. Packing costs a
    tenth of serialising, and detects messages that were changed in place. If values are not JSON,
    such as tuples, marshal packs them, at a fifth of the cost.
    """
    if not all(each.__module__.startswith(_MESSAGES) for each in {*map(type, messages)}):
        return None
    fields = [[type(each).__name__, each.__dict__, each.__pydantic_extra__] for each in messages]
    with suppress(TypeError):
        packed: bytes = ormsgpack.packb(fields, option=_EXACTLY)
        return packed[1 if len(fields) < 2**4 else 3 if len(fields) < 2**16 else 5 :]
    try:
        return marshal.dumps(fields, _BY_VALUE)[_HEAD:]
    except ValueError:
        return None
