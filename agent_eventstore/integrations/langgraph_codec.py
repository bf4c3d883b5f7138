"""A serialiser of LangGraph's, and by what two of its values are told to be the same.

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

    def joined(self, elements: Sequence[Any]) -> bytes | None:
        """Return what a list of written values holds behind its head; None if it is not so."""
        if not self._joins:
            return None
        known = [each[1] for each in elements if isinstance(each, tuple) and each[0] == _MSGPACK]
        return b"".join(known) if len(known) == len(elements) else None

    def begins(self, values: Sequence[Any], joined: bytes) -> bool:
        """Whether a list begins with these elements.

        All is written once more for that, since whoever has a value may have changed it.
        """
        return bool(self.dumps(list(values))[1].startswith(joined, len(_head(len(values)))))

    def load_joined(self, count: int, joined: bytes) -> list[Any]:
        """Return a list by what it holds behind its head."""
        return list(self.loads((_MSGPACK, _head(count) + joined)))


def _head(count: int) -> bytes:
    """Return how msgpack begins a list."""
    if count < 16:
        return bytes((0x90 | count,))
    if count < 1 << 16:
        return b"\xdc" + count.to_bytes(2)
    return b"\xdd" + count.to_bytes(4)
