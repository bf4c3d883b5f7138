"""Texts that rows quote: a row names the place of an event's text instead of keeping a copy of it.

The place is the version of the event, and which of its parts. SQL finds it there only if the event
was read from a row that is `quotable`, and written in today's form; any other text is copied. What
is erased in the event is gone from the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eventstore.events import (
    AssistantMessage,
    Notebook,
    ReasoningPart,
    RecordedEvent,
    RefusalPart,
    Summary,
    SystemInstruction,
    TextPart,
    ToolResult,
    UserMessage,
)
from projections.engine.projection import Column

__all__ = ["EVENT", "PLACE", "QuotedText", "place_of", "said"]

EVENT = "text_version"
"""The column with the version of the event that has the text; NULL if no event is quoted."""

PLACE = (Column(EVENT, "integer"), Column("text_part", "integer"))
"""Which event has the text, and in which of its parts, from 0; NULL where it has no parts."""

# A tuple, since a union would be made anew for every part.
_WITH_TEXT = (TextPart, ReasoningPart, RefusalPart)

_SAID = """
    CASE WHEN {table}.text_part IS NULL
        THEN coalesce(events.data ->> 'content', events.data ->> 'text')
        ELSE events.data -> 'parts' -> CAST({table}.text_part AS int) ->> 'text' END"""


def said(table: str) -> str:
    """Return the SQL of the text that a row quotes, with its event at hand.

    Args:
        table: What the row's columns are qualified with; those of the event with ``events``.
    """
    return _SAID.format(table=table)


@dataclass(frozen=True, slots=True)
class QuotedText:
    """Rows without a text that an event has.

    Attributes:
        column: The column of the text, beside those of ``PLACE``.
    """

    column: str = "text"
    event: str = EVENT

    def stored(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values as they are written."""
        return values if values.get(EVENT) is None else {**values, self.column: None}

    def shown(self, table: str, dialect: str) -> Mapping[str, str]:
        """Return the SQL of the text."""
        kept = f"{table}.{self.column}"
        return {
            self.column: f"CASE WHEN {table}.{EVENT} IS NULL THEN {kept} ELSE {said(table)} END"
        }


def place_of(event: RecordedEvent, text: str | None, *, longer_than: int) -> dict[str, int | None]:
    """Return the columns ``PLACE`` of a text, all NULL where a row has to keep it.

    Args:
        event: The event that the text may stand in.
        text: What the row says.
        longer_than: A text of so many characters is cheaper to keep than to look up.
    """
    if text is None or len(text) <= longer_than:
        return {EVENT: None, "text_part": None}
    has_it, part = _find(event, text)
    return {EVENT: event.version if has_it else None, "text_part": part}


def _find(event: RecordedEvent, text: str) -> tuple[bool, int | None]:
    data = event.data
    if data is None or not event.quotable or event.schema_version != data.schema_version:
        return False, None  # SQL would not find it, or not in today's form
    match data:
        case UserMessage() | AssistantMessage():
            for number, part in enumerate(data.parts):
                if isinstance(part, _WITH_TEXT) and part.text == text:
                    return True, number
        case ToolResult():
            return data.content == text, None
        case Summary() | SystemInstruction() | Notebook():
            return data.text == text, None
    return False, None
