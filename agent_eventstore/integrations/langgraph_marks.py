"""By which values that a thread has already are found again: each is stored once."""

from __future__ import annotations

from collections.abc import Container

from agent_eventstore.integrations.langgraph_codec import Codec
from agent_eventstore.integrations.langgraph_events import Typed
from agent_eventstore.integrations.langgraph_lists import Values

__all__ = ["Marks"]


class Marks:
    """What tells the values of a thread from each other.

    Attributes:
        of: The marks of values by their places.
        known: The places of values by their marks.
        said: The places of messages that are events by their marks.
    """

    def __init__(self) -> None:
        self.of: dict[int, Typed] = {}
        self.known: dict[Typed, int] = {}
        self.said: dict[Typed, int] = {}
        self._new: list[int] = []

    def add(self, place: int) -> None:
        """Take in a place, whose value is looked at when it is asked for."""
        self._new.append(place)

    def follow(self, values: Values, spoken: Container[int], codec: Codec) -> None:
        """Look at the values that are new; ``spoken`` are the places of messages."""
        for place in self._new:
            typed = values.get(place)
            if not isinstance(typed, tuple) or (mark := codec.mark_of(typed)) is None:
                continue
            self.of[place] = mark
            self.known[mark] = place
            if place in spoken:
                self.said[mark] = place
        self._new.clear()
