"""The texts of timeline items, of which the table keeps no copy where the event itself has one.

Most items show the text of one event as it stands there. If it is longer than its preview, the row
quotes the event (see `projections.quoting`). A text that is streaming, was put together, or lies
in a blob stands in the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eventstore.events import RecordedEvent
from eventstore.sql.types import escape
from projections.folding import PREVIEW_CHARS, one_line
from projections.quoting import EVENT, place_of, said

__all__ = ["QuotedTexts", "text_columns"]

_TEXT = "CASE WHEN {table}.text_version IS NULL THEN {table}.text ELSE {said} END"
_PREVIEW = "coalesce({table}.preview, substr({text}, 1, {limit}))"


@dataclass(frozen=True, slots=True)
class QuotedTexts:
    """Rows without the texts that events have, and without previews that only repeat a start."""

    event: str = EVENT

    def stored(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values as they are written."""
        text = values.get("text")
        if text is None:
            return values
        kept, preview = dict(values), values["preview"]
        if preview == text[:PREVIEW_CHARS] and escape(preview) == preview:
            kept["preview"] = None
        if values[EVENT] is not None:
            kept["text"] = None
        return kept

    def shown(self, table: str, dialect: str) -> Mapping[str, str]:
        """Return the SQL of text and preview."""
        text = _TEXT.format(table=table, said=said(table, dialect))
        return {
            "text": text,
            "preview": _PREVIEW.format(table=table, text=text, limit=PREVIEW_CHARS),
        }


def text_columns(event: RecordedEvent, text: str | None) -> dict[str, Any]:
    """Return what a row sets with a text: itself, its preview, and where the event has it."""
    preview = None if text is None else one_line(text)
    place = place_of(event, text, longer_than=PREVIEW_CHARS)
    return {"text": text, "preview": preview, **place}
