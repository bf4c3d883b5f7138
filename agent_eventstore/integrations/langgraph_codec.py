"""A serialiser of LangGraph's, and by what two of its values are told to be the same.

One that encrypts writes the same value in other bytes each time; then the bytes that LangGraph's
own serialiser would write tell it, which are kept in memory alone.
"""

from __future__ import annotations

import marshal
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import ormsgpack
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from agent_eventstore.integrations.langgraph_events import PackedValue, TaskWrite, Typed

__all__ = ["Codec", "told_of"]

_MESSAGES = "langchain_core.messages."
_PLAIN: dict[tuple[str, str], Any] = {
    (cls.__module__, cls.__name__): cls
    for cls in (AIMessage, HumanMessage, SystemMessage, ToolMessage)
}
_MODEL = 5  # the number of the serialiser's extension of msgpack for pydantic's models
_HEADS = {0xC7: 3, 0xC8: 4, 0xC9: 6}  # bytes before what an extension holds, the number the last
_NIL = b"\xc0"
_EXACTLY = (  # of two values that are not the same only those of JSON are taken
    ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
_BY_VALUE = 2  # the newest format of marshal's that does not tell the same object from an equal one
_HEAD = 5  # bytes by which marshal begins a list


class Codec:
    """Writes and reads values by a serialiser."""

    def __init__(self, serde: Any) -> None:
        self.serde = serde
        self.dumps, self.loads = serde.dumps_typed, serde.loads_typed
        self._same_bytes = self.dumps(["a"]) == self.dumps(["a"])
        self._plain = JsonPlusSerializer()
        self._in_one = type(serde) is JsonPlusSerializer

    @property
    def encrypts(self) -> bool:
        """Whether what it writes is not to be read by others."""
        return isinstance(self.serde, EncryptedSerializer)

    def mark(self, value: Any, typed: Typed) -> Typed | None:
        """Return what tells a value from others, given what it was written as."""
        if self._same_bytes:
            return typed
        try:
            return self._plain.dumps_typed(value)  # type: ignore[no-any-return]
        except Exception:  # Whatever a class raises that only the other serialiser can write.
            return None

    def written(self, writes: Sequence[tuple[str, Any]]) -> tuple[TaskWrite, ...]:
        """Return what a task has written; errors, interrupts and the like have indexes below 0."""
        return tuple(
            TaskWrite(
                index=WRITES_IDX_MAP.get(channel, index),
                channel=channel,
                value=PackedValue.of(self.dumps(value)),
            )
            for index, (channel, value) in enumerate(writes)
        )

    def loads_all(self, values: Sequence[Typed]) -> list[Any]:
        """Return what ``loads`` does of each.

        LangChain's own messages are unpacked together, and put together again as pickle would: in
        a third of the time, since what was valid is not validated a second time.
        """
        if not self._in_one:
            return [self.loads(each) for each in values]
        packed = b"".join([_model_in(each) for each in values])
        told = self.loads(("msgpack", b"\xdd" + len(values).to_bytes(4, "big") + packed))
        made = [None if each is None else _message(*each) for each in told]
        return [
            self.loads(value) if message is None else message
            for value, message in zip(values, made, strict=True)
        ]

    def mark_of(self, typed: Typed) -> Typed | None:
        """Return what tells a value that was written before."""
        return typed if self._same_bytes else self.mark(self.loads(typed), typed)


def _model_in(typed: Typed) -> bytes:
    """Return what the serialiser packed of a model: its module, name, fields; else nil, packed."""
    form, data = typed
    begin = _HEADS.get(data[0]) if form == "msgpack" and data else None
    return data[begin:] if begin is not None and data[begin - 1] == _MODEL else _NIL


def _message(module: str, name: str, fields: dict[str, Any], _: str) -> Any:
    """Return a message of these fields; None if that needs to be validated."""
    cls = _PLAIN.get((module, name))
    if cls is None or fields.keys() != cls.model_fields.keys():
        return None
    message = cls.__new__(cls)
    message.__setstate__(
        {
            "__dict__": fields,
            "__pydantic_extra__": {},
            "__pydantic_fields_set__": {*fields},
            "__pydantic_private__": None,
        }
    )
    return message


def told_of(messages: Sequence[Any]) -> bytes | None:
    """Return what all that messages hold is told by, one behind the other; None if it is not so.

    It costs a tenth of writing them, and finds what was changed in place: that of a list begins
    with that of its beginning. What is not JSON, such as a tuple, marshal tells, in a fifth.
    """
    if not all(each.__module__.startswith(_MESSAGES) for each in {*map(type, messages)}):
        return None
    held = [[type(each).__name__, each.__dict__, each.__pydantic_extra__] for each in messages]
    with suppress(TypeError):
        packed: bytes = ormsgpack.packb(held, option=_EXACTLY)
        return packed[1 if len(held) < 2**4 else 3 if len(held) < 2**16 else 5 :]
    try:
        return marshal.dumps(held, _BY_VALUE)[_HEAD:]
    except ValueError:
        return None
