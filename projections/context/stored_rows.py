"""Rows as a database gives them: a column is decoded when it is first looked at.

A request reads a few hundred rows and sends the JSON of some: of the others it only needs to know
how large they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from eventstore.errors import RowDamaged
from eventstore.sql.dialect import text_out
from eventstore.sql.types import json_out
from projections.context.quoted import message_of
from projections.context.rows import CONTEXT_MESSAGES, ContextRow

__all__ = ["COLUMNS", "StoredRow"]

COLUMNS = tuple(field.name for field in fields(ContextRow))
"""The columns of a stored row, in their order."""

_QUOTED = len(COLUMNS)

_set = object.__setattr__


class StoredRow(ContextRow):
    """A row of the table, which decodes what it is asked for; otherwise a `ContextRow`."""

    __slots__ = ("_raw",)

    def __init__(self, raw: Sequence[Any]) -> None:
        """Take the columns as the driver gives them, in the order of ``COLUMNS``.

        After them comes the text that a row without a message quotes.
        """
        _set(self, "_raw", raw)
        for name, index in _PLAIN:
            _set(self, name, raw[index])

    def with_(self, **changes: Any) -> StoredRow:
        """Return the row with other values in some columns; decodes nothing."""
        row = StoredRow(self._raw)
        for name, value in changes.items():
            _set(row, name, value)
        return row

    def __getattr__(self, name: str) -> Any:
        """Decode a column; called once for each, as its slot is filled then.

        Raises:
            RowDamaged: It holds what no fold has written.
        """
        place = _PLACES.get(name)
        if place is None:
            raise AttributeError(name)
        index, decode = place
        value = self._raw[index]
        if value is not None:
            value = decode(value)
            if name == "message" and not isinstance(value, dict):
                raise RowDamaged("no message")
        elif name == "message":
            value = message_of(self.role, self._raw[_QUOTED])
        if name == "source_versions" and not isinstance(value, list):
            raise RowDamaged("no versions")
        _set(self, name, value)
        return value


def _same(value: Any) -> Any:
    return value


# Looked at in every row, and given by every driver as they are.
_PLAIN = [
    (name, COLUMNS.index(name))
    for name in (
        "version",
        "part",
        "kind",
        "tokens",
        "encoding",
        "ordinal",
        "shorter_tokens",
        "native_tokens",
    )
]
_DECODERS: dict[str, Callable[[Any], Any]] = {"json": json_out, "text": text_out, "boolean": bool}
_TYPES = {column.name: column.type for column in CONTEXT_MESSAGES.columns}
_PLACES = {name: (index, _DECODERS.get(_TYPES[name], _same)) for index, name in enumerate(COLUMNS)}
