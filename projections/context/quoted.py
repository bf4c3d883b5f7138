"""The messages of context rows, of which the table keeps no copy where an event has the text.

Most messages are a role and one text, which stands in the message's event. If it is long, the row
quotes the event (see `projections.quoting`) and says only the role; a message with a name, with
tool calls or with several parts stands in the row, as does what was put together for the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eventstore.events import RecordedEvent
from projections import quoting

__all__ = ["QuotedMessages", "message_of", "place_of"]

_SHORT = 500  # characters; a request holds many short messages, and few long ones

_MADE = {
    "sqlite": "json_object('role', {table}.role, 'content', {said})",
    "postgresql": "json_build_object('role', {table}.role, 'content', {said})",
}
_MESSAGE = "CASE WHEN {table}.text_version IS NULL THEN {table}.message ELSE {made} END"


@dataclass(frozen=True, slots=True)
class QuotedMessages:
    """Rows without the messages whose texts events have."""

    event: str = quoting.EVENT

    def stored(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values as they are written."""
        return values if values.get(self.event) is None else {**values, "message": None}

    def shown(self, table: str, dialect: str) -> Mapping[str, str]:
        """Return the SQL of the message."""
        made = _MADE[dialect].format(table=table, said=quoting.said(table, dialect))
        return {"message": _MESSAGE.format(table=table, made=made)}


def place_of(event: RecordedEvent, message: Mapping[str, Any]) -> dict[str, int | None]:
    """Return the columns beside a message: where the event has its text, if that is all of it."""
    text = message["content"]
    alone = len(message) == 2 and isinstance(text, str)  # Role and content are in every message.
    return quoting.place_of(event, text if alone else None, longer_than=_SHORT)


def message_of(role: str, text: str) -> dict[str, Any]:
    """Return the message whose text was quoted, with its keys in the order in which they go out."""
    return {"role": role, "content": text}
