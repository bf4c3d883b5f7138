"""JSON as compact tables: a list of similar objects lists its keys once, and nothing is lost.

`table_text` returns a table to send instead of the original JSON, but only if the original value
can be restored from it, with every key, and every scalar as it was written.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from projections.context.compression.facts import may_be_json

__all__ = ["dumped", "table_text", "tabled"]

_LEAST_ROWS = 2
_TABLE_KEY = "key"
_NESTED = (dict, list)
_LONGEST = 1_000_000  # characters; longer JSON is not turned into a table


class _Otherwise(ValueError):
    """The JSON text has something that would be written differently."""


def table_text(text: str) -> str | None:
    """Return a JSON object or list as a compact table; None if that is not shorter or not exact."""
    if len(text) > _LONGEST or not may_be_json(text):
        return None
    try:
        value = _exact.decode(text)
        table = tabled(value)
        if _as_it_was(table) != value:
            return None
    except (ValueError, TypeError, AttributeError, LookupError):
        return None  # Invalid, not restorable, or with keys of its own like those of a table.
    shorter = dumped(table)
    return shorter if len(shorter) < len(text) else None


def tabled(value: Any, of_text: Callable[[str], str] = str) -> Any:
    """Return a JSON value with its lists of similar objects as columns and rows.

    Args:
        value: The JSON value.
        of_text: Returns the replacement of each text in it.
    """
    if isinstance(value, str):
        return of_text(value)
    if isinstance(value, list):
        return _table(value, None, of_text) or [tabled(each, of_text) for each in value]
    if not isinstance(value, dict):
        return value
    values = list(value.values())
    if len(values) > _LEAST_ROWS and (table := _table(values, list(value), of_text)):
        return table
    return {key: tabled(each, of_text) for key, each in value.items()}


def dumped(value: Any) -> str:
    """Return a JSON value as text, without whitespace between values."""
    text = _compact(value)
    try:
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError:  # A lone surrogate must stay escaped.
        return json.dumps(value, separators=(",", ":"))
    return text


def _table(
    rows: list[Any], keys: list[str] | None, of_text: Callable[[str], str]
) -> dict[str, Any] | None:
    """Return objects with the same keys as columns and rows; None if their keys differ."""
    if len(rows) < _LEAST_ROWS or not all(isinstance(row, dict) and row for row in rows):
        return None
    flat = [_flattened(row) for row in rows]
    columns = list(flat[0])
    if any(row.keys() != flat[0].keys() for row in flat[1:]):
        return None
    table = [[tabled(row[column], of_text) for column in columns] for row in flat]
    if keys is not None:
        columns = [_TABLE_KEY, *columns]
        table = [[key, *row] for key, row in zip(keys, table, strict=True)]
    return {"columns": columns, "rows": table}


def _flattened(row: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    width = 0
    for key, value in row.items():
        if _is_flat(value):
            flat.update({f"{key}.{inner}": each for inner, each in value.items()})
            width += len(value)
        else:
            flat[key] = value
            width += 1
    return flat if len(flat) == width else row  # The row may have a key that equals a joined one.


def _is_flat(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and bool(value)
        and not any(isinstance(each, _NESTED) for each in value.values())
    )


def _as_it_was(table: Any) -> Any:
    """Return the value that a table was made from, reading it as a table."""
    if not isinstance(table, _NESTED):
        return table
    if isinstance(table, list):
        return [_as_it_was(each) for each in table]
    if table.keys() != {"columns", "rows"}:
        return {key: _as_it_was(each) for key, each in table.items()}
    columns = table["columns"]
    by_key = columns[:1] == [_TABLE_KEY]
    rows = [[_as_it_was(each) for each in row] for row in table["rows"]]
    found = [_row(columns[by_key:], row[by_key:]) for row in rows]
    return dict(zip((row[0] for row in rows), found, strict=True)) if by_key else found


def _row(columns: list[str], cells: list[Any]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for column, cell in zip(columns, cells, strict=True):
        key, dot, inner = column.partition(".")
        if dot:
            row.setdefault(key, {})[inner] = cell
        else:
            row[key] = cell
    return row


def _float(written: str) -> float:
    value = float(written)
    if repr(value) != written:
        raise _Otherwise(written)
    return value


def _int(written: str) -> int:
    value = int(written)
    if str(value) != written:
        raise _Otherwise(written)
    return value


def _constant(written: str) -> Any:
    raise _Otherwise(written)  # NaN is not JSON.


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise _Otherwise("duplicate key")
    return fields


_exact = json.JSONDecoder(
    parse_float=_float, parse_int=_int, parse_constant=_constant, object_pairs_hook=_object
)
_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
