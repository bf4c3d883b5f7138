"""The statements that write a generation's rows, built once per table and set of columns.

A turn writes a handful of rows, and SQLAlchemy would build and compile a statement for each. These
statements go straight to the driver, with values converted as the columns' types convert them;
converting needs no transaction. A rebuild binds the rows of many conversations by column
(`bind_new`) and writes them at once (`load`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import BigInteger, Boolean, Double, Table
from sqlalchemy.types import TypeEngine

from eventstore.sql.backend import AnyConnection, Backend, Bound, backend_of, cursor, fetch
from eventstore.sql.types import (
    Id,
    IndexedText,
    SafeJson,
    SafeText,
    Timestamp,
    all_json_in,
    escape,
    indexed,
    json_in,
    unescape,
)
from projections.engine.tables import kinds_of, marked, storage_of

__all__ = ["NewRows", "bind_new", "columns_of", "insert", "load", "patch", "upsert"]

Row = Mapping[str, Any]
Key = tuple[Any, ...]
Convert = Callable[[Any], Any]
ConvertAll = Callable[[Convert, list[Any]], list[Any]]

_OWNER = "conversation_id"

# Both drivers accept values of unlisted types unchanged.
_CONVERTERS: dict[type[TypeEngine[Any]], Callable[[Backend], Convert]] = {
    SafeText: lambda backend: escape,
    IndexedText: lambda backend: indexed,
    SafeJson: lambda backend: json_in,
    Timestamp: lambda backend: backend.from_time,
    Id: lambda backend: backend.from_id,
}


_COPIED_AS: dict[type[TypeEngine[Any]], str] = {
    SafeText: "text",
    IndexedText: "text",
    SafeJson: "text",  # JSON is already text when it is bound
    BigInteger: "int8",
    Double: "float8",
    Boolean: "bool",
    Timestamp: "timestamptz",
    Id: "uuid",
}


@dataclass(frozen=True, slots=True)
class NewRows:
    """New rows of one table in the driver's form, and the columns that they set."""

    columns: tuple[str, ...]
    bound: Sequence[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A statement and the columns of its parameters, in order, with their converters."""

    sql: str
    columns: tuple[tuple[str, Convert | None], ...]

    def bind(self, row: Row) -> list[Any]:
        """Return a row's values in the driver's form."""
        if len(row) != len(self.columns):
            expected = [name for name, _ in self.columns]
            raise KeyError(f"a row sets the columns {sorted(row)}, expected {expected}")
        return [
            value if (value := row[name]) is None or convert is None else convert(value)
            for name, convert in self.columns
        ]

    def of(self, rows: Sequence[Row]) -> Bound:
        """Return the statement with these rows' values."""
        return Bound(self.sql, [self.bind(row) for row in rows])


def bind_new(table: Table, backend: Backend, rows: Mapping[Any, Mapping[Key, Row]]) -> NewRows:
    """Return new rows for `load`, which leaves columns that no row sets NULL.

    Converts one column at a time, because most columns need no conversion or repeat a value.

    Args:
        table: The generation's table.
        backend: The backend of the target database.
        rows: Complete rows, by conversation id in the driver's form and then by the other values of
            the key.

    Raises:
        KeyError: A row sets a column that the table does not have.
    """
    storage = storage_of(table)
    # Rows that set the same columns in the same order are transposed together.
    shapes: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
    for owner, own in rows.items():
        for place, values in own.items():
            row = values if storage is None else storage.stored(values)
            held = (owner, *place, *row.values())
            if (alike := shapes.get(shape := tuple(row))) is None:
                shapes[shape] = [held]
            else:
                alike.append(held)
    if not shapes:
        return NewRows((), ())
    key, others = _key_and_others(table)
    known = set().union(*shapes)
    if unknown := known.difference(others):
        raise KeyError(f"a row sets unknown columns {sorted(unknown)}, known: {sorted(others)}")
    columns: dict[str, list[Any]] = {
        name: [] for name in (_OWNER, *key, *others) if name not in others or name in known
    }
    for shape, alike in shapes.items():
        made = dict(zip((_OWNER, *key, *shape), zip(*alike, strict=True), strict=True))
        lacking = [None] * len(alike)
        for name, column in columns.items():
            column += made.get(name, lacking)
    for name in filter(known.__contains__, others):
        column = columns[name]
        if not any(column) and column.count(None) == len(column):
            del columns[name]
    for name, convert in _converted(table, tuple(columns), backend):
        if convert is not None and name != _OWNER:
            columns[name] = _CONVERT_ALL[kinds_of(table)[name]](convert, columns[name])
    return NewRows(tuple(columns), list(zip(*columns.values(), strict=True)))


def load(connection: AnyConnection, table: Table, rows: NewRows) -> None:
    """Insert many new rows at once, in the caller's transaction; on PostgreSQL with ``COPY``."""
    if not rows.bound:
        return
    kinds = kinds_of(table)
    columns = {name: _COPIED_AS[kinds[name]] for name in rows.columns}
    backend, bound, run = backend_of(connection), rows.bound, cursor(connection)
    mark = marked(table, backend.name)
    if mark is not None:
        columns[mark.column], bound = "int8", [(*row, 0) for row in bound]
    backend.load(run, table.name, columns, bound, triggers=mark is not None)
    for statement in mark.statements if mark is not None else ():
        run.execute(statement)
    run.close()


def insert(backend: Backend, table: Table, rows: Sequence[Row]) -> Bound:
    """Return the statement that inserts rows with values for every column of the table."""
    return _insert(table, tuple(table.columns.keys()), backend).of(rows)


def upsert(backend: Backend, table: Table, columns: tuple[str, ...], rows: Sequence[Row]) -> Bound:
    """Return the statement that inserts rows, or sets ``columns`` of rows whose key exists.

    Args:
        backend: The backend of the target database.
        table: The generation's table.
        columns: The columns of every row other than the key; if empty, existing rows are unchanged.
        rows: Rows as values by column, including the key's.
    """
    return _upsert(table, columns, backend).of(rows)


def patch(
    backend: Backend,
    table: Table,
    owner: Any,
    within: tuple[str, int, int],
    values: Row,
    *,
    only: tuple[str, str | None] | None = None,
) -> Bound:
    """Return the statement that sets columns of a conversation's rows.

    Args:
        backend: The backend of the target database.
        table: The generation's table.
        owner: The conversation's id.
        within: The column that selects the rows, and its lowest and highest value.
        values: The values to set, by column.
        only: A text column, and the value that it must have.
    """
    column, first, last = within
    checked = None if only is None else (only[0], only[1] is None)
    made = _patch(table, column, tuple(sorted(values)), backend, checked)
    bound = [*made.bind({**values, _OWNER: owner}), first, last]
    return Bound(made.sql, [[*bound, only[1]] if only is not None and only[1] else bound])


def columns_of(
    connection: AnyConnection, table: Table, owner: Any, columns: Sequence[str]
) -> list[tuple[Any, ...]]:
    """Return some columns of all rows of a conversation, in the caller's transaction."""
    backend = backend_of(connection)
    names = ", ".join(_quoted(columns))
    chosen = f'SELECT {names} FROM "{table.name}" WHERE {_OWNER} = {backend.mark}'  # noqa: S608
    texts = [isinstance(table.c[name].type, SafeText) for name in columns]
    return [
        tuple(
            unescape(value) if text and value is not None else value
            for value, text in zip(row, texts, strict=True)
        )
        for row in fetch(connection, chosen, [backend.from_id(owner)])
    ]


def _convert_texts(convert: Convert, column: list[Any]) -> list[Any]:
    """Convert texts; usually none needs conversion, which a check of all at once shows."""
    together = "".join(filter(None, column))
    return column if convert(together) == together else _convert_each(convert, column)


def _convert_distinct(convert: Convert, column: list[Any]) -> list[Any]:
    """Convert values, many of which are equal: events of one append have the same time."""
    known = {value: convert(value) for value in set(column) if value is not None}
    return [known.get(value) for value in column]


def _convert_json(_: Convert, column: list[Any]) -> list[Any]:
    return all_json_in(column)


def _convert_each(convert: Convert, column: list[Any]) -> list[Any]:
    return [None if value is None else convert(value) for value in column]


_CONVERT_ALL: dict[type[TypeEngine[Any]], ConvertAll] = {
    SafeText: _convert_texts,
    IndexedText: _convert_distinct,
    SafeJson: _convert_json,
    Timestamp: _convert_distinct,
    Id: _convert_distinct,
}


@lru_cache(maxsize=256)
def _key_and_others(table: Table) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the key's columns, without the conversation's id, and all other columns."""
    key = tuple(column.name for column in table.primary_key if column.name != _OWNER)
    return key, tuple(name for name in table.columns.keys() if name not in (_OWNER, *key))


@lru_cache(maxsize=256)
def _insert(table: Table, columns: tuple[str, ...], backend: Backend) -> _Prepared:
    names = ", ".join(_quoted(columns))
    marks = ", ".join([backend.mark] * len(columns))
    return _Prepared(
        f'INSERT INTO "{table.name}" ({names}) VALUES ({marks})',  # noqa: S608 - names of columns
        _converted(table, columns, backend),
    )


@lru_cache(maxsize=256)
def _upsert(table: Table, columns: tuple[str, ...], backend: Backend) -> _Prepared:
    key = tuple(column.name for column in table.primary_key)
    plain = _insert(table, (*key, *columns), backend)
    changed = ", ".join(f"{name} = excluded.{name}" for name in _quoted(columns))
    action = f"UPDATE SET {changed}" if changed else "NOTHING"
    conflict = f"ON CONFLICT ({', '.join(_quoted(key))}) DO {action}"
    return _Prepared(f"{plain.sql} {conflict}", plain.columns)


@lru_cache(maxsize=256)
def _patch(
    table: Table,
    within: str,
    columns: tuple[str, ...],
    backend: Backend,
    checked: tuple[str, bool] | None,
) -> _Prepared:
    mark = backend.mark
    [column] = _quoted((within,))
    changed = ", ".join(f"{name} = {mark}" for name in _quoted(columns))
    chosen = f"{_OWNER} = {mark} AND {column} BETWEEN {mark} AND {mark}"
    if checked is not None:
        [name] = _quoted(checked[:1])
        chosen += f" AND {name} IS NULL" if checked[1] else f" AND {name} = {mark}"
    return _Prepared(
        f'UPDATE "{table.name}" SET {changed} WHERE {chosen}',  # noqa: S608 - names of columns
        _converted(table, (*columns, _OWNER), backend),
    )


def _quoted(columns: Sequence[str]) -> list[str]:
    return [f'"{name}"' for name in columns]


def _converted(
    table: Table, columns: Sequence[str], backend: Backend
) -> tuple[tuple[str, Convert | None], ...]:
    kinds = kinds_of(table)
    made = [(name, _CONVERTERS.get(kinds[name])) for name in columns]
    return tuple((name, None if convert is None else convert(backend)) for name, convert in made)
