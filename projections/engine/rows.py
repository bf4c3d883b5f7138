"""The statements that write a generation's rows, made once for a table and the columns they set.

A turn writes a handful of rows, and SQLAlchemy would build and compile a statement for each. These
go to the driver, with values converted as the columns' own types convert them, which needs no
transaction. What a rebuild writes of many conversations is bound by column (`bind_new`), and goes
in at once (`load`).
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

# A type that is not listed is taken by both drivers as it is.
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
    SafeJson: "text",  # which JSON already is when it is bound
    BigInteger: "int8",
    Double: "float8",
    Boolean: "bool",
    Timestamp: "timestamptz",
    Id: "uuid",
}


@dataclass(frozen=True, slots=True)
class NewRows:
    """New rows of one table as the driver takes them, and the columns that they set."""

    columns: tuple[str, ...]
    bound: Sequence[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A statement, and the columns whose values it takes, in order, with their converters."""

    sql: str
    columns: tuple[tuple[str, Convert | None], ...]

    def bind(self, row: Row) -> list[Any]:
        """Return a row's values as the driver takes them."""
        if len(row) != len(self.columns):
            expected = [name for name, _ in self.columns]
            raise KeyError(f"a row sets {sorted(row)} where {expected} can be set")
        return [
            value if (value := row[name]) is None or convert is None else convert(value)
            for name, convert in self.columns
        ]

    def of(self, rows: Sequence[Row]) -> Bound:
        """Return the statement with these rows' values."""
        return Bound(self.sql, [self.bind(row) for row in rows])


def bind_new(table: Table, backend: Backend, rows: Mapping[Any, Mapping[Key, Row]]) -> NewRows:
    """Return new rows for `load`, which leaves the columns that none of them sets at NULL.

    A column at a time, since most columns have nothing to convert, or the same value many times.

    Args:
        table: The generation's table.
        backend: Of the database that they are for.
        rows: Whole ones, by conversation, whose id is as the driver takes it, and by the values of
            their key without it.

    Raises:
        KeyError: A row sets a column that the table does not have.
    """
    storage = storage_of(table)
    # Rows that set the same columns in the same order become columns together.
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
        raise KeyError(f"a row sets {sorted(unknown)} where {sorted(others)} can be set")
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
    """Insert many new rows at once, in the caller's transaction: on PostgreSQL by ``COPY``."""
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
    """Return the statement that inserts rows with every column of the table."""
    return _insert(table, tuple(table.columns.keys()), backend).of(rows)


def upsert(backend: Backend, table: Table, columns: tuple[str, ...], rows: Sequence[Row]) -> Bound:
    """Return the statement that inserts rows, or sets ``columns`` of those whose key is there.

    Args:
        backend: Of the database that it is for.
        table: The generation's table.
        columns: What every row holds beside the key; nothing is changed if there are none.
        rows: By column, the key's included.
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
        backend: Of the database that it is for.
        table: The generation's table.
        owner: The conversation's id.
        within: The column that decides which rows, and its lowest and highest value.
        values: What to set, by column.
        only: A column of texts, and the value that it must have.
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
    """Convert texts; nearly always all of them are stored as they are, which one look tells."""
    together = "".join(filter(None, column))
    return column if convert(together) == together else _convert_each(convert, column)


def _convert_distinct(convert: Convert, column: list[Any]) -> list[Any]:
    """Convert values of which many are equal: what is appended together has one time."""
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
    """Return the columns of the key, without the owner's, and the other ones."""
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
