"""Small projections, for what the real ones do not do: fail, grow a version, patch at will."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eventstore import RecordedEvent
from eventstore.events import UserMessage
from projections import ProjectionSet
from projections.engine.projection import Change, Column, Put, ReadTable, State

__all__ = ["NOTES", "OURS", "OURS_PLACE", "Marked", "Notes", "Poisoned"]

NOTES = ReadTable(
    "notes",
    ("version", "part"),
    (
        Column("version", "integer"),
        Column("part", "integer"),
        Column("mark", "integer"),
        Column("text", "text"),
        Column("data", "json"),
    ),
    indexes=(("mark",),),
)


@dataclass(frozen=True, slots=True)
class Notes:
    """One row a user message; its text says which version of the fold made it."""

    version: int = 1
    name: str = "notes"
    tables: Sequence[ReadTable] = (NOTES,)

    def initial(self) -> State:
        """Return the count of messages so far."""
        return {"count": 0}

    def fold(self, state: State, event: RecordedEvent) -> tuple[State, Sequence[Change]]:
        """Return the new count, and the row of a user message."""
        if event.type != UserMessage.type:
            return state, ()
        count = state["count"] + 1
        values = {"mark": count, "text": f"by version {self.version}"}
        return {"count": count}, (Put("notes", (event.version, 0), values),)


class Poison(Exception):
    """What a broken fold raises."""


@dataclass(frozen=True, slots=True)
class Poisoned(Notes):
    """The same, but its fold fails at one version of every conversation."""

    at: int = 1

    def fold(self, state: State, event: RecordedEvent) -> tuple[State, Sequence[Change]]:
        """Fold as `Notes` does, or raise."""
        if event.version == self.at:
            raise Poison(f"version {event.version}")
        return Notes.fold(self, state, event)


@dataclass(frozen=True, slots=True)
class Marked(Notes):
    """The same, but its fold fails at a message that says ``poison``."""

    def fold(self, state: State, event: RecordedEvent) -> tuple[State, Sequence[Change]]:
        """Fold as `Notes` does, or raise."""
        if event.data == UserMessage.text("poison"):
            raise Poison(f"version {event.version}")
        return Notes.fold(self, state, event)


OURS = ProjectionSet([Marked()])
"""A product's set, of which one cannot fold a marked message."""

OURS_PLACE = f"{__name__}:OURS"
"""Where the command line finds it."""
