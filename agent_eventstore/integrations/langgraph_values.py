"""A thread's values by place; a list may be stored as the beginning of another plus new elements.

Lists of messages are most of a thread. They are cached as serialised, and each reader gets new
objects.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Any

from agent_eventstore.integrations.langgraph_codec import Codec
from agent_eventstore.integrations.langgraph_events import Typed, typed_of

__all__ = ["DEEPEST", "KeptList", "Marks", "Values"]

DEEPEST = 100
"""The most lists in a chain in which each extends the one before."""
_UNROLLED = 8


@dataclass(slots=True)
class KeptList:
    """A stored `GrownList`: an earlier list, the elements kept of it, and the elements added."""

    base: int | None
    kept: int
    added: tuple[int, ...]


class Values(dict[int, Typed | KeptList]):
    """Values and lists of values by place."""

    def __init__(self) -> None:
        super().__init__()
        self._depths: dict[int, int] = {}
        self._unrolled: dict[int, list[int]] = {}

    def keep(self, place: int, told: dict[str, Any]) -> None:
        """Add a value of an event, given as JSON."""
        if told["kind"] == "list":
            node = KeptList(told.get("base"), told.get("kept", 0), tuple(told.get("added", ())))
            self[place] = node
            self._depths[place] = 0 if node.base is None else self.depth(node.base) + 1
        else:
            self[place] = typed_of(told)

    def depth(self, place: int) -> int:
        """Return how many earlier lists a list is built on."""
        return self._depths.get(place, 0)

    def elements(self, place: int) -> list[int]:
        """Return the places of a list's elements; the caller must not modify the result."""
        if (known := self._unrolled.get(place)) is not None:
            return known
        nodes, at, found = list[KeptList](), place, list[int]()
        while isinstance(node := self.get(at), KeptList):
            nodes.append(node)
            at = -1 if node.base is None else node.base
            if at in self._unrolled:
                found = list(self._unrolled[at])
                break
        for node in reversed(nodes):
            del found[node.kept :]
            found.extend(node.added)
        if len(self._unrolled) >= _UNROLLED:
            self._unrolled.pop(next(iter(self._unrolled)))
        self._unrolled[place] = found
        return found

    def value(self, place: int, codec: Codec) -> Any:
        """Return the value at a place; erased elements of a list are omitted."""
        held = self[place]
        if isinstance(held, tuple):
            return codec.loads(held)
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
        self.said: dict[Typed, int] = {}
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
                self.said[mark] = place
        self._new.clear()
