"""Texts that rows quote: a row names the place of an event's text instead of keeping a copy.

The place is the event's version and the index of the part. SQL can find the text there only if the
event was read from a `quotable` row and was written in the current schema version; any other text
is copied. A text that is erased from the event is gone from the row too.
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

__all__ = ["EVENT", "PLACE", "QuotedText", "place_of", "quoted_text"]

EVENT = "text_version"
"""The column with the version of the quoted event; NULL if no event is quoted."""

PLACE = (Column(EVENT, "integer"), Column("text_part", "integer"))
"""The event that has the text, and the 0-based index of its part; NULL if it has no parts."""

# A tuple, because a union would be created again for every part.
_WITH_TEXT = (TextPart, ReasoningPart, RefusalPart)

_SAID = """
    CASE WHEN {table}.text_part IS NULL
        THEN coalesce(events.data ->> 'content', events.data ->> 'text')
        ELSE events.data -> 'parts' -> CAST({table}.text_part AS int) ->> 'text' END"""


def quoted_text(table: str) -> str:
    """Return the SQL expression of a row's quoted text, in a query that joins its event.

    Args:
        table: The qualifier of the row's columns; the event's are qualified with ``events``.
    """
    return _SAID.format(table=table)


@dataclass(frozen=True, slots=True)
class QuotedText:
    """Storage of rows without a text that an event has.

    Attributes:
        column: The column of the text, in addition to those of ``PLACE``.
    """

    column: str = "text"
    event: str = EVENT

    def stored(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values to write."""
        return values if values.get(EVENT) is None else {**values, self.column: None}

    def shown(self, table: str, dialect: str) -> Mapping[str, str]:
        """Return the SQL expression of the text."""
        column_name = f"{table}.{self.column}"
        return {
            self.column: f"CASE WHEN {table}.{EVENT} IS NULL THEN {column_name} "
            f"ELSE {quoted_text(table)} END"
        }


def place_of(event: RecordedEvent, text: str | None, *, longer_than: int) -> dict[str, int | None]:
    """Return the columns ``PLACE`` of a text; all NULL if the row must keep the text.

    Args:
        event: The event that may contain the text.
        text: The row's text.
        longer_than: Texts of up to this many characters are cheaper to keep than to look up.
    """
    if text is None or len(text) <= longer_than:
        return {EVENT: None, "text_part": None}
    has_it, part = _find(event, text)
    return {EVENT: event.version if has_it else None, "text_part": part}


def _find(event: RecordedEvent, text: str) -> tuple[bool, int | None]:
    data = event.data
    if data is None or not event.quotable or event.schema_version != data.schema_version:
        return False, None  # SQL would not find it, or not in the current form
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
