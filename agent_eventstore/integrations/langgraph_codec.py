"""A serialiser of LangGraph's, and what is known of it: by what two values are told to be the same.

One that encrypts writes the same value in other bytes each time; then the bytes that LangGraph's
own serialiser would write tell it, which are kept in memory alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from agent_eventstore.integrations.langgraph_events import Typed

__all__ = ["Codec"]

_MSGPACK = "msgpack"


class Codec:
    """Writes and reads values by a serialiser."""

    def __init__(self, serde: Any) -> None:
        self.serde = serde
        self.dumps, self.loads = serde.dumps_typed, serde.loads_typed
        once = self.dumps(["a"])
        self._same_bytes = once == self.dumps(["a"])
        kind, element = self.dumps("a")
        # Then a list is its elements behind a head, so that all are read at once.
        self._joins = kind == _MSGPACK and once == (_MSGPACK, b"\x91" + element)
        self._plain = JsonPlusSerializer()

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

    def mark_of(self, typed: Typed) -> Typed | None:
        """Return what tells a value that was written before."""
        return typed if self._same_bytes else self.mark(self.loads(typed), typed)

    def begins(self, values: Sequence[Any], elements: Sequence[Any]) -> bool:
        """Whether a list begins with these elements; False also where that cannot be told at once.

        All is written once more for that, since whoever has a message may have changed it.
        """
        known = [each for each in elements if isinstance(each, tuple) and each[0] == _MSGPACK]
        if not self._joins or len(known) < len(elements) or len(known) > len(values):
            return False
        written = self.dumps(list(values))[1]
        return bool(written.startswith(b"".join(raw for _, raw in known), len(_head(len(values)))))

    def load_list(self, elements: Sequence[Typed]) -> list[Any]:
        """Return the values of several."""
        if self._joins and all(kind == _MSGPACK for kind, _ in elements):
            joined = b"".join([_head(len(elements)), *(raw for _, raw in elements)])
            return list(self.loads((_MSGPACK, joined)))
        return [self.loads(typed) for typed in elements]


def _head(count: int) -> bytes:
    """Return how msgpack begins a list."""
    if count < 16:
        return bytes((0x90 | count,))
    if count < 1 << 16:
        return b"\xdc" + count.to_bytes(2)
    return b"\xdd" + count.to_bytes(4)
